"""Export of the trained weights of a run alone: an adapter of the weights that it started from."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from torch import Tensor

from t2t_torch.decode.loading import BEST, LATEST, find_checkpoint
from t2t_torch.errors import ExportError
from t2t_torch.export.exporter import WeightsExporter
from t2t_torch.export.folder import run_of
from t2t_torch.export.settings import ExportSettings
from t2t_torch.files import read_json
from t2t_torch.layers.lora import add_adapters
from t2t_torch.optim.parameter_groups import freeze
from t2t_torch.run.adapter import ADAPTER, BASE, write_adapter
from t2t_torch.run.checkpoint import Checkpoint
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.directory import RunDirectory
from t2t_torch.run.tensors import model_tensors, read_tensors
from t2t_torch.runtime.signature import ADAPTER as FORM
from t2t_torch.runtime.signature import Signature
from t2t_torch.text.pretrained import PretrainedFolder

_READ_ME = """# Adapter of {signature.model} of {signature.problem}

`t2t-exporter --format=adapter` wrote this folder, of {signature.checkpoint}: the {tensors} tensors
with {numbers:,} numbers that were trained. The other weights are those of

    {base}

t2t_torch loads both, as it loads a run, and refuses other weights than these:

```python
import t2t_torch

model = t2t_torch.load("{folder}")
```

If they are elsewhere, link them:  `ln -sfn RUN {folder}/{link}`
"""


class AdapterExporter(WeightsExporter):
    """Exports the trained weights, in a folder that is loadable like a run with its base."""

    form = FORM
    file = ADAPTER

    def __init__(self, settings: ExportSettings, scratch: Path) -> None:
        super().__init__(settings, scratch)
        self._checkpoint = self._chosen(scratch)
        started: Any = {}
        if (config := run_of(settings.run_dir) / "config.json").exists():
            started = read_json(config)
        self._patterns = started.get("warm_start_patterns") or ()
        base = started.get("warm_start_from")
        pretrained = getattr(self.model.hparams, "pretrained", "")
        if not base and not pretrained:
            raise ExportError(
                f"an adapter needs the weights that it adapts, and '{settings.run_dir}' was "
                "started without --warm_start_from and without a pretrained model. Export all "
                "weights: --format=safetensors"
            )
        self._base = Path(base) if base else PretrainedFolder(pretrained).path
        if not self._base.exists():
            raise ExportError(
                f"'{settings.run_dir}' was started from {self._base}, which is missing. Put it "
                "back, or export all weights: --format=safetensors"
            )

    def _chosen(self, scratch: Path) -> Checkpoint:
        """Returns the checkpoint that was loaded."""
        step, chosen = self.loaded.info.step, self.settings.chosen_checkpoint or LATEST
        averaged = scratch / "run" / "0"
        if (averaged / f"ckpt-{step}").is_dir():
            return CheckpointDirectory(averaged).at(step)
        by_step = chosen in (BEST, LATEST) or chosen.isdecimal()
        run = RunDirectory(run_of(self.settings.run_dir))
        return find_checkpoint(run, step if by_step else chosen)

    def write(self, folder: Path) -> Signature:
        """See `Exporter.write`; reads no data.

        Raises:
          ExportError: the run has no frozen weights, or is of several problems.
        """
        adapted = copy.deepcopy(self.model)
        hparams: Any = adapted.hparams
        add_adapters(adapted, hparams)
        freeze(adapted, hparams)
        stored: dict[str, Tensor] = read_tensors(self._checkpoint.weights)
        if (average := self._checkpoint.average) is not None:
            stored |= read_tensors(average)
        names = model_tensors(adapted).keys()
        if stored.keys() != names:
            raise ExportError(
                f"{self._checkpoint.path} has weights of several problems, and an adapter is of "
                "one. Export all weights: --format=safetensors"
            )
        still = {name for name, part in adapted.named_parameters() if not part.requires_grad}
        if not still:
            raise ExportError(
                f"all weights of '{self.settings.run_dir}' were trained. An adapter is of a run "
                "with lora_rank or freeze; export all weights: --format=safetensors"
            )
        self._tensors = {name: tensor for name, tensor in stored.items() if name not in still}
        frozen = {name: stored[name] for name in still}
        write_adapter(folder, self._tensors, frozen, base=self._base, patterns=self._patterns)
        self.copy_settings(folder)
        return self.signature()

    def readme(self, signature: Signature) -> str:
        """See `Exporter.readme`."""
        return _READ_ME.format(
            signature=signature,
            folder=self.settings.folder.name,
            tensors=len(self._tensors),
            numbers=sum(tensor.numel() for tensor in self._tensors.values()),
            base=self._base.absolute(),
            link=BASE,
        )
