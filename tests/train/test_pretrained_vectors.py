"""A new run begins with the vectors of a file; whatever follows takes those of its checkpoints."""

from __future__ import annotations

import re
from typing import ClassVar

import pytest
import torch

from t2t_torch import registry
from t2t_torch.data.generate import generate_data
from t2t_torch.distributed.process_group import ONE_PROCESS
from t2t_torch.errors import DataError, HParamsError
from t2t_torch.mode import Split
from t2t_torch.problem_types.classification import Text2ClassProblem
from t2t_torch.text_problem import VocabType
from t2t_torch.train.memory import dry_run_lines
from t2t_torch.train.problem_task import ProblemTask

SAMPLES = [
    {"inputs": "Paris is big big", "targets": "city"},
    {"inputs": "cats are Small", "targets": "animal"},
] * 8
SAMPLES.append({"inputs": "once big", "targets": "city"})
VECTORS = "big 0.5 1 -2 4\nparis 3 3 -3 1\nsmall 9 9 9 9\nSmall -1 0 0 1\nother 7 7 7 7\n"


class Places(Text2ClassProblem):
    """Eight words."""

    name = "places"
    vocab_type = VocabType.WORD
    shards: ClassVar = {Split.TRAIN: 1, Split.EVAL: 1}

    def generate_samples(self, tmp_dir, split):
        """Yields `SAMPLES`."""
        yield from SAMPLES


class Bytes(Places):
    """The same, in bytes."""

    name = "places_bytes"
    vocab_type = VocabType.CHARACTER


@pytest.fixture
def places_task(tmp_path):
    """Makes a task of `Places`; hparams as a string."""

    def make(hparams="", problem_class=Places):
        problem = problem_class()
        data_dir = tmp_path / problem.name
        if not data_dir.exists():
            data_dir.mkdir()
            generate_data(problem, data_dir, data_dir, num_processes=1, progress=False)
        small = (
            "num_hidden_layers=1,hidden_size=4,num_heads=1,filter_size=8,batch_size=64,"
            "learning_rate_warmup_steps=1"
        )
        hparams = registry.hparams("transformer_encoder_tiny").parse(small).parse(hparams)
        model = registry.model("transformer_encoder")
        return ProblemTask(problem, model, hparams, data_dir=data_dir, vocab_dir=data_dir)

    return make


@pytest.fixture
def file(tmp_path):
    """Vectors of four numbers."""
    (tmp_path / "vectors.txt").write_text(VECTORS)
    return tmp_path / "vectors.txt"


def begun(task):
    torch.manual_seed(0)
    model = task.model()
    lines = task.initialize(model)
    tokens = task.features.inputs["inputs"].encoder.tokens
    return model, lines, {token: place for place, token in enumerate(tokens)}


def test_what_is_read_of_a_word_is_its_vector_in_the_file(places_task, file):
    task = places_task(f"pretrained_embeddings={file}")
    model, lines, ids = begun(task)
    vectors = model.modalities["inputs"].bottom.eval()(torch.arange(len(ids)))
    expected = {"big": [0.5, 1, -2, 4], "Paris": [3, 3, -3, 1], "Small": [-1, 0, 0, 1]}
    for word, row in expected.items():
        torch.testing.assert_close(vectors[ids[word]], torch.tensor(row, dtype=torch.float32))
    assert lines[0].endswith("vectors.txt, 5 of width 4")
    # <UNK> and seven words; 16 + 1 times "big", 8 of "Paris", 8 of "Small" among 58 tokens, where
    # each text ends with an EOS that is no word.
    assert lines[1].startswith(
        "  inputs: 3 of 8 words of the vocabulary have one (37.5%: 2 as written, 1 in small "
        "letters), 56.9% of the training words"
    )


def test_words_without_a_vector_are_drawn_with_the_deviation_of_the_others(places_task, file):
    model, _, ids = begun(places_task(f"pretrained_embeddings={file}"))
    vectors = model.modalities["inputs"].bottom.weight
    result = [ids[word] for word in ("big", "Paris", "Small")]
    others = [i for i in range(len(vectors)) if i not in result]
    torch.testing.assert_close(vectors[others].std(correction=0), vectors[result].std(correction=0))
    plain = places_task().model()
    drawn = begun(places_task())[0].modalities["inputs"].bottom.weight
    assert plain is not drawn
    ratio = vectors[others] / drawn[others]
    torch.testing.assert_close(ratio, ratio[0, 0].expand_as(ratio))


def test_a_resumed_run_and_an_evaluation_need_no_file(places_task, file, make_estimator):
    hparams = f"pretrained_embeddings={file},freeze=[inputs.bottom]"
    first = make_estimator("places", task=places_task(hparams), train_steps=4)
    first.train(2)
    text = first.model.modalities["inputs"].bottom.weight.detach().clone()
    first.close()
    file.unlink()
    second = make_estimator("places", task=places_task(hparams), train_steps=4)
    second.train(4)
    torch.testing.assert_close(second.model.modalities["inputs"].bottom.weight.detach(), text)
    assert second.evaluate()["metrics-places/targets/accuracy"] >= 0
    third = make_estimator("others", task=places_task(hparams))
    with pytest.raises(DataError, match="Cannot read the word vectors"):
        third.train(1)


def test_the_coverage_is_printed_once(places_task, file, make_estimator, capsys):
    hparams = f"pretrained_embeddings={file}"
    first = make_estimator("places", task=places_task(hparams), train_steps=4)
    first.train(2)
    first.close()
    assert len(re.findall("3 of 8 words of the vocabulary", capsys.readouterr().err)) == 1
    make_estimator("places", task=places_task(hparams), train_steps=4).train(4)
    assert "words of the vocabulary" not in capsys.readouterr().err


def test_a_dry_run_tells_the_coverage(places_task, file):
    lines = dry_run_lines(places_task(f"pretrained_embeddings={file}"), ONE_PROCESS)
    assert sum("3 of 8 words of the vocabulary have one" in line for line in lines) == 1


def test_what_does_not_fit_is_refused(places_task, file, tmp_path):
    requested = f"pretrained_embeddings={file}"
    with pytest.raises(HParamsError, match=r"have 4 numbers.* 8\. Set --hparams=hidden_size=4"):
        begun(places_task(f"{requested},hidden_size=8"))
    with pytest.raises(HParamsError, match=r"'inputs' is of pieces of words or of characters"):
        task = places_task(requested, Bytes)
        task.initialize(task.model())
    (tmp_path / "russian.txt").write_text("кот 1 2 3 4\n")
    with pytest.raises(DataError, match="none of the 8 words of 'inputs'"):
        begun(places_task(f"pretrained_embeddings={tmp_path / 'russian.txt'}"))


def test_words_that_training_has_once_may_be_read_as_unknown(places_task):
    task = places_task("singleton_dropout=0.5")
    model, _, ids = begun(task)
    task.objective(model)
    singletons = model.modalities["inputs"].bottom.singletons
    assert singletons.nonzero().flatten().tolist() == [ids["once"]]


def test_a_vocabulary_without_an_unknown_word_has_no_singletons(places_task):
    with pytest.raises(HParamsError, match=r"singleton_dropout=0\.5: no text of this problem"):
        places_task("singleton_dropout=0.5", Bytes).model()
