"""The rows of a split, each with what is right and what a model answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from t2t_torch.artifact.batches import batches_of
from t2t_torch.compute.precision import autocast
from t2t_torch.data.ragged import Ragged
from t2t_torch.data.shards import Shards
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.label_predictor import LabelPredictor, found_of
from t2t_torch.decode.predictor import Predictor
from t2t_torch.decode.record import cells_of, columns_of, found_record, prediction_record, readable
from t2t_torch.decode.tree_predictor import Sentence, TreePredictor
from t2t_torch.features import (
    ClassLabel,
    Feature,
    Features,
    Image,
    Real,
    SoftLabel,
    Span,
    Tags,
    Text,
    TreeFeature,
)
from t2t_torch.layers.cross_entropy import cross_entropy
from t2t_torch.mode import Split
from t2t_torch.pipeline.batching import Batching
from t2t_torch.pipeline.collate import Batch, padded
from t2t_torch.pipeline.examples import Examples
from t2t_torch.pipeline.reader import RowReader
from t2t_torch.problem import Problem
from t2t_torch.train.problem_data import longest_row

_CHUNK = 2048  # rows that are read, sorted by length, and written in their order again
_BATCH_TOKENS = 8192
_READ_OF_TEXTS = tuple(
    """
    beam_size alpha sampling_method sampling_temp sampling_keep_top_k top_p typical_p random_seed
    coverage_penalty num_beam_groups diversity_strength min_length min_length_ratio max_length_ratio
    no_repeat_ngram_size extra_length force_decode_length batch_size batch_tokens
    activation_dtype max_input_size
    """.split()
)
_READ_OF_TREES = ("valid_trees", "max_open_constituents")
_READ_OF_LABELS = ("num_labels",)


def check_rows(hparams: DecodeHParams, problems: Mapping[str, Features]) -> None:
    """Checks that nothing is set but what the rows of some problem are answered by.

    A row tells one output of a text, so what asks for several or for another form is not read.

    Args:
      hparams: of `EvaluatedRows`.
      problems: by name.

    Raises:
      HParamsError: something else is set; names it.
    """
    read: dict[str, None] = {}
    for features in problems.values():
        targets = features.targets.values()
        if not all(target.generates for target in targets):
            read |= dict.fromkeys(_READ_OF_LABELS)
        elif features.has_inputs:  # a language model's texts are measured, not decoded
            read |= dict.fromkeys(_READ_OF_TEXTS)
            if any(isinstance(target, TreeFeature) for target in targets):
                read |= dict.fromkeys(_READ_OF_TREES)
    hparams.check_read(tuple(read), f"--output of {', '.join(problems)}")


def _of_search(hparams: DecodeHParams, features: Features) -> DecodeHParams:
    """Returns how texts are decoded: without what others of several problems read."""
    trees = any(isinstance(target, TreeFeature) for target in features.targets.values())
    names = _READ_OF_LABELS if trees else (*_READ_OF_LABELS, *_READ_OF_TREES)
    default = DecodeHParams()
    return hparams.replace(**{name: getattr(default, name) for name in names})


class Evaluated(NamedTuple):
    """A row of a split.

    Attributes:
      problem: the full name of the one whose row it is.
      number: of the row in its split, from 0; of a text that is cut in pieces, of the piece.
      inputs: by name, as the model reads them.
      right: by target, the value that is right.
      records: by target, what is found, as `record.found_record` tells it; a text has also the
        `loss` of the right one (nats, summed over its tokens), and no `value` in a problem without
        inputs.
    """

    problem: str
    number: int
    inputs: Mapping[str, Any]
    right: Mapping[str, Any]
    records: Mapping[str, Mapping[str, Any]]

    def is_right(self, target: str) -> bool | None:
        """Whether what is found is what is right; None of numbers and where nothing is found."""
        found, right = self.records[target].get("value"), self.right[target]
        if isinstance(right, float | dict) or (
            isinstance(right, list) and right and isinstance(right[0], float)
        ):
            return None
        return None if found is None and isinstance(right, str) else bool(found == right)


class EvaluatedRows:
    """Answers each row of a split, cut as evaluation cuts it, in the split's order.

    Labels, tags, numbers and spans are what the model finds; texts are decoded.

    Args:
      predictor: a model, of any target.
      data_dir: where t2t-datagen wrote the data.
      split: which part of it.
      hparams: how texts are decoded, and how many labels are told.
      activation_dtype: in which all but that is computed, as the metrics are; None: as trained.

    Attributes:
      confusion: by target that is a class or tags, how often each pair (right, found) was seen; of
        the rows that were asked for so far.

    Raises:
      DataError: there is no such data.
    """

    def __init__(
        self,
        predictor: Predictor | LabelPredictor,
        data_dir: Path,
        split: Split,
        hparams: DecodeHParams | None = None,
        *,
        activation_dtype: str | None = None,
    ) -> None:
        self._predictor = predictor
        self._dtype = activation_dtype or predictor.model.hparams.activation_dtype
        self._hparams = hparams or DecodeHParams()
        self._search = _of_search(self._hparams, predictor.features)
        problem = predictor.problem
        parts = problem.components if problem.mixing_schedule is not None else [problem]
        self._parts: list[tuple[Problem, Features, Shards]] = []
        for part in parts:
            features = predictor.features if part is problem else part.features(data_dir)
            self._parts.append((part, features, Shards.open(data_dir, part.dataset_name, split)))
        self.confusion: dict[str, Counter[tuple[str | None, str | None]]] = {
            name: Counter()
            for name, feature in predictor.features.targets.items()
            if isinstance(feature, ClassLabel | Tags)
        }

    @property
    def header(self) -> list[str]:
        """The names of `cells`' columns: the row, inputs, and of each target what is right, found,
        how probable, and whether it is right."""
        features = self._predictor.features
        header = ["problem", "row"] if len(self._parts) > 1 else ["row"]
        header += _told(features)
        for name, feature in features.targets.items():
            header.append(name)
            if features.has_inputs or not isinstance(feature, Text):
                header += columns_of(f"{name}_found", feature)
                header += [] if isinstance(feature, Real | SoftLabel) else [f"{name}_is_right"]
            if isinstance(feature, Text):
                header.append(f"{name}_loss")
        return header

    def cells(self, row: Evaluated) -> list[Any]:
        """Returns a row's values, by `header`."""
        features = self._predictor.features
        cells: list[Any] = [row.problem, row.number] if len(self._parts) > 1 else [row.number]
        cells += [readable(features.inputs[name], row.inputs[name]) for name in _told(features)]
        for name, feature in features.targets.items():
            cells.append(readable(feature, row.right[name]))
            if features.has_inputs or not isinstance(feature, Text):
                cells += cells_of(feature, row.records[name])
                cells += [] if isinstance(feature, Real | SoftLabel) else [row.is_right(name)]
            if isinstance(feature, Text):
                cells.append(row.records[name].get("loss"))
        return cells

    def __iter__(self) -> Iterator[Evaluated]:
        """Yields the rows."""
        hparams = self._predictor.model.hparams
        for part, features, shards in self._parts:
            longest = longest_row(shards.manifest, features, hparams)
            batching = Batching.of(part, hparams, longest_row=longest)
            examples = Examples.of(shards, features, batching, bound=batching.bound)
            lengths = np.max(list(examples.lengths.values()), axis=0)
            kept = {n: one for n, one in features.kept.items() if n in shards.features}
            of_kept = RowReader(shards, kept, {name: name for name in kept}) if kept else None
            readers = examples.reader, of_kept
            for start in range(0, len(lengths), _CHUNK):
                numbers = np.arange(start, min(start + _CHUNK, len(lengths)))
                for row in self._chunk(part, features, readers, numbers, lengths[numbers]):
                    self._count(row)
                    yield row

    def _chunk(
        self,
        part: Problem,
        features: Features,
        readers: tuple[RowReader, RowReader | None],
        numbers: Any,
        lengths: Any,
    ) -> list[Evaluated]:
        """Returns the rows of these numbers, in their order."""
        found: dict[int, Evaluated] = {}
        ids: dict[int, list[int]] = {}
        trees: dict[int, list[int]] = {}
        target = next(iter(features.targets))
        for places in batches_of(lengths.tolist(), _BATCH_TOKENS, _BATCH_TOKENS):
            self._predictor.before_batch()
            rows = np.sort(numbers[places])
            reader, of_kept = readers
            read = reader.read(rows)
            batch = _batch(reader, read)
            read = {**read, **(of_kept.read(rows) if of_kept else {})}
            for row in self._read(part, features, rows.tolist(), batch):
                found[row.number] = row
            if isinstance(self._predictor, Predictor) and features.has_inputs:
                for i, number in enumerate(rows.tolist()):
                    ids[number] = _ids(self._predictor, read, i)
                    trees[number] = _real(features.targets[target], batch[target][i])
        if ids:
            assert isinstance(self._predictor, Predictor)
            order = sorted(ids)
            decoded = self._predictor.predict_ids([ids[number] for number in order], self._search)
            for place, prediction in decoded:
                number = order[place]
                row = found[number]
                record = {**row.records[target], **prediction_record(prediction)}
                found[number] = row._replace(records={target: record})
        if isinstance(self._predictor, TreePredictor):
            for number, sentence in ids.items():
                assert isinstance(sentence, Sentence)
                tree = self._predictor.over(trees[number], sentence)
                found[number] = found[number]._replace(right={target: tree})
                if (of := features.targets[target].of) in found[number].inputs:
                    shown = {**found[number].inputs, of: sentence.words}
                    found[number] = found[number]._replace(inputs=shown)
        return [found[number] for number in sorted(found)]

    @torch.inference_mode()
    def _read(
        self, part: Problem, features: Features, numbers: Sequence[int], batch: Batch
    ) -> Iterator[Evaluated]:
        """Yields the rows of a batch, texts without what is decoded."""
        model: Any = self._predictor.model
        device = next(model.parameters()).device
        on_device = {name: values.to(device) for name, values in batch.items()}
        inputs = {
            name: values for name, values in on_device.items() if name not in features.targets
        }
        guesses: dict[str, Any] = {}
        texts = [name for name, its in features.targets.items() if isinstance(its, Text)]
        with autocast(self._dtype, device):
            found = model(on_device).logits if texts else model.logits(inputs)
        for name, logits in found.items():
            if name in texts:
                guesses[name] = cross_entropy(logits, on_device[name], 0.0).sum(-1).tolist()
            else:
                guesses[name] = model.modalities[name].guess(logits).rows()
        for i, number in enumerate(numbers):
            values = {
                name: _value(features.all[name], batch[name][i])
                for name in (*_told(features), *features.targets)
            }
            yield self._row(part, features, number, values, {n: g[i] for n, g in guesses.items()})

    def _row(
        self,
        part: Problem,
        features: Features,
        number: int,
        values: dict[str, Any],
        guesses: Mapping[str, Any],
    ) -> Evaluated:
        records: dict[str, Mapping[str, Any]] = {}
        for name, feature in features.targets.items():
            if isinstance(feature, Text):
                records[name] = {"loss": guesses[name]}
                continue
            words = values[feature.of] if isinstance(feature, Tags | Span) else None
            tags = len(values[name]) if isinstance(feature, Tags) else None
            found = found_of(feature, guesses[name], tags)
            if isinstance(feature, Span):
                found = found._replace(value=_part(words, found.value))
                values[name] = _part(words, values[name])
            own = [*(words or ()), *["?"] * (tags or 0)][:tags] if tags is not None else None
            records[name] = found_record(feature, found, own, self._hparams.num_labels)
        shown = {name: values[name] for name in _told(features)}
        right = {name: values[name] for name in features.targets}
        return Evaluated(part.full_name, number, shown, right, records)

    def _count(self, row: Evaluated) -> None:
        for name, counts in self.confusion.items():
            right, found = row.right[name], row.records[name]["value"]
            pairs = zip(right, found, strict=True) if isinstance(right, list) else [(right, found)]
            counts.update(pairs)


