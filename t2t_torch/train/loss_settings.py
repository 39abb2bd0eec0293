"""Which settings of the loss are read, and the refusal of those that are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from t2t_torch import registry
from t2t_torch.errors import HParamsError
from t2t_torch.features import Tags
from t2t_torch.loss_hparam import ScheduledSamplingHParams, TagHParams
from t2t_torch.modalities.build import objectives
from t2t_torch.modality import modality_of

if TYPE_CHECKING:
    from t2t_torch.features import Features
    from t2t_torch.hparam import HParams

_OFF = {"label_smoothing": 0.0}  # where that is no default: there is nothing to be read
_OF_A_LOSS = ("label_smoothing", "focal_gamma", "focal_alpha", "loss_margin")


def check_loss_settings(hparams: HParams, features: Features) -> None:
    """Refuses losses that do not fit, and what a user has set that no chosen loss reads.

    What a named set says is left alone, and so is a default, by whomever it is said.

    Args:
      hparams: that know who set each field.
      features: whose targets have losses.

    Raises:
      HParamsError: for each setting, what would read it.
    """
    chosen = objectives(hparams, features)
    reads = [
        modality_of(name, features.targets[name], hparams).loss_reads if o is None else o.loss.reads
        for name, o in chosen.items()
    ]
    read = {name: [its is None or name in its for its in reads] for name in _OF_A_LOSS}
    unread = {
        name: f"a loss that reads it; {_losses(hparams)}" for name in read if not any(read[name])
    }
    if not any(isinstance(target, Tags) for target in features.targets.values()):
        unread |= dict.fromkeys(TagHParams.model_fields, "a target of tags")
    if not hparams.distill_from:
        unread |= dict.fromkeys(("distill_weight", "distill_temperature"), "distill_from")
    if not hparams.scheduled_sampling_prob:
        others = set(ScheduledSamplingHParams.model_fields) - {"scheduled_sampling_prob"}
        unread |= dict.fromkeys(sorted(others), "scheduled_sampling_prob")
    nobodys = {"default", "code", "hparams.json", *registry.list_names("hparams")}
    faults = [
        f"{name}={getattr(hparams, name)} is read by nothing: it needs {needed}. Leave it out."
        for name, needed in unread.items()
        if hparams.provenance[name] not in nobodys
        and getattr(hparams, name) not in (type(hparams).model_fields[name].default, _OFF.get(name))
    ]
    if faults:
        raise HParamsError("\n".join(faults))


def _losses(hparams: HParams) -> str:
    return f"loss={hparams.loss}" if hparams.loss else "here the targets' own losses are chosen"
