"""The prompt of `t2t-decoder --decode_interactive`."""

from __future__ import annotations

import abc
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from t2t_torch.decode.files import example_line, how_to_write, input_of, record_of
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.label_predictor import LabelPredictor
from t2t_torch.decode.outputs import console_lines
from t2t_torch.decode.predictor import Predictor
from t2t_torch.errors import T2TError
from t2t_torch.runtime.prediction import InputError

HELP = """Type an input and Enter.  Commands:
  ns=N   show the N best outputs, or N draws, with their scores (widens the beam if need be)
  dl=N   let an output be N tokens longer than its input
  q      quit
  ?      show these commands"""

_PROMPT = "> "
_NUMBER = re.compile(r"(ns|dl)\s*=\s*([0-9]{1,9})")
# Clear attempts at a command: `ns=` with anything, and a word similar to a command.
_MISTAKEN = re.compile(r"(ns|dl|it)\s*=.*|[a-z]{2}=\S*|help|quit|exit|\?")


class Prompt(abc.ABC):
    """Answers lines until they end, or until `q`.

    Args:
      hparams: decoding settings.
      write: prints a text.

    Attributes:
      help: description of the commands.
    """

    help: str

    def __init__(self, hparams: DecodeHParams, write: Callable[[str], object]) -> None:
        self._hparams = hparams
        self._write = write

    def run(self, lines: Iterable[str]) -> None:
        """Answers each line; prints the error for a line that cannot be decoded."""
        self._write(f"{self.help}\n{_PROMPT}")
        for line in lines:
            text = line.strip()
            if text == "q":
                return
            try:
                answer = self._reply(text)
            except T2TError as error:
                answer = f"error: {error}\n"
            self._write(answer + _PROMPT)
        self._write("\n")

    def _reply(self, text: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError:  # other bytes, which `errors="surrogateescape"` accepts
            return "error: that line is not UTF-8. Set the terminal, or the file, to UTF-8.\n"
        changed = self._command(text)
        if changed is None and looks_like_command(text):
            return f"{self.help}\n"
        return self._answer(text) if changed is None else changed

    def _command(self, text: str) -> str | None:
        """Executes a command; returns its output, None if the line is not a command."""
        return None

    @abc.abstractmethod
    def _answer(self, text: str) -> str:
        """Returns the output for an input."""


class TextPrompt(Prompt):
    """The prompt of a model that generates texts.

    Args:
      predictor: predictor of the model.
      hparams: initial decoding settings, which commands can change.
      write: prints a text.
    """

    help = HELP

    def __init__(
        self, predictor: Predictor, hparams: DecodeHParams, write: Callable[[str], object]
    ) -> None:
        super().__init__(hparams, write)
        self._predictor = predictor
        several = hparams.num_decodes if hparams.draws else hparams.beam_size
        self._shown = several if hparams.writes_several else 1

    def _command(self, text: str) -> str | None:
        if match := _NUMBER.fullmatch(text):
            return self._set(match[1], int(match[2]))
        if text in ("it=input", "it=text", "it=image", "it=label"):
            return "inputs are text here; it= changes nothing\n"
        return None

    def _answer(self, text: str) -> str:
        value = self._predictor.value_of(text, Path())
        prediction = self._predictor.predict([value], self._hparams)[0]
        if self._shown == 1:
            return f"{prediction.text}\n"
        return "".join(
            f"{one.score:8.2f}  {one.text}\n" for one in prediction.hypotheses[: self._shown]
        )

    def _set(self, command: str, number: int) -> str:
        if command == "dl":
            hparams = self._hparams.replace(extra_length=number)
            self._predictor.check(hparams)
            self._hparams = hparams
            return f"outputs may be {number} tokens longer than inputs\n"
        count = max(1, number)
        if self._hparams.draws:
            self._shown, self._hparams = count, self._hparams.replace(num_decodes=count)
            return f"showing {count} draws\n"
        groups = self._hparams.num_beam_groups
        widest = math.ceil(max(self._hparams.beam_size, count) / groups) * groups
        hparams = self._hparams.replace(beam_size=widest, return_beams=count > 1)
        self._predictor.check(hparams)
        self._shown, self._hparams = count, hparams
        return f"showing {self._shown} of a beam of {self._hparams.beam_size}\n"


def looks_like_command(text: str) -> bool:
    """Returns True for a clear attempt at a command, such as `ns=abc`, `xx=1` or `help`."""
    return _MISTAKEN.fullmatch(text) is not None


LABEL_HELP = """Type an input and Enter: {how}
Commands:
  q      quit
  ?      show these commands"""


class LabelPrompt(Prompt):
    """The prompt of a model of labels.

    Args:
      predictor: predictor of the model.
      hparams: settings; `num_labels` labels are shown with their probabilities.
      write: prints a text.

    Raises:
      HParamsError: hparams are set that only models of texts read.
    """

    def __init__(
        self, predictor: LabelPredictor, hparams: DecodeHParams, write: Callable[[str], object]
    ) -> None:
        super().__init__(hparams, write)
        self._predictor = predictor
        hparams.check_of_labels()
        kinds = [spec.kind for spec in predictor.specs.values()]
        is_text = kinds in (["text"], ["words"])
        how = f"{'a text, or ' if is_text else ''}JSON such as {example_line(predictor)}"
        self.help = LABEL_HELP.format(how=how)

    def _answer(self, text: str) -> str:
        value = input_of(self._predictor, text, "this line")
        try:
            answer = self._predictor.predict([value])[0]
        except InputError as error:
            return f"error: {error.why} {how_to_write(self._predictor)}\n"
        record = record_of(self._predictor, value, answer, self._hparams)
        targets = self._predictor.features.targets
        lines = []
        for name, feature in targets.items():
            lines += [f"{name}:"] if len(targets) > 1 else []
            lines += console_lines(feature, record["output"][name])
        return "".join(f"{line}\n" for line in lines)
