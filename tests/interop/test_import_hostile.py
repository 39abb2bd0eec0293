"""Broken and malicious checkpoints: each is refused by name, runs nothing and writes nothing."""

from __future__ import annotations

import collections
import json
import os
import pickle
import shutil
import struct
import subprocess
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import t2t_torch as t2t
from t2t_torch.errors import T2TError
from t2t_torch.interop.unpickling import load_pickled

PEERS = Path(__file__).resolve().parent.parent / "golden" / "peers"
FAIRSEQ, MARIAN = PEERS / "fairseq/pre_separate", PEERS / "huggingface/marian"
SOCKEYE = PEERS / "sockeye/transformer_postnorm_separate"
OPENNMT = PEERS / "opennmt_py/transformer_relative"
RAN = "t2t_torch_hostile_code_ran"
"""Environment variable that a payload sets."""
CODE = f"__import__('os').environ.__setitem__({RAN!r}, '1')"


class Call:
    """An object whose pickle calls a function."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def global_of(name: str) -> bytes:
    """A pickle of a name of a module, called with a text."""
    module, _, attribute = name.rpartition(".")
    return b"\x80\x02c" + f"{module}\n{attribute}\n".encode() + b"X\x01\x00\x00\x00a\x85R."


def refused(source: Path, output: Path, *words: str, **options: Any) -> None:
    """Imports, which must fail quickly with these words, and write nothing."""
    began = time.process_time()  # a busy machine counts for nothing
    with pytest.raises(T2TError) as error:
        t2t.import_run(source, output, **options)
    size = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
    assert time.process_time() - began < 1 + size / 2**20
    assert not output.exists()
    assert RAN not in os.environ
    for word in words:
        assert word in str(error.value), error.value


def archive(path: Path, pickled: bytes, records: dict[str, bytes] | None = None) -> None:
    """Writes a file as torch.save does, with a given pickle."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        file.writestr("archive/data.pkl", pickled)
        file.writestr("archive/version", "3\n")
        for name, content in (records or {}).items():
            file.writestr(f"archive/{name}", content)


@pytest.fixture(scope="module", autouse=True)
def modules(tmp_path_factory) -> None:
    """Imports once, so that no test has the time in which modules are loaded."""
    t2t.import_run(FAIRSEQ, tmp_path_factory.mktemp("first") / "run")


@pytest.fixture
def old(tmp_path) -> Path:
    """A copy of a run of fairseq."""
    shutil.copytree(FAIRSEQ, tmp_path / "old")
    return tmp_path / "old"


def checkpoint_of(old: Path) -> Path:
    return old / "checkpoints" / "checkpoint_best.pt"


EXPLOITS: dict[str, tuple[Any, str]] = {
    "a command": (Call(os.system, f"export {RAN}=1"), "system"),
    "eval": (Call(eval, CODE), "eval"),
    "exec": (Call(exec, CODE), "exec"),
    "a process": (Call(subprocess.Popen, ["true"]), ".Popen"),
    "an import": (Call(__import__, "antigravity"), "__import__"),
    "getattr": (Call(getattr, str, "upper"), "getattr"),
    "a partial function": (Call(__import__("functools").partial, eval, CODE), "functools.partial"),
    "an attribute getter": (Call(__import__("operator").attrgetter, "system"), "attrgetter"),
    "a file": (Call(open, "/tmp/t2t_torch_hostile", "w"), "open"),
    "bytes as a checkpoint": (Call(torch.storage._load_from_bytes, b""), "_load_from_bytes"),
    "an array": (np.zeros(3), "numpy"),
    "a module": (torch.nn.Linear(2, 2), "torch.nn.modules.linear.Linear"),
    "a large buffer": (Call(bytearray, 10**12), "bytearray"),
    "a deque": (collections.deque([1]), "collections.deque"),
}


@pytest.mark.parametrize("name", EXPLOITS)
@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "before torch 1.6"])
def test_code_in_a_pickle_never_runs(name, legacy, old, tmp_path):
    value, said = EXPLOITS[name]
    content = {"model": {}, "extra_state": [[{"a": value}]]}
    torch.save(content, checkpoint_of(old), _use_new_zipfile_serialization=not legacy)
    refused(old, tmp_path / "run", said, "neither a tensor nor data")


@pytest.mark.parametrize(
    "name",
    "posix.system nt.system builtins.compile types.CodeType importlib.import_module "
    "torch.hub.load shutil.rmtree webbrowser.open pickle.loads torchtext.data.Field "
    "argparse.ArgumentParser torch._utils._rebuild_device_tensor_from_numpy os.putenv".split(),
)
def test_names_of_code_are_refused(name, old, tmp_path):
    archive(checkpoint_of(old), global_of(name))
    refused(old, tmp_path / "run", name)


