"""bAbI with 10,000 training questions per task; source and licence are in `babi_qa.py`."""

from __future__ import annotations

from t2t_torch.problems.babi_qa import BabiQaConcat
from t2t_torch.registry import register_problem


class _BabiQaConcat10k(BabiQaConcat):
    """Base class of the problems in this file."""

    folder = "en-valid-10k"


@register_problem
class BabiQaConcatAllTasks_10k(_BabiQaConcat10k):
    """All tasks."""

    tasks = tuple(range(1, 21))


@register_problem
class BabiQaConcatTask1_10k(_BabiQaConcat10k):
    """Task 1: single supporting fact."""

    tasks = (1,)


@register_problem
class BabiQaConcatTask2_10k(_BabiQaConcat10k):
    """Task 2: two supporting facts."""

    tasks = (2,)


@register_problem
class BabiQaConcatTask3_10k(_BabiQaConcat10k):
    """Task 3: three supporting facts."""

    tasks = (3,)


@register_problem
class BabiQaConcatTask4_10k(_BabiQaConcat10k):
    """Task 4: relations of two arguments."""

    tasks = (4,)


@register_problem
class BabiQaConcatTask5_10k(_BabiQaConcat10k):
    """Task 6: yes/no questions."""

    tasks = (5,)


@register_problem
class BabiQaConcatTask6_10k(_BabiQaConcat10k):
    """Task 6: questions of yes and no."""

    tasks = (6,)


@register_problem
class BabiQaConcatTask7_10k(_BabiQaConcat10k):
    """Task 7: counting."""

    tasks = (7,)


@register_problem
class BabiQaConcatTask8_10k(_BabiQaConcat10k):
    """Task 8: lists and sets."""

    tasks = (8,)


@register_problem
class BabiQaConcatTask9_10k(_BabiQaConcat10k):
    """Task 9: simple negation."""

    tasks = (9,)


@register_problem
class BabiQaConcatTask10_10k(_BabiQaConcat10k):
    """Task 10: indefinite knowledge."""

    tasks = (10,)


@register_problem
class BabiQaConcatTask11_10k(_BabiQaConcat10k):
    """Task 11: basic coreference."""

    tasks = (11,)


@register_problem
class BabiQaConcatTask12_10k(_BabiQaConcat10k):
    """Task 12: conjunction."""

    tasks = (12,)


@register_problem
class BabiQaConcatTask13_10k(_BabiQaConcat10k):
    """Task 13: compound coreference."""

    tasks = (13,)


@register_problem
class BabiQaConcatTask14_10k(_BabiQaConcat10k):
    """Task 14: reasoning about time."""

    tasks = (14,)


@register_problem
class BabiQaConcatTask15_10k(_BabiQaConcat10k):
    """Task 15: basic deduction."""

    tasks = (15,)


@register_problem
class BabiQaConcatTask16_10k(_BabiQaConcat10k):
    """Task 16: basic induction."""

    tasks = (16,)


@register_problem
class BabiQaConcatTask17_10k(_BabiQaConcat10k):
    """Task 17: reasoning about positions."""

    tasks = (17,)


@register_problem
class BabiQaConcatTask18_10k(_BabiQaConcat10k):
    """Task 18: reasoning about sizes."""

    tasks = (18,)


@register_problem
class BabiQaConcatTask19_10k(_BabiQaConcat10k):
    """Task 19: path finding."""

    tasks = (19,)


@register_problem
class BabiQaConcatTask20_10k(_BabiQaConcat10k):
    """Task 20: agents' motivations."""

    tasks = (20,)
