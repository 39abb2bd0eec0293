"""Transformer language model: a decoder with causal attention, without an encoder.

Liu et al. 2018, arXiv:1801.10198; Radford et al. 2018, "Improving Language Understanding by
Generative Pre-Training".
"""

from __future__ import annotations

import torch

from t2t_torch.hparams.transformer_lm import TransformerLmHParams
from t2t_torch.layers.pooling import causal, same_segment, shift_right
from t2t_torch.model import Hidden, ModelInputs
from t2t_torch.models.transformer import Transformer
from t2t_torch.registry import register_model


@register_model
class TransformerLm(Transformer):
    """The decoder of `transformer` as a language model, with the same names of weights.

    It keeps no state across batches.  In streams, each block is read as a separate text that starts
    with the preceding token; block boundaries differ between epochs.
    """

    HParams = TransformerLmHParams
    texts = (0, 0)
    reads = ()
    reads_streams = True
    hparams: TransformerLmHParams

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns `{"targets": [B, T, H]}`; see `T2TModel.body`."""
        targets, segments = features["targets"].embedded, features["targets"].segments
        mask = None
        if segments is not None:
            mask = same_segment(segments, segments) & causal(segments.size(1), segments.device)
        x = shift_right(targets, self._start, features["targets"].positions)
        before = features["targets"].before
        if before is not None:
            first = self.embed("targets", before[:, None])
            x = torch.cat([first, targets[:, :-1]], 1)
        x = self.dropout(self.positions(x, features["targets"].positions))
        for layer in self.decoder:
            x = layer(x, mask, None, None)
        return {"targets": Hidden(self.decoder_output(x))}
