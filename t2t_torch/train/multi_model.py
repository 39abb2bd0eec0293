"""The models of several problems as one network: each batch goes through that of its problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from t2t_torch.errors import HParamsError
from t2t_torch.families.multi import member, split_member
from t2t_torch.model import Output
from t2t_torch.train.sharing import share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from t2t_torch.hparam import HParams
    from t2t_torch.model import T2TModel


class MultiModel(nn.Module):
    """A model of each problem, with parts in common.

    In TRAIN the losses of a problem are multiplied by its weight.

    Attributes:
      problems: the model of each.
      parts: which weights are shared by whom.

    Args:
      models: by the problem's full name, of one class and with the same hyperparameters.
      shared: patterns of what they share; see `sharing.share`.
      weights: what the losses of each problem are multiplied by.
    """

    has_unused = True
    """A batch of one problem leaves the weights of others without a gradient."""

    def __init__(
        self,
        models: Mapping[str, T2TModel],
        *,
        shared: Sequence[str] = (),
        weights: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__()
        self.parts = share(models, shared)
        self.problems = nn.ModuleDict(models)
        self._weights = dict(weights or {})

    def forward(self, batch: dict[str, Tensor]) -> Output:
        """One pass of one problem's model.

        Args:
          batch: of one problem, each feature named "<problem>/<feature>".

        Returns:
          its logits and losses, named in the same way.
        """
        problem = split_member(next(iter(batch)))[0]
        output = self.problems[problem](own_batch(batch))
        weight = self._weights.get(problem, 1.0)
        losses = dict(output.losses)
        if self.training and weight != 1.0:
            losses = {name: loss._replace(sum=loss.sum * weight) for name, loss in losses.items()}
        return Output(
            {member(problem, name): logits for name, logits in output.logits.items()},
            {member(problem, name): loss for name, loss in losses.items()},
        )

    def at_step(self, step: int) -> None:
        """Tells each model how many steps are done."""
        for model in self.problems.values():
            own: Any = model
            own.at_step(step)

    def after_step(self) -> None:
        """Lets each model make hold what must hold of its weights."""
        for model in self.problems.values():
            own: Any = model
            own.after_step()


def multi_model(
    models: Mapping[str, T2TModel], hparams: HParams, weights: Mapping[str, float] | None = None
) -> MultiModel:
    """Returns models of several problems as one, sharing what hparams say.

    Where some of them count positions and some examples, all count examples in TRAIN.
    """
    targets = [list(model.features.targets.values()) for model in models.values()]
    by_position = {len(own) == 1 and own[0].is_sequence for own in targets}
    if len(by_position) > 1:
        for model in models.values():
            model.count_examples()
    return MultiModel(models, shared=hparams.multiproblem_shared, weights=weights)


def own_batch(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns a batch of one problem with the names that its own model knows."""
    return {split_member(name)[1]: tensor for name, tensor in batch.items()}


def problem_weights(text: str, problems: Sequence[str]) -> dict[str, float]:
    """Reads `multiproblem_weights`: "[name:0.5,other:2]".

    Raises:
      HParamsError: a name is none of the problems', or a weight no number from 0 on; or all are 0.
    """
    found = dict.fromkeys(problems, 1.0)
    pieces = text.strip().removeprefix("[").removesuffix("]")
    for piece in filter(None, (one.strip() for one in pieces.split(","))):
        name, _, written = piece.rpartition(":")
        try:
            weight = float(written)
        except ValueError:
            weight = -1.0
        if name not in found or not 0 <= weight < float("inf"):
            raise HParamsError(
                f"multiproblem_weights={text}: {piece!r} should be one of {', '.join(problems)}, a "
                "colon and a number from 0 on."
            )
        found[name] = weight
    if not any(found.values()):
        raise HParamsError(f"multiproblem_weights={text} leaves nothing to train. Weigh one by 1.")
    return found
