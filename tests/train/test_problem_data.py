"""What a problem's data on disk becomes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from t2t_torch import registry
from t2t_torch.errors import HParamsError
from t2t_torch.hparam import HParams
from t2t_torch.mode import Split
from t2t_torch.train.task import check_pairing


def test_that_examples_of_evaluation_are_cut_is_said_once(make_task, capsys):
    task = make_task("batch_size=8,max_length=6")
    for _ in range(2):
        batches = task.eval_batches(Split.EVAL, rank=0, world_size=1)
    widest = max(batch["inputs"].size(1) for batch in batches)
    told = capsys.readouterr().err
    assert widest == 8  # the larger of the two
    assert told.count("WARNING") == 1
    assert "split dev, are longer than 8 tokens and are cut to that" in told


def test_only_the_first_process_says_it(make_task, capsys):
    make_task("batch_size=8").eval_batches(Split.EVAL, rank=1, world_size=2)
    assert not capsys.readouterr().err


def test_a_model_that_would_mix_packed_examples_is_refused():
    mixing = SimpleNamespace(HParams=HParams, reads_packed=False, name="mixer")
    hparams = registry.hparams("transformer_test")
    check_pairing(mixing, hparams)
    with pytest.raises(HParamsError, match="'mixer' does not keep packed examples apart"):
        check_pairing(mixing, hparams.replace(pack_dataset=True))
