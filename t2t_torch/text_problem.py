"""The contract of problems whose raw samples are text."""

from __future__ import annotations

import enum
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch import registry
from t2t_torch.data.manifest import datagen_command
from t2t_torch.data.samples import samples_of
from t2t_torch.errors import DataError
from t2t_torch.features import Features, Text
from t2t_torch.mode import Split
from t2t_torch.problem import Problem
from t2t_torch.text.byte import ByteEncoder
from t2t_torch.text.encoder import TextEncoder
from t2t_torch.text.subword import SubwordEncoder
from t2t_torch.text.token import TokenEncoder


class VocabType(enum.Enum):
    """What a text is cut into.  The names are tensor2tensor's."""

    CHARACTER = "character"  # bytes, in truth
    SUBWORD = "subword"
    TOKEN = "token"


class Text2TextProblem(Problem):
    """Text in, text out: `generate_samples` yields {"inputs": str, "targets": str}.

    Both sides share one vocabulary.  A subword vocabulary is learnt from both sides of the training
    samples; a token vocabulary is the user's file in the data folder.

    Attributes:
      vocab_type: what a text is cut into.
      approx_vocab_size: ids wanted of a subword vocabulary; a small corpus gives fewer.
      max_samples_for_vocab: a subword vocabulary is learnt from so many samples, drawn evenly from
        all; None for all.
      oov_token: the word of a token vocabulary that stands for unknown words; None refuses them.
      use_vocab_from_other_problem: the name of the problem whose vocabulary is this one's too.
      has_inputs: False for a language model, whose samples are {"targets": str}.
    """

    batch_size_means_tokens = True
    vocab_type: ClassVar[VocabType] = VocabType.SUBWORD
    approx_vocab_size: ClassVar[int] = 2**15
    max_samples_for_vocab: ClassVar[int | None] = 1_000_000
    oov_token: ClassVar[str | None] = None
    use_vocab_from_other_problem: ClassVar[str | None] = None
    has_inputs: ClassVar[bool] = True
    setting_names: ClassVar[tuple[str, ...]] = (
        "vocab_filename",
        "max_samples_for_vocab",
        "oov_token",
    )

    @property
    def vocab_filename(self) -> str | None:
        """The name of the vocabulary's file in the data folder; None if there is none."""
        if self.use_vocab_from_other_problem is not None:
            return self._vocab_owner().vocab_filename
        if self.vocab_type is VocabType.CHARACTER:
            return None
        kind = "tokens" if self.vocab_type is VocabType.TOKEN else "subwords"
        return f"vocab.{self.dataset_name}.{self.approx_vocab_size}.{kind}"

    @property
    def vocab_files(self) -> tuple[str, ...]:
        """The vocabulary's file, if it has one."""
        return (self.vocab_filename,) if self.vocab_filename is not None else ()

    @property
    def kept_vocab_files(self) -> tuple[str, ...]:
        """The vocabulary's file, if it is another problem's or a list of words of the user's."""
        borrowed = self.use_vocab_from_other_problem is not None
        return self.vocab_files if borrowed or self.vocab_type is VocabType.TOKEN else ()

    def build_vocab(self, data_dir: Path, tmp_dir: Path) -> None:
        """Learns the subword vocabulary, unless it is in `data_dir` already.

        Raises:
          DataError: there is no text to learn from, or the user's token vocabulary is missing.
        """
        if self.use_vocab_from_other_problem is not None:
            owner = self._vocab_owner()
            if not all((data_dir / file).exists() for file in owner.vocab_files):
                owner.prepare(tmp_dir)
                owner.build_vocab(data_dir, tmp_dir)
            return
        if self.vocab_filename is None or (data_dir / self.vocab_filename).exists():
            return
        path = data_dir / self.vocab_filename
        if self.vocab_type is VocabType.TOKEN:
            raise DataError(
                f"{self.name!r} has a vocabulary of whole words, {path.name}, which is not there. "
                "Write it in --data_dir: one word a line, the first two lines <pad> and <EOS>."
            )
        SubwordEncoder.train(self._vocab_texts(tmp_dir), self.approx_vocab_size, path)

    def stored_features(self, directory: Path) -> Features:
        """Returns the texts' features, which share one encoder."""
        text = Text(self._encoder(directory))
        return Features({"inputs": text} if self.has_inputs else {}, {"targets": text})

    def _encoder(self, directory: Path) -> TextEncoder:
        if self.vocab_filename is None:
            return ByteEncoder()
        path = directory / self.vocab_filename
        if not path.exists():
            raise DataError(
                f"The vocabulary of {self.name!r}, {path}, is not there. "
                f"Make it:  {datagen_command(self.name, directory)}"
            )
        if path.suffix == ".tokens":
            return TokenEncoder.load(path, replace_oov=self.oov_token)
        return SubwordEncoder.load(path)

    def _vocab_texts(self, tmp_dir: Path) -> Iterator[str]:
        samples: Iterator[dict[str, Any]] = samples_of(self, tmp_dir, Split.TRAIN)
        if self.max_samples_for_vocab is not None:
            samples = sample_evenly(samples, self.max_samples_for_vocab, seed=self.shuffle_seed)
        for sample in samples:
            yield from sample.values()

    def _vocab_owner(self) -> Text2TextProblem:
        owner = registry.problem(str(self.use_vocab_from_other_problem))
        if not isinstance(owner, Text2TextProblem):
            raise DataError(
                f"{self.name!r} wants the vocabulary of {owner.name!r}, which is no "
                "Text2TextProblem. Name one that is in `use_vocab_from_other_problem`."
            )
        return owner


class Text2SelfProblem(Text2TextProblem):
    """A language model: `generate_samples` yields {"targets": str}."""

    has_inputs = False


def sample_evenly(
    samples: Iterable[dict[str, Any]], count: int, *, seed: int
) -> Iterator[dict[str, Any]]:
    """Yields `count` of the samples, or all if there are fewer, each as likely as any other.

    Holds `count` samples in memory.  Vitter 1985, "Random sampling with a reservoir", algorithm R.
    """
    draw = random.Random(seed)
    kept: list[dict[str, Any]] = []
    for index, sample in enumerate(samples):
        if index < count:
            kept.append(sample)
        elif (place := draw.randrange(index + 1)) < count:
            kept[place] = sample
    yield from kept
