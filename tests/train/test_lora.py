"""Adapters in a run: exact resumes, several processes, several problems, what is frozen."""

from __future__ import annotations

import pytest
import torch

from t2t_torch.errors import CheckpointError, HParamsError
from t2t_torch.layers.lora import is_adapter
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.tensors import read_tensors
from t2t_torch.run.warm_start import warm_start

from .test_sharded import check, tensors, train

LORA = "lora_rank=2,lora_dropout=0.2"
MEAN = f"{LORA},ema_decay=0.9"
NO_DROPOUT = (
    "layer_prepostprocess_dropout=0,attention_dropout=0,relu_dropout=0,symbol_dropout=0,"
    "label_smoothing=0"
)


@pytest.fixture
def base(make_estimator, tmp_path):
    """The folder of a run of two steps."""
    with make_estimator("base", train_steps=2) as estimator:
        estimator.train(2)
    return tmp_path / "base"


def weights(estimator):
    return {name: p.detach().clone() for name, p in estimator.model.named_parameters()}


def test_adapters_alone_are_trained_and_start_as_the_base(make_estimator, base, capsys):
    estimator = make_estimator("run", MEAN, train_steps=3, warm_start_from=str(base))
    with estimator:
        estimator.begin()
        warm = weights(estimator)
        plain = read_tensors(CheckpointDirectory(base).newest().weights)
        for name, tensor in plain.items():
            assert torch.equal(warm[name], tensor), name
        assert all(not p.any() for name, p in warm.items() if name.endswith("lora_b"))
        estimator.train(3)
        after = weights(estimator)
        slots = {name for name, p in estimator.model.named_parameters() if p.requires_grad}
    changed = {name for name in after if not torch.equal(after[name], warm[name])}
    assert changed == slots == {name for name in after if is_adapter(name)}
    printed = capsys.readouterr().err
    trained = sum(after[name].numel() for name in changed)
    assert f"parameters, {trained:,} of them trained, " in printed
    assert "LoRA of rank 2 in 22 linear maps" in printed
    stored = tensors(estimator.directory.path, 3)
    assert {k.split("/")[1] for k in stored if k.startswith("optimizer/")} == changed


def test_a_resumed_run_is_the_same_to_the_bit(make_estimator, base):
    for name, stops in (("whole", [6]), ("parts", [1, 4, 6])):
        for until in stops:
            settings = {"warm_start_from": str(base), "train_steps": 6}
            with make_estimator(
                name, f"{MEAN},unfreeze_schedule=[encoder=2]", **settings
            ) as estimator:
                estimator.train(until)
    paths = [estimator.directory.path.parent / name for name in ("whole", "parts")]
    check(*(tensors(path, 6) for path in paths), rtol=0, atol=0)


def test_a_resumed_run_keeps_its_adapters(make_estimator, base):
    with make_estimator("run", LORA, train_steps=1, warm_start_from=str(base)) as estimator:
        estimator.train(1)
    with pytest.raises(CheckpointError, match=r"lora_rank was 2, is 3"):
        make_estimator("run", "lora_rank=3")
    make_estimator("run", "lora_rank=2,lora_dropout=0.1")


@pytest.mark.parametrize("hparams", ["shard_weights=True", "shard_weights=False"])
def test_two_processes_train_the_same_adapters_as_one(data_dir, tmp_path, hparams):
    hparams = f"{hparams},{NO_DROPOUT},lora_rank=2"
    train(data_dir, tmp_path / "two", hparams, 3)
    accumulated = f"{hparams},optimizer_multistep_accumulate_steps=2"
    train(data_dir, tmp_path / "one", accumulated, 3, processes=1)
    check(tensors(tmp_path / "two", 3), tensors(tmp_path / "one", 3), rtol=1e-4, atol=1e-5)


def test_what_reads_a_run_without_adapters_has_them_merged(make_estimator, make_task, base):
    with make_estimator("run", LORA, warm_start_from=str(base)) as estimator:
        estimator.train(3)
        model, batch = estimator.model.eval(), next(iter(estimator.begin().source))
        with torch.no_grad():
            expected = model(batch).logits["targets"]
    for load in (
        lambda plain: CheckpointDirectory(estimator.directory.path).newest().load_model(plain),
        lambda plain: warm_start(plain, estimator.directory.path),
    ):
        plain = make_task().model().eval()
        load(plain)
        with torch.no_grad():
            found = plain(batch).logits["targets"]
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    again = make_task(LORA).model()  # new adapters of the merged weights
    report = warm_start(again, estimator.directory.path)
    assert report.share == 1 and not report.missing
    with torch.no_grad():
        torch.testing.assert_close(again.eval()(batch).logits["targets"], found, rtol=0, atol=0)


def test_a_weight_that_would_stay_random_is_refused(make_estimator, base, tmp_path):
    settings = {"warm_start_from": str(base), "warm_start_patterns": ("!encoder.0",)}
    estimator = make_estimator("run", LORA, **settings)
    told = r"freezes weights that the warm start has not loaded: encoder\.0.*freeze=\[!encoder\.0"
    with pytest.raises(HParamsError, match=told):
        estimator.begin()
    assert not (tmp_path / "run" / "ckpt-0").exists()
    make_estimator("trained", f"{LORA},freeze=[!encoder.0]", **settings).begin()


def test_random_weights_that_stay_so_are_a_warning(make_estimator, capsys):
    make_estimator("run", LORA).begin()
    assert "warning: lora_rank adapts a model with random weights" in capsys.readouterr().err


def test_heads_are_trained_and_texts_are_not(make_multi):
    task = make_multi("lora_rank=2")
    model = task.model()
    task.objective(model)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    heads = {name for name in trained if not is_adapter(name)}
    assert heads and all(".modalities.targets." in name for name in heads)
    one, other = (model.problems[name] for name in ("tiny_kind", "tiny_tags"))
    adapters = [name for name, _ in one.named_parameters() if is_adapter(name)]
    assert adapters and all(
        one.get_parameter(name) is other.get_parameter(name) for name in adapters
    )


def test_maps_that_share_only_a_weight_share_the_adapter(make_multi):
    model = make_multi("lora_rank=2,multiproblem_shared=[weight$]").model()
    one, other = (model.problems[name].encoder[0].feed_forward.inner for name in model.problems)
    assert one._parameters["weight"] is other._parameters["weight"]
    assert one.lora_a is other.lora_a and one.lora_b is other.lora_b
    assert one.bias is not other.bias