def _told(features: Features) -> list[str]:
    """Returns the inputs that are told: no pictures, and not what is known of words."""
    return [
        name
        for name, feature in features.inputs.items()
        if not isinstance(feature, Image) and feature.aligned_to is None
    ]


def _ids(predictor: Predictor, read: Mapping[str, Ragged], row: int) -> list[int]:
    """Returns the ids of a row's input, as `Predictor.predict_ids` takes them."""

    def numbers(name: str) -> list[Any]:
        # Not from a batch: what fills it up, such as 0, may be a number of its own, as of a place.
        found: list[Any] = read[name].between(row, row + 1).values.tolist()
        return found

    if isinstance(predictor, TreePredictor):
        kept = [name for name in predictor.features.kept if name in read]
        return predictor.stored({name: numbers(name) for name in (*predictor.given, *kept)})
    return numbers(predictor.field)


def _real(feature: Feature, numbers: Tensor) -> list[int]:
    """Returns the numbers of a sequence without what fills it up."""
    there = (numbers != feature.padding).view(len(numbers), -1).any(-1)
    return [int(number) for number in numbers[there].flatten().tolist()]


def _value(feature: Feature, numbers: Tensor) -> Any:
    """Returns what a row of a batch stands for."""
    if feature.is_sequence:
        return feature.decode(_real(feature, numbers))
    return feature.decode(numbers.flatten().tolist())


def _part(words: Sequence[str] | str, places: tuple[int, int] | None) -> str:
    """Returns the words of a span; "" if there is none."""
    if places is None:
        return ""
    return " ".join(words[places[0] : places[1] + 1])


def _batch(reader: RowReader, read: Mapping[str, Ragged]) -> Batch:
    """Returns the batch of rows that were read."""
    return {
        name: torch.from_numpy(padded(feature, read[name]))
        for name, feature in reader.features.items()
    }
