"""The prompt of `t2t-decoder --decode_interactive`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.predictor import Predictor
from t2t_torch.errors import T2TError

HELP = """Type an input and Enter.  Commands:
  ns=N   show the N best outputs with their scores (widens the beam if need be)
  dl=N   let an output be N tokens longer than its input
  q      quit"""

_PROMPT = "> "


class Prompt:
    """Answers lines until there are no more, or `q`.

    Args:
      predictor: what answers.
      hparams: how it decodes, until a command changes that.
      write: shows a text to the user.
    """

    def __init__(
        self, predictor: Predictor, hparams: DecodeHParams, write: Callable[[str], object]
    ) -> None:
        self._predictor = predictor
        self._hparams = hparams
        self._write = write
        self._shown = hparams.beam_size if hparams.return_beams else 1

    def run(self, lines: Iterable[str]) -> None:
        """Answers each line.  A line that cannot be decoded is told and passed over."""
        self._write(HELP + "\n" + _PROMPT)
        for line in lines:
            text = line.strip()
            if text == "q":
                return
            try:
                answer = self._answer(text)
            except T2TError as error:
                answer = f"error: {error}\n"
            self._write(answer + _PROMPT)
        self._write("\n")

    def _answer(self, text: str) -> str:
        command, _, value = text.partition("=")
        if command in ("ns", "dl") and value.strip().isdecimal():
            return self._set(command, int(value))
        if command == "it" and value.strip() in ("input", "text", "image", "label"):
            return "inputs are text here; it= changes nothing\n"
        prediction = self._predictor.predict([text], self._hparams)[0]
        if self._shown == 1:
            return f"{prediction.text}\n"
        return "".join(
            f"{found.score:8.2f}  {found.text}\n" for found in prediction.hypotheses[: self._shown]
        )

    def _set(self, command: str, number: int) -> str:
        if command == "dl":
            self._hparams = self._hparams.replace(extra_length=number)
            return f"outputs may be {number} tokens longer than inputs\n"
        self._shown = max(1, number)
        self._hparams = self._hparams.replace(
            beam_size=max(self._hparams.beam_size, self._shown), return_beams=self._shown > 1
        )
        return f"showing {self._shown} of a beam of {self._hparams.beam_size}\n"
