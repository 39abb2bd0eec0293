"""Text generation with a trained model: input texts to output texts."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from t2t_torch import registry
from t2t_torch.data.shards import Ragged, value_dtype
from t2t_torch.decode.compiled_model import CompiledModel
from t2t_torch.decode.constraints import DecodeRequest, RequestMaker, read_constraints
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.policies import policy_of
from t2t_torch.decode.search import Sampler, Step, beam_search, numbers_of, rules_of, sample
from t2t_torch.decode.word_alignment import Aligner, pad_sequences, why_unaligned
from t2t_torch.distributed.precision import autocast
from t2t_torch.ensemble import Ensemble
from t2t_torch.errors import DecodeError
from t2t_torch.features import Feature, Features, InputSpec
from t2t_torch.features.feature import find_alignments, select_texts
from t2t_torch.model import T2TModel
from t2t_torch.pipeline.collate import padded
from t2t_torch.problem import Problem
from t2t_torch.run.directory import TaskRecord
from t2t_torch.runtime.prediction import Hypothesis, InputColumns, Prediction, sorted_hypotheses
from t2t_torch.text.encoder import EOS, PAD
from t2t_torch.train.memory import is_out_of_memory


@contextlib.contextmanager
def memory_errors(indices: Sequence[int], batch: Sequence[Sequence[int]]) -> Iterator[None]:
    """Context that reports the inputs of a batch if memory runs out in its body.

    Args:
      indices: indices of the inputs.
      batch: their ids, longest first.

    Raises:
      DecodeError: memory ran out in the body.
    """
    try:
        yield
    except (torch.OutOfMemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        number, tokens = indices[0] + 1, len(batch[0])
        message = str(error).strip().splitlines()[0]
        if len(batch) > 1:
            raise DecodeError(
                f"memory ran out over {len(batch)} inputs of at most {tokens:,} tokens (the "
                f"longest is number {number}): {message}. Decode fewer at a time: "
                f"--decode_hparams=batch_size={len(batch) // 2}"
            ) from None
        raise DecodeError(
            f"memory ran out over input {number} (line {number} of a file), which has {tokens:,} "
            f"tokens: {message}. Leave it out, divide it, or cut inputs: "
            "--decode_hparams=max_input_size=1000"
        ) from None


class RunInfo(NamedTuple):
    """The run and step that a predictor's weights were loaded from."""

    task: TaskRecord
    step: int


def do_nothing() -> None:
    """Does nothing: the default of what a predictor calls before a batch and a step."""


class Picklable:
    """Base class of predictors, pickled by value with the users' folders that they need."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Puts the folders first: the classes of what follows may be from them."""
        state = {**self.__dict__, "_compiled": None}
        state |= {name: do_nothing for name in ("before_batch", "before_step") if name in state}
        return _made_again, (_UsersFolders(registry.usr_dirs()), type(self)), state


class _UsersFolders:
    """The users' folders of a process, which another imports when it reads a pickle."""

    def __init__(self, folders: Sequence[str]) -> None:
        for folder in folders:
            if Path(folder).is_dir():
                registry.import_usr_dir(folder)
        self._folders = list(folders)

    def __reduce__(self) -> tuple[Any, ...]:
        return _UsersFolders, (self._folders,)


def _made_again(_: _UsersFolders, kind: type[Any]) -> Any:
    return object.__new__(kind)


