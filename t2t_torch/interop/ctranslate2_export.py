"""From a run to a folder that CTranslate2 reads, compared with the run's model, or to nothing."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from t2t_torch.artifact.signature import CTRANSLATE2, Signature
from t2t_torch.data.shards import Shards
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.loading import Loaded
from t2t_torch.decode.predictor import Predictor
from t2t_torch.decode.scoring import score
from t2t_torch.errors import DataError, ExportError
from t2t_torch.export.folder import copy_explanations, write_signature
from t2t_torch.export.request import FEWEST_ROWS, Request, remove_leftovers, staged_folder
from t2t_torch.export.signature import about
from t2t_torch.export.verification import TOLERANCE, stored
from t2t_torch.interop import ctranslate2
from t2t_torch.interop.ctranslate2_recipe import recipe
from t2t_torch.mode import Split
from t2t_torch.text.encoder import EOS, PAD

_BEAM = 4
_LOST = 0.5  # points of BLEU that quantizing may cost, as in export/quantization.py
_LONGER = 20  # ids that an output may be longer than the longest row, where both are asked


@dataclasses.dataclass(frozen=True)
class Converted:
    """What was written.

    Attributes:
      folder: the model.
      name: of what problem and which checkpoint.
      bytes: of all its files.
      rows: of the dev split that were compared, before anything was quantized.
      difference: the greatest of a log-probability.
      same: of the rows, how many had the same output of a beam search of four.
      quality: BLEU of these rows before and after quantizing; None without.
      seconds: that it took in all.
    """

    folder: Path
    name: str
    bytes: int
    rows: int
    difference: float
    same: int
    quality: tuple[float, float] | None
    seconds: float

    def __str__(self) -> str:
        """What `t2t-exporter` prints."""
        few = "" if self.rows >= FEWEST_ROWS else f" (of {FEWEST_ROWS}: the split has no more)"
        lines = [
            f"{self.folder}: {self.name}, for CTranslate2",
            f"  size      {self.bytes / 2**20:.1f} MiB",
            f"  verified  {self.rows} rows of the dev split{few}: the same greedy outputs, "
            f"log-probabilities within {self.difference:.1e}",
            f"  beam {_BEAM}    the same outputs for {self.same} of {self.rows}; the two searches "
            "stop by different rules",
        ]
        if self.quality is not None:
            lines.append(f"  quantized BLEU {self.quality[0]:.2f} -> {self.quality[1]:.2f}")
        return "\n".join([*lines, f"  took      {self.seconds:.0f} seconds"])


def export(request: Request) -> Converted:
    """Writes the model of a run for CTranslate2, if it answers as the run's model does.

    Args:
      request: what, and where to; `quantize` is one of `ctranslate2.QUANTIZATIONS` or "".

    Raises:
      CheckpointError: there is no such run or checkpoint, or it is broken.
      DataError: there is no dev split.
      ExportError: the model does not fit CTranslate2, or is not answered for as it answers.
      UsageError: the request cannot be met.
    """
    start = time.perf_counter()
    ctranslate2.require()
    remove_leftovers(request.export_dir)
    request.check()
    searches = "a model for CTranslate2, which is told how to search when it is asked,"
    request.decode_hparams.check_read((), searches)
    with staged_folder(request.export_dir, overwrite=request.overwrite) as scratch:
        whole, averaged = scratch / "whole", scratch / "run"
        averaged.mkdir()
        loaded, chosen = request.load(averaged)
        ctranslate2.check_convertible(loaded)
        loaded.model.float()
        plain = whole
        if request.quantize:
            plain = scratch / "plain"
            plain.mkdir()
        ctranslate2.convert(loaded, plain)
        rows = rows_of(loaded, request.data_dir, request.verify_rows)
        verified = verify(loaded, plain, rows)
        quality = None
        if request.quantize:
            ctranslate2.convert(loaded, whole, request.quantize)
            quality = _compared(loaded, plain, whole, rows)
        copy_explanations(request.runs, loaded, whole)
        (whole / "README.md").write_text(recipe(loaded), encoding="utf-8")
        write_signature(_signature(loaded, chosen, request.quantize), whole)
        size = sum(path.stat().st_size for path in whole.iterdir())
    name = f"{loaded.info.task.model} of {loaded.problem.full_name}, {chosen}"
    seconds = time.perf_counter() - start
    return Converted(
        request.export_dir, name, size, len(rows), *verified, quality=quality, seconds=seconds
    )


def _signature(loaded: Loaded, chosen: str, quantize: str) -> Signature:
    """Returns what the folder says of itself: so it can be checked, and replaced."""
    found = about(loaded, chosen, form=CTRANSLATE2)
    made_with = {**found.made_with, "ctranslate2": ctranslate2.require().__version__}
    return dataclasses.replace(found, quantized=quantize, made_with=made_with)


class Row(NamedTuple):
    """A pair of the dev split.

    Attributes:
      number: in the split.
      inputs: ids.
      targets: ids.
    """

    number: int
    inputs: list[int]
    targets: list[int]


def rows_of(loaded: Loaded, data_dir: Path, count: int) -> list[Row]:
    """Returns rows spread evenly over the dev split, without those too long for the positions.

    Raises:
      DataError: there is no such data, or not a row in it.
    """
    shards = Shards.open(data_dir, loaded.problem.dataset_name, Split.EVAL)
    numbers = np.unique(
        np.linspace(0, shards.num_rows - 1, min(count, shards.num_rows)).astype(int)
    )
    columns = [
        stored(shards, loaded.features.columns[name], numbers.tolist())
        for name in (*loaded.features.inputs, *loaded.features.targets)
    ]
    rows = [
        Row(number, [int(i) for i in given], [int(i) for i in wanted])
        for number, given, wanted in zip(numbers.tolist(), *columns, strict=True)
        if len(given) > 1 and max(len(given), len(wanted)) + _LONGER <= ctranslate2.POSITIONS
    ]
    if not rows:
        raise DataError(f"the dev split of {loaded.problem.full_name} has no rows to compare.")
    return rows


class Verified(NamedTuple):
    """What was found: see `Converted`."""

    difference: float
    same: int


def verify(loaded: Loaded, folder: Path, rows: Sequence[Row]) -> Verified:
    """Compares a converted model with its own, both in float32.

    The log-probabilities of the rows' targets must be equal to `TOLERANCE`, and the outputs of
    greedy searches the same, unless two ids are as likely as that.  Beam searches stop by different
    rules, so it is asked that the score of an output is the model's log-probability of it.

    Raises:
      ExportError: they differ; tells the first row that does.
    """
    model = _Model(loaded)
    engine = _Engine(loaded, folder)
    inputs = [row.inputs for row in rows]
    limit = _LONGER + max(max(len(row.inputs), len(row.targets)) for row in rows)
    greatest = 0.0
    scored = engine.score(inputs, [row.targets for row in rows])
    for row, log_probs in zip(rows, scored, strict=True):
        expected = model.log_probs(row.inputs, row.targets)
        greatest = max(greatest, _compared_scores(row, expected, log_probs))
    greedy = engine.search(inputs, 1, limit)
    for row, ours, theirs in zip(rows, model.search(inputs, 1, limit), greedy, strict=True):
        if ours != theirs.ids:
            _check_tied(model, row, ours, theirs.ids)
    beams = engine.search(inputs, _BEAM, limit)
    for row, found in zip(rows, beams, strict=True):
        expected = model.log_probs(row.inputs, found.ids_and_end)
        greatest = max(greatest, _compared_scores(row, [sum(expected)], [found.score]))
    outputs = model.search(inputs, _BEAM, limit)
    return Verified(greatest, sum(a == b.ids for a, b in zip(outputs, beams, strict=True)))


def _compared_scores(row: Row, ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Returns the greatest difference of log-probabilities; ExportError if it is too great."""
    greatest = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    for place, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        # Not a number is not within anything.
        if not abs(a - b) <= TOLERANCE * max(1.0, abs(a)):
            raise ExportError(
                f"row {row.number} of the dev split: the log-probability of id {place} of the "
                f"output is {b:.6f} in CTranslate2 and {a:.6f} here. Nothing was written."
            )
    return greatest


