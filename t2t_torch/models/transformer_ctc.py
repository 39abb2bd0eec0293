"""Transformer for speech with connectionist temporal classification, alone or beside a decoder.

Joint training of both as in Watanabe et al. 2017, "Hybrid CTC/Attention Architecture for End-to-End
Speech Recognition", without CTC in the search of the decoder.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from t2t_torch.features import Audio, Features
from t2t_torch.hparams.transformer_ctc import TransformerCtcHParams
from t2t_torch.layers.initialization import initialize
from t2t_torch.layers.pooling import attend_to
from t2t_torch.layers.tokens import take_penalties
from t2t_torch.loss import Loss
from t2t_torch.modalities.speech import CtcModality
from t2t_torch.model import Hidden, ModelInputs
from t2t_torch.models.transformer import Transformer
from t2t_torch.registry import register_model

_OF_A_DECODER = (
    "label_smoothing confidence_penalty r_drop_alpha r3f_weight scheduled_sampling_prob".split()
)
"""Hyperparameters of the loss that CTC alone does not read."""


@dataclass(frozen=True)
class _WithFrames(Hidden):
    """Hidden states of the decoder, and those of the frames that CTC reads."""

    frames: Hidden | None = None


@register_model
class TransformerCtc(Transformer):
    """Transformer encoder of speech with a CTC output; with `ctc_weight` below 1 also a decoder."""

    HParams = TransformerCtcHParams
    reads = (Audio,)
    needs_inputs = True
    reads_packed = False
    hparams: TransformerCtcHParams

    def __init__(self, hparams: TransformerCtcHParams, features: Features) -> None:
        super().__init__(hparams, features)
        (target,) = features.targets.values()
        ctc = CtcModality(target.vocab_size, hparams)
        initialize(ctc, hparams)
        self.is_alone = hparams.ctc_weight == 1.0
        self.searches = not self.is_alone
        if self.is_alone:
            hparams.refuse(
                _OF_A_DECODER,
                " is for the ids that a decoder writes, and ctc_weight=1 has none. Set it to 0, or "
                "a smaller ctc_weight.",
            )
            self.modalities["targets"] = ctc
            del self.decoder, self.positions, self.decoder_output
        else:
            self.ctc = ctc

    def for_graph(self) -> TransformerCtc:
        """Returns a model of the same encoder and CTC output, without the decoder."""
        if self.is_alone:
            return self
        unread = dict.fromkeys(_OF_A_DECODER, 0.0)
        alone = TransformerCtc(self.hparams.replace(ctc_weight=1.0, **unread), self.features)
        own, prefix = self.state_dict(), "modalities.targets."
        weights = {
            name: own[f"ctc.{name.removeprefix(prefix)}" if name.startswith(prefix) else name]
            for name in alone.state_dict()
        }
        alone.load_state_dict(weights)
        return alone.train(self.training)

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the states of frames, or of the targets; see `T2TModel.body`."""
        memory, mask = self._encode(features)
        if self.is_alone:
            return {"targets": Hidden(memory, mask, take_penalties(self))}
        hidden = self._decode(features["targets"], None, memory, attend_to(mask))
        frames = Hidden(memory, mask)
        return {"targets": _WithFrames(hidden, penalty=take_penalties(self), frames=frames)}

    def loss(self, hidden: Hidden, target: str, batch: dict[str, Tensor]) -> Loss:
        """Returns the loss; see `T2TModel.loss`.  That of CTC counts per id of the decoder."""
        loss = super().loss(hidden, target, batch)
        frames = getattr(hidden, "frames", None)
        if frames is None:
            return loss
        share = self.hparams.ctc_weight
        weights = self.example_weights(target, batch)
        ctc = self.ctc.loss(self.ctc.logits(frames), batch[target], weights)
        return loss._replace(sum=(1.0 - share) * loss.sum + share * ctc.sum)
