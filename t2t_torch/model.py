"""What a model is: a body between the bottoms and the tops of its features.

Letters of shapes, here and everywhere: B batch, S input length, T target length, H hidden, V
vocabulary, N heads, D = H / N, F filter, K hypotheses of a sentence, R = B * K rows of a decode.
"""

from __future__ import annotations

import abc
import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, final

import torch
from torch import Tensor, nn

from t2t_torch.errors import HParamsError
from t2t_torch.features import Feature, Features, RowWeight, Text
from t2t_torch.hparam import HParams, ScheduledSamplingHParams
from t2t_torch.layers.tokens import Hidden, ModelInput, ModelInputs, Prepended
from t2t_torch.loss import Loss
from t2t_torch.modalities.build import build_modalities
from t2t_torch.modalities.objective import target_weights
from t2t_torch.modality import ExtraLossInputs, Modality
from t2t_torch.overrides import MODEL, refuse_overrides
from t2t_torch.text.encoder import PAD

if TYPE_CHECKING:
    from t2t_torch.ensemble import Ensemble


# Whether a model can learn a problem: the kinds of its inputs and of its targets.


def check_features(model: type[T2TModel], features: Features, problem: str = "") -> None:
    """Checks that a model can learn a problem's targets from its inputs.

    Args:
      model: the class.
      features: the problem's.
      problem: its name, for messages.

    Raises:
      HParamsError: it cannot; says what it can.
    """
    look = "Look for a model that does:  t2t-trainer --registry_help"
    of = f" of {problem}" if problem else ""
    for target, feature in features.targets.items():
        if not issubclass(feature.produced_like or type(feature), model.produces):
            raise HParamsError(
                f"model {model.name!r} produces {_named(model.produces)}; {target!r}{of} is a "
                f"{type(feature).__name__}. {look}"
            )
    for name, feature in features.inputs.items():
        if not isinstance(feature, model.reads):
            raise HParamsError(
                f"model {model.name!r} reads {_named(model.reads)}; {name!r}{of} is a "
                f"{type(feature).__name__}. {look}"
            )
    texts = [name for name, feature in features.inputs.items() if isinstance(feature, Text)]
    fewest, most = model.texts
    if not fewest <= len(texts) <= most:
        wanted = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        wanted = {"0": "no text", "1": "one text"}.get(wanted, f"{wanted} texts")
        raise HParamsError(
            f"model {model.name!r} reads {wanted}, and {problem or 'this problem'} has "
            f"{', '.join(texts) or 'none'}. {look}"
        )


def _named(kinds: tuple[type[Feature], ...]) -> str:
    return ", ".join(kind.__name__ for kind in kinds) or "no inputs"


# Scheduled sampling: in training, some targets that a model reads are its own guesses.
#
# Bengio et al. 2015, arXiv:1506.03099, in the parallel form of Duckworth et al. 2019,
# arXiv:1906.04331, with tensor2tensor's hyperparameters: a teacher-forced pass guesses every target
# from those before it, and the next pass reads guesses in place of some of them.


_LEAST = 0.001  # of the warm-up, tensor2tensor, utils/scheduled_sampling.py


class ScheduledSampling(nn.Module):
    """Replaces targets by guesses, the more the longer training lasts.

    Attributes:
      share: of the targets that are replaced, [] float32: a tensor, so that a compiled model is not
        compiled anew when it changes.

    Args:
      hparams: scheduled_sampling_*.
    """

    share: Tensor

    def __init__(self, hparams: ScheduledSamplingHParams) -> None:
        super().__init__()
        self._most = hparams.scheduled_sampling_prob * (
            1.0 - hparams.scheduled_sampling_gold_mixin_prob
        )
        self._steps = hparams.scheduled_sampling_warmup_steps
        self._schedule = hparams.scheduled_sampling_warmup_schedule
        self.passes = hparams.scheduled_sampling_num_passes if self._most else 0
        self.register_buffer("share", torch.tensor(0.0), persistent=False)
        self.at_step(0)

    def at_step(self, step: int) -> None:
        """Sets the share for the step after so many."""
        self.share.fill_(self._most * warm_up(self._schedule, step, self._steps))

    def mix(self, gold: Tensor, read: Tensor, guesses: Tensor, number: int) -> Tensor:
        """Returns what the next pass reads.  Padding stays.

        Args:
          gold: the targets, [B, T].
          read: what the last pass has read, [B, T].
          guesses: what it has found, [B, T].
          number: of the pass, from 0: so many first targets are kept as they were read, since pass
            after pass they have been guessed from what stands before them.
        """
        drawn = torch.rand(gold.shape, device=gold.device) < self.share
        mixed = torch.where(drawn & (gold != PAD), guesses, gold)
        later = torch.arange(gold.size(1), device=gold.device) >= number
        return torch.where(later, mixed, read)


