"""Reviews: 50,000 of films (IMDb), positive or negative; Yelp's, by their stars.

IMDb: Maas et al. 2011, "Learning Word Vectors for Sentiment Analysis", ACL; no licence is stated,
the authors request citation.  Yelp: Zhang et al. 2015, "Character-level Convolutional Networks for
Text Classification", NIPS; for academic use.
"""

from __future__ import annotations

import tarfile
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from t2t_torch.data.raw_file import DAMAGED_ARCHIVE, RawFile, member
from t2t_torch.errors import DataError
from t2t_torch.files import open_bytes
from t2t_torch.mode import Split
from t2t_torch.problem import records_of
from t2t_torch.problem_types.classification import Text2ClassProblem
from t2t_torch.readers.text_file import Place
from t2t_torch.registry import register_problem
from t2t_torch.text.encoder import WordCutter
from t2t_torch.text_problem import VocabType

_ARCHIVE = RawFile(
    "aclImdb_v1.tar.gz",
    ("imdb", ""),
    (
        "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
        "http://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
    ),
    # As used by several public downloaders; not verified with the archive itself.
    "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
    other_names=("aclImdb_labelled.tar.gz",),
)
_PARTS = {Split.TRAIN: "train", Split.EVAL: "test"}
_EVERY = 10  # with a TEST split, one in this many training reviews is EVAL


@register_problem("sentiment_imdb")
class SentimentImdb(Text2ClassProblem):
    """Classifies film reviews as positive or negative.

    The raw file is `aclImdb_v1.tar.gz`, read without unpacking its 100,000 files;
    `aclImdb_labelled.tar.gz`, the same without the unlabelled reviews, works too.
    As in tensor2tensor EVAL is the 25,000 reviews of `test`, and `<br />` is part of the text.
    """

    sources = (_ARCHIVE,)
    approx_vocab_size = 2**13  # tensor2tensor's
    max_samples_for_vocab = 10_000
    class_labels = ("neg", "pos")
    suggested_flags = (
        "--model=transformer_encoder --hparams_set=transformer_encoder_small --train_steps=3000"
        " --hparams=max_input_seq_length=512"
    )

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the reviews, alternating between positive and negative."""
        path = _ARCHIVE.get(tmp_dir)
        waiting: dict[str, deque[str]] = {label: deque() for label in self.class_labels}
        number = 0
        for name, raw in _members(path):
            number += 1
            folders = name.split("/")[-3:-1]
            if folders[:1] != [_PARTS[split]] or folders[1] not in waiting:
                continue
            try:
                waiting[folders[1]].append(raw.decode())
            except UnicodeDecodeError as error:
                place = Place(path, number, unit="file")
                self.bad_records.report(place, f"{name} is not UTF-8: {error}")
            while all(waiting.values()):
                for label, texts in waiting.items():
                    yield {"inputs": texts.popleft(), "targets": label}
        for label, texts in waiting.items():
            yield from ({"inputs": text, "targets": label} for text in texts)


@register_problem("sentiment_imdb_characters")
class SentimentImdbCharacters(SentimentImdb):
    """The same on bytes."""

    vocab_type = VocabType.CHARACTER
    suggested_flags = (
        "--model=transformer_encoder --hparams_set=transformer_encoder_small --train_steps=5000"
        " --hparams=max_input_seq_length=1024,max_length=1024"
    )


@register_problem("sentiment_imdb_words")
class SentimentImdbWords(SentimentImdb):
    """The same on lower-case words and punctuation, the 30,000 most frequent, with a TEST split.

    Every tenth review of `train` is EVAL; the 25,000 of `test` are TEST.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 10, Split.EVAL: 1, Split.TEST: 1}
    vocab_type = VocabType.WORD
    approx_vocab_size = 30_000
    cutters: ClassVar[Mapping[str, WordCutter]] = {"inputs": WordCutter()}
    suggested_flags = "--model=fasttext --hparams_set=fasttext_imdb --train_steps=800"

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the reviews of a split, alternating between positive and negative."""
        if split is Split.TEST:
            yield from super().generate_samples(tmp_dir, Split.EVAL)
            return
        for number, sample in enumerate(super().generate_samples(tmp_dir, Split.TRAIN)):
            held_out = number // 2 % _EVERY == _EVERY - 1  # in pairs: one positive, one negative
            if held_out is (split is Split.EVAL):
                yield sample


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yields the name and the content of each file of an archive."""
    try:
        with open_bytes(path) as content, tarfile.open(fileobj=content, mode="r:") as archive:
            for member in archive:
                if member.isfile() and (file := archive.extractfile(member)):
                    yield member.name, file.read()
    except DAMAGED_ARCHIVE as error:
        raise DataError(f"{path} is damaged: {error}. Remove it and fetch it again.") from None
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror or error}.") from None


def _files(name: str, sha256: str | None) -> dict[Split, RawFile]:
    url = f"https://s3.amazonaws.com/fast-ai-nlp/{name}.tgz"
    archive = RawFile(f"{name}.tgz", ("yelp", ""), (url,), sha256)
    parts = {Split.TRAIN: "train", Split.EVAL: "test"}
    return {split: member(archive, f"{name}/{part}.csv") for split, part in parts.items()}


@register_problem("sentiment_yelp_full")
class SentimentYelpFull(Text2ClassProblem):
    r"""Predicts the stars of a review, 1 to 5.

    As in tensor2tensor EVAL is the test set, and `\n` is part of the text.
    """

    sources = _files("yelp_review_full_csv", None)
    approx_vocab_size = 2**13
    class_labels: ClassVar[tuple[str, ...]] = ("1", "2", "3", "4", "5")
    input_space_id = 3  # tensor2tensor's SpaceID.EN_TOK

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the reviews of a split."""
        for record in records_of(self, tmp_dir, split, "csv", columns=["stars", "text"]):
            stars, text = record.values["stars"], record.values["text"].strip()
            if stars in self.class_labels:
                yield {"inputs": text, "targets": stars}
            else:
                known = ", ".join(self.class_labels)
                why = f"the class {stars!r}, where one of {known} was expected"
                self.bad_records.report(record.place, why)


@register_problem("sentiment_yelp_full_characters")
class SentimentYelpFullCharacters(SentimentYelpFull):
    """The same on bytes."""

    vocab_type = VocabType.CHARACTER
    input_space_id = 2  # SpaceID.EN_CHR


@register_problem("sentiment_yelp_polarity")
class SentimentYelpPolarity(SentimentYelpFull):
    """Predicts whether a review is negative, 1, or positive, 2."""

    # From TensorFlow Datasets, url_checksums/yelp_polarity_reviews.txt; none is known of the other.
    sources = _files(
        "yelp_review_polarity_csv",
        "528f22e286cad085948acbc3bea7e58188416546b0e364d0ae4ca0ce666abe35",
    )
    class_labels = ("1", "2")


@register_problem("sentiment_yelp_polarity_characters")
class SentimentYelpPolarityCharacters(SentimentYelpPolarity):
    """The same on bytes."""

    vocab_type = VocabType.CHARACTER
    input_space_id = 2  # SpaceID.EN_CHR
