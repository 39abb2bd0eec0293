"""What a model is: a body between the bottoms and the tops of its features.

Letters of shapes, here and everywhere: B batch, S input length, T target length, H hidden, V
vocabulary, N heads, D = H / N, F filter, K hypotheses of a sentence, R = B * K rows of a decode.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, final

from torch import Tensor, nn

from t2t_torch.errors import HParamsError
from t2t_torch.hparam import HParams
from t2t_torch.layers.masks import padding_mask
from t2t_torch.modality import Loss, build_modalities

if TYPE_CHECKING:
    from t2t_torch.features import Features

__all__ = ["Loss", "Output", "State", "T2TModel"]


class Output(NamedTuple):
    """What one teacher-forced pass finds.

    Attributes:
      logits: for each target, [B, T, V] float32; empty in TRAIN, where the loss is found without
        them.
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

    Args:
      hparams: of the class that `HParams` names.
      features: what the problem's data is.
      input_space_id: tensor2tensor's SpaceID of the inputs.
      target_space_id: tensor2tensor's SpaceID of the targets.

    Raises:
      HParamsError: the hparams are of another model.
    """

    name: ClassVar[str]
    HParams: ClassVar[type[HParams]] = HParams

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
        self.hparams = hparams
        self.features = features
        self.input_space_id = input_space_id
        self.target_space_id = target_space_id
        self.modalities = build_modalities(hparams, features)

    @abc.abstractmethod
    def body(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the hidden states of each target.

        Args:
          features: each feature after its bottom, [B, S, H], with its `_mask`, [B, S] bool; what
            else the batch holds (`_segmentation` and `_position` of packed examples) as it is.

        Returns:
          For each target [B, T, H].
        """

    @final
    def bottom(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns what `body` takes: embedded features and masks.  Ids [B, S] each."""
        features = dict(batch)
        for name, modality in self.modalities.items():
            features[name] = modality.bottom(batch[name])  # [B, S, H]
            features[f"{name}_mask"] = padding_mask(batch[name])
        return features

    @final
    def forward(self, batch: dict[str, Tensor]) -> Output:
        """One teacher-forced pass; `self.training` decides dropout and label smoothing.

        Args:
          batch: ids of each feature, [B, S] int64, 0 where there is no data.
        """
        hidden = self.body(self.bottom(batch))
        logits: dict[str, Tensor] = {}
        losses: dict[str, Loss] = {}
        for name, states in hidden.items():
            modality: Any = self.modalities[name]
            if self.training:
                losses[name] = modality.training_loss(states, batch[name])
            else:
                logits[name] = modality.top(states)
                losses[name] = modality.loss(logits[name], batch[name])
        return Output(logits, losses)

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
