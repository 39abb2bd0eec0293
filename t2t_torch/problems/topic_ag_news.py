"""AG News: 127,600 news articles in four topics.

Source: Zhang, Zhao and LeCun 2015, "Character-level Convolutional Networks for Text
Classification", NeurIPS, from AG's corpus of news articles.
Licence: research and any other non-commercial activity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.raw_file import RawFile, on_github
from t2t_torch.mode import Split
from t2t_torch.problem_types.classification import Text2ClassProblem
from t2t_torch.readers.formats import open_records
from t2t_torch.registry import register_problem
from t2t_torch.text.encoder import WordCutter
from t2t_torch.text_problem import VocabType

_FOLDERS = ("ag_news", "", "ag_news_csv")
_TRAIN = RawFile(
    "train.csv",  # checksum unknown
    _FOLDERS,
    on_github("mhjabreel/CharCnn_Keras/master/data/ag_news_csv/train.csv"),
    other_names=("ag_news_train.txt",),
)
_TEST = RawFile(
    "test.csv",
    _FOLDERS,
    on_github("mhjabreel/CharCnn_Keras/master/data/ag_news_csv/test.csv"),
    "521465c2428ed7f02f8d6db6ffdd4b5447c1c701962353eb2c40d548c3c85699",
    other_names=("ag_news_test.txt",),
)
_LABELS = ("World", "Sports", "Business", "Sci/Tech")
_EVERY = 10  # one in this many training articles is EVAL


@register_problem("topic_ag_news")
class TopicAgNews(Text2ClassProblem):
    r"""Classifies articles, by title and description, into four topics.

    The raw files are `train.csv` and `test.csv` (class from 1, title, description), or
    `ag_news_train.txt` and `ag_news_test.txt` (class, tab, title and description in one field).
    Their escapes, such as `#36;` for a dollar and `\` for a line break, are kept.  There is no
    development split: every tenth training article is EVAL.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 10, Split.EVAL: 1, Split.TEST: 1}
    sources = (_TRAIN, _TEST)
    approx_vocab_size = 2**13
    class_labels = _LABELS
    suggested_flags = (
        "--model=transformer_encoder --hparams_set=transformer_encoder_small --train_steps=2000"
    )

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
        """Yields the articles of a split."""
        path = (_TEST if split is Split.TEST else _TRAIN).get(tmp_dir)
        options: dict[str, Any] = {"columns": ["class", "title", "description"]}
        if ".csv" not in path.name:
            options = {"columns": ["class", "text"], "delimiter": "\t"}
        records = open_records(path, format="csv", bad=self.bad_records, options=options)
        for number, record in enumerate(records):
            held_out = number % _EVERY == _EVERY - 1
            if split is not Split.TEST and held_out is not (split is Split.EVAL):
                continue
            name, *texts = record.values.values()
            if name in ("1", "2", "3", "4"):
                yield {"inputs": " ".join(texts), "targets": _LABELS[int(name) - 1]}
            else:
                why = f"the class {name!r}, where 1 to 4 is expected"
                self.bad_records.report(record.place, why)


@register_problem("topic_ag_news_words")
class TopicAgNewsWords(TopicAgNews):
    """The same on lower-case words and punctuation that occur at least twice.

    A capital inside a word starts a new word, because `ag_news_train.txt` has nothing between a
    title and its description.
    """

    vocab_type = VocabType.WORD
    approx_vocab_size = 2**16
    min_word_count = 2
    cutters: ClassVar[Mapping[str, WordCutter]] = {"inputs": WordCutter(splits_glued=True)}
    suggested_flags = "--model=fasttext --hparams_set=fasttext_ag_news --train_steps=600"
