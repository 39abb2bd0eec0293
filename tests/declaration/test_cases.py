"""Files built after public bug reports, and the drafts or refusals that are right for them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from t2t_torch.declaration.draft import Draft, draft
from t2t_torch.declaration.problem import problem_of
from t2t_torch.errors import DataError
from t2t_torch.mode import Split
from t2t_torch.readers.text_file import BadRecords

pytestmark = pytest.mark.usefixtures("own_registry")


class Case(NamedTuple):
    """The draft of a file; without a kind, `said` is in the error."""

    kind: str
    fields: Mapping[str, Any] = {}
    options: Mapping[str, Any] = {}
    said: str = ""
    splits: Mapping[str, Any] = {}
    rows: int = 0


def listed(column: str) -> dict[str, str]:
    return {"column": column, "split": "[]"}


ONE_HOT = {
    "column": ["toxic", "severe_toxic", "obscene", "threat", "insult", "identity_hate"],
    "one_hot": True,
}
PAIR = {"first": "sentence1", "second": "sentence2", "targets": "gold_label"}
QUESTION = {"question": "question", "context": "context", "answers": "answers"}
SURVEY = "How would you describe the service of our team? Please use your own words."
TICKETS = {"inputs": "ticket", "targets": "queue"}
NO_HEADER = {"header": False}

CASES: Mapping[str, Case] = {
    "01-anki-attribution/fra.txt": Case("text2text", {"inputs": "0", "targets": "1"}, NO_HEADER),
    "02-snli-parses/snli_1.0_train.jsonl": Case("textpair2class", PAIR, said="'-' in"),
    "02c-glue-mnli/MNLI/train.tsv": Case("textpair2class", PAIR),
    "03-glue-mrpc/MRPC": Case(
        "textpair2class", {"first": "#1 String", "second": "#2 String", "targets": "Quality"},
        said="test.tsv is not used", splits={"eval": "dev.tsv"},
    ),
    "04-crowdflower/socialmedia-disaster-tweets-DFE.csv": Case(
        "text2class", {"inputs": "text", "targets": "choose_one"}
    ),
    "04b-crowdflower-airline/Airline-Sentiment-2-w-AA.csv": Case(
        "text2class", {"inputs": "text", "targets": "airline_sentiment"}
    ),
    "05-survey-header/Responses.csv": Case(
        "text2class", {"inputs": SURVEY, "targets": "Would you visit again?"}
    ),
    "06-hindi-header/samiksha.csv": Case("text2class", {"inputs": "समीक्षा", "targets": "भावना"}),
    "08-hf-squad-jsonl/train.jsonl": Case("spanqa", QUESTION),
    "08b-hf-squad-parquet/rows.parquet": Case("spanqa", QUESTION),
    "09-hf-int-tags/conll.jsonl": Case(
        "text2tags", {"inputs": "tokens", "targets": "ner_tags"}, said="are numbers"
    ),
    "10-tags-in-string/train.jsonl": Case("text2tags", {"inputs": "text", "targets": "labels"}),
    "11-lists-in-cells/ner_train.tsv": Case(
        "text2tags", {"inputs": listed("2"), "targets": listed("1")}
    ),
    "12-bmes-chinese/train.char.bmes": Case("text2tags", {"inputs": "0", "targets": "1"}),
    "14-germeval/NER-de-train.tsv": Case(
        "text2tags", {"inputs": "1", "targets": "2"}, {"comments": True},
        splits={"eval": "NER-de-dev.tsv"},
    ),
    "14c-multiconer-id-lines/en_train.conll": Case(
        "text2tags", {"inputs": "0", "targets": "3"}, {"comments": True}
    ),
    "14d-conll-comments/train.txt": Case("text2tags", {}, {"comments": True}, said="as comments"),
    "15-tag-first/engtrain.bio": Case("text2tags", {"inputs": "1", "targets": "0"}),
    "16-xlsx-dimension-a1/tickets.xlsx": Case("text2class", TICKETS, rows=240),
    "16b-xlsx-dimension-short/tickets.xlsx": Case("text2class", TICKETS, rows=240),
    "17-backslash-quotes/items.csv": Case("text2class", options={"escape": "\\"}),
    "17b-backslash-mysql/dump.csv": Case(
        "text2class", {"inputs": "2", "targets": "1"}, {"escape": "\\", **NO_HEADER}
    ),
    "18-fasttext-comma/train.txt": Case("text2text", said="a label of its own"),
    "19-20news-latin1/20news-bydate": Case(
        "text2class", options={"encoding": "cp1252"}, said="not UTF-8",
        splits={"test": "20news-bydate-test"},
    ),
    "20-jigsaw-onehot/train.csv": Case(
        "text2multilabel", {"inputs": "comment_text", "targets": ONE_HOT}
    ),
    "21-rasa-yaml/nlu.yml": Case(
        "intentslot", {"inputs": "words", "intent": "intent", "slots": "tags"}
    ),
    "22-tmx/memory.tmx": Case("text2text", {"inputs": "source", "targets": "target"}),
    "22c-sgm/newstest-src.de.sgm": Case("text2self", {"targets": "text"}),
    "23-opus-moses/Books.nl-pt.nl": Case(
        "text2text", splits={"train": {"inputs": "Books.nl-pt.nl", "targets": "Books.nl-pt.pt"}}
    ),
    "23b-iwslt-tags/train.tags.en-fr.en": Case("text2text", said="are markup (<url>"),
    "24-glue-cola/CoLA": Case(
        "text2class", {"inputs": "3", "targets": "1"}, NO_HEADER, said="test.tsv is not used"
    ),
    "25-rasa-json-entities/demo-rasa.json": Case(
        "intentslot", {"inputs": "words", "intent": "intent", "slots": "tags"}
    ),
    "36-parquet-binary-text/rows.parquet": Case(
        "text2class", {"inputs": "text", "targets": "label"}
    ),
    "39-multilabel-ids/tagged.csv": Case(
        "text2multilabel", {"inputs": "text", "targets": {"column": "tags", "split": ","}}
    ),
    "40-triple-bar/bitext.txt": Case(
        "text2text", {"inputs": "0", "targets": "1"}, {"delimiter": " ||| "}
    ),
    "45-labels-with-commas/reviews.csv": Case(
        "text2class", {"inputs": "review", "targets": "category"}
    ),
    "right/01b-anki-two-columns/fra2.txt": Case("text2text", {"inputs": "0", "targets": "1"}),
    "right/07-hindi-spans/admin.jsonl": Case("text2tags", {"inputs": "words", "targets": "tags"}),
    "right/14b-hashtag-words/wnut.conll": Case("text2tags", {"inputs": "0", "targets": "1"}),
    "right/16c-xlsx-formula-merged/tickets.xlsx": Case("text2class", TICKETS, said="(empty)"),
    "right/18b-amazon-ft/train.ft.txt": Case(
        "text2class", {"inputs": "text", "targets": "label"}, splits={"test": "test.ft.txt"}
    ),
    "right/25b-snips-json/train_BookRestaurant_full.json": Case("text2tags"),
    "right/26-newline-targets/poems.jsonl": Case("text2text"),
    "right/28-zwj-sinhala/pairs.tsv": Case("text2text", {"inputs": "source", "targets": "target"}),
    "right/29-special-tokens/log.csv": Case("text2class", {"inputs": "text", "targets": "label"}),
    "right/32-audio/train.tsv": Case("speech2text"),
    "right/33-pictures/pets": Case("image2class"),
    "right/36b-parquet-dict-timestamp/rows.parquet": Case(
        "text2class", {"inputs": "text", "targets": "label"}
    ),
    "right/37-minus-one-labels/train.csv": Case(
        "text2class", {"inputs": "text", "targets": "target"}
    ),
    "right/38-odd-labels/questions.csv": Case(
        "text2class", {"inputs": "question", "targets": "label"}
    ),
    "right/43-conllu-ranges/es-ud-train.conllu": Case("text2tags"),
    "right/44-conll2003/eng.train": Case(
        "text2tags", {"inputs": "0", "targets": "3"}, {"skip_docstart": True},
        splits={"eval": "eng.testa"},
    ),
    "right/46-most-rows-bad/notes.csv": Case("", said="line 2, column 53: 5 fields"),
    "right/47-pandas-float-labels/train.csv": Case(
        "text2class", {"inputs": "text", "targets": "label"}, said="is empty in 22 of 240"
    ),
    "right/51-conll-blank-token/example.conll": Case("text2tags", said="cannot be read: 4"),
    "right/52-tsv-literal-quotes/QQP/train.tsv": Case("textpair2class", rows=400),
    "right/53-flair-first-o/train.txt": Case("text2tags", {"inputs": "0", "targets": "1"}),
    "right/h01-tatoeba-pairs-ids/Sentence pairs in English-French.tsv": Case(
        "text2text", {"inputs": "1", "targets": "3"}
    ),
    "right/h16-xlsx-no-dimension/tickets.xlsx": Case("text2class", TICKETS, rows=240),
    "right/h16c-xlsx-merged-labels/tickets.xlsx": Case("text2class", said="empty in 180 of 240"),
    "right/h36b-parquet-bool/rows.parquet": Case(
        "text2class", {"inputs": "text", "targets": "is_spam"}
    ),
    "right/h39-multilabel-ids-mixed/goemo.tsv": Case(
        "text2multilabel", {"inputs": "0", "targets": {"column": "1", "split": ","}}
    ),
}  # fmt: skip


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", CASES)
def test_the_draft_of_a_case_is_right(name: str, shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data.parent / "cases"
    if not folder.is_dir():
        pytest.skip(f"the cases are not in {folder}")
    inner = Path(name).parts[: 2 if name.startswith("right") else 1]
    shutil.copytree(folder.joinpath(*inner), tmp_path.joinpath(*inner))
    case, path = CASES[name], tmp_path / name
    if not case.kind:
        with pytest.raises(DataError) as caught:
            draft(path)
        assert case.said in str(caught.value)
        return
    made = draft(path)
    content = made.content
    assert content["kind"] == case.kind, (content, made.alternatives)
    assert not case.fields or content["fields"] == case.fields
    assert case.options.items() <= content.get("options", {}).items()
    assert all(content["files"].get(split) == file for split, file in case.splits.items())
    assert "test" in case.splits or "test" not in content["files"]
    assert case.said in "\n".join([*made.doubts, *made.notes])
    count = _samples(made)
    assert count >= (case.rows or 1), made.notes


def _samples(made: Draft) -> int:
    """Returns the number of samples that the declaration generates, of all splits of train."""
    problem: Any = problem_of(made.content, made.path)
    problem.bad_records = BadRecords("skip")
    problem.prepare(made.path.parent)
    splits = [Split.TRAIN]
    if not isinstance(made.content["files"]["eval"], str) and "eval" not in str(made.doubts):
        splits.append(Split.EVAL)
    try:
        return sum(
            sum(1 for _ in problem.generate_samples(made.path.parent, split)) for split in splits
        )
    except DataError as error:  # too few inputs to hold some out, which is said
        assert any("no evaluation file" in one for one in made.doubts), error
        return sum(1 for _ in problem.generate_samples(made.path.parent, Split.TRAIN))
