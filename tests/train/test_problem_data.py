"""What a problem's data on disk becomes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from t2t_torch import registry
from t2t_torch.data.manifest import Manifest
from t2t_torch.errors import DataError, HParamsError
from t2t_torch.hparam import HParams
from t2t_torch.mode import Split
from t2t_torch.pipeline.loader import EvalBatches
from t2t_torch.text.encoder import WordCutter
from t2t_torch.train.problem_data import longest_row
from t2t_torch.train.problem_task import check_pairing


def test_that_examples_of_evaluation_are_cut_is_said_once(make_task, capsys):
    task = make_task("batch_size=8,max_length=6")
    for _ in range(2):
        batches = task.eval_batches(Split.EVAL, rank=0, world_size=1)
    widest = max(batch["inputs"].size(1) for batch in batches)
    printed = capsys.readouterr().err
    assert widest == 8  # the larger of the two
    assert printed.count("warning: ") == 1
    assert "split dev, are longer than 8 tokens and are cut to that" in printed


def test_one_example_is_told_as_such(make_task, capsys, monkeypatch):
    one = property(lambda batches: 1, lambda batches, count: None)
    monkeypatch.setattr(EvalBatches, "cut", one, raising=False)
    make_task("batch_size=256").eval_batches(Split.EVAL, rank=0, world_size=1)
    assert "split dev, is longer than" in capsys.readouterr().err


def test_only_the_first_process_says_it(make_task, capsys):
    make_task("batch_size=8").eval_batches(Split.EVAL, rank=1, world_size=2)
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("hparams", "told"),
    [
        ("max_length=1", "0 too short). With --hparams, raise max_length"),
        ("min_length=99", "0 too long, 160 too short). With --hparams, lower min_length."),
    ],
)
def test_training_data_of_which_nothing_is_left_is_named_with_what_mends_it(
    make_task, hparams, told
):
    task = make_task(hparams)
    with pytest.raises(DataError) as caught:
        task.train_batches(seed=1, start=0, rank=0, world_size=1)
    assert str(caught.value).startswith("algorithmic_reverse_binary40_test, split train: none of")
    assert told in str(caught.value)


def test_texts_that_were_cut_otherwise_are_not_trained_on(make_task, monkeypatch):
    task = make_task("batch_size=8")
    monkeypatch.setattr(task.problem, "cutters", {"inputs": WordCutter()}, raising=False)
    with pytest.raises(DataError, match="cut into words in another way") as refused:
        task.train_batches(seed=1, start=0, rank=0, world_size=1)
    text = str(refused.value)
    assert "\n  cutters.inputs: there None, requested {'words': " in text
    assert text.endswith("--overwrite")


def test_where_examples_are_counted_evaluation_is_cut_to_the_longest_row_of_training(make_task):
    task = make_task("use_fixed_batch_size=true,batch_size=8,max_length=0")
    manifest = Manifest.load(task._data._data_dir, task.problem.dataset_name)
    longest = manifest.splits["train"].max_length
    result = longest_row(manifest, task.features, task.hparams)
    assert result == max(longest["inputs"], longest["targets"])
    shorter = task.hparams.replace(max_input_seq_length=5, max_target_seq_length=6)
    assert longest_row(manifest, task.features, shorter) == 6
    only = manifest.model_copy(update={"splits": {"dev": manifest.splits["dev"]}})
    assert longest_row(only, task.features, task.hparams) == 0
    batches = task.eval_batches(Split.EVAL, rank=0, world_size=1)
    assert max(batch["inputs"].size(1) for batch in batches) <= result


def test_a_model_that_would_mix_packed_examples_is_refused():
    mixing = SimpleNamespace(HParams=HParams, reads_packed=False, name="mixer")
    hparams = registry.hparams("transformer_test")
    check_pairing(mixing, hparams)
    with pytest.raises(HParamsError, match="'mixer' does not keep packed examples apart"):
        check_pairing(mixing, hparams.replace(pack_dataset=True))
