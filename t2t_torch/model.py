"""Base class of models: a body between the bottoms and the tops of the features.

Letters of shapes, in all modules: B batch, S input length, T target length, H hidden, V vocabulary,
N heads, D = H / N, F filter, K hypotheses of a sentence, R = B * K rows in decoding.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, final

import torch
from torch import Tensor, nn

from t2t_torch import registry
from t2t_torch.data.shards import Ragged
from t2t_torch.errors import HParamsError, UsageError
from t2t_torch.features import Feature, Features, RowWeight, Text
from t2t_torch.features.feature import select_texts
from t2t_torch.hparam import HParams
from t2t_torch.layers.recurrent import RowState
from t2t_torch.layers.tokens import Hidden as Hidden
from t2t_torch.layers.tokens import ModelInput as ModelInput
from t2t_torch.layers.tokens import ModelInputs as ModelInputs
from t2t_torch.layers.tokens import Prepended as Prepended
from t2t_torch.loss import ItemTerms, TargetOutputs, total_loss
from t2t_torch.loss import Loss as Loss
from t2t_torch.modalities.build import build_modalities
from t2t_torch.modality import Modality
from t2t_torch.overrides import MODEL, refuse_overrides
from t2t_torch.reporter import message
from t2t_torch.text.encoder import EOS

TrainingRows = Callable[[str], Ragged]
"""Returns the stored numbers of a feature in all training rows."""


def check_features(model: type[T2TModel], features: Features, problem: str = "") -> None:
    """Checks that a model supports the inputs and targets of a problem.

    Args:
      model: the model class.
      features: features of the problem.
      problem: name of the problem, for messages.

    Raises:
      HParamsError: a type is not supported; the message lists the supported ones, and the models
        that fit.
    """
    if fault := _mismatch(model, features, problem):
        names = ", ".join(fitting_models(features)) or "none that is registered"
        raise HParamsError(
            f"{fault} Models that fit {problem or 'it'}: {names}. "
            f"Their sets:  t2t-trainer --registry_help"
        )


def fitting_models(features: Features) -> list[str]:
    """Returns the names of the registered models that support the inputs and targets."""
    names = registry.list_names("model")
    return [name for name in names if not _mismatch(registry.model(name), features, "")]


def _mismatch(model: type[T2TModel], features: Features, problem: str) -> str:
    """Returns why a model does not support the inputs and targets of a problem, or ""."""
    of = f" of {problem}" if problem else ""
    for target, feature in features.targets.items():
        kind = type(feature)
        if not issubclass(kind, model.produces) and not issubclass(
            feature.produced_like or kind, model.produces
        ):
            return (
                f"model {model.name!r} produces {_named(model.produces)}; {target!r}{of} is a "
                f"{type(feature).__name__}."
            )
    if model.needs_inputs and not features.inputs:
        return f"model {model.name!r} reads {_named(model.reads)}, and there are no inputs{of}."
    for name, feature in features.inputs.items():
        if not isinstance(feature, model.reads):
            return (
                f"model {model.name!r} reads {_named(model.reads)}; {name!r}{of} is a "
                f"{type(feature).__name__}."
            )
    texts = list(select_texts(features.inputs))
    fewest, most = model.texts
    if not fewest <= len(texts) <= most:
        wanted = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        wanted = {"0": "no text", "1": "one text"}.get(wanted, f"{wanted} texts")
        return (
            f"model {model.name!r} reads {wanted}, and {problem or 'this problem'} has "
            f"{', '.join(texts) or 'none'}."
        )
    return ""


def _named(kinds: tuple[type[Feature], ...]) -> str:
    return ", ".join(kind.__name__ for kind in kinds) or "no inputs"


_COLUMNS = ("segmentation", "position", "before", "stream", "block")
"""What follows a text's name in the columns of a batch, in the order of `ModelInput`'s fields."""


class Output(NamedTuple):
    """Output of a teacher-forced pass.

    Attributes:
      logits: logits by target, [B, T, V] float32 of a text, [B, C] of classes ...; empty in
        training mode, where the loss is computed without them: `model.logits(batch)` computes them.
      losses: losses by target.
    """

    logits: dict[str, Tensor]
    losses: dict[str, Loss]

    @property
    def loss(self) -> Tensor:
        """The mean loss of the batch, a differentiable scalar: `output.loss.backward()`.

        For several targets it is the sum of their losses.  Loops over several devices or unequal
        batches add the sums and weights of `losses` and divide once.
        """
        total = total_loss(self)
        return total.sum / total.weight.clamp(min=1e-12)


class State(Protocol):
    """Decoding state of R = B * K rows; the K hypotheses of a sentence are adjacent.

    A state is used only once: `step` returns the next one.
    """

    def expand(self, hypotheses: int) -> State:
        """Returns a state in which each row is repeated `hypotheses` times, adjacently.

        Called once: before the first step, or after the steps that all hypotheses share.
        """

    def reorder(self, index: Tensor) -> State:
        """Returns a state whose row i is row `index[i]` of this state.  [R'] integers.

        Hypotheses may be dropped, duplicated and reordered within their sentence, and whole
        sentences dropped; sentences keep their order.
        """


@dataclasses.dataclass
class PrefixState(RowState):
    """Decoding state of a model without its own `encode` and `step`; a `State` of R rows.

    Attributes:
      ids: ids read so far, [R, t]; the first is 0.
      names: names of the inputs.
      inputs: inputs as in the batch, [R, ...].
    """

    ids: Tensor
    names: tuple[str, ...]
    inputs: list[Tensor]


_SLOW: set[type] = set()
"""Models that were reported to decode slowly."""


class T2TModel(nn.Module, abc.ABC):
    """Base class of models.

    A subclass implements `__init__` and `body`; its own `encode` and `step` make generation faster.
    It may override each of the four parts of a pass: `bottom`, `body`, `top` and `loss`.  The
    override is used in training, evaluation, decoding, ensembles, distillation and exported models.

    Attributes:
      name: registered name.
      HParams: class of the hparams.
      produces: supported types of targets.
      reads: supported types of inputs.
      texts: least and greatest number of text inputs.
      needs_inputs: True if the model cannot be a language model.
      reads_packed: True if `body` separates packed examples, by `segments` and `positions`.
      counts_examples: True if each example has the same weight in the TRAIN loss, whatever the
        length of its target.  Needed if models of several problems are trained together and some
        of them count examples anyway.
      searches: True if texts are generated id by id, with `encode` and `step`; False if `top` has
        an output for each frame of a sound (CTC).
      reads_streams: True if `body` continues from the end of the last batch; see
        `pipeline/streams.py`.

    Args:
      hparams: hyperparameters, an instance of `HParams`.
      features: features of the problem.

    Raises:
      HParamsError: the hparams are of another model, or a target or an input is not supported.
      RegistryError: a subclass overrides a method that is never called (`overrides.py`).
    """

    name: ClassVar[str]
    HParams: ClassVar[type[HParams]] = HParams
    produces: ClassVar[tuple[type[Feature], ...]] = (Text,)
    reads: ClassVar[tuple[type[Feature], ...]] = (Feature,)
    texts: ClassVar[tuple[int, int]] = (0, 1000)
    needs_inputs: ClassVar[bool] = False
    reads_packed: ClassVar[bool] = False
    reads_streams: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        refuse_overrides(cls, T2TModel, MODEL)

    def __init__(self, hparams: Any, features: Features) -> None:
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
        self._widths = widths  # a subclass may replace `hparams`
        self.modalities = build_modalities(hparams, features, widths)
        self.counts_examples = False
        self.searches = True

    @classmethod
    def target_width(cls, hparams: Any, features: Features, target: str) -> int:
        """Returns the width of the output of `body` for a target; called before layers exist."""
        return int(hparams.hidden_size)

    def bottom(self, batch: dict[str, Tensor]) -> dict[str, ModelInput]:
        """Embeds the features of a batch; returns the argument of `body`.

        In generation there are no targets at first, and then one id per row, [R, 1].

        Args:
          batch: features as the pipeline produces them.
        """
        features = {}
        for name in self.features.all:
            if name not in batch:
                continue
            values = embedded = batch[name]
            if name in self.modalities:
                modality = self.modality(name)
                embedded, mask = modality.embed(name, batch), modality.mask(values)
            else:
                mask = torch.ones(values.size(0), 1, dtype=torch.bool, device=values.device)
            more = (batch.get(f"{name}_{column}") for column in _COLUMNS)
            features[name] = ModelInput(values, embedded, mask, *more)
        return features

    def embed(self, name: str, values: Tensor) -> Tensor:
        """Returns the output of `bottom` for a single feature.  [B, S] -> [B, S, H]."""
        return self.bottom({name: values})[name].embedded

    def fit(self, rows: TrainingRows) -> list[str]:
        """Sets the weights from the training data, before the first step of a new run.

        Called if `hparams.fits`.

        The result is a function of the rows alone.  In a distributed run all processes call it.

        Args:
          rows: function of the name of a feature.

        Returns:
          Lines for the user.
        """
        return []

    def load_pretrained(self, folder: str = "") -> list[str]:
        """Sets the weights that a new run begins with, if they are those of another model.

        Args:
          folder: where that model is now; "": where its hyperparameters say.

        Returns:
          Lines for the user.
        """
        return []

    def for_graph(self) -> T2TModel:
        """Returns the model that an ONNX graph computes: this one, or a part that can do it."""
        return self

    @abc.abstractmethod
    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the hidden states of each target.

        Args:
          features: inputs, targets and annotations of a batch, by name.  In generation there are
            no targets.
        """

    def top(self, hidden: Hidden, target: str) -> Tensor:
        """Returns the logits of a target: [..., V] float32 of a text, [B, C] of classes.

        Args:
          hidden: output of `body`, or in generation the states of one position, [R, H].
          target: name of the target.
        """
        return self.modality(target).logits(hidden)

    def loss(self, hidden: Hidden, target: str, batch: dict[str, Tensor]) -> Loss:
        """Returns the loss of a target: in TRAIN the training loss, in EVAL the reported one.

        The training loss of a text is computed without making all logits, unless `top` is
        overridden.  Penalties of `body` are added by the caller, the other terms of a training
        loss by its objective.

        Args:
          hidden: output of `body`.
          target: name of the target.
          batch: targets, and weights of examples.
        """
        modality = self.modality(target)
        if not self.training:
            weights = self.example_weights(target, batch)
            return modality.loss(self.top(hidden, target), batch[target], weights)
        return modality.training_loss(target_outputs(self, [hidden], target, batch))

    @final  # type: ignore[misc]
    def forward(self, batch: dict[str, Tensor]) -> Output:
        """Runs a teacher-forced pass; `self.training` decides dropout and the kind of loss.

        In TRAIN the losses are those of `loss` and the penalties of `body`.  What hyperparameters
        add to them, for example R-Drop, is computed by `objectives.Objective`.

        Args:
          batch: features as the pipeline produces them; [B, S] int64 ids of a text, 0 at padding.
        """
        logits: dict[str, Tensor] = {}
        losses: dict[str, Loss] = {}
        hidden = self.hidden_states(batch)
        for name in self.features.targets:
            if self.training:
                loss = self.loss(hidden[name], name, batch)
                losses[name] = add_penalties(self, loss, [hidden[name]], name, batch)
                continue
            modality, made = self.modality(name), self.top(hidden[name], name)
            losses[name] = (
                self.loss(hidden[name], name, batch)
                if self.overrides("loss")
                else modality.loss(made, batch[name], self.example_weights(name, batch))
            )
            logits[name] = modality.readable(made, batch[name])
        return Output(logits, losses)

    def overrides(self, method: str) -> bool:
        """Returns True if a subclass overrides `bottom`, `top` or `loss`."""
        return getattr(type(self), method) is not getattr(T2TModel, method)

    def after_step(self) -> None:
        """Called after each update of the weights, to restore constraints on them."""

    def modality(self, name: str) -> Modality:
        """Returns the modality of an input or a target."""
        modality: Any = self.modalities[name]
        return modality  # type: ignore[no-any-return]

    @final
    def logits(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the logits of each target, given the inputs; generated targets are excluded.

        Args:
          batch: inputs and annotations, as the pipeline produces them.
        """
        return {name: self.top(hidden, name) for name, hidden in self.hidden_states(batch).items()}

    @final
    def hidden_states(self, batch: dict[str, Tensor]) -> dict[str, Hidden]:
        """Returns the output of `body`, checked for the targets that the batch has.

        Raises:
          UsageError: it is no dict of the targets, or its states have another shape than `top`
            reads.
        """
        hidden = self.body(self.bottom(batch))
        for name in self.features.targets:
            if name in batch and (fault := self._fault_of(hidden, name, batch[name])):
                raise UsageError(f"{type(self).__name__}.body returns {fault}.")
        return hidden

    def _fault_of(self, returned: Any, name: str, target: Tensor) -> str:
        """Returns what `body` should return for a target, and what it returns; "" if that is so."""
        if not isinstance(returned, dict) or name not in returned:
            keys = list(returned) if isinstance(returned, dict) else type(returned).__name__
            return f"a dict with the keys {list(self.features.targets)}; got {keys}"
        if not isinstance(returned[name], Hidden):
            return f"Hidden(states) for {name!r}; got {type(returned[name]).__name__}"
        shape = list(returned[name].states.shape)
        expected = [len(target), *shape[1:]]
        if self.features.targets[name].is_text and self.searches:
            expected[1:-1] = [target.size(1)]
        if not self.overrides("top"):
            expected[-1] = self._widths[name]
        return "" if shape == expected else f"states of {expected} for {name!r}; got {shape}"

    def example_weights(
        self, target: str, batch: dict[str, Tensor], prepended: Prepended | None = None
    ) -> Tensor | None:
        """Returns the weight of a position of each example in the loss of a target, [B]; None is 1.

        With several targets each example has the same weight: a tag in a sentence of n words has
        weight 1/n.  The losses of targets can then be added, and still add up over batches.

        Args:
          target: name of the target.
          batch: targets, and weights of examples.
          prepended: further positions that are trained.
        """
        weights: Tensor | None = None
        feature = self.features.targets[target]
        by_example = len(self.features.targets) > 1 or (self.training and self.counts_examples)
        if by_example and feature.is_sequence:
            positions = (batch[target] != feature.padding).sum(1)  # [B]
            if prepended is not None:
                positions = positions + (prepended.ids != feature.padding).sum(1)
            weights = 1.0 / positions.clamp(min=1).float()
        for name, note in self.features.notes.items():
            if isinstance(note, RowWeight) and note.of in (None, target):
                weights = batch[name] if weights is None else weights * batch[name]
        return weights

    def encode(self, batch: dict[str, Tensor]) -> State:
        """Returns the state before the first step, with one row per row of the batch.

        By default the state holds the inputs, and `step` runs `body` over all ids read so far.

        Args:
          batch: inputs, [B, S]; for a language model "targets" [B, ...], only B is used.
        """
        if type(self) not in _SLOW:
            _SLOW.add(type(self))
            message(
                f"{type(self).__name__} has no encode and step: decoding is slow, because each "
                "step runs its body over all ids before it (docs/how_to/add_a_model.md)"
            )
        inputs = {
            name: tensor for name, tensor in batch.items() if name not in self.features.targets
        }
        first = next(iter(batch.values()))
        ids = torch.zeros(first.size(0), 0, dtype=torch.int64, device=first.device)
        return PrefixState(ids, tuple(inputs), list(inputs.values()))

    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, State]:
        """Runs a decoding step: reads the next id of each row.

        Args:
          ids: last id of each row, [R] int64; 0 before the first.
          state: state returned by `encode` or the last step.

        Returns:
          The logits of the next id, [R, V] float32, and the next state.
        """
        assert isinstance(state, PrefixState), "a model with its own encode has its own step"
        (target,) = self.features.targets
        read = torch.cat([state.ids, ids[:, None]], 1)  # [R, t], the first is 0
        # The last id is unknown, and the body may not look at it.
        targets = torch.cat([read[:, 1:], torch.full_like(read[:, :1], EOS)], 1)
        batch = {**dict(zip(state.names, state.inputs, strict=True)), target: targets}
        hidden = self.body(self.bottom(batch))[target]
        after = dataclasses.replace(state, ids=read)
        if self.overrides("top"):
            return self.top(hidden, target)[:, -1], after
        mask = None if hidden.mask is None else hidden.mask[:, -1]
        return self.top(Hidden(hidden.states[:, -1], mask), target), after


def target_outputs(
    model: T2TModel,
    passes: Sequence[Hidden],
    target: str,
    batch: dict[str, Tensor],
    terms: ItemTerms | None = None,
) -> TargetOutputs:
    """Returns the inputs of the training loss of a target.

    Args:
      model: model that is trained.
      passes: output of `body` in each pass.
      target: name of the target.
      batch: targets, and weights of examples.
      terms: terms to add to the loss of each item.
    """
    weights = model.example_weights(target, batch, passes[0].prepended)
    return TargetOutputs(passes, batch[target], weights, own_top(model, target), terms)


def own_top(model: T2TModel, target: str) -> Callable[[Hidden], Tensor] | None:
    """Returns `top` of a target if the model overrides it, else None."""
    return functools.partial(model.top, target=target) if model.overrides("top") else None


def add_penalties(
    model: T2TModel, loss: Loss, passes: Sequence[Hidden], target: str, batch: dict[str, Tensor]
) -> Loss:
    """Returns the loss of a target with the mean penalty over passes of `body`.

    Args:
      model: model that is trained.
      loss: loss of the target.
      passes: output of `body` in each pass.
      target: name of the target.
      batch: targets, and weights of examples.
    """
    for penalty in [one.penalty for one in passes if one.penalty is not None]:
        added = penalty
        if penalty.dim():
            weights = model.example_weights(target, batch)
            counted = model.modality(target).item_weights(batch[target], weights)
            added = (penalty * counted.reshape(len(penalty), -1).sum(1)).sum()
        loss = loss._replace(sum=loss.sum + added / len(passes))
    return loss
