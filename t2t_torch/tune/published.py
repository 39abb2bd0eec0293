"""The study of a search's name, for optuna's own tools: its dashboard, its importances."""

from __future__ import annotations

import contextlib

from t2t_torch.tune.ledger import Ledger
from t2t_torch.tune.optuna_extra import optuna_module
from t2t_torch.tune.searcher import Searcher
from t2t_torch.tune.tree_parzen import axes_of


def publish(ledger: Ledger, searcher: Searcher) -> None:
    """Adds finished trials to the study of the search's name, where optuna's tools look.

    What is there already, from whichever tuner, is not added again.  Nothing is read back: if the
    study is lost, or two tuners add at the same moment, no decision is another one.

    Args:
      ledger: of the search.
      searcher: its state.
    """
    plan, space = searcher.plan, searcher.space
    optuna = optuna_module()
    state = optuna.trial.TrialState
    states = {"completed": state.COMPLETE, "stopped": state.PRUNED}
    with contextlib.suppress(optuna.exceptions.StorageInternalError):
        study = optuna.create_study(
            storage=ledger.storage,
            study_name=ledger.name,
            direction="minimize" if plan.lower_is_better else "maximize",
            load_if_exists=True,
        )
        known = {trial.user_attrs.get("number") for trial in study.get_trials(deepcopy=False)}
        for trial in searcher.trials:
            if trial.number in known or not trial.is_over:
                continue
            axes = axes_of(space, trial.hparams)
            curve = {step: value for step, value in trial.curve if value is not None}
            status = states.get(trial.status, state.FAIL)
            if trial.value is None:
                status = state.FAIL
            made = optuna.trial.create_trial(
                state=status,
                value=trial.value if status == state.COMPLETE else None,
                params={axis: value for axis, (value, _) in axes.items()},
                distributions={axis: drawn_from for axis, (_, drawn_from) in axes.items()},
                intermediate_values=curve,
                user_attrs={"number": trial.number, "hparams": dict(trial.hparams)},
            )
            study.add_trial(made)