class Predictor(Picklable):
    """Generates texts with a model.  `loading.load` creates one from a run directory.

    Args:
      model: a generating model, on the device to compute on.
      problem: the problem that the model was trained on.
      features: the problem's features, with the vocabularies that the model was trained with.
      hparams: default decoding settings.
      run: the run that the weights come from; None if there is none.

    Attributes:
      before_batch: called before each batch is decoded; an exception that it raises ends decoding.
      before_step: called before each step of a batch, with the same effect.

    Raises:
      DecodeError: the model's target is not text, or it has more than one text input.
      HParamsError: the beam is too wide for the vocabulary, or the model does not read a setting.
    """

    def __init__(
        self,
        model: T2TModel | Ensemble,
        problem: Problem,
        features: Features,
        hparams: DecodeHParams | None = None,
        run: RunInfo | None = None,
    ) -> None:
        self.model = model.eval()
        self.problem = problem
        self.features = features
        self.hparams = hparams or DecodeHParams()
        self.run = run
        self.before_batch: Callable[[], None] = do_nothing
        self.before_step: Callable[[], None] = do_nothing
        self._compiled: CompiledModel | None = None  # created on first use
        self._target = _text_feature(problem, features.targets)
        self._input: Any = self._input_of(problem) if features.has_inputs else None
        self.check(self.hparams)

    def _input_of(self, problem: Problem) -> Any:
        """Returns the feature of the inputs."""
        return _text_feature(problem, self.features.inputs)

    @property
    def vocab_size(self) -> int:
        """The number of ids in the output vocabulary."""
        return int(self._target.vocab_size)

    @property
    def field(self) -> str:
        """The name of the input text; for a language model, of the target, which it continues."""
        return next(
            iter(self.features.inputs if self.features.has_inputs else self.features.targets)
        )

    @property
    def spec(self) -> InputSpec:
        """The specification of the input."""
        return InputSpec(self.field, "text")

    @property
    def columns(self) -> InputColumns:
        """Columns of the fields of an input."""
        return input_columns(self.problem, {self.field: self.spec.kind})

    @property
    def target(self) -> str:
        """The name of the output text."""
        return next(iter(self.features.targets))

    def check(self, hparams: DecodeHParams) -> None:
        """Checks that the model reads all settings.

        Raises:
          HParamsError: it does not read one.
        """
        hparams.check_beam(self.vocab_size)
        hparams.check_search()
        if not self.features.has_inputs:
            hparams.check_of_language_model()
        self._check_own(hparams)

    def _check_own(self, hparams: DecodeHParams) -> None:
        """Raises HParamsError if a setting applies only to other kinds of target."""
        hparams.check_of_texts()

    def __call__(self, inputs: Sequence[str | Mapping[str, Any]]) -> list[str]:
        """Returns the best output of each input, in input order; see `predict`.

        For a language model the input is the beginning of a text and the output its continuation.
        """
        return [prediction.text for prediction in self.predict(inputs)]

    def predict(
        self, inputs: Sequence[str | Mapping[str, Any]], hparams: DecodeHParams | None = None
    ) -> list[Prediction]:
        """Returns the prediction for each input, in input order.

        Args:
          inputs: texts, or mappings of a text and constraints on its output: {"inputs": "...",
            "targets_prefix": "...", "constraints": ["..."], "forbidden": ["..."]}, the beginning of
            the output and the words and phrases that it must or must not contain.
          hparams: decoding settings; the predictor's by default.

        Raises:
          DataError: a text has no ids in the vocabulary, or a constraint cannot be satisfied.
          DecodeError: `inputs` is a string instead of a list of strings.
          HParamsError: the beam is too wide for the vocabulary.
        """
        if isinstance(inputs, str):
            raise DecodeError("inputs should be a list of strings, not a string: predict([text])")
        inputs = self.columns.samples(inputs)
        hparams = hparams or self.hparams
        predictions = dict(self.predict_ids(self.encode(inputs, hparams), hparams))
        return [predictions[index] for index in range(len(inputs))]

    def encode(
        self, texts: Sequence[str | Mapping[str, Any]], hparams: DecodeHParams | None = None
    ) -> list[list[int]]:
        """Returns the ids of inputs: with `EOS` at the end, but without it for a language model.

        The ids of an input with constraints are a `DecodeRequest`.

        Raises:
          DataError: a text has no ids in the vocabulary, or a constraint cannot be satisfied.
        """
        feature = self._input or self._target
        read = [read_constraints(value, self.field) for value in texts]
        cut = self.problem.cutters.get(feature.source or self.field)
        encoded = feature.encode_batch([cut(text) if cut else text for text, _ in read])
        if feature.add_eos and self._input is None:
            encoded = [ids[:-1] for ids in encoded]
        encoded = [self.cut(ids, hparams) for ids in encoded]
        if any(constraints for _, constraints in read):
            maker = RequestMaker(
                self._target,
                hparams or self.hparams,
                cut=self.problem.cutters.get(self._target.source or self.target, str),
                goes_on=self.field if self._input is None else None,
            )
            encoded = [
                maker.request(ids, constraints) if constraints else ids
                for ids, (_, constraints) in zip(encoded, read, strict=True)
            ]
        return encoded

    def value_of(self, given: Any, folder: Path) -> Any:
        """Returns the input that a line of a file stands for: by default itself.

        Args:
          given: the line, or the object of a line of JSON.
          folder: folder of the file.
        """
        return given

    def cut(self, ids: Any, hparams: DecodeHParams | None = None) -> Any:
        """Returns the ids of an input truncated to `max_input_size`, with the end symbol kept."""
        most = (hparams or self.hparams).max_input_size
        if most <= 0 or len(ids) <= most:
            return ids
        ends = self._input is not None and self._input.add_eos
        return [*ids[: most - 1], EOS] if ends else ids[:most]

    def predict_ids(
        self, inputs: Sequence[Sequence[int]], hparams: DecodeHParams | None = None
    ) -> Iterator[tuple[int, Prediction]]:
        """Yields (index of the input, prediction), batch by batch, the longest inputs first.

        With this order, memory shortage shows at once and the estimated time left is conservative.

        Args:
          inputs: ids as returned by `encode`.
          hparams: decoding settings; the predictor's by default.
        """
        for batch_predictions in self.predict_batches(inputs, hparams):
            yield from batch_predictions

    def predict_batches(
        self,
        inputs: Sequence[Sequence[int]],
        hparams: DecodeHParams | None = None,
        done: Container[int] = (),
    ) -> Iterator[list[tuple[int, Prediction]]]:
        """Yields the results of `predict_ids`, one list per batch.

        Args:
          inputs: ids as returned by `encode`.
          hparams: decoding settings; the predictor's by default.
          done: indices of inputs that need no output.  Batches with only such inputs are skipped;
            the other batches do not change.
        """
        hparams = hparams or self.hparams
        self.check(hparams)
        aligner = self.aligner(hparams) if hparams.write_alignments else None
        for indices in batches_by_length([len(ids) for ids in inputs], hparams):
            if all(index in done for index in indices):
                continue
            self.before_batch()
            batch = [inputs[index] for index in indices]
            with memory_errors(indices, batch):
                predictions = self._predict_batch(batch, hparams)
            if aligner is not None:
                predictions = aligner.align(batch, predictions)
            yield list(zip(indices, predictions, strict=True))

    @property
    def why_unaligned(self) -> str:
        """The reason why alignments cannot be computed; "" if they can."""
        return why_unaligned(self.model, self._input, self._target)

    def aligner(self, hparams: DecodeHParams | None = None) -> Aligner:
        """Returns the computation of the alignments and attention weights of outputs.

        Args:
          hparams: decoding settings, which select the layer; the predictor's by default.

        Raises:
          HParamsError: there is no such layer, or alignments cannot be computed; see
            `why_unaligned`.
        """
        hparams = hparams or self.hparams
        names = self.field, self.target
        read, layer = hparams.alignment_step == "read", hparams.alignment_layer
        return Aligner(self.model, self._input, self._target, names, layer, read=read)

    # Autocast does not cache cast weights in inference mode: it would cast them at every step.
    @torch.no_grad()
    def _predict_batch(
        self, inputs: list[Sequence[int]], hparams: DecodeHParams
    ) -> list[Prediction]:
        device = next(self.model.parameters()).device
        has_inputs = self.features.has_inputs
        batch = self._batch(inputs, device)
        limits = torch.tensor(
            [hparams.limit(self._size(row), has_inputs=has_inputs) for row in inputs], device=device
        )
        prefixes = pad_sequences(list(map(_prefix, inputs))).to(device)
        prefix = prefixes if has_inputs else batch[self.field]
        if hparams.draws:
            return self._draw_batch(inputs, batch, limits, prefix, hparams)
        with self.autocast(hparams, device):
            model = self._searched(hparams)
            step: Step = functools.partial(self._step, model=model)
            step, state = self._start(step, model.encode(batch), inputs, limits, hparams)
            result = beam_search(
                step,
                state,
                max_lengths=limits,
                beam_size=hparams.beam_size,
                policy=policy_of(hparams, go_on=not has_inputs),
                prefix=prefix,
                rules=rules_of(hparams, inputs, device, go_on=not has_inputs),
            )
        places = hparams.beam_size if hparams.return_beams else 1
        found = result.ids[:, :places].tolist(), result.scores[:, :places].tolist()
        predictions = [self._prediction(*one) for one in zip(*found, inputs, strict=True)]
        return predictions if hparams.num_beam_groups == 1 else list(map(_each_once, predictions))

    def _batch(self, inputs: Sequence[Any], device: torch.device) -> dict[str, Tensor]:
        """Returns the batch of inputs for the model."""
        ids = self._padded(inputs).to(device)  # [B, S]
        if self.features.has_inputs and not ids.size(1):  # as an empty text beside others
            ids = torch.nn.functional.pad(ids, (0, 1), value=PAD)
        return {self.field: ids}

    def _start(
        self, step: Step, state: Any, inputs: Sequence[Any], limits: Tensor, hparams: DecodeHParams
    ) -> tuple[Step, Any]:
        """Returns the step and the state of a search."""
        return step, state

    def _padded(self, inputs: Sequence[Sequence[int]]) -> Tensor:
        """Returns the batch of inputs, [B, S, ...]."""
        return pad_sequences(inputs)

    def _size(self, row: Sequence[int]) -> int:
        """Returns the length of an input that limits that of its output."""
        return len(row)

    def _draw_batch(
        self,
        inputs: list[Sequence[int]],
        batch: dict[str, Tensor],
        limits: Tensor,
        prefix: Tensor,
        hparams: DecodeHParams,
    ) -> list[Prediction]:
        """Samples outputs, one row for each sample, because they end at different steps."""
        count, (ids,) = hparams.num_decodes, batch.values()
        numbers = numbers_of(hparams.random_seed, inputs, count, int(limits.max()), ids.device)
        rows = {name: values.repeat_interleave(count, 0) for name, values in batch.items()}
        with self.autocast(hparams, ids.device):
            model = self._searched(hparams)
            drawn = sample(
                functools.partial(self._step, model=model),
                model.encode(rows),
                max_lengths=limits.repeat_interleave(count, 0),
                numbers=numbers,
                sampler=Sampler(
                    hparams.sampling_temp,
                    hparams.sampling_keep_top_k,
                    hparams.top_p,
                    hparams.typical_p,
                ),
                prefix=prefix.repeat_interleave(count, 0),
                rules=rules_of(
                    hparams,
                    [row for row in inputs for _ in range(count)],
                    ids.device,
                    go_on=not self.features.has_inputs,
                ),
            )
        together = zip(
            drawn.ids.view(len(inputs), count, -1).tolist(),
            drawn.scores.view(len(inputs), count).tolist(),
            inputs,
            strict=True,
        )
        return [self._prediction(*drawn) for drawn in together]

    def autocast(self, hparams: DecodeHParams, device: torch.device) -> torch.autocast:
        """Returns the context of `activation_dtype`; it casts weights once, not at each step."""
        dtype = hparams.activation_dtype
        trained = self.model.hparams.activation_dtype
        return autocast(trained if dtype == "as_trained" else dtype, device)

    def _searched(self, hparams: DecodeHParams) -> Any:
        """Returns the model, or its version with a compiled step."""
        if not hparams.compile:
            return self.model
        if self._compiled is None:
            self._compiled = CompiledModel(self.model)
        return self._compiled

    def _step(self, ids: Tensor, state: Any, model: Any = None) -> tuple[Tensor, Any]:
        """Runs a step of the model; drops the padding logits of `vocab_divisor`."""
        self.before_step()
        logits, state = (model or self.model).step(ids, state)
        return logits[:, : self._target.vocab_size], state

    def _prediction(
        self, rows: list[list[int]], scores: list[float], given: Any = ()
    ) -> Prediction:
        """Returns the prediction for an input."""
        pairs = [([*_prefix(given), *ids], score) for ids, score in sorted_hypotheses(rows, scores)]
        hypotheses = [
            Hypothesis(self._target.decode(ids), tuple(ids), score) for ids, score in pairs
        ]
        return Prediction.of_texts(self.target, hypotheses)