def test_names_of_newer_pickles_are_refused(old, tmp_path):
    torch.save({"model": Call(eval, CODE)}, checkpoint_of(old), pickle_protocol=4)
    refused(old, tmp_path / "run", "builtins.eval")


def test_objects_of_other_libraries_are_data(tmp_path):
    namespace = b"\x80\x02cargparse\nNamespace\n)\x81}X\x01\x00\x00\x00aK\x01sb."
    archive(tmp_path / "a.pt", namespace)
    assert load_pickled(tmp_path / "a.pt").fields == {"a": 1}
    enum = b"\x80\x02cfairseq.dataclass.constants\nDDP\nX\x03\x00\x00\x00c10\x85R."
    archive(tmp_path / "b.pt", enum)
    assert load_pickled(tmp_path / "b.pt").arguments == ("c10",)


def storage(count: int, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> bytes:
    """A pickle of a tensor, made by hand."""

    def number(value: int) -> bytes:
        return b"\x8a\x08" + struct.pack("<q", value)

    def numbers(values: tuple[int, ...]) -> bytes:
        return b"(" + b"".join(map(number, values)) + b"t"

    return (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storage"
        b"ctorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu"
        + (number(count) + b"tQ" + number(offset) + numbers(shape) + numbers(strides))
        + b"\x89ccollections\nOrderedDict\n)RtR."
    )


@pytest.mark.parametrize(
    ("pickled", "said"),
    [
        (storage(10**12, (4,), (1,)), "larger than the file"),
        (storage(-4, (4,), (1,)), "larger than the file"),
        (storage(4, (5,), (1,)), "outside of its memory"),
        (storage(4, (2,), (4,)), "outside of its memory"),
        (storage(4, (10**6, 10**6), (0, 0)), "outside of its memory"),
        (storage(4, (2,), (1,), offset=3), "outside of its memory"),
        (storage(4, (2,), (-1,)), "outside of its memory"),
        (storage(3, (3,), (1,)), "fewer numbers"),
    ],
)
def test_tensors_stay_inside_of_their_file(pickled, said, old, tmp_path):
    archive(checkpoint_of(old), pickled, {"data/0": bytes(16)})
    refused(old, tmp_path / "run", said)


def test_a_compressed_archive_is_refused(old, tmp_path):
    with zipfile.ZipFile(checkpoint_of(old), "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data.pkl", pickle.dumps({}, 2))
        file.writestr("archive/data/0", bytes(10**8))
    refused(old, tmp_path / "run", "compressed")


def test_names_of_an_archive_are_never_files(old, tmp_path):
    with zipfile.ZipFile(checkpoint_of(old), "w") as file:
        file.writestr("../../data.pkl", pickle.dumps({}, 2))
    refused(old, tmp_path / "run", "data.pkl")


def deep(depth: int) -> bytes:
    return b"\x80\x02" + b"]" * depth + b"a" * (depth - 1) + b"."


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "damaged"),
        (b"not a checkpoint", "damaged"),
        (b"<html><body>404</body></html>", "damaged"),
        (b"PK\x03\x04" + bytes(100), "damaged"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "damaged"),
    ],
)
def test_other_files_are_refused(content, said, old, tmp_path):
    checkpoint_of(old).write_bytes(content)
    refused(old, tmp_path / "run", said)


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_checkpoint_is_refused(part, old, tmp_path):
    path = checkpoint_of(old)
    content = path.read_bytes()
    path.write_bytes(content[: int(part * len(content))])
    refused(old, tmp_path / "run", "damaged")


def test_a_deeply_nested_pickle_is_refused(old, tmp_path):
    archive(checkpoint_of(old), deep(200_000))
    refused(old, tmp_path / "run", "nested deeper")


