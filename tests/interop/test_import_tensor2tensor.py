"""Runs of the real tensor2tensor 1.15.7, imported: `t2t-import` and `t2t_torch.import_run`."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tensorflow_writer import entry, message, varint, write_checkpoint, write_index

import t2t_torch as t2t
from t2t_torch.bin.commands import datagen, import_run, trainer
from t2t_torch.bin.commands import evaluation as evaluate
from t2t_torch.errors import CheckpointError
from t2t_torch.interop.tensor2tensor_weights import convert_hparams
from t2t_torch.interop.tensorflow_checkpoint import TensorFlowCheckpoint, find_checkpoint

RUNS = Path(__file__).parent.parent / "golden" / "t2t_runs"
PAIRS, TOPICS = RUNS / "pairs_transformer", RUNS / "topics_encoder"
LABELS = "weather,music,alarm,none of these"

pytestmark = pytest.mark.usefixtures("own_registry")


def verified(run: Path, outputs: str) -> list[str]:
    decodes = run / "decodes"
    return [f"--verify={decodes / 'in.txt'}", f"--expect={decodes / outputs}"]


def lines_of(path: Path) -> list[str]:
    """Returns the lines as tensor2tensor decodes them, without blanks at their ends."""
    return [line.strip() for line in path.read_text("utf-8").splitlines()]


def run_import(source: Path, target: Path, *flags: str, code: int = 0) -> None:
    arguments = [f"--source={source}", f"--output_dir={target}", *flags]
    assert import_run.main(arguments) == code


@pytest.mark.parametrize(
    ("outputs", "settings"),
    [("greedy.txt", "beam_size=1"), ("beam4_a06.txt", "beam_size=4,alpha=0.6")],
)
def test_every_line_decodes_as_in_tensor2tensor(outputs, settings, tmp_path, capsys):
    settings = f"--decode_hparams={settings},extra_length=20"
    run_import(PAIRS, tmp_path / "run", settings, *verified(PAIRS, outputs))
    assert "verified: 40 of 40 lines are equal" in capsys.readouterr().out
    expected = (PAIRS / "decodes" / outputs).read_text("utf-8").splitlines()
    inputs = lines_of(PAIRS / "decodes" / "in.txt")
    found = t2t.load(tmp_path / "run").predict(inputs)  # with the settings of the import
    assert [one.text for one in found] == [line.partition("\t")[0] for line in expected]
    scores = [float(line.partition("\t")[2]) for line in expected if "\t" in line]
    if scores:
        assert [one.hypotheses[0].score for one in found] == pytest.approx(scores, abs=0.006)


def test_the_scores_of_all_hypotheses_are_those_of_tensor2tensor(tmp_path):
    settings = "beam_size=4,alpha=0.6,extra_length=20,return_beams=true"
    t2t.import_run(PAIRS, tmp_path / "run", decode_hparams=settings)
    inputs = lines_of(PAIRS / "decodes" / "in.txt")
    lines = (PAIRS / "decodes" / "beam4_a06_nbest.txt").read_text("utf-8").splitlines()
    for one, line in zip(t2t.load(tmp_path / "run").predict(inputs), lines, strict=True):
        scores = [float(score) for score in line.split("\t")[1::2]]
        assert [h.score for h in one.hypotheses] == pytest.approx(scores, abs=0.006)


def test_classes_are_those_of_tensor2tensor_but_for_one_that_depends_on_batch_mates(
    tmp_path, capsys
):
    flags = [f"--labels={LABELS}", *verified(TOPICS, "class.txt")]
    run_import(TOPICS, tmp_path / "run", *flags, code=2)
    assert "39 of 40 lines are equal" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    run_import(TOPICS, tmp_path / "run", *flags, "--allow_differences=1")


def test_an_imported_run_is_evaluated_as_tensor2tensor_did_and_trains_on(tmp_path, capsys):
    run, data = tmp_path / "run", tmp_path / "data"
    run_import(PAIRS, run)
    old = tmp_path / "old"
    shutil.copytree(RUNS / "data", old)
    dev = old / "zoo_pairs-dev-00000-of-00001"
    shutil.copy(dev, old / "zoo_pairs-train-00000-of-00001")
    own = [f"--t2t_usr_dir={run / 'declarations'}", "--problem=zoo_pairs", f"--data_dir={data}"]
    assert datagen.main([*own, f"--import_tfrecords={old}"]) == 0
    assert evaluate.main([f"--output_dir={run}", f"--data_dir={data}", "--output_json=-"]) == 0
    printed = capsys.readouterr().out
    metrics = json.loads(printed[printed.rindex('{\n  "problem"') :])["metrics"]
    logged = json.loads((PAIRS / "eval_metrics.json").read_text())["eval"][-1]
    for name, value in logged.items():
        if re.search("accuracy|neg_log", name):
            assert metrics[name] == pytest.approx(value, abs=2e-6), name

    source = TensorFlowCheckpoint(find_checkpoint(PAIRS))
    slots = load_file(run / "ckpt-600" / "optimizer.safetensors")
    moment = source.read("training/transformer/body/encoder/layer_1/ffn/conv1/kernel/Adam_1")
    assert np.array_equal(slots["encoder.1.feed_forward.inner.weight/exp_avg_sq"], moment.T)
    flags = [f"--output_dir={run}", f"--data_dir={data}", "--train_steps=603", "--worker_gpu=0"]
    assert trainer.main(flags) == 0
    assert "resuming from step 600" in capsys.readouterr().err


def test_a_run_of_an_old_version_with_its_names_and_vocabulary_is_imported(tmp_path, capsys):
    old, data = tmp_path / "old", tmp_path / "data"
    shutil.copytree(PAIRS, old)
    data.mkdir()
    vocabulary = (RUNS / "data" / "vocab.zoo_pairs.256.subwords").read_text("utf-8")
    vocabulary = vocabulary.replace("'<pad>_'", "'<pad>'").replace("'<EOS>_'", "'<EOS>'")
    (data / "vocab.zoo_pairs.256.subwords").write_text(vocabulary, "utf-8")
    values = json.loads((old / "hparams.json").read_text())
    names = {"input_modalities": "default", "target_modality": "default"}
    (old / "hparams.json").write_text(
        json.dumps({**values, **names, "symbol_modality_skip_top": False})
    )
    decode = "--decode_hparams=beam_size=1,extra_length=20"
    flags = [f"--data_dir={data}", decode, *verified(PAIRS, "greedy.txt")]
    run_import(old, tmp_path / "run", *flags)
    assert "verified: 40 of 40 lines are equal" in capsys.readouterr().out
    values["target_modality"] = "symbol:factored"
    (old / "hparams.json").write_text(json.dumps(values))
    run_import(old, tmp_path / "other", *flags, code=2)
    assert "target_modality='symbol:factored'" in capsys.readouterr().err


def test_hparams_of_a_run_are_converted_as_they_are_stored():
    values = json.loads((PAIRS / "hparams.json").read_text())
    made = convert_hparams("transformer", values)
    assert made.hidden_size == values["hidden_size"]
    assert "train_steps" in values  # a flag of the run, no hyperparameter


def test_python_and_command_write_the_same_run(tmp_path):
    run_import(PAIRS, tmp_path / "a")
    report = t2t.import_run(PAIRS, tmp_path / "b")
    assert "step 600 of tensor2tensor" in str(report)
    for name in ("task.json", "hparams.json", "ckpt-600/model.safetensors"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


CLASSES = """
from tensor2tensor.data_generators import text_problems
from tensor2tensor.models import transformer
from tensor2tensor.utils import registry


