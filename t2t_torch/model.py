"""What a model is: a body between the bottoms and the tops of its features.

Letters of shapes, here and everywhere: B batch, S input length, T target length, H hidden, V
vocabulary, N heads, D = H / N, F filter, K hypotheses of a sentence, R = B * K rows of a decode.
"""

from __future__ import annotations

import abc
import math
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, final

from torch import Tensor, nn

from t2t_torch.errors import HParamsError
from t2t_torch.features import Feature, RowWeight, Text
from t2t_torch.hparam import HParams
from t2t_torch.modalities.build import build_modalities
from t2t_torch.modality import Loss

if TYPE_CHECKING:
    from t2t_torch.features import Features

__all__ = ["Loss", "Output", "State", "T2TModel"]


class Output(NamedTuple):
    """What one teacher-forced pass finds.

    Attributes:
      logits: for each target, [B, T, V] float32 of a text, [B, C] of classes ...; empty in TRAIN,
        where the loss is found without them.
      losses: for each target.
    """

    logits: dict[str, Tensor]
    losses: dict[str, Loss]


class State(Protocol):
    """What a decode remembers: R = B * K rows, the K hypotheses of a sentence side by side.

    A state is used once: `step` hands it on.
    """

    def expand(self, hypotheses: int) -> State:
        """Returns a state in which each row stands `hypotheses` times; once, before the first
        step.
        """

    def reorder(self, index: Tensor) -> State:
        """Returns a state whose row i is this one's row `index[i]`.  [R'] integers.

        Hypotheses may be dropped, doubled and reordered within their sentence, and whole sentences
        dropped; sentences keep their order.
        """


class T2TModel(nn.Module, abc.ABC):
    """A model: `__init__` and `body`, and, if it generates, `encode` and `step`.

    Attributes:
      name: its registered name.
      HParams: the class of hparams it needs.
      produces: the kinds of target that it can learn.
      reads_packed: whether `body` keeps packed examples apart, by `_segmentation` and `_position`.

    Args:
      hparams: of the class that `HParams` names.
      features: what the problem's data is.
      input_space_id: tensor2tensor's SpaceID of the inputs.
      target_space_id: tensor2tensor's SpaceID of the targets.

    Raises:
      HParamsError: the hparams are of another model, or it cannot learn a target.
    """

    name: ClassVar[str]
    HParams: ClassVar[type[HParams]] = HParams
    produces: ClassVar[tuple[type[Feature], ...]] = (Text,)
    reads_packed: ClassVar[bool] = False

    def __init__(
        self,
        hparams: HParams,
        features: Features,
        *,
        input_space_id: int = 0,
        target_space_id: int = 0,
    ) -> None:
        super().__init__()
        if not isinstance(hparams, self.HParams):
            raise HParamsError(
                f"model {self.name!r} needs {self.HParams.__name__}, but the set is of "
                f"{type(hparams).__name__}. List the sets:  t2t-trainer --registry_help"
            )
        for target, feature in features.targets.items():
            if not isinstance(feature, self.produces):
                raise HParamsError(
                    f"model {self.name!r} produces {_named(self.produces)}; {target!r} is a "
                    f"{type(feature).__name__}. Look for a model that does:  t2t-trainer "
                    "--registry_help"
                )
        self.hparams = hparams
        self.features = features
        self.input_space_id = input_space_id
        self.target_space_id = target_space_id
        self.modalities = build_modalities(hparams, features)

    @abc.abstractmethod
    def body(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the hidden states of each target.

        Args:
          features: each feature after its bottom, [B, S, H], with its `_mask`, [B, S] bool; targets
            that no model is given, notes and what else the batch holds (`_segmentation` and
            `_position` of packed examples) as they are.

        Returns:
          For each target what its modality's top takes: [B, T, H] for a text, [B, H] for a class,
          [B, W, H] for tags ...  With `<target>_mask`, [B, T] bool, logits are minus infinity where
          it is False.
        """

    @final
    def bottom(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns what `body` takes: embedded features and masks.  Ids [B, S] each."""
        features = dict(batch)
        for name, modality in self.modalities.items():
            if name in batch:  # whoever generates has no targets yet
                features[name] = modality.embed(name, batch)  # type: ignore[operator]
                features[f"{name}_mask"] = modality.mask(batch[name])  # type: ignore[operator]
        return features

    @final
    def forward(self, batch: dict[str, Tensor]) -> Output:
        """One teacher-forced pass; `self.training` decides dropout and label smoothing.

        Args:
          batch: each feature as the pipeline gives it; [B, S] int64 ids of a text, 0 where there is
            no data.
        """
        hidden = self.body(self.bottom(batch))
        logits: dict[str, Tensor] = {}
        losses: dict[str, Loss] = {}
        for name in self.features.targets:
            modality: Any = self.modalities[name]
            weights = self._weights(name, batch)
            if self.training and f"{name}_mask" not in hidden:
                losses[name] = modality.training_loss(hidden[name], batch[name], weights)
                continue
            found = self._top(name, hidden)
            losses[name] = modality.loss(found, batch[name], weights)
            if not self.training:
                logits[name] = found
        return Output(logits, losses)

    @final
    def logits(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the logits of each target, from the inputs alone; not of what generates.

        Args:
          batch: inputs and notes, as the pipeline gives them.
        """
        hidden = self.body(self.bottom(batch))
        return {name: self._top(name, hidden) for name in self.features.targets}

    def _top(self, name: str, hidden: dict[str, Tensor]) -> Tensor:
        """Returns the logits of a target, minus infinity where `body` says there is nothing."""
        modality: Any = self.modalities[name]
        logits: Tensor = modality.top(hidden[name])
        mask = hidden.get(f"{name}_mask")
        return logits if mask is None else logits.masked_fill(~mask[..., None], -math.inf)

    def _weights(self, target: str, batch: dict[str, Tensor]) -> Tensor | None:
        """Returns how much each position of an example counts in a target's loss, [B]; None is 1.

        Of several targets each counts by examples, whatever their lengths: a tag in a sentence of n
        words counts 1/n.  So losses of targets can be added, and still add up over batches.
        """
        weights: Tensor | None = None
        feature = self.features.targets[target]
        if len(self.features.targets) > 1 and feature.is_sequence:
            positions = (batch[target] != feature.padding).sum(1)  # [B]
            weights = 1.0 / positions.clamp(min=1).float()
        for name, note in self.features.notes.items():
            if isinstance(note, RowWeight) and note.of in (None, target):
                weights = batch[name] if weights is None else weights * batch[name]
        return weights

    def encode(self, batch: dict[str, Tensor]) -> State:
        """Returns the state before the first step, one row for each row of the batch.

        Args:
          batch: the inputs, [B, S]; for a language model "targets" [B, ...], of which only B is
            read.
        """
        raise NotImplementedError(f"{type(self).__name__} does not generate: it has no encode")

    def step(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """Reads one more id of each row.

        Args:
          ids: [R] int64, the last id; 0 before the first.
          state: from `encode` or the last step.

        Returns:
          The logits of the next id, [R, V] float32, and the state after it.
        """
        raise NotImplementedError(f"{type(self).__name__} does not generate: it has no step")


def _named(kinds: tuple[type[Feature], ...]) -> str:
    return ", ".join(kind.__name__ for kind in kinds)
