"""WikiText-2 and WikiText-103: 2 and 103 million words of Wikipedia's good and featured articles.

Source: Merity et al. 2016, "Pointer Sentinel Mixture Models", arXiv:1609.07843.
Licence: Wikipedia's, CC BY-SA.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from t2t_torch.data.raw_file import RawFile, member
from t2t_torch.data.vocabulary_builder import UNKNOWN_WORD
from t2t_torch.mode import Split
from t2t_torch.readers.formats import open_records
from t2t_torch.registry import register_problem
from t2t_torch.text_problem import Text2SelfProblem, VocabType

if TYPE_CHECKING:
    from t2t_torch.hparam import DataHParams


_PARTS = {Split.TRAIN: "train", Split.EVAL: "valid", Split.TEST: "test"}
# From Hugging Face datasets, datasets/wikitext/dataset_infos.json.
_SHA256 = {
    "wikitext-2-v1.zip": "92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c",
    "wikitext-2-raw-v1.zip": "ef7edb566e3e2b2d31b29c1fdb0c89a4cc683597484c3dc2517919c615435a11",
    "wikitext-103-v1.zip": "242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590",
    "wikitext-103-raw-v1.zip": "91c00ae287f0d699e18605c84afc9e45c192bc6b7797ff8837e5474655a33794",
}
_MIRRORS = (
    "https://wikitext.smerity.com/",
    "https://s3.amazonaws.com/research.metamind.io/wikitext/",
)
_UNKNOWN = "<unk>"  # in the files, replaces words seen fewer than three times


def _files(archive: str, folder: str, ending: str) -> dict[Split, RawFile]:
    packed = RawFile(
        archive, ("wikitext", ""), [mirror + archive for mirror in _MIRRORS], _SHA256[archive]
    )
    return {split: member(packed, f"{folder}/wiki.{p}.{ending}") for split, p in _PARTS.items()}


_FILES_2 = _files("wikitext-2-v1.zip", "wikitext-2", "tokens")
_FILES_103 = _files("wikitext-103-v1.zip", "wikitext-103", "tokens")
_RAW_2 = _files("wikitext-2-raw-v1.zip", "wikitext-2-raw", "raw")
_RAW_103 = _files("wikitext-103-raw-v1.zip", "wikitext-103-raw", "raw")


class WikiTextProblem(Text2SelfProblem):
    """Wikipedia paragraphs and headings, each separate, without blank lines.

    The raw files are `wiki.{train,valid,test}.tokens` (`.raw` for characters).
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 10, Split.EVAL: 1, Split.TEST: 1}
    keeps_order = True
    suggested_flags = "--model=transformer --hparams_set=transformer_base"

    @property
    @abstractmethod
    def files(self) -> Mapping[Split, RawFile]:
        """The raw file of each split."""

    def raw_files(self, tmp_dir: Path) -> list[Path]:
        """Returns the existing raw files."""
        return [path for file in self.files.values() if (path := file.find(tmp_dir)) is not None]

    def prepare(self, tmp_dir: Path) -> None:
        """Downloads and unpacks the files."""
        for file in self.files.values():
            file.get(tmp_dir)

    def lines(self, tmp_dir: Path, split: Split) -> Iterator[str]:
        """Yields the non-blank lines, stripped."""
        path = self.files[split].get(tmp_dir)
        for record in open_records(path, format="lines", bad=self.bad_records):
            if line := record.values["text"].strip():
                yield line

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the lines; in word vocabularies `<unk>` becomes `<UNK>`, the unknown word."""
        for line in self.lines(tmp_dir, split):
            if self.vocab_type is VocabType.WORD:
                words = (UNKNOWN_WORD if word == _UNKNOWN else word for word in line.split())
                yield {"targets": " ".join(words)}
            else:
                yield {"targets": line}


@register_problem("languagemodel_wikitext2")
class LanguagemodelWikitext2(WikiTextProblem):
    """WikiText-2 as words."""

    files: ClassVar = _FILES_2
    vocab_type = VocabType.WORD
    approx_vocab_size = 33_278 + 2  # from the paper's table 1, plus padding and end


@register_problem("languagemodel_wikitext2_characters")
class LanguagemodelWikitext2Characters(WikiTextProblem):
    """WikiText-2 as bytes, before replacement of rare words."""

    files: ClassVar = _RAW_2
    vocab_type = VocabType.CHARACTER


@register_problem("languagemodel_wikitext103")
class LanguagemodelWikitext103(WikiTextProblem):
    """WikiText-103 as words."""

    files: ClassVar = _FILES_103
    vocab_type = VocabType.WORD
    approx_vocab_size = 267_735 + 2  # from the paper's table 1, plus padding and end


@register_problem("languagemodel_wikitext103_characters")
class LanguagemodelWikitext103Characters(WikiTextProblem):
    """WikiText-103 as bytes, before replacement of rare words."""

    files: ClassVar = _RAW_103
    vocab_type = VocabType.CHARACTER


@register_problem("languagemodel_wikitext103_l4k")
class LanguagemodelWikitext103L4k(LanguagemodelWikitext103):
    """WikiText-103 words, in texts of up to 4,096 ids: whole lines, joined by spaces.

    Attributes:
      sequence_length: maximum ids of a text, including its end.  Longer lines are split.
    """

    sequence_length: ClassVar[int] = 4096
    setting_names = (*LanguagemodelWikitext103.setting_names, "sequence_length")

    def max_length(self, hparams: DataHParams) -> int:
        """Returns the texts' length, unless they are split: `max_length` excludes none of them."""
        return hparams.split_to_length or self.chop_length or self.sequence_length

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the texts, including the last one, which tensor2tensor drops."""
        held: list[str] = []
        room = self.sequence_length - 1
        for sample in super().generate_samples(tmp_dir, split):
            words = sample["targets"].split(" ")
            if held and len(held) + len(words) > room:
                yield {"targets": " ".join(held)}
                held = []
            held += words
            while len(held) > room:
                yield {"targets": " ".join(held[:room])}
                held = held[room:]
        if held:
            yield {"targets": " ".join(held)}


@register_problem("languagemodel_wikitext103_l16k")
class LanguagemodelWikitext103L16k(LanguagemodelWikitext103L4k):
    """WikiText-103 words, in texts of up to 16,384 ids."""

    sequence_length = 16384
