"""Which suggester a search has."""

from __future__ import annotations

from t2t_torch.tune.search_plan import SearchPlan
from t2t_torch.tune.space import Space
from t2t_torch.tune.suggestions import Drawn, OfGrid, Suggester
from t2t_torch.tune.tree_parzen import TreeParzen


def suggester_of(plan: SearchPlan, space: Space) -> Suggester:
    """Returns what makes a plan's suggestions."""
    if plan.searcher == "grid":
        return OfGrid(space, has_default=plan.default is not None)
    if plan.searcher == "tpe":
        return TreeParzen(plan, space)
    return Drawn(space, plan.seed)
