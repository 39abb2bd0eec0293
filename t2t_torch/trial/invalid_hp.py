"""How a trial says that its hyperparameters are impossible."""

from __future__ import annotations

from t2t_torch.errors import T2TError


class InvalidHP(T2TError):
    """This choice of hyperparameters cannot be trained; a search tries another in its place."""
