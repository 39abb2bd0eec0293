"""Universal Transformer: encoder and decoder are recurrent in depth.

Dehghani et al. 2019, "Universal Transformers", arXiv:1807.03819, in tensor2tensor's form.  Unlike
there, positions that halt together (`act_type=global`) are those of the example without padding, in
the decoder those up to the current one.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from t2t_torch.errors import HParamsError
from t2t_torch.features import Features
from t2t_torch.hparams.universal_transformer import (
    UniversalTransformerEncoderHParams,
    UniversalTransformerHParams,
)
from t2t_torch.layers.attention import KeyValueCache
from t2t_torch.layers.depth_recurrence import (
    PACKED,
    DepthRecurrence,
    run_encoder,
    without_feed_forward,
)
from t2t_torch.layers.transformer_layer import Joined
from t2t_torch.model import ModelInput
from t2t_torch.models.transformer import Transformer, TransformerState
from t2t_torch.models.transformer_encoder import TransformerEncoder
from t2t_torch.registry import register_model


@dataclasses.dataclass
class UniversalTransformerState(TransformerState):
    """Decoding state of R rows.  The caches are those of all layers of step 0, then of step 1 ...

    Attributes:
      halting: sum of the halting probabilities of each step, if positions halt together; [R, steps]
        or [R, 0].
    """

    halting: Tensor = dataclasses.field(default_factory=lambda: torch.zeros(0, 0))


def _of_block(hparams: Any, **layers: int) -> Any:
    """Returns the hyperparameters of the block; each step may add the signal of the positions."""
    adds_positions = hparams.add_position_timing_signal and hparams.pos == "timing"
    return hparams.replace(**layers, **({"pos": "none"} if adds_positions else {}))


@register_model
class UniversalTransformer(Transformer):
    """Encoder and decoder of one block of layers each, applied several times."""

    HParams = UniversalTransformerHParams
    hparams: UniversalTransformerHParams
    prepends = False

    def __init__(self, hparams: UniversalTransformerHParams, features: Features) -> None:
        hparams.refuse(
            ("num_encoder_layers", "num_decoder_layers"),
            ": encoder and decoder are one block, applied num_rec_steps times. Set it to 0; "
            "num_inrecurrence_layers is the depth of the block.",
        )
        layers = hparams.num_inrecurrence_layers
        block = _of_block(hparams, num_encoder_layers=layers, num_decoder_layers=layers)
        super().__init__(block, features)
        self.hparams = hparams
        if self.has_encoder:
            self.encoder_recurrence = DepthRecurrence(hparams)
            without_feed_forward(self.encoder, hparams)
        self.decoder_recurrence = DepthRecurrence(hparams)
        without_feed_forward(self.decoder, hparams)

    def _run_encoder(self, x: Tensor, mask: Tensor, joined: Joined) -> Tensor:
        """Runs all steps of the encoder.  [B, S, H]."""
        return run_encoder(self.encoder_recurrence, self.encoder, x, mask, joined)

    def _run_decoder(
        self,
        x: Tensor,
        targets: ModelInput,
        mask: Tensor | None,
        memory: Tensor | None,
        memory_mask: Tensor | None,
    ) -> Tensor:
        """Runs all steps of the decoder.  [B, T, H]."""
        if self.decoder_recurrence.halts_together and targets.segments is not None:
            raise HParamsError(PACKED)

        def block(state: Tensor, step: int) -> Tensor:
            for layer in self.decoder:
                state = layer(state, mask, memory, memory_mask)
            return state

        def shared(p: Tensor, step: int) -> Tensor:
            return p.cumsum(1) / torch.arange(1, p.size(1) + 1, device=p.device)

        return self.decoder_recurrence(x, block, targets.mask, targets.positions, shared)

    def _caches(self, rows: int) -> list[KeyValueCache]:
        of_step = super()._caches
        return [cache for _ in range(self.decoder_recurrence.steps) for cache in of_step(rows)]

    def encode(self, batch: dict[str, Tensor]) -> UniversalTransformerState:
        """Returns the state before the first step; see `T2TModel.encode`."""
        state = super().encode(batch)
        steps = self.decoder_recurrence.steps if self.decoder_recurrence.halts_together else 0
        halting = torch.zeros(state.caches[0].rows, steps, device=state.caches[0].keys.device)
        parts = {one.name: getattr(state, one.name) for one in dataclasses.fields(state)}
        return UniversalTransformerState(**parts, halting=halting)

    def _run_step(self, x: Tensor, state: TransformerState, seen: list[Tensor] | None) -> Tensor:
        """Runs all steps of the decoder for one position; see `Transformer._run_step`."""
        assert isinstance(state, UniversalTransformerState)
        layers, position = len(self.decoder), state.position.clone()
        halting = list(state.halting.unbind(1))

        def block(x: Tensor, step: int) -> Tensor:
            is_last = step == self.decoder_recurrence.steps - 1
            for i, layer in enumerate(self.decoder):
                cache = state.caches[step * layers + i]
                memory = state.memories[i] if state.memories else None
                watch = seen if is_last and i == layers - 1 else None
                x = layer.step(x, cache, memory, state.memory_mask, None, watch)
            return x

        def shared(p: Tensor, step: int) -> Tensor:
            halting[step] = halting[step] + p[:, 0]
            return (halting[step] / (position + 1))[:, None]

        out = self.decoder_recurrence(x, block, None, position, shared)
        if halting:
            state.halting = torch.stack(halting, 1)
        return out


@register_model
class UniversalTransformerEncoder(TransformerEncoder):
    """`transformer_encoder` with one block of layers, applied several times."""

    HParams = UniversalTransformerEncoderHParams
    hparams: UniversalTransformerEncoderHParams

    def __init__(self, hparams: UniversalTransformerEncoderHParams, features: Features) -> None:
        layers = hparams.num_inrecurrence_layers
        block = _of_block(hparams, num_hidden_layers=layers, num_encoder_layers=0)
        super().__init__(block, features)
        self.hparams = hparams
        self.encoder_recurrence = DepthRecurrence(hparams)
        without_feed_forward(self.encoder, hparams)

    def _run_encoder(self, x: Tensor, mask: Tensor, joined: Joined) -> Tensor:
        """Runs all steps.  [B, S, H]."""
        return run_encoder(self.encoder_recurrence, self.encoder, x, mask, joined)