def _each_once(prediction: Prediction) -> Prediction:
    """Returns a prediction without the duplicates that several groups of the beam produced."""
    first = {hypothesis.ids: hypothesis for hypothesis in reversed(prediction.hypotheses)}
    hypotheses = tuple(h for h in prediction.hypotheses if first[h.ids] is h)
    return dataclasses.replace(prediction, hypotheses=hypotheses)


def _prefix(ids: Sequence[int]) -> Sequence[int]:
    """Returns the prefix of the output of an input; empty if it has none."""
    return ids.prefix if isinstance(ids, DecodeRequest) else ()


def input_columns(problem: Problem, kinds: Mapping[str, str]) -> InputColumns:
    """Returns the columns of the fields of an input, given their `InputSpec.kind`."""
    names, forms = dict(problem.column_names), dict(problem.column_forms)
    return InputColumns(problem.full_name, kinds, names, forms)


def _text_feature(problem: Problem, features: Mapping[str, Feature]) -> Any:
    """Returns the one text among the inputs or targets."""
    texts = [name for name in features if name not in find_alignments(features)]
    if len(texts) != 1 or texts[0] not in select_texts(features):
        kinds = ", ".join(f"{name} ({type(kind).__name__})" for name, kind in features.items())
        raise DecodeError(
            f"problem {problem.full_name!r} has {kinds}: expected one Text to read and one to "
            "write. Call the model itself (Predictor.model) for its logits."
        )
    return features[texts[0]]


def padded_rows(feature: Feature, rows: Sequence[Sequence[Any]]) -> Tensor:
    """Returns the encoded values of a feature as a tensor, [rows, ...]."""
    ragged = Ragged.from_lists(rows, value_dtype(feature.arrow_type))
    return torch.from_numpy(padded(feature, ragged))


def batches_by_length(lengths: Sequence[int], hparams: DecodeHParams) -> Iterator[list[int]]:
    """Yields the indices of batches of inputs of similar length, the longest first."""
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    start = 0
    while start < len(order):
        widest = max(1, lengths[order[start]])
        size = hparams.batch_size or max(1, hparams.batch_tokens // widest)
        yield order[start : start + size]
        start += size
