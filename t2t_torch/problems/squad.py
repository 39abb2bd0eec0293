"""SQuAD: 108,000 questions about Wikipedia paragraphs; version 2.0 adds 54,000 without answers.

Source: Rajpurkar et al. 2016, "SQuAD: 100,000+ Questions for Machine Comprehension of Text", and
2018, "Know What You Don't Know".  XQuAD, 1,190 of them in ten languages: Artetxe et al. 2020, "On
the Cross-lingual Transferability of Monolingual Representations", ACL;
github.com/google-deepmind/xquad.  Licence of all: CC BY-SA 4.0.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.raw_file import RawFile, mirrored, on_github, published
from t2t_torch.mode import Split
from t2t_torch.problem import records_of
from t2t_torch.problem_types.text2text import QuestionContext2TextProblem
from t2t_torch.problem_types.words import SpanQAProblem
from t2t_torch.registry import register_problem

_MIRRORS = (
    "https://rajpurkar.github.io/SQuAD-explorer/dataset/",
    "https://raw.githubusercontent.com/rajpurkar/SQuAD-explorer/master/dataset/",
)
# Checksums: 1.1 from TensorFlow Datasets, url_checksums/squad.txt; 2.0 from Hugging Face datasets,
# datasets/squad_v2/dataset_infos.json.
_TRAIN, _EVAL, _TRAIN_2, _EVAL_2 = mirrored(
    _MIRRORS,
    {
        "train-v1.1.json": "3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955",
        "dev-v1.1.json": "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9",
        "train-v2.0.json": "68dcfbb971bd3e96d5b46c7177b16c1a4e7d4bdef19fb204502738552dede002",
        "dev-v2.0.json": "80a5225e94905956a6446d296ca1093975c4d3b3260f1d6c8f68bc2ab77182d8",
    },
    "squad",
    "",
)
_QUESTION = ("question", "context", "answers")


@register_problem("squad")
class Squad(SpanQAProblem):
    """Questions of version 1.1, all with answers; EVAL is its development set.

    tensor2tensor's `squad` generates the answer text, as `squad_context2text` does.
    """

    sources: ClassVar[Mapping[Split, RawFile]] = {Split.TRAIN: _TRAIN, Split.EVAL: _EVAL}

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the questions of a split."""
        for record in records_of(self, tmp_dir, split, "squad"):
            yield {name: record.values[name] for name in _QUESTION}


@register_problem("squad_v2")
class SquadV2(Squad):
    """Questions of version 2.0, a third without answers; EVAL is its development set."""

    sources: ClassVar[Mapping[Split, RawFile]] = {Split.TRAIN: _TRAIN_2, Split.EVAL: _EVAL_2}


@register_problem("squad_context2text")
class SquadContext2Text(QuestionContext2TextProblem):
    """Questions of version 1.1 with the first answer as generated text."""

    sources = Squad.sources
    input_space_id = 3  # tensor2tensor's SpaceID.EN_TOK
    target_space_id = 3

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the questions of a split."""
        for record in records_of(self, tmp_dir, split, "squad"):
            question, context, answers = (record.values[name] for name in _QUESTION)
            yield {"inputs": question, "context": context, "targets": answers[0]["text"]}


_XQUAD = published(
    "xquad",
    *on_github("google-deepmind/xquad/master/xquad.en.json"),
    sha256="e4c57d1c9143aaa1c5d265ba5987a65f4e69528d2a98f29d6e75019b10344f29",
)
_EVERY = 8  # one in this many of the 48 articles is EVAL


@register_problem("xquad_en")
class XquadEn(Squad):
    """The English questions: too few to train a useful reader, enough to check that a model learns.

    The raw file is `xquad.en.json`.  There are no splits: every eighth article is EVAL.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1}
    sources = dict.fromkeys((Split.TRAIN, Split.EVAL), _XQUAD)
    approx_vocab_size = 2**13

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the questions of a split."""
        records = records_of(self, tmp_dir, split, "squad")
        articles = itertools.groupby(records, key=lambda record: record.values["title"])
        for number, (_, article) in enumerate(articles):
            if (number % _EVERY == _EVERY - 1) is (split is Split.EVAL):
                for record in article:
                    yield {name: record.values[name] for name in _QUESTION}
