"""Weights of another run, by name and pattern."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from t2t_torch.errors import CheckpointError, UsageError
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.warm_start import warm_start


@pytest.fixture
def source(tmp_path, snapshot):
    """A run directory with one checkpoint."""
    (tmp_path / "source").mkdir()
    CheckpointDirectory(tmp_path / "source").save(snapshot(3))
    return tmp_path / "source"


@pytest.fixture
def weights(trained):
    """The weights in it."""
    return trained()[0].state_dict()


@pytest.mark.parametrize("where", [".", "ckpt-3", "ckpt-3/model.safetensors"])
def test_a_run_a_checkpoint_and_a_file_give_the_same_weights(source, weights, tied, where):
    model = tied()
    report = warm_start(model, source / where)
    for name, value in model.state_dict().items():
        assert value.equal(weights[name]), name
    assert report.loaded == ("scale", "seen", "embedding.weight", "middle.weight", "middle.bias")
    assert (report.left_out, report.skipped, report.mismatched, report.unused) == ((), (), (), ())
    assert (report.share, report.warning) == (1.0, "")
    assert model.softmax.weight is model.embedding.weight


def test_an_embedding_of_another_vocabulary_is_told_of_and_left_as_it_is(source, weights, tied):
    model = tied(5)
    before = model.embedding.weight.detach().clone()
    report = warm_start(model, source)
    assert report.mismatched == (("embedding.weight", (4, 3), (5, 3)),)
    assert model.embedding.weight.equal(before)
    assert model.middle.weight.equal(weights["middle.weight"])
    assert "mismatched          1  embedding.weight [4, 3], here [5, 3]" in str(report)
    assert "loaded              4  scale, seen, middle.weight, middle.bias" in str(report)


def test_patterns_say_which_are_taken(source, weights, tied):
    model = tied()
    report = warm_start(model, source, patterns=["^middle", "!bias"])
    assert report.loaded == ("middle.weight",)
    assert report.left_out == ("scale", "seen", "embedding.weight", "middle.bias")
    assert report.skipped == ()
    assert model.middle.weight.equal(weights["middle.weight"])
    assert not model.middle.bias.equal(weights["middle.bias"])


def test_all_but_some_are_taken(source, tied):
    assert warm_start(tied(), source, patterns=["!embedding"]).left_out == ("embedding.weight",)


class Wrapped(nn.Module):
    """The same layers under other names."""

    def __init__(self, inner):
        super().__init__()
        self.encoder = nn.ModuleDict({"table": inner.embedding, "projection": inner.middle})


def test_names_with_another_prefix_are_renamed(source, weights, tied):
    model = Wrapped(tied())
    patterns = ["^(embedding)->encoder.\\1", "embedding->table", "^middle->encoder.projection"]
    report = warm_start(model, source, patterns=patterns)
    assert len(report.loaded) == 3
    assert report.unused == ("scale", "seen")
    assert model.encoder["table"].weight.equal(weights["embedding.weight"])
    assert model.encoder["projection"].bias.equal(weights["middle.bias"])


def test_a_shared_table_is_found_under_any_of_its_names(tmp_path, tied):
    table = torch.arange(12.0).reshape(4, 3)
    save_file({"softmax.weight": table}, tmp_path / "w.safetensors")
    model = tied()
    assert warm_start(model, tmp_path / "w.safetensors").loaded == ("embedding.weight",)
    assert model.embedding.weight.equal(table)


def test_what_the_source_lacks_is_told_apart_from_what_a_pattern_leaves_out(tmp_path, tied):
    file = tmp_path / "w.safetensors"
    save_file({"middle.weight": torch.zeros(3, 3), "middle.bias": torch.zeros(3)}, file)
    report = warm_start(tied(), file, patterns=["!bias"])
    assert (report.left_out, report.loaded) == (("middle.bias",), ("middle.weight",))
    assert report.skipped == ("scale", "seen", "embedding.weight")
    assert report.table.splitlines()[1:] == [
        "loaded          middle.weight",
        "by your pattern middle.bias",
        "not in source   scale",
        "not in source   seen",
        "not in source   embedding.weight",
    ]


def test_less_than_half_of_the_parameters_is_warned_of(source, tied):
    report = warm_start(tied(), source, patterns=["^middle"])
    assert report.share == 12 / 24
    assert report.warning == ""
    report = warm_start(tied(), source, patterns=["weight", "!embedding"])
    assert report.warning.startswith(f"warning: the warm start from {source} loaded 37.5% of")


def test_numbers_of_another_kind_do_not_fit(tmp_path, tied):
    file = tmp_path / "w.safetensors"
    save_file({"seen": torch.tensor(1.5), "scale": torch.zeros(2, dtype=torch.float16)}, file)
    report = warm_start(tied(), file)
    assert [name for name, _, _ in report.mismatched] == ["seen"]
    assert report.loaded == ("scale",)


def test_of_a_run_with_an_average_the_average_is_taken(tmp_path, snapshot, tied, mean):
    average = mean({"middle.weight": torch.full((3, 3), 0.25)})
    CheckpointDirectory(tmp_path).save(snapshot(1, average))
    for where in (tmp_path, tmp_path / "ckpt-1", tmp_path / "ckpt-1" / "model.safetensors"):
        model = tied()
        warm_start(model, where)
        assert model.middle.weight.eq(0.25).all()


def test_nothing_that_fits_is_an_error_with_the_table(source):
    with pytest.raises(CheckpointError, match=r"nothing of (.|\n)*not used +5  embedding.weight"):
        warm_start(nn.Linear(3, 3), source)


@pytest.mark.parametrize("pattern", ["(", "[a->b", "!*"])
def test_what_is_no_pattern_is_refused(source, tied, pattern):
    with pytest.raises(UsageError, match="is no regular expression"):
        warm_start(tied(), source, patterns=[pattern])


def test_a_group_that_is_not_there_is_refused(source, tied):
    with pytest.raises(UsageError, match="invalid group reference"):
        warm_start(tied(), source, patterns=["middle->\\2"])


def test_two_tensors_of_one_name_are_refused(source, tied):
    with pytest.raises(UsageError, match=r"would both be called middle\.weight"):
        warm_start(tied(), source, patterns=["bias|embedding.weight->weight", "^w->middle.w"])


def test_a_broken_checkpoint_is_refused(source, tied):
    (source / "ckpt-3" / "trainer.json").write_text("")
    for where in (source, source / "ckpt-3"):
        with pytest.raises(CheckpointError, match=r"trainer\.json has 0 bytes"):
            warm_start(tied(), where)


@pytest.mark.parametrize(
    ("place", "message"), [("nowhere", "is not there"), ("empty", "has no checkpoint")]
)
def test_a_source_that_is_none_is_refused(tmp_path, tied, place, message):
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=message):
        warm_start(tied(), tmp_path / place)


def test_a_file_that_is_no_safetensors_file_is_refused(tmp_path, tied):
    (tmp_path / "model.bin").write_bytes(b"cposix\nsystem\n(S'echo'\ntR.")
    with pytest.raises(CheckpointError, match="is damaged"):
        warm_start(tied(), tmp_path / "model.bin")
