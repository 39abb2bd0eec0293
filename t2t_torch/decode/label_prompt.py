"""The prompt of `t2t-decoder --decode_interactive` for a model that labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from t2t_torch.artifact.answer import InputError
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.interactive import looks_like_command
from t2t_torch.decode.label_files import example_line, how_to_write, input_of, record_of
from t2t_torch.decode.label_predictor import LabelPredictor
from t2t_torch.decode.record import tagged
from t2t_torch.errors import T2TError
from t2t_torch.features import Feature, Tags, Text, Turns

HELP = """Type an input and Enter: {how}
Commands:
  q      quit
  ?      show these commands"""

_PROMPT = "> "


class LabelPrompt:
    """Answers lines until there are no more, or `q`.

    Args:
      predictor: what answers.
      hparams: `num_labels` are shown with their probabilities.
      write: shows a text to the user.

    Raises:
      HParamsError: hparams are set that only models of texts read.
    """

    def __init__(
        self, predictor: LabelPredictor, hparams: DecodeHParams, write: Callable[[str], object]
    ) -> None:
        self._predictor = predictor
        self._hparams = hparams
        self._write = write
        hparams.check_of_labels()
        kinds = list(predictor.kinds.values())
        is_text = len(kinds) == 1 and isinstance(kinds[0], Text) and not isinstance(kinds[0], Turns)
        how = f"{'a text, or ' if is_text else ''}JSON such as {example_line(predictor)}"
        self._help = HELP.format(how=how)

    def run(self, lines: Iterable[str]) -> None:
        """Answers each line.  A line that cannot be read is told and passed over."""
        self._write(f"{self._help}\n{_PROMPT}")
        for line in lines:
            text = line.strip()
            if text == "q":
                return
            try:
                is_command = looks_like_command(text)
                answer = f"{self._help}\n" if is_command else self._answer(text)
            except T2TError as error:
                answer = f"error: {error}\n"
            self._write(answer + _PROMPT)
        self._write("\n")

    def _answer(self, text: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError:
            return "error: that line is not UTF-8. Set the terminal, or the file, to UTF-8.\n"
        given = input_of(self._predictor, text, "this line")
        try:
            answer = self._predictor.predict([given])[0]
        except InputError as error:
            return f"error: {error.why} {how_to_write(self._predictor)}\n"
        record = record_of(self._predictor, given, answer, self._hparams.num_labels)
        targets = self._predictor.features.targets
        told = []
        for name, feature in targets.items():
            told += [f"{name}:"] if len(targets) > 1 else []
            told += told_record(feature, record["output"][name])
        return "".join(f"{line}\n" for line in told)


def told_record(feature: Feature, record: Mapping[str, Any]) -> list[str]:
    """Returns what was found for a target in lines: labels after their probabilities, the best one
    first; words with their tags, and the spans that they mark; else the value.

    Args:
      feature: the target.
      record: as `record.found_record` makes it.
    """
    if isinstance(feature, Tags):
        spans = [f"  {span['kind']}: {span['text']}" for span in record.get("spans", [])]
        return [tagged(record["words"], record["value"]), *spans]
    scores = record.get("probabilities")
    if isinstance(scores, Mapping):
        return [f"{score:8.4f}  {label}" for label, score in scores.items()]
    value = " ".join(str(record["value"]).splitlines())
    return [f"{record['probability']:8.4f}  {value}" if "probability" in record else value]
