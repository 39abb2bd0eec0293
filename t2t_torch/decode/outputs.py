"""How what was found is written: names of files, lines, JSON and tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_torch.artifact.prediction import Prediction
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.predictor import Predictor
from t2t_torch.decode.record import prediction_record
from t2t_torch.decode.shards import Shard, name_of_shard
from t2t_torch.decode.table import write_table
from t2t_torch.decode.target import open_target

# What many readers of text files take for the end of a line, in an output that is one line.
_LINE_BREAKS = str.maketrans({"\n": " ", "\r": " "})


def decodes_name(
    base: Path, predictor: Predictor, hparams: DecodeHParams, shard: Shard | None = None
) -> Path:
    """tensor2tensor's name: `<base>.<model>.<hparams_set>.<problem>.beam4.alpha0.6.decodes`.

    Of a part its number follows the base; see `Shard.name`.
    """
    base = name_of_shard(base, hparams, shard)
    how = f"beam{hparams.beam_size}.alpha{hparams.alpha}.decodes"
    if hparams.draws:
        how = f"random{hparams.random_seed}.temp{hparams.sampling_temp}.decodes"
    if how in base.name:
        return base
    what = [base.name]
    if predictor.run is not None:
        what += [predictor.run.task.model, predictor.run.task.hparams_set]
    return base.with_name(".".join([*what, predictor.problem.full_name, how]))


def one_line(prediction: Prediction, hparams: DecodeHParams) -> str:
    """Writes what was found for an input as tensor2tensor does, on one line.

    A line break in an output becomes a space, and so does the delimiter; with `return_beams`, which
    puts tabs between hypotheses, a tab too.
    """
    cells = []
    for hypothesis in prediction.hypotheses:
        text = hypothesis.text
        if hparams.identity_output:
            text = " ".join(map(str, hypothesis.ids))
        text = without_breaks(text, hparams)
        cells.append(text.replace("\t", " ") if hparams.writes_several else text)
        if hparams.write_beam_scores:
            cells.append(f"{hypothesis.score:.2f}")
    return "\t".join(cells)


def write_predictions(
    path: Path,
    predictor: Predictor,
    inputs: Sequence[Any],
    predictions: Sequence[Prediction],
    hparams: DecodeHParams,
) -> None:
    """Writes what was found in the form of `output_format`; whole or not at all.

    Args:
      path: of the file.
      predictor: that found it.
      inputs: texts, or mappings of a text and more, which JSON tells whole and a table by its text.
      predictions: as many.
      hparams: how to write.
    """
    if hparams.output_format == "text":
        write_outputs(path, [one_line(found, hparams) for found in predictions], hparams)
        return
    target = next(iter(predictor.features.targets))
    ids, alignments = hparams.identity_output, hparams.write_alignments
    records = [prediction_record(found, ids=ids, alignments=alignments) for found in predictions]
    with open_target(path) as stream:
        if hparams.output_format == "jsonl":
            for text, record in zip(inputs, records, strict=True):
                given = text if isinstance(text, dict) else {predictor.field: text}
                whole = {"input": given, "output": {target: record}}
                stream.write(json.dumps(whole, ensure_ascii=False) + "\n")
            return
        more = {"ids": ids, "alignment": alignments}
        told = ("value", "score", *(name for name, is_told in more.items() if is_told))
        names = ["" if name == "value" else f"_{name}" for name in told]
        places = max((len(found.hypotheses) for found in predictions), default=1)
        after = ["", *(f"_{place}" for place in range(2, places + 1))]
        given = "prompt" if predictor.field == target else predictor.field
        header = [given, *(f"{target}{name}{place}" for place in after for name in names)]
        write_table(
            stream,
            header,
            (
                [
                    text_of(text, predictor.field),
                    *_cells(record.get("hypotheses", [record]), told, places),
                ]
                for text, record in zip(inputs, records, strict=True)
            ),
        )


def text_of(given: Any, field: str) -> Any:
    """Returns the text of an input, of words that are a list a line of them.

    Args:
      given: the text, or a mapping that has it.
      field: its name there.
    """
    text = given.get(field, given) if isinstance(given, Mapping) else given
    return " ".join(map(str, text)) if isinstance(text, list) else text


def _cells(hypotheses: Sequence[Mapping[str, Any]], told: Sequence[str], places: int) -> list[Any]:
    """Returns the cells of hypotheses, empty ones where there are fewer than places.

    An alignment is written as word aligners do, "0-0 1-2".
    """
    cells = [
        " ".join(f"{i}-{j}" for i, j in hypothesis[name])
        if name == "alignment"
        else hypothesis[name]
        for hypothesis in hypotheses
        for name in told
    ]
    return cells + [None] * (places * len(told) - len(cells))


def write_outputs(path: Path, outputs: Sequence[str], hparams: DecodeHParams) -> None:
    """Writes outputs, the delimiter after each; the file appears whole or not at all."""
    with open_target(path) as stream:
        stream.writelines(output + hparams.separator for output in outputs)


def without_breaks(text: str, hparams: DecodeHParams) -> str:
    """Returns a text as one line: breaks of a line, and the delimiter, become spaces."""
    return text.translate(_LINE_BREAKS).replace(hparams.separator, " ")
