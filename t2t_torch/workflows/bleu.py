"""Scores of outputs against references."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from t2t_torch.errors import UsageError
from t2t_torch.reporter import output
from t2t_torch.settings import Settings, hp, require
from t2t_torch.trust import workflow

if TYPE_CHECKING:
    from t2t_torch.metrics.text_scores import ScoreEvents, Translation


class BleuSettings(Settings):
    """Scores outputs against a file of references, line by line.

        t2t-bleu --translation=out.txt --reference=right.txt
        t2t-bleu --translation=out.txt --reference=right.txt --scores=rouge_2,word_error_rate
        t2t-bleu --translations_dir=translations --reference=right.txt --wait_minutes=60

    Prints the BLEU scores of tensor2tensor and of sacreBLEU with their signatures.  In a folder
    that t2t-translate-all writes to, each new file is scored, and BLEU_cased and BLEU_uncased are
    written to TensorBoard with the step and the time of the checkpoint.
    """

    translation: str | None = hp(None, "File of outputs, one per line; may be gzipped.", path=True)
    translations_dir: str | None = hp(
        None,
        "Directory of translations named <anything>-<step>, as written by t2t-translate-all.",
        path=True,
    )
    reference: str | None = hp(
        None, "File of reference outputs, with the same number of lines.", path=True
    )
    event_dir: str | None = hp(
        None, "Directory of the TensorBoard events; default: --translations_dir.", path=True
    )
    bleu_variant: Literal["both", "cased", "uncased"] = hp(
        "both", "Cased BLEU, uncased BLEU or both, if --scores is not given."
    )
    bleu_tokenize: str = hp(
        "intl", "How sacreBLEU cuts lines into words: 13a, intl, char, zh, flores200, none."
    )
    scores: tuple[str, ...] = hp(
        (),
        "What to print instead: bleu, bleu_uncased, t2t_bleu, t2t_bleu_uncased, chrf, ter, "
        "rouge_1, rouge_2, rouge_l, word_error_rate, character_error_rate, exact_match.",
    )
    tag_suffix: str = hp("", "Suffix of the event tags, such as _beam1 for BLEU_cased_beam1.")
    min_steps: int = hp(
        -1,
        "Files of fewer steps are left out; -1: those up to last_evaluated_step.txt in "
        "--event_dir.",
        low=-1,
    )
    wait_minutes: int = hp(0, "Minutes to wait for another file; 0: no wait.", low=0)
    report_zero: bool | None = hp(
        None,
        "A score of 0 at step 0, at the time of the folder's oldest file, where training began; "
        "by default where nothing was scored before.",
    )

    @property
    def names(self) -> Sequence[str]:
        """Names of the scores."""
        return self.scores or _BLEU[self.bleu_variant]


_SIDES = ("translation", "reference")
_OF_FOLDER = ("event_dir", "tag_suffix", "min_steps", "wait_minutes", "report_zero")
_BLEU = {
    "cased": ("t2t_bleu", "bleu"),
    "uncased": ("t2t_bleu_uncased", "bleu_uncased"),
    "both": ("t2t_bleu_uncased", "t2t_bleu", "bleu_uncased", "bleu"),
}


@workflow
def compute_bleu(settings: BleuSettings) -> None:
    """Scores a file of outputs, or those in a folder."""
    if settings.translations_dir:
        if settings.translation:
            raise UsageError("--translation and --translations_dir: give one of them.")
        require(settings, "reference")
        _score_folder(settings, Path(settings.translations_dir))
        return
    unread = [f"--{name}" for name in _OF_FOLDER if settings.is_changed(name)]
    if unread:
        raise UsageError(f"{', '.join(unread)}: read with --translations_dir alone. Leave it out.")
    require(settings, *_SIDES)
    from t2t_torch.metrics import text_scores

    outputs, references = (_lines(Path(getattr(settings, side))) for side in _SIDES)
    text_scores.check_counts(len(outputs), len(references), f"--reference={settings.reference}")
    names, tokenize = settings.names, settings.bleu_tokenize
    output(text_scores.table(outputs, references, names, tokenize=tokenize))


def _lines(path: Path) -> list[str]:
    from t2t_torch.files import read_lines

    return [line.strip() for line in read_lines(path)]


def _score_folder(settings: BleuSettings, folder: Path) -> None:
    """Scores the files of a folder, also new ones.

    Raises:
      DataError: a file and the reference have different numbers of lines.
      UsageError: the folder does not exist after `--wait_minutes`.
    """
    from t2t_torch.checkpoint.storage import follow
    from t2t_torch.metrics.text_scores import ScoreEvents, score, start_of, translations_in

    references = _lines(Path(str(settings.reference)))
    score([], [], settings.names, tokenize=settings.bleu_tokenize)  # checks the names first
    _wait_for(folder, settings.wait_minutes)
    events = ScoreEvents(Path(settings.event_dir or folder), settings.tag_suffix)
    try:
        last = events.last_step() if settings.min_steps < 0 else None
        first = last + 1 if last is not None else max(0, settings.min_steps)
        zero = settings.report_zero if settings.report_zero is not None else first == 0
        scored = 0
        for one in follow(lambda: translations_in(folder, first), settings.wait_minutes):
            if zero and not scored:
                events.write(0, start_of(folder), dict.fromkeys(settings.names, 0.0))
            _score(settings, one, references, events)
            scored += 1
    finally:
        events.close()
    if not scored:
        since = "" if first == 0 else f" of step {first:,} or later"
        output(f"'{folder}' has no translation{since}: a file named <anything>-<step>.")


def _wait_for(folder: Path, minutes: int) -> None:
    from t2t_torch.checkpoint.storage import POLL_SECONDS

    end = time.monotonic() + minutes * 60
    while not folder.is_dir():
        if time.monotonic() >= end:
            raise UsageError(
                f"there is no folder '{folder}'. t2t-translate-all makes one; --wait_minutes says "
                "how long to wait for it."
            )
        time.sleep(POLL_SECONDS)


def _score(
    settings: BleuSettings, one: Translation, references: Sequence[str], events: ScoreEvents
) -> None:
    from t2t_torch.metrics.text_scores import check_counts, score

    outputs = _lines(one.path)
    subject = f"{one.path} cannot be scored: --reference={settings.reference}"
    check_counts(len(outputs), len(references), subject)
    scores = score(outputs, references, settings.names, tokenize=settings.bleu_tokenize)
    events.write(one.step, one.seconds, {name: each.value for name, each in scores.items()})
    events.note(one.step)
    for name, each in scores.items():
        output(f"step {one.step:,}  {name} {each.value:.4f}  {each.signature}")
