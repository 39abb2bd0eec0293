"""Contract: what watches a run without being part of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t2t_torch.mode import Split
    from t2t_torch.train.estimator import Estimator


class Hook:
    """Is called at the joints of a run; every method does nothing unless a subclass says so.

    A registered hook is made without arguments and chosen by name, also one of your own:

        @register_hook
        class PrintLoss(Hook):
            def after_step(self, estimator): ...

        t2t-trainer --hooks=print_loss --t2t_usr_dir=...

    All processes call each hook equally often, so that a hook may talk to the others; only
    `estimator.world.leads` should write.  A hook sees `estimator.model`, `.state`, `.task`,
    `.config`, `.world`, `.run` (the `Learner`) and writes with `estimator.summary`.
    """

    def begin(self, estimator: Estimator) -> None:
        """Training is about to begin or to go on; `estimator.run` is there."""

    def before_update(self, estimator: Estimator) -> None:
        """The gradients of a step are finished and the weights not moved yet."""

    def after_step(self, estimator: Estimator) -> None:
        """`estimator.state.step` steps are done."""

    def before_evaluation(self, estimator: Estimator, split: Split) -> None:
        """The model is about to be called for each batch of a split, in its mode EVAL."""

    def after_evaluation(
        self, estimator: Estimator, split: Split, metrics: Mapping[str, float]
    ) -> None:
        """The weights, or their average, were evaluated on a split."""

    def end(self, estimator: Estimator) -> None:
        """The estimator is closed; not after an error that ended the run."""

    def state(self) -> dict[str, Any]:
        """Returns what a checkpoint remembers for it: what JSON can say."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes back what `state` returned when the checkpoint was saved."""
