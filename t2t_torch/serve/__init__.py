"""HTTP server for models, and latency measurement."""