@registry.register_problem
class ZooTopics(text_problems.Text2ClassProblem):
  approx_vocab_size = 256
  is_generate_per_split = True
  num_classes = 4

  @property
  def vocab_filename(self):
    return "vocab.zoo_topics.256.subwords"

  def class_labels(self, data_dir):
    return ["weather", "music", "alarm", "none of these"]


@registry.register_hparams
def transformer_zoo():
  hparams = transformer.transformer_tiny()
  hparams.hidden_size = 32
  hparams.filter_size = 64
  hparams.parse("num_heads=2")
  return hparams
"""


@pytest.fixture
def usr(tmp_path):
    """A user's directory with the problem of topics and the set of the runs."""
    folder = tmp_path / f"usr_{abs(hash(tmp_path))}"
    folder.mkdir()
    (folder / "__init__.py").write_text(CLASSES)
    return folder


def test_classes_have_the_names_of_the_users_problem(usr, tmp_path, capsys):
    own = [f"--t2t_usr_dir={usr}", f"--data_dir={RUNS / 'data'}"]
    verify = [*verified(TOPICS, "class.txt"), "--allow_differences=1"]
    run_import(TOPICS, tmp_path / "run", *own, *verify)
    labels = "labels.zoo_topics.targets.txt"
    assert (tmp_path / "run" / labels).read_text().splitlines() == LABELS.split(",")
    run_import(TOPICS, tmp_path / "other", *own, "--labels=a,b,c,d", code=2)
    assert "has the classes weather,music,alarm,none of these" in capsys.readouterr().err

    old = tmp_path / "old"
    shutil.copytree(RUNS / "data", old)
    shutil.copy(old / "zoo_topics-dev-00000-of-00001", old / "zoo_topics-train-00000-of-00001")
    own = [f"--t2t_usr_dir={usr}", "--problem=zoo_topics", f"--data_dir={tmp_path / 'data'}"]
    assert datagen.main([*own, f"--import_tfrecords={old}"]) == 0
    assert (tmp_path / "data" / labels).read_text().splitlines() == LABELS.split(",")