def changed(old: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes the content of a checkpoint."""
    content = torch.load(checkpoint_of(old), weights_only=False)
    change(content)
    torch.save(content, checkpoint_of(old))


WEIGHT = "decoder.layers.1.fc1.weight"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c["model"].pop(WEIGHT), WEIGHT),
        (lambda c: c["model"].update(extra=torch.ones(2)), "extra"),
        (lambda c: c["model"].update({WEIGHT: torch.ones(3, 3)}), "[3, 3]"),
        (lambda c: c["model"].update({WEIGHT: "text"}), "no tensor"),
        (lambda c: c["model"][WEIGHT].fill_(float("nan")), "not finite"),
        (lambda c: c["model"][WEIGHT].fill_(float("inf")), "not finite"),
        (lambda c: c["model"].update({WEIGHT: torch.ones(64, 32, dtype=torch.int8)}), "quantized"),
        (lambda c: c.pop("model"), "no model"),
        (lambda c: setattr(c["cfg"]["model"], "encoder_attention_heads", 5), "num_heads=5"),
        (lambda c: setattr(c["cfg"]["model"], "activation_fn", "mish"), "function mish"),
        (lambda c: setattr(c["cfg"]["model"], "adaptive_input", "100"), "adaptive_input"),
        (lambda c: setattr(c["cfg"]["model"], "encoder_normalize_before", False), "layer_norm"),
        (lambda c: setattr(c["cfg"]["model"], "_name", "fconv"), "fconv"),
        (lambda c: c["cfg"]["task"].update(source_lang=None), "languages"),
        (lambda c: c["cfg"]["task"].update(source_lang="xx"), "dict.xx.txt"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(change, said, old, tmp_path):
    changed(old, change)
    refused(old, tmp_path / "run", said)


def test_dictionaries_that_do_not_fit_are_named(old, tmp_path):
    path = old / "data-bin" / "dict.en.txt"
    lines = path.read_text("utf-8").splitlines()
    path.write_text("\n".join(lines[:-3]) + "\n", "utf-8")
    refused(old, tmp_path / "run", "tokens", "rows")
    path.write_text("\n".join(["no count here!", *lines]) + "\n", "utf-8")
    refused(old, tmp_path / "run", "dict.en.txt:1")
    path.write_bytes(b"\xff\xfe\x00")
    refused(old, tmp_path / "run", "dict.en.txt")


def test_subword_models_that_are_none_are_named(old, tmp_path):
    for content in (b"", b"\x00" * 100, b"one two three four\n"):
        (tmp_path / "subwords").write_bytes(content)
        refused(old, tmp_path / "run", "subwords", subwords=[str(tmp_path / "subwords")])
    refused(old, tmp_path / "run", "missing", subwords=[str(tmp_path / "missing")])


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("model.safetensors", b"\xff" * 16, "damaged"),
        ("model.safetensors", struct.pack("<Q", 2**62), "damaged"),
        ("config.json", b"[" * 100_000, "not JSON"),
        ("config.json", b'{"model_type": "bart"}', "no head"),
        ("config.json", b'{"model_type": "marian", "static_position_embeddings": false}', "static"),
        ("vocab.json", b'{"</s>": 0, "<unk>": 5}', "number its pieces"),
        ("vocab.json", b'{"a": 0, "b": 1, "c": 2, "d": 3}', "different models"),
        ("source.spm", b"none", "sentencepiece"),
    ],
)
def test_damaged_folders_of_hugging_face_are_refused(file, content, said, tmp_path):
    old = tmp_path / "old"
    shutil.copytree(MARIAN, old)
    (old / file).write_bytes(content)
    refused(old, tmp_path / "run", said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("!!python/object/apply:os.system ['true']", "could not determine a constructor"),
        ("!!python/name:os.system", "could not determine a constructor"),
        ("!Evil {a: 1}", "!Evil"),
        ("!ModelConfig [1]", "!ModelConfig"),
        ("a: [" * 3000, "configuration"),
        ("- 1", "configuration"),
        ("!ModelConfig {config_encoder: 3}", "act_type"),
    ],
)
def test_tags_of_a_configuration_run_nothing(text, said, tmp_path):
    old = tmp_path / "old"
    shutil.copytree(SOCKEYE, old)
    (old / "model" / "config").write_text(text, "utf-8")
    refused(old, tmp_path / "run", said)


def test_options_of_sockeye_and_opennmt_are_named(tmp_path):
    old = tmp_path / "old"
    shutil.copytree(SOCKEYE, old)
    config = old / "model" / "config"
    text = config.read_text("utf-8")
    config.write_text(text.replace("decoder_type: transformer", "decoder_type: ssru_transformer"))
    refused(old, tmp_path / "run", "ssru_transformer")
    shutil.copytree(OPENNMT, tmp_path / "onmt")
    content = torch.load(OPENNMT / "model.pt", weights_only=False)
    content["opt"].rotary_dim = 16
    torch.save(content, tmp_path / "onmt" / "model.pt")
    refused(tmp_path / "onmt", tmp_path / "run", "rotary_dim=16")
    content["opt"].rotary_dim = 0
    content["vocab"] = {"src": "fields"}
    torch.save(content, tmp_path / "onmt" / "model.pt")
    refused(tmp_path / "onmt", tmp_path / "run", "convertv2_v3")


def test_expected_outputs_that_differ_leave_nothing(tmp_path):
    items = json.loads((MARIAN / "expected.json").read_text("utf-8"))["items"]
    (tmp_path / "in.txt").write_text("".join(f"{item['text']}\n" for item in items), "utf-8")
    name = "beam4_lenpen1.0"
    lines = [item[name][0]["text"] for item in items]
    (tmp_path / "out.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    given = {"verify": tmp_path / "in.txt", "expect": tmp_path / "out.txt"}
    report = t2t.import_run(MARIAN, tmp_path / "run", **given)
    assert f"verified: {len(lines)} of {len(lines)} lines are equal" in str(report)
    (tmp_path / "out.txt").write_text("".join(f"{line}\n" for line in [*lines[:-1], "other"]))
    refused(MARIAN, tmp_path / "again", "lines are equal", "other", **given)


@pytest.mark.parametrize(
    ("folder", "size", "value"),
    [
        ("marian", "encoder_layers", 100_000),
        ("marian", "d_model", "x"),
        ("marian", "decoder_start_token_id", 10**9),
    ],
)
def test_a_configuration_of_another_model_is_named(folder, size, value, tmp_path):
    old = tmp_path / "old"
    shutil.copytree(PEERS / "huggingface" / folder, old)
    config = json.loads((old / "config.json").read_text("utf-8"))
    (old / "config.json").write_text(json.dumps({**config, size: value}), "utf-8")
    refused(old, tmp_path / "run", "different models" if "token" in size else f"{size}={value!r}")


def test_sizes_that_no_memory_holds_are_named(tmp_path):
    shutil.copytree(OPENNMT, tmp_path / "old")
    content = torch.load(OPENNMT / "model.pt", weights_only=False)
    content["opt"].max_relative_positions = 10**9
    torch.save(content, tmp_path / "old" / "model.pt")
    refused(tmp_path / "old", tmp_path / "run", "max_relative_positions=1000000000")


@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        (MARIAN, {"labels": ["a", "b"]}, ["labels: ", "marian does not use it"]),
        (FAIRSEQ, {"hparams": "a=3"}, ["hparams: ", "fairseq does not use it"]),
        (FAIRSEQ, {"from": "sockeye"}, ["has files of fairseq"]),
        (PEERS / "huggingface", {}, ["its folders are runs", "source="]),
        (MARIAN, {"pairs": "nothing"}, ["nothing"]),
        (MARIAN, {"pairs": "p", "verify": "v", "expect": "e"}, ["pairs and verify"]),
    ],
)
def test_what_does_not_go_together_is_named(source, options, words, tmp_path):
    refused(source, tmp_path / "run", *words, **options)


def test_a_checkpoint_stands_for_its_folder(tmp_path):
    for number, (source, options) in enumerate(
        (
            (checkpoint_of(FAIRSEQ), {"data_dir": FAIRSEQ / "data-bin"}),
            (checkpoint_of(FAIRSEQ).parent, {"data_dir": FAIRSEQ / "data-bin"}),
            (MARIAN / "model.safetensors", {"from": "huggingface"}),
            (OPENNMT / "model.pt", {"from": "opennmt_py"}),
        )
    ):
        report = t2t.import_run(source, tmp_path / f"run{number}", **options)
        assert "weights" in str(report)
    refused(tmp_path / "run0", tmp_path / "again", "a run of this library already")


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    refused(MARIAN, tmp_path / "file" / "run", "output_dir=", "Name another")


def test_the_loss_of_pairs_is_reported_and_others_are_refused(tmp_path):
    items = json.loads((MARIAN / "expected.json").read_text("utf-8"))["items"]
    texts = [(one["text"], one["beam4_lenpen1.0"][0]["text"]) for one in items[:20]]
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{a}\t{b}\n" for a, b in texts), "utf-8")
    report = str(t2t.import_run(MARIAN, tmp_path / "run", pairs=pairs))
    assert "loss of 11 pairs: " in report and "nats per token" in report
    pairs.write_text("".join(f"{a}\t{b[::-1]}\n" for a, b in texts), "utf-8")
    refused(MARIAN, tmp_path / "again", "no inputs and targets of this model", pairs=pairs)
    pairs.write_text("no tab\n", "utf-8")
    refused(MARIAN, tmp_path / "again", "line 1", pairs=pairs)
