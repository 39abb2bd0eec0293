r"""Yelp reviews: their stars, of five or as positive and negative.

Source: Zhang et al. 2015, "Character-level Convolutional Networks for Text Classification", NIPS.
Licence: Yelp's, for academic use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from t2t_torch.data.raw_file import RawFile, member
from t2t_torch.mode import Split
from t2t_torch.problem_types.classification import Text2ClassProblem
from t2t_torch.readers.formats import open_records
from t2t_torch.registry import register_problem
from t2t_torch.text_problem import VocabType


def _files(name: str, sha256: str | None) -> dict[Split, RawFile]:
    url = f"https://s3.amazonaws.com/fast-ai-nlp/{name}.tgz"
    archive = RawFile(f"{name}.tgz", ("yelp", ""), (url,), sha256)
    parts = {Split.TRAIN: "train", Split.EVAL: "test"}
    return {split: member(archive, f"{name}/{part}.csv") for split, part in parts.items()}


# From TensorFlow Datasets, url_checksums/yelp_polarity_reviews.txt; none is known of the other.
_POLARITY = _files(
    "yelp_review_polarity_csv", "528f22e286cad085948acbc3bea7e58188416546b0e364d0ae4ca0ce666abe35"
)
_FULL = _files("yelp_review_full_csv", None)


@register_problem("sentiment_yelp_full")
class SentimentYelpFull(Text2ClassProblem):
    r"""Predicts the stars of a review, 1 to 5.

    As in tensor2tensor EVAL is the test set, and `\n` is part of the text.
    """

    files: ClassVar[Mapping[Split, RawFile]] = _FULL
    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 10, Split.EVAL: 1}
    sources = tuple(_FULL.values())
    approx_vocab_size = 2**13
    class_labels: ClassVar[tuple[str, ...]] = ("1", "2", "3", "4", "5")
    input_space_id = 3  # tensor2tensor's SpaceID.EN_TOK

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the reviews of a split."""
        options = {"columns": ["stars", "text"]}
        path = self.files[split].get(tmp_dir)
        for record in open_records(path, format="csv", bad=self.bad_records, options=options):
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

    files: ClassVar[Mapping[Split, RawFile]] = _POLARITY
    sources = tuple(_POLARITY.values())
    class_labels = ("1", "2")


@register_problem("sentiment_yelp_polarity_characters")
class SentimentYelpPolarityCharacters(SentimentYelpPolarity):
    """The same on bytes."""

    vocab_type = VocabType.CHARACTER
    input_space_id = 2  # SpaceID.EN_CHR
