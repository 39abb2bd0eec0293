"""Replies in conversations: films, subtitles, daily life and chats of personas.

Source: tensor2tensor's dialog_*.py; each class cites its data.
"""

from __future__ import annotations

import itertools
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from t2t_torch.data.raw_file import RawFile, both_schemes, matching, member, published, sources_of
from t2t_torch.mode import Split
from t2t_torch.readers.formats import open_records
from t2t_torch.readers.text_file import Record
from t2t_torch.registry import register_problem
from t2t_torch.text_problem import Text2TextProblem, VocabType

_CLEANING = (
    ("[^a-z .?!'0-9]", ""),
    ("[.?!]", r" \g<0> "),
    (" ' ", " "),
    (" '(?=[a-z])", " "),
    ("n't", " n't"),
    ("(?<=[^ n])'(?=[^ t])", " '"),
)
_SUBTITLE_CLEANING = (
    ("[^a-z .?!'\t\\\\]", ""),
    ("\\\\['] ", " '"),
    ("\\\\", " "),
    ("[.?!]", r" \g<0> "),
    (" ' ", " "),
    ("n't", " n't"),
)


class DialogProblem(Text2TextProblem):
    """Base class of dialogues: each utterance but the last is an input, the next one its target.

    Utterances are lower-cased, without other characters than letters, digits, apostrophes and the
    marks of the ends of sentences.  Of every 100 dialogues 80 are TRAIN, 10 EVAL and 10 TEST.

    Attributes:
      cleaning: regular expressions and their replacements, applied in order to lower-case text.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1, Split.TEST: 1}
    vocab_type = VocabType.WORD
    cleaning: ClassVar[Sequence[tuple[str, str]]] = _CLEANING
    metrics = (*Text2TextProblem.metrics, "approx_bleu_score")
    input_space_id = 3  # tensor2tensor's SpaceID.EN_TOK
    target_space_id = 3
    suggested_flags = "--model=transformer --hparams_set=transformer_base"

    @abstractmethod
    def dialogues(self, tmp_dir: Path) -> Iterator[Sequence[str]]:
        """Yields the utterances of each dialogue, as they are in the raw files."""

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the utterances and replies of a split, without empty ones."""
        for number, dialogue in enumerate(self.dialogues(tmp_dir)):
            if _split_of(number % 100) is not split:
                continue
            for text, reply in itertools.pairwise([self.clean(text) for text in dialogue]):
                if text and reply:
                    yield {"inputs": text, "targets": reply}

    def clean(self, text: str) -> str:
        """Returns an utterance in lower case, as words between single spaces."""
        text = text.lower()
        for pattern, replacement in self.cleaning:
            text = re.sub(pattern, replacement, text)
        return " ".join(text.split())

    def lines(self, path: Path, encoding: str = "") -> Iterator[Record]:
        """Yields the lines of a raw file, in the field "text"."""
        options = {"encoding": encoding}
        return open_records(path, format="lines", bad=self.bad_records, options=options)


def _split_of(number: int) -> Split:
    return Split.TRAIN if number < 80 else Split.EVAL if number < 90 else Split.TEST


_CORNELL = published(
    "cornell", *both_schemes("www.cs.cornell.edu/~cristian/data/cornell_movie_dialogs_corpus.zip")
)
_MOVIE_LINES, _CONVERSATIONS = (
    member(_CORNELL, f"cornell movie-dialogs corpus/{name}.txt")
    for name in ("movie_lines", "movie_conversations")
)
_DELIMITER = " +++$+++ "


@register_problem("dialog_cornell32k")
class DialogCornell32k(DialogProblem):
    """Conversations of film characters, 220,000 pairs.

    Source: Danescu-Niculescu-Mizil and Lee 2011, "Chameleons in imagined conversations", CMCL.
    """

    sources = (_MOVIE_LINES, _CONVERSATIONS)

    def dialogues(self, tmp_dir: Path) -> Iterator[Sequence[str]]:
        """Yields the conversations; the files are Latin-1."""
        texts = {}
        for record in self.lines(_MOVIE_LINES.get(tmp_dir), "latin-1"):
            fields = record.values["text"].split(_DELIMITER)
            if len(fields) == 5:
                texts[fields[0].strip()] = fields[4]
            else:
                self._report(record, "5 fields: line, character, film, name, text")
        for record in self.lines(_CONVERSATIONS.get(tmp_dir), "latin-1"):
            names = re.findall(r"L\d+", record.values["text"].split(_DELIMITER)[-1])
            if names:
                yield [texts.get(name, "") for name in names]
            else:
                self._report(record, "the names of its lines at the end")

    def _report(self, record: Record, expected: str) -> None:
        what = f"{record.values['text'][:80]!r}, where {expected} were expected"
        self.bad_records.report(record.place, what)


def _subtitles(year: str) -> RawFile:
    # OPUS names it .tar.gz; what it sends is a zip archive.
    version = f"v{year}" if year else "v1"
    urls = (
        f"https://object.pouta.csc.fi/OPUS-OpenSubtitles/{version}/xml/en.zip",
        f"http://opus.nlpl.eu/download.php?f=OpenSubtitles{year}/en.tar.gz",
    )
    return RawFile("en.zip", (f"opensubtitles{year or 2009}",), urls)