def _check_tied(model: _Model, row: Row, ours: list[int], theirs: list[int]) -> None:
    """Raises ExportError unless two ids are equally likely where outputs begin to differ."""
    ends = [*ours, EOS], [*theirs, EOS]
    place = next(i for i, (a, b) in enumerate(zip(*ends, strict=False)) if a != b)
    likely = [model.log_probs(row.inputs, its[: place + 1])[-1] for its in ends]
    if abs(likely[0] - likely[1]) > TOLERANCE:
        raise ExportError(
            f"row {row.number} of the dev split: CTranslate2's greedy output is {theirs} and the "
            f"model's {ours}. Nothing was written."
        )


def _compared(loaded: Loaded, plain: Path, whole: Path, rows: Sequence[Row]) -> tuple[float, float]:
    """Returns BLEU before and after quantizing; ExportError if too much of it is lost."""
    (target,) = loaded.features.targets.values()
    limit = _LONGER + max(max(len(row.inputs), len(row.targets)) for row in rows)
    references = [str(target.decode(row.targets)) for row in rows]
    values = []
    for folder in (plain, whole):
        found = _Engine(loaded, folder).search([row.inputs for row in rows], _BEAM, limit)
        outputs = [str(target.decode(each.ids)) for each in found]
        values.append(score(outputs, references, ("bleu",))["bleu"].value)
    if values[1] < values[0] - _LOST:
        raise ExportError(
            f"quantized, BLEU of {len(rows)} rows of the dev split is {values[1]:.2f} and not "
            f"{values[0]:.2f}: more than {_LOST} lost. Nothing was written. More rows tell more "
            "(--verify_rows=2000); or leave --quantize out."
        )
    return values[0], values[1]


