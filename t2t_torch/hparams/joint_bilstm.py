"""Hyperparameters of the joint BiLSTM."""

from __future__ import annotations

from typing import Literal

from t2t_torch.hparam import hp
from t2t_torch.hparams.bilstm_tagger import (
    BilstmTaggerHParams,
    bilstm_tagger_base,
    bilstm_tagger_tiny,
)
from t2t_torch.registry import register_hparams


class JointBilstmHParams(BilstmTaggerHParams):
    """Joint BiLSTM: pooling for the sentence, and attention for words."""

    pooling: Literal["attention", "mean", "max", "last"] = hp(
        "attention", "How the states of a sentence become one vector."
    )
    slot_attention: Literal["none", "concat", "multiply", "dot"] = hp(
        "concat",
        "How well word j answers word i.  concat: v.tanh(W [h_i; h_j]); multiply: h_i W h_j; dot: "
        "h_i.h_j; none: a word looks at no others.",
    )
    attention_size: int = hp(64, "Units of attention pooling and of the score concat.", low=1)
    use_doc_probs_in_word: bool = hp(
        False, "Words are given the probabilities of the sentence's classes."
    )


@register_hparams
def joint_bilstm_base() -> JointBilstmHParams:
    """One shared layer of 100 per direction, attention of 64 units, a CRF; dropout 0.4.

    Aly et al. 2018, arXiv:1812.08729, figure 3; attention size and dropout are PyText's.
    """
    base = JointBilstmHParams.starting_from(bilstm_tagger_base())
    return base.replace(layer_prepostprocess_dropout=0.4)


@register_hparams
def joint_bilstm_tiny() -> JointBilstmHParams:
    """32 units per direction, for tests and quick trials."""
    return JointBilstmHParams.starting_from(bilstm_tagger_tiny()).replace(attention_size=16)


@register_hparams
def joint_bilstm_atis() -> JointBilstmHParams:
    """For intent_slot_atis, 1,700 steps (30 epochs): `joint_bilstm_small`, tuned on EVAL."""
    return joint_bilstm_small()


@register_hparams
def joint_bilstm_small() -> JointBilstmHParams:
    """Vectors of 128 and layers of 128 for thousands of utterances, from scratch.

    One word vector in twenty is dropped, which makes the model rely on characters and context.
    """
    return joint_bilstm_base().replace(
        hidden_size=128, embedding_size=128, symbol_dropout=0.05, learning_rate_constant=0.003
    )


@register_hparams
def joint_bilstm_multi_atis() -> JointBilstmHParams:
    """Intents and slots as two problems: for multi_intent_slot_atis.

    Aly et al. 2018, arXiv:1812.08729, figure 3: word vectors and LSTM are shared; pooling belongs
    to the classifier, attention to the tagger.  Otherwise as joint_bilstm_atis; each step trains
    one problem, so 3,400 steps are 30 epochs.
    """
    return joint_bilstm_atis()


@register_hparams
def joint_bilstm_pytext() -> JointBilstmHParams:
    """Two layers of 366 per direction: the size of PyText's joint model for ATIS.

    demo/atis_joint_model/atis_joint_config.json of PyText 0.1.0: vectors of 100 (here plus
    characters and shape), attention pooling of 128 units, a CRF and no slot attention, dropout
    0.5.  The model of the latency comparison in docs/reference/benchmarks.md.
    """
    return joint_bilstm_base().replace(
        num_hidden_layers=2,
        hidden_size=366,
        attention_size=128,
        slot_attention="none",
        layer_prepostprocess_dropout=0.5,
        learning_rate_constant=0.001,
    )