def warm_up(schedule: str, step: int, steps: int) -> float:
    """Returns how far the warm-up is, from 0.001 at step 0 to 1 from `steps` on.

    tensor2tensor, layers/common_layers.py, inverse_exp_decay, inverse_lin_decay,
    inverse_sigmoid_decay.

    Args:
      schedule: "exp", "linear" or "sigmoid".
      step: steps done.
      steps: of the warm-up; 0 is none.
    """
    if step >= steps:
        return 1.0
    done = step / steps
    if schedule == "exp":
        return _LEAST ** (1.0 - done)
    if schedule == "sigmoid":  # from where a sigmoid is _LEAST to where it is 1 - _LEAST
        end = math.log((1.0 - _LEAST) / _LEAST)
        sigmoid = 1.0 / (1.0 + math.exp(end - 2.0 * end * done))
        done = (sigmoid - _LEAST) / (1.0 - 2.0 * _LEAST)
    return _LEAST + (1.0 - _LEAST) * done


_COLUMNS = ("segmentation", "position", "before", "stream", "block")
"""What follows a text's name in the columns of a batch, in the order of `ModelInput`'s fields."""

__all__ = [
    "Hidden",
    "Loss",
    "ModelInput",
    "ModelInputs",
    "Output",
    "Prepended",
    "State",
    "T2TModel",
]


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
        """Returns a state in which each row stands `hypotheses` times, side by side.

        It is called once: before the first step, or after those that all hypotheses have in common.
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
      reads: the kinds of input that it can be given.
      texts: the fewest and the most inputs that are texts.
      reads_packed: whether `body` keeps packed examples apart, by `segments` and `positions`.
      reads_streams: whether `body` reads on where the batch before has ended; see
        `pipeline/streams.py`.

    Args:
      hparams: of the class that `HParams` names.
      features: what the problem's data is.

    Raises:
      HParamsError: the hparams are of another model, or it cannot learn a target or read an input.
      RegistryError: a subclass is defined that overrides what is never called (`overrides.py`).
    """

    name: ClassVar[str]
    HParams: ClassVar[type[HParams]] = HParams
    produces: ClassVar[tuple[type[Feature], ...]] = (Text,)
    reads: ClassVar[tuple[type[Feature], ...]] = (Feature,)
    texts: ClassVar[tuple[int, int]] = (0, 1000)
    reads_packed: ClassVar[bool] = False
    reads_streams: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        refuse_overrides(cls, T2TModel, MODEL)

    def __init__(self, hparams: HParams, features: Features) -> None:
        super().__init__()
        if not isinstance(hparams, self.HParams):
            raise HParamsError(
                f"model {self.name!r} needs {self.HParams.__name__}, but the set is of "
                f"{type(hparams).__name__}. List the sets:  t2t-trainer --registry_help"
            )
        check_features(type(self), features)
        self.hparams = hparams
        self.features = features
        widths = {name: self.target_width(hparams, features, name) for name in features.targets}
        self.modalities = build_modalities(hparams, features, widths)
        objectives = [self._modality(name).objective for name in features.targets]
        self._passes = max((o.passes for o in objectives if o is not None), default=1)
        self._target_weights = target_weights(hparams.target_weights, features)
        self._counts_examples = False
        # A tuple, so that it is no submodule.
        self._teacher: tuple[T2TModel | Ensemble, ...] = ()
        self.scheduled_sampling: ScheduledSampling | None = None
        if hparams.scheduled_sampling_prob:
            self._check_samples()
            self.scheduled_sampling = ScheduledSampling(hparams)

    @classmethod
    def target_width(cls, hparams: Any, features: Features, target: str) -> int:
        """Returns the width of what `body` finds for a target; asked before there are layers."""
        return int(hparams.hidden_size)

    @abc.abstractmethod
    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the hidden states of each target.

        Args:
          features: the inputs, targets and notes of a batch, by name.  In generation there are no
            targets.
        """

    @final
    def bottom(self, batch: dict[str, Tensor]) -> dict[str, ModelInput]:
        """Embeds the features of a batch: the argument of `body`."""
        features = {}
        for name in self.features.all:
            if name not in batch:  # in generation there are no targets
                continue
            values = embedded = batch[name]
            if name in self.modalities:
                modality = self._modality(name)
                embedded, mask = modality.embed(name, batch), modality.mask(values)
            else:
                mask = torch.ones(len(values), 1, dtype=torch.bool, device=values.device)
            more = (batch.get(f"{name}_{column}") for column in _COLUMNS)
            features[name] = ModelInput(values, embedded, mask, *more)
        return features

    @final
    def forward(self, batch: dict[str, Tensor]) -> Output:
        """One teacher-forced pass; `self.training` decides dropout and what the loss consists of.

        In TRAIN hyperparameters may ask for more: passes that guess what is read
        (`scheduled_sampling_prob`), a second pass (`r_drop_alpha`), a teacher's (`learn_from`).

        Args:
          batch: each feature as the pipeline gives it; [B, S] int64 ids of a text, 0 where there is
            no data.
        """
        if self.training:
            return Output({}, self._training_losses(batch))
        hidden = self.body(self.bottom(batch))
        logits: dict[str, Tensor] = {}
        losses: dict[str, Loss] = {}
        for name in self.features.targets:
            modality = self._modality(name)
            found = modality.logits(hidden[name])
            weights = self.example_weights(name, batch)
            losses[name] = modality.loss(found, batch[name], weights)
            logits[name] = modality.readable(found)
        return Output(logits, losses)

    def _training_losses(self, batch: dict[str, Tensor]) -> dict[str, Loss]:
        """Returns what is trained on for each target."""
        read = self._with_guesses(batch)
        passes = [self.body(self.bottom(read)) for _ in range(self._passes)]
        taught = self._taught(batch)
        losses: dict[str, Loss] = {}
        for name in self.features.targets:
            modality = self._modality(name)
            first, *others = [one[name] for one in passes]
            weights = self.example_weights(name, _with_prepended(name, batch, first))
            found = (first.states, batch[name], weights)
            beside = None
            if others or first.mask is not None or taught is not None:
                beside = ExtraLossInputs(tuple(one.states for one in others), first.mask)
            if beside is not None and taught is not None:
                teacher: Any = self._teacher[0].modalities[name]
                theirs = taught[name]
                if theirs.mask is None:  # what may not be here has no probability to imitate
                    theirs = dataclasses.replace(theirs, mask=first.mask)
                beside = beside._replace(teacher=teacher, taught=theirs)
            losses[name] = modality.training_loss(*found, beside)
            if first.prepended is not None:
                before = self._prepended_loss(name, passes, weights)
                total = losses[name]
                losses[name] = Loss(total.sum + before.sum, total.weight + before.weight)
        for one, name in itertools.product(passes, losses):
            if (penalty := one[name].penalty) is not None:
                if penalty.dim():
                    weights = self.example_weights(name, batch)
                    counted = self._modality(name).item_weights(batch[name], weights)
                    penalty = (penalty * counted.reshape(len(penalty), -1).sum(1)).sum()
                losses[name] = losses[name]._replace(sum=losses[name].sum + penalty / len(passes))
        for name, weight in self._target_weights.items():
            losses[name] = losses[name]._replace(sum=losses[name].sum * weight)
        return losses

    def _prepended_loss(
        self, name: str, passes: Sequence[dict[str, Hidden]], weights: Tensor | None
    ) -> Loss:
        """Returns what is trained on before a target; no teacher has a part in it."""
        first, *others = [its for one in passes if (its := one[name].prepended) is not None]
        beside = ExtraLossInputs(tuple(one.states for one in others)) if others else None
        return self._modality(name).training_loss(first.states, first.ids, weights, beside)

    def count_examples(self) -> None:
        """In TRAIN an example counts once in the loss, however many positions its target has.

        Where models of several problems are trained together, and some count examples anyway.
        """
        self._counts_examples = True

    def learn_from(self, teacher: T2TModel | Ensemble) -> None:
        """Makes another model the teacher of this one: its probabilities are imitated in TRAIN.

        The teacher is frozen, in EVAL mode, and no part of this model's weights; it stays on the
        device on which it is.

        Args:
          teacher: of the same features; or several, whose mean it is.
        """
        self._teacher = (teacher.eval().requires_grad_(False),)

    def weigh_classes(self, target: str, weights: Sequence[float]) -> None:
        """Says how much each class of a target counts in TRAIN.

        Args:
          target: its name.
          weights: one for each class, in the order of the ids.

        Raises:
          HParamsError: its loss takes no weights.
        """
        objective = self._modality(target).objective
        if objective is None or not objective.loss.takes_class_weights:
            raise HParamsError(
                f"class_weights={self.hparams.class_weights}: the loss of target {target!r} takes "
                "no weights of classes. Name another loss, or the other targets alone: "
                "class_weights=[target:...]."
            )
        device = next(self.parameters()).device
        objective.loss.class_weights = torch.tensor(list(weights), device=device)

    @torch.no_grad()
    def _taught(self, batch: dict[str, Tensor]) -> dict[str, Hidden] | None:
        """Returns what the teacher's body finds; None if there is no teacher."""
        if not self._teacher:
            return None
        teacher = self._teacher[0]
        return teacher.body(teacher.bottom(batch))

    def at_step(self, step: int) -> None:
        """Tells how many steps are done; called before each step of training."""
        if self.scheduled_sampling is not None:
            self.scheduled_sampling.at_step(step)

    def after_step(self) -> None:
        """Called after each update of the weights: what must hold of them is made to hold."""

    @torch.no_grad()
    def _with_guesses(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the batch to read, in which scheduled sampling has replaced some targets."""
        if self.scheduled_sampling is None:
            return batch
        read = dict(batch)
        for number in range(self.scheduled_sampling.passes):
            hidden = self.body(self.bottom(read))
            for name in self.features.targets:
                guesses = self._modality(name).sample(hidden[name])
                mixed = self.scheduled_sampling.mix(batch[name], read[name], guesses, number)
                read[name] = mixed
        # Autocast keeps the rounded weights of these passes, which know nothing of gradients.
        torch.clear_autocast_cache()
        return read

    def _check_samples(self) -> None:
        for target, feature in self.features.targets.items():
            if not isinstance(feature, Text):
                raise HParamsError(
                    f"scheduled_sampling_prob={self.hparams.scheduled_sampling_prob}: a model "
                    f"reads its guesses of texts alone, and target {target!r} is a "
                    f"{type(feature).__name__}. Set scheduled_sampling_prob=0."
                )

    def _modality(self, name: str) -> Modality:
        modality: Any = self.modalities[name]
        return modality  # type: ignore[no-any-return]

    @final
    def logits(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the logits of each target, from the inputs alone; not of what generates.

        Args:
          batch: inputs and notes, as the pipeline gives them.
        """
        return {
            name: self._modality(name).logits(hidden)
            for name, hidden in self.hidden_states(batch).items()
        }

    @final
    def hidden_states(self, batch: dict[str, Tensor]) -> dict[str, Hidden]:
        """Returns what the body finds for each target, from the inputs alone; see `logits`."""
        return self.body(self.bottom(batch))

    def example_weights(self, target: str, batch: dict[str, Tensor]) -> Tensor | None:
        """Returns how much each position of an example counts in a target's loss, [B]; None is 1.

        Of several targets each counts by examples, whatever their lengths: a tag in a sentence of n
        words counts 1/n.  So losses of targets can be added, and still add up over batches.
        """
        weights: Tensor | None = None
        feature = self.features.targets[target]
        by_example = len(self.features.targets) > 1 or (self.training and self._counts_examples)
        if by_example and feature.is_sequence:
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


def _with_prepended(target: str, batch: dict[str, Tensor], hidden: Hidden) -> dict[str, Tensor]:
    """Returns the batch with all ids of a target that are trained, the prepended ones first."""
    before = hidden.prepended
    return batch if before is None else batch | {target: torch.cat([before.ids, batch[target]], 1)}
