"""ATIS as two jointly trained problems: the intent of a request, and its slots.

Joint document classification and word tagging of figure 3 of Aly et al. 2018, "PyText: A
Seamless Path from NLP research to Production", arXiv:1812.08729.  Data, source and licence: see
`problems/intent_slot_atis.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from t2t_torch.problem_types.multi import MultiProblem
from t2t_torch.registry import register_problem


@register_problem("multi_intent_slot_atis")
class MultiIntentSlotAtis(MultiProblem):
    """Request classification and word tagging in turn, with the summed metric for selection."""

    problem_names = ("intent_atis", "slots_atis")
    suggested_flags = (
        "--model=joint_bilstm --hparams_set=joint_bilstm_multi_atis --train_steps=3400"
    )
    selected: ClassVar[Mapping[str, str]] = {
        "intent_atis": "targets/accuracy",
        "slots_atis": "targets/span_f1",
    }
