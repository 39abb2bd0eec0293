// Search in files that are opened without a server: browsers start no workers for file:// pages.
// The script of the worker runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const home = new URL(url, document.baseURI)
      this.waiting = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.appendChild(this.frame)
      const inside = this.frame.contentWindow
      const load = address => new Promise((done, failed) => {
        const script = inside.document.createElement("script")
        Object.assign(script, {src: new URL(address, home).href, onload: done, onerror: failed})
        inside.document.body.appendChild(script)
      })
      inside.importScripts = (...addresses) =>
        addresses.reduce((before, next) => before.then(() => load(next)), Promise.resolve())
      inside.postMessage = data => {
        const event = new MessageEvent("message", {data})
        this.dispatchEvent(event)
        if (this.onmessage) this.onmessage(event)
      }
      load(home).then(() => {
        this.ready = true
        this.waiting.splice(0).forEach(data => this.postMessage(data))
      })
    }
    postMessage(data) {
      if (!this.ready) return void this.waiting.push(data)
      const inside = this.frame.contentWindow
      inside.dispatchEvent(new inside.MessageEvent("message", {data}))
    }
    terminate() { this.frame.remove() }
  }
}