def test_outputs_that_differ_for_lack_of_names_say_so(tmp_path, capsys):
    run_import(TOPICS, tmp_path / "run", *verified(TOPICS, "class.txt"), code=2)
    assert "name them with --labels=a,b,c" in capsys.readouterr().err


def test_an_averaged_checkpoint_is_imported_by_the_set_of_its_flags(usr, tmp_path, capsys):
    checkpoint = TensorFlowCheckpoint(find_checkpoint(PAIRS))
    arrays = {name: checkpoint.read(name) for name in checkpoint.tensors}
    averaged = tmp_path / "averaged"
    averaged.mkdir()
    # t2t-avg-all copies flags.txt; avg_checkpoints.py averages the moments, too, and sets step 0.
    arrays["global_step"] = np.zeros_like(arrays["global_step"])
    write_checkpoint(averaged / "averaged.ckpt-0", arrays)
    flags = (PAIRS / "flags.txt").read_text()
    assert "--hparams=\n" in flags
    flags = flags.replace("--hparams=\n", "--hparams=num_heads=4,daisy_chain_variables=False\n")
    (averaged / "flags.txt").write_text(flags)
    data = f"--data_dir={RUNS / 'data'}"
    settings = "--decode_hparams=beam_size=1,extra_length=20"
    check = [settings, data, *verified(PAIRS, "greedy.txt")]
    run_import(averaged, tmp_path / "run", f"--t2t_usr_dir={usr}", *check)
    printed = capsys.readouterr().out
    assert "40 of 40 lines are equal" in printed and "optimizer: fresh" in printed
    assert json.loads((tmp_path / "run" / "hparams.json").read_text())["num_heads"] == 4
    named = ["--hparams_set=transformer_tiny", "--hparams=hidden_size=32,filter_size=64"]
    run_import(averaged, tmp_path / "named", *named, *check)
    run_import(averaged, tmp_path / "bad", named[0], "--hparams=hidden_sizes=32", data, code=2)
    assert "no hyperparameter hidden_sizes" in capsys.readouterr().err


@pytest.fixture
def old(tmp_path):
    """A copy of the run of pairs and its vocabulary, to damage."""
    folder = tmp_path / "old"
    shutil.copytree(PAIRS, folder)
    shutil.copy(RUNS / "data" / "vocab.zoo_pairs.256.subwords", folder)
    return folder


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x55
    path.write_bytes(content)


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")


INDEX, DATA = "model.ckpt-600.index", "model.ckpt-600.data-00001-of-00002"
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a flipped bit of the index": (lambda f: flip(f / INDEX, 100), "checksum of the block"),
    "a flipped bit of a tensor": (lambda f: flip(f / DATA, 4000), "the checksum of .* is not"),
    "an index that is cut off": (lambda f: cut(f / INDEX, 3000), "or is cut off"),
    "an empty index": (lambda f: cut(f / INDEX, 0), "or is cut off"),
    "data that is cut off": (lambda f: cut(f / DATA, 1000), "is cut off: it has 1,000 bytes"),
    "missing data": (lambda f: (f / DATA).unlink(), "and all of its 2 .data files"),
    "an index that is a pickle": (
        lambda f: (f / INDEX).write_bytes(b"\x80\x04cposix\nsystem\n(S'id'\ntR." * 9),
        "is no index of a TensorFlow checkpoint",
    ),
    "no checkpoint": (lambda f: [p.unlink() for p in f.glob("*.index")], "no run of a library"),
    "no hyperparameters": (
        lambda f: (f / "hparams.json").unlink(),
        "no set 'transformer_zoo' here, and .* has no hparams.json",
    ),
    "no hyperparameters and no set": (
        lambda f: (
            (f / "hparams.json").unlink(),
            (f / "flags.txt").unlink(),
            change(f / "flags_t2t.txt", "--hparams_set=transformer_zoo", ""),
        ),
        "no flags that name a set",
    ),
    "a set that is only in tensor2tensor": (
        lambda f: (
            (f / "hparams.json").unlink(),
            change(f / "flags_t2t.txt", "transformer_zoo", "transformer_tpu"),
        ),
        "no set 'transformer_tpu' here",
    ),
    "damaged hyperparameters": (lambda f: cut(f / "hparams.json", 99), "is not JSON"),
    "hyperparameters that are a list": (
        lambda f: (f / "hparams.json").write_text("[1]"),
        "is no JSON object",
    ),
    "another number of layers": (
        lambda f: change(f / "hparams.json", '"num_hidden_layers": 2', '"num_hidden_layers": 3'),
        "it has no encoder.2",
    ),
    "another width": (
        lambda f: change(f / "hparams.json", '"hidden_size": 32', '"hidden_size": 64'),
        r"is \[.*\], the model's is \[",
    ),
    "a model that computes more": (
        lambda f: change(f / "hparams.json", '"num_area_layers": 0', '"num_area_layers": 1'),
        "num_area_layers=1",
    ),
    "an unknown hyperparameter": (
        lambda f: change(f / "hparams.json", '"bottom": {}', '"bottomless": {}'),
        "bottomless",
    ),
    "an unknown model": (
        lambda f: change(f / "flags_t2t.txt", "--model=transformer", "--model=xception"),
        "model 'xception' cannot be imported",
    ),
    "no vocabulary": (
        lambda f: (f / "vocab.zoo_pairs.256.subwords").unlink(),
        "Give the old run's data directory",
    ),
    "a vocabulary of another size": (
        lambda f: cut(f / "vocab.zoo_pairs.256.subwords", 900),
        "the model's is",
    ),
    "several vocabularies": (
        lambda f: (
            [(f / f"vocab.{n}.9.subwords").write_text("'a_'\n") for n in "xy"]
            + [(f / "vocab.zoo_pairs.256.subwords").rename(f / "vocab.z.9.subwords")]
        ),
        "several vocabularies",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_or_unknown_run_is_refused_and_nothing_written(name, old, tmp_path, capsys):
    damage, message = DAMAGES[name]
    damage(old)
    run_import(old, tmp_path / "run", code=2)
    error = capsys.readouterr().err
    assert re.search(message, error), error
    assert "Traceback" not in error
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(("run", ".run"))]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--checkpoint=7"], "no checkpoint '7'; it has: model.ckpt-600"),
        (["--verify=x"], "--verify and --expect go together"),
        (["--allow_differences=3"], "belongs to --verify"),
        (["--from=theano"], "expected one of tensor2tensor"),
        (["--decode_hparams=beam=4"], "beam"),
        (["--hparams=depth=4"], "has no 'depth'"),
        (["--data_dir=/nowhere"], "is not a directory"),
        (["--problem=algorithmic_reverse_binary40"], "vocab|variable"),
    ],
)
def test_wrong_options_are_refused(flags, message, old, tmp_path, capsys):
    run_import(old, tmp_path / "run", *flags, code=2)
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "run").exists()