class _OpenSubtitlesProblem(DialogProblem):
    """Base class of subtitles of films: each sentence and the next.

    A film is a file `<s id="1">`, `<w id="1.1">word</w>` ...; see opus.nlpl.eu.
    `sources` is the archive of the files.
    """

    approx_vocab_size = 2**16
    cleaning: ClassVar[Sequence[tuple[str, str]]] = _SUBTITLE_CLEANING

    def dialogues(self, tmp_dir: Path) -> Iterator[Sequence[str]]:
        """Yields the sentences of each film, in the order of their paths."""
        for path in matching(sources_of(self)[0], tmp_dir, "*.xml*"):
            sentences: list[list[str]] = []
            for record in self.lines(path):
                line = record.values["text"]
                if '<s id="' in line:
                    sentences.append([])
                for word in re.findall(r'<w id="[^>]*>(.*?)</w', line):
                    (sentences or [[]])[-1].append(word.replace("\t", " "))
            yield [" ".join(words) for words in sentences if words]


@register_problem("dialog_opensubtitles64k2009")
class DialogOpensubtitles64k2009(_OpenSubtitlesProblem):
    """Subtitles, the first release.

    Source: Tiedemann 2009, "News from OPUS", RANLP.
    """

    sources = (_subtitles(""),)


@register_problem("dialog_opensubtitles64k2011")
class DialogOpensubtitles64k2011(_OpenSubtitlesProblem):
    """Subtitles, the release of 2011."""

    sources = (_subtitles("2011"),)


@register_problem("dialog_opensubtitles64k2012")
class DialogOpensubtitles64k2012(_OpenSubtitlesProblem):
    """Subtitles, the release of 2012."""

    sources = (_subtitles("2012"),)


@register_problem("dialog_opensubtitles64k2013")
class DialogOpensubtitles64k2013(_OpenSubtitlesProblem):
    """Subtitles, the release of 2013."""

    sources = (_subtitles("2013"),)


@register_problem("dialog_opensubtitles64k2016")
class DialogOpensubtitles64k2016(_OpenSubtitlesProblem):
    """Subtitles, the release of 2016: Lison and Tiedemann 2016, "OpenSubtitles2016", LREC."""

    sources = (_subtitles("2016"),)


@register_problem("dialog_opensubtitles64k2018")
class DialogOpensubtitles64k2018(_OpenSubtitlesProblem):
    """Subtitles, the release of 2018: Lison et al. 2018, "OpenSubtitles2018", LREC."""

    sources = (_subtitles("2018"),)


_DAILY = member(
    published("dailydialog", "http://yanran.li/files/ijcnlp_dailydialog.zip"),
    "ijcnlp_dailydialog/dialogues_text.txt",
)


@register_problem("dialog_dailydialog16k")
class DialogDailydialog16k(DialogProblem):
    """Conversations of learners' textbooks, 13,118 of them.

    Source: Li et al. 2017, "DailyDialog: A Manually Labelled Multi-turn Dialogue Dataset", IJCNLP.
    Licence: CC BY-NC-SA 4.0.
    """

    sources = (_DAILY,)
    approx_vocab_size = 2**14

    def dialogues(self, tmp_dir: Path) -> Iterator[Sequence[str]]:
        """Yields the dialogues, one per line."""
        for record in self.lines(_DAILY.get(tmp_dir)):
            yield [text for text in record.values["text"].split("__eou__") if text.strip()]


_CONVAI2 = published(
    "convai2",
    "http://parl.ai/downloads/convai2/convai2_fix_723.tgz",
    "https://s3.amazonaws.com/fair-data/parlai/convai2/convai2_fix_723.tgz",
)
_CHATS = tuple(
    member(_CONVAI2, f"{part}_none_original_no_cands.txt") for part in ("train", "valid")
)


@register_problem("dialog_personachat16k")
class DialogPersonachat16k(DialogProblem):
    """Chats of two persons with given personas, which are not used.

    Source: Zhang et al. 2018, "Personalizing Dialogue Agents", ACL; ConvAI2.
    """

    sources = _CHATS
    approx_vocab_size = 2**14

    def dialogues(self, tmp_dir: Path) -> Iterator[Sequence[str]]:
        """Yields the chats: numbered lines from 1 of an utterance, a tab and the reply.

        The rest of a chat from a `__SILENCE__` on is skipped, as in tensor2tensor.
        """
        held: list[str] = []
        silent = False
        for file in _CHATS:
            for record in self.lines(file.get(tmp_dir)):
                number, _, rest = record.values["text"].strip().partition(" ")
                utterance, tab, reply = rest.partition("\t")
                if not (number.isdecimal() and tab):
                    self.bad_records.report(record.place, "no number, utterance, tab and reply")
                    continue
                if number == "1":
                    if held:
                        yield held
                    held, silent = [], False
                silent = silent or "__SILENCE__" in rest
                if not silent:
                    held += [utterance, reply.split("\t")[0]]
        if held:
            yield held
