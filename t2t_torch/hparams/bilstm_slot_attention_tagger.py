"""Hyperparameters of the BiLSTM tagger with slot attention."""

from __future__ import annotations

from typing import Literal

from t2t_torch.hparam import hp
from t2t_torch.hparams.bilstm_tagger import (
    BilstmTaggerHParams,
    bilstm_tagger_base,
    bilstm_tagger_tiny,
)
from t2t_torch.registry import register_hparams


class BilstmSlotAttentionTaggerHParams(BilstmTaggerHParams):
    """Slot attention: attention of each word to the words of its sentence."""

    slot_attention: Literal["concat", "multiply", "dot"] = hp(
        "concat",
        "How well word j answers word i.  concat: v.tanh(W [h_i; h_j]); multiply: h_i W h_j; dot: "
        "h_i.h_j.",
    )
    attention_size: int = hp(64, "Units of the score concat.", low=1)


@register_hparams
def bilstm_slot_attention_tagger_base() -> BilstmSlotAttentionTaggerHParams:
    """The BiLSTM tagger's base set with PyText's slot attention of 64 units.

    Aly et al. 2018, arXiv:1812.08729; PyText's models/representations/slot_attention.py.
    """
    return BilstmSlotAttentionTaggerHParams.starting_from(bilstm_tagger_base())


@register_hparams
def bilstm_slot_attention_tagger_tiny() -> BilstmSlotAttentionTaggerHParams:
    """32 units per direction, for tests and quick trials."""
    tiny = BilstmSlotAttentionTaggerHParams.starting_from(bilstm_tagger_tiny())
    return tiny.replace(attention_size=16)