class _Model:
    """The run's model, in float32."""

    def __init__(self, loaded: Loaded) -> None:
        self._predictor = Predictor(loaded.model, loaded.problem, loaded.features)

    def search(self, inputs: Sequence[list[int]], beam_size: int, limit: int) -> list[list[int]]:
        """Returns the output of each input, without length penalty."""
        hparams = DecodeHParams(
            beam_size=beam_size,
            alpha=0.0,
            extra_length=limit,
            force_decode_length=True,
            activation_dtype="float32",
        )
        found = dict(self._predictor.predict_ids(inputs, hparams))
        return [list(found[index].hypotheses[0].ids) for index in range(len(inputs))]

    def log_probs(self, inputs: list[int], outputs: list[int]) -> list[float]:
        """Returns the log-probability of each id of an output."""
        given, asked = torch.tensor([inputs]), torch.tensor([outputs])
        predictor = self._predictor
        (source,), (target,) = predictor.features.inputs, predictor.features.targets
        with torch.inference_mode():
            logits = predictor.model({source: given, target: asked}).logits[target]
        log_probs = logits[0, :, : predictor.vocab_size].float().log_softmax(-1)  # [T, V]
        found: list[float] = log_probs.gather(-1, asked.T).flatten().tolist()
        return found


class _Found(NamedTuple):
    """An output of CTranslate2's search: ids without the end symbol, whether it has ended."""

    ids: list[int]
    score: float
    ids_and_end: list[int]


class _Engine:
    """A converted model, asked with ids."""

    def __init__(self, loaded: Loaded, folder: Path) -> None:
        package: Any = ctranslate2.require()
        (source,), (target,) = loaded.features.inputs.values(), loaded.features.targets.values()
        self._read, self._written = ctranslate2.tokens_of(source, target)
        self._ids = {token: number for number, token in enumerate(self._written)}
        self._ends = bool(getattr(source, "add_eos", False))
        self._translator = package.Translator(str(folder), max_queued_batches=-1)

    def _tokens(self, inputs: Sequence[list[int]]) -> list[list[str]]:
        return [[self._read[i] for i in (ids[:-1] if self._ends else ids)] for ids in inputs]

    def score(self, inputs: Sequence[list[int]], targets: Sequence[list[int]]) -> list[list[float]]:
        """Returns the log-probability of each id of outputs that end."""
        asked = [[self._written[i] for i in ids[:-1]] for ids in targets]
        found = self._translator.score_batch(
            self._tokens(inputs),
            asked,
            max_batch_size=2048,
            batch_type="tokens",
            max_input_length=0,
        )
        return [list(each.log_probs) for each in found]

    def search(self, inputs: Sequence[list[int]], beam_size: int, limit: int) -> list[_Found]:
        """Returns the output of each input, without length penalty."""
        found = self._translator.translate_batch(
            self._tokens(inputs),
            beam_size=beam_size,
            length_penalty=0.0,
            max_batch_size=2048,
            batch_type="tokens",
            max_input_length=0,
            max_decoding_length=limit,
            min_decoding_length=0,
            return_end_token=True,
            return_scores=True,
        )
        results = []
        for each in found:
            ids = [self._ids[token] for token in each.hypotheses[0]]
            plain = ids[: ids.index(EOS)] if EOS in ids else ids
            while plain and plain[-1] == PAD:
                plain = plain[:-1]
            results.append(_Found(plain, each.scores[0], ids))
        return results
