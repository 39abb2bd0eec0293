"""Files written back with the predictions of a run or an artifact in columns of their own."""

from __future__ import annotations

import heapq
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_torch.decode.predicted_file import CONLL, TABLES, WHOLE_TABLES, PredictedFile, PredictedRow
from t2t_torch.errors import UsageError
from t2t_torch.files import check_target, without_packing
from t2t_torch.reporter import message, output
from t2t_torch.settings import hp, hp_path
from t2t_torch.trust import CodeSettings
from t2t_torch.workflows.context import CHECKPOINT_PATH
from t2t_torch.workflows.decode import DECODED_PROBLEM

if TYPE_CHECKING:
    from t2t_torch.features import OutputSpec
    from t2t_torch.runtime.prediction import Prediction


class PredictSettings(CodeSettings):
    """Writes a file back with predictions: its own columns in their order, then the predictions.

        t2t-predict run new.csv
        t2t-predict artifact new.jsonl --output=predicted.jsonl
        t2t-predict run --unlabelled=pool.csv --rows=200    # those most worth labelling next

    The declaration of the run says which columns are the inputs; labels may be missing.  A row
    that cannot be predicted is kept in its place, without a prediction, and reported.
    """

    problem: str | None = DECODED_PROBLEM
    paths: tuple[str, ...] = hp(
        (),
        "A run directory or an artifact, and a file; also without --paths=.",
        path=True,
        repeated=True,
    )
    checkpoint_path: str | None = CHECKPOINT_PATH
    output: str | None = hp_path(
        "File of the rows with their predictions, .csv, .tsv, .jsonl, or as CoNLL like the file;"
        " default: FILE_predicted.csv beside the file, or FILE_to_label.csv."
    )
    overwrite: bool = hp(False, "Replaces the file of the predictions.")
    unlabelled: str | None = hp_path(
        "File of rows without labels: writes the most uncertain ones that differ from each other,"
        " in the order in which they are most worth labelling."
    )
    rows: int = hp(100, "Number of rows of --unlabelled that are written.", low=1)


def source_and_target(settings: PredictSettings) -> tuple[Path, Path]:
    """Returns the file that is read and the one that is written, checked before any work.

    Raises:
      UsageError: the file is missing, or the output exists or cannot be written.
    """
    expected = 1 if settings.unlabelled else 2
    if len(settings.paths) != expected:
        what = "--unlabelled=FILE" if settings.unlabelled else "FILE"
        raise UsageError(f"expected a run or an artifact, and a file:  t2t-predict RUN {what}")
    source = Path(settings.unlabelled or settings.paths[1]).expanduser()
    if not source.exists():
        raise UsageError(f"there is no file {source}.")
    name = without_packing(source.name)
    own = Path(name).suffix.lower()
    own = {".ndjson": ".jsonl", ".json": ".jsonl"}.get(own, own)
    known = TABLES if settings.unlabelled else (*TABLES, *CONLL)
    ending = own if own in known else ".csv"
    known = (*known, *WHOLE_TABLES)
    what = "to_label" if settings.unlabelled else "predicted"
    target = Path(settings.output or source.with_name(f"{Path(name).stem}_{what}{ending}"))
    if target.suffix.lower() not in known:
        raise UsageError(f"--output={target}: expected a name that ends in {', '.join(known)}.")
    if target.exists() and not settings.overwrite:
        raise UsageError(f"{target} exists: replace it with --overwrite, or name another --output.")
    check_target(target, source, flag="--output")
    return source, target


def write_predicted(model: Any, source: Path, target: Path, settings: PredictSettings) -> None:
    """Writes the rows of a file with the predictions of a model; reports rows without one.

    Args:
      model: a predictor or an artifact.
      source: the file.
      target: the written file; unchanged after an error.
      settings: the settings.

    Raises:
      T2TError: the file as a whole cannot be read, or the output cannot be written.
    """
    predicted = PredictedFile(model, source)
    if settings.unlabelled:
        chosen = most_worth(predicted.rows(), predicted.targets, settings.rows)
        predicted.write_table(target, iter(chosen))
        output(f"{len(chosen):,} of {predicted.count:,} rows to label, best first: {target}")
    else:
        predicted.write(target)
        output(f"{predicted.count:,} rows: {target}")
    if predicted.faults:
        more = "\n  ..." if predicted.num_faults > len(predicted.faults) else ""
        listed = "\n  ".join(predicted.faults)
        counts = f"{predicted.num_faults:,} of {predicted.count:,} rows"
        message(f"{counts} have no prediction:\n  {listed}{more}")


_POOL = 10  # candidates for each chosen row
_HASHES = 2048  # dimensions of the hashed words of a candidate


def uncertainty(prediction: Prediction, targets: Sequence[OutputSpec]) -> float:
    """Returns the uncertainty of the least certain target, from 0 to 1.

    It is 1 minus the margin between the two most probable labels (Scheffer et al. 2001); of several
    labels, of the one whose probability is nearest to 0.5; of tags, 1 minus the lowest probability;
    of texts, 1 minus the probability per token.
    """
    found = [0.0]
    for target in targets:
        scores: Any = prediction.scores.get(target.name)
        if prediction.hypotheses:
            best = prediction.hypotheses[0]
            found.append(1 - math.exp(min(0.0, best.score) / (len(best.ids) + 1)))
        elif target.kind == "multilabel":
            found.append(1 - min(abs(2 * one - 1) for one in scores.values()))
        elif isinstance(scores, Mapping):
            best_two = heapq.nlargest(2, scores.values())
            found.append(1 - best_two[0] + sum(best_two[1:]))
        else:
            found.append(1 - min(scores or [prediction.probabilities.get(target.name, 1.0)]))
    return max(found)


def most_worth(
    rows: Iterable[PredictedRow], targets: Sequence[OutputSpec], count: int
) -> list[PredictedRow]:
    """Returns the rows to label next, the best first.

    Of the most uncertain rows, ten times `count`, those are taken in turn whose
    uncertainty, times the cosine distance of their words to the rows taken before, is greatest.

    Args:
      rows: rows with predictions, read one after another.
      targets: targets of the model.
      count: number of rows; fewer if there are fewer different ones.

    Raises:
      UsageError: the model gives no probabilities.
    """
    import numpy as np

    if all(target.kind == "numbers" for target in targets):
        raise UsageError("the model predicts numbers without probabilities: no row is uncertain.")
    scored = (
        (uncertainty(row.prediction, targets), -number, row)
        for number, row in enumerate(rows)
        if row.prediction is not None
    )
    pool = heapq.nlargest(_POOL * count, scored, key=lambda one: one[:2])
    worth = np.array([one[0] for one in pool], np.float32) + 1e-6  # 0: a copy of a chosen row
    words = np.zeros((len(pool), _HASHES), np.float32)
    for place, (_, _, row) in enumerate(pool):
        for word in set(" ".join(map(str, row.sample.values())).casefold().split()):
            words[place, zlib.crc32(word.encode()) % _HASHES] = 1
    words /= np.maximum(np.linalg.norm(words, axis=1, keepdims=True), 1e-9)
    distance, chosen = np.ones(len(pool), np.float32), list[int]()
    while len(chosen) < min(count, len(pool)):
        best = int((worth * distance).argmax())
        if chosen and distance[best] < 1e-5:
            break
        chosen.append(best)
        distance = np.minimum(distance, np.clip(1 - words @ words[best], 0, 1))
    return [pool[place][2] for place in chosen]
