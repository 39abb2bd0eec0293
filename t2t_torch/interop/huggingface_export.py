"""Export of a fine-tuned pretrained model as a folder that transformers loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from t2t_torch.errors import ExportError
from t2t_torch.export.exporter import RunExporter, VerificationReport, check_same
from t2t_torch.export.settings import ExportSettings
from t2t_torch.features.feature import select_texts
from t2t_torch.layers.pretrained import PretrainedNetwork
from t2t_torch.runtime.signature import HUGGINGFACE, Signature
from t2t_torch.text.pretrained import PretrainedFolder


class HuggingFaceReport(VerificationReport):
    """Report of an export for transformers.

    Args:
      network: what was exported.
      heads: layers that the folder does not have.
    """

    def __init__(self, network: PretrainedNetwork, heads: list[str]) -> None:
        self._name, self._heads = type(network.inner).__name__, heads

    def lines(self, signature: Signature) -> list[str]:
        """See `VerificationReport.lines`."""
        lines = [
            f"  verified  {self._name}.from_pretrained: the same weights to the bit, and tokens"
        ]
        if self._heads:
            lines.append(f"  without   {', '.join(self._heads)}: layers of this library")
        return lines


class HuggingFaceExporter(RunExporter):
    """Writes the network of a pretrained model and its tokenizer, without layers on top of it.

    Raises:
      ExportError: the run's model is no pretrained one.
    """

    form = HUGGINGFACE
    packages = ("t2t_torch", "torch", "transformers")
    reads_data = False

    def __init__(self, settings: ExportSettings, scratch: Path) -> None:
        super().__init__(settings, scratch)
        model: Any = self.loaded.model
        network = getattr(model, "network", None)
        if not isinstance(network, PretrainedNetwork):
            raise ExportError(
                "--format=huggingface: transformers has no model that computes what "
                f"{model.name!r} does. Export a graph, which needs no library: leave --format out."
            )
        self._network = network
        inside = {id(weight) for weight in network.parameters()}
        own = [name for name, weight in model.named_parameters() if id(weight) not in inside]
        self._heads = sorted({name.rpartition(".")[0] for name in own})
        texts: Any = select_texts(self.loaded.features.all)
        self._pieces = next(iter(texts.values())).encoder.pieces  # as the network has checked

    def write(self, folder: Path) -> Signature:
        """See `Exporter.write`."""
        inner: Any = self._network.inner
        inner.save_pretrained(folder)
        tokenizer = json.dumps(self._pieces.config, ensure_ascii=False)
        (folder / "tokenizer.json").write_text(tokenizer)
        named = dict(self._network.architecture.tokenizer)
        (folder / "tokenizer_config.json").write_text(json.dumps(named, indent=2))
        return self.signature()

    def verify(self, folder: Path) -> HuggingFaceReport:
        """See `Exporter.verify`."""
        written = PretrainedFolder(str(folder))
        again = PretrainedNetwork(written.architecture(), self._network.kind)
        again.load(written)
        check_same(self._network.inner.state_dict(), again.inner.state_dict(), "the folder")
        if list(again.architecture.order) != self._network.order.tolist():
            raise ExportError("the tokenizer of the folder numbers its tokens otherwise.")
        ids = torch.arange(2, min(18, len(again.order)))[None]
        mask = torch.ones_like(ids, dtype=torch.bool)
        with torch.inference_mode():
            outputs = [one.eval().output(ids, mask) for one in (self._network, again)]
        if not torch.equal(*outputs):
            raise ExportError("what transformers loads from the folder computes something else.")
        return HuggingFaceReport(self._network, self._heads)