def test_a_folder_with_files_is_never_written_to(old, tmp_path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").touch()
    run_import(old, tmp_path / "run", code=2)
    assert "has files" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine"]


def test_narrow_types_are_read_and_slices_are_refused(tmp_path):
    halves = torch.tensor([1.5, -2.0]).to(torch.bfloat16).view(torch.int16).numpy().tobytes()
    (tmp_path / "m.ckpt-1.data-00000-of-00001").write_bytes(halves)
    entries = {b"half": entry(14, (2,), 0, halves)}
    write_index(tmp_path / "m.ckpt-1.index", entries)
    checkpoint = TensorFlowCheckpoint(tmp_path / "m.ckpt-1")
    assert checkpoint.read("half").tolist() == [1.5, -2.0]
    assert sorted(checkpoint.tensors) == ["half"]
    extent = message(1, b"\x10" + varint(1)) + message(1, b"")
    write_index(tmp_path / "m.ckpt-1.index", {**entries, b"w": b"\x08\x01" + message(7, extent)})
    with pytest.raises(CheckpointError, match=r"'w' is partitioned into slices, .* not supported"):
        TensorFlowCheckpoint(tmp_path / "m.ckpt-1")


HUGE = 1 << 40
HOSTILE = {
    "a huge shape": {b"w": entry(1, (HUGE, HUGE), 0, b"\0" * 8)},
    "an offset behind the file": {b"w": entry(1, (2,), HUGE, b"\0" * 8)},
    "overlapping tensors": {b"a": entry(1, (2,), 0, bytes(8)), b"b": entry(1, (2,), 4, bytes(8))},
    "an unknown type": {b"w": entry(21, (2,), 0, bytes(8))},
    "an unknown data file": {b"w": entry(1, (2,), 0, bytes(8)) + b"\x18\x05"},
    "strings": {b"w": entry(7, (2,), 0, bytes(8))},
    "a message that is cut off": {b"w": entry(1, (2,), 0, bytes(8))[:-3]},
    "a negative size": {b"w": b"\x08\x01" + b"\x28" + b"\xff" * 9 + b"\x01"},
    "many dimensions": {b"w": entry(1, (1,) * 300, 0, bytes(4))},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_index_is_refused_without_reading_its_claims(name, tmp_path):
    (tmp_path / "m.ckpt-1.data-00000-of-00001").write_bytes(bytes(16))
    write_index(tmp_path / "m.ckpt-1.index", HOSTILE[name])
    with pytest.raises(CheckpointError):
        TensorFlowCheckpoint(tmp_path / "m.ckpt-1").read("w")
