"""Models of fairseq, OpenNMT-py, Sockeye and Hugging Face, imported: equal ids, logits, outputs.

The checkpoints are by these libraries' own commands, and so are the expected outputs.
"""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import t2t_torch as t2t
from t2t_torch.bin.commands import datagen
from t2t_torch.decode.hparam import parse_decode_hparams
from t2t_torch.decode.loading import load, load_run
from t2t_torch.decode.predictor import Predictor
from t2t_torch.run.directory import RunDirectory

ROOT = Path(__file__).resolve().parent.parent
COPIES = ROOT / "golden" / "peers"
ALL = ROOT.parent.parent / "shared" / "golden" / "peers"
GOLDEN = ALL if ALL.exists() else COPIES


class Peer:
    """A golden folder.

    Args:
      folder: name of the folder.
      subwords: files of subword models, relative to the folder of all peers.
    """

    def __init__(self, folder: str, *, source: str = "", subwords: tuple[str, ...] = ()) -> None:
        self.folder = GOLDEN / folder
        self.source = self.folder / source
        self.subwords = tuple(str(GOLDEN / path) for path in subwords)
        self.library = folder.partition("/")[0]

    @functools.cached_property
    def expected(self) -> dict[str, Any]:
        """Ids and outputs."""
        return json.loads((self.folder / "expected.json").read_text("utf-8"))


SPM = ("fairseq/post_shared/sentencepiece.model",)
PEERS = {
    "fairseq/post_shared": Peer("fairseq/post_shared"),
    "fairseq/pre_separate": Peer(
        "fairseq/pre_separate",
        subwords=("fairseq/pre_separate/codes.en", "fairseq/pre_separate/codes.de"),
    ),
    "fairseq/learned_pos": Peer("fairseq/learned_pos", subwords=SPM),
    "huggingface/marian": Peer("huggingface/marian"),
    "sockeye/transformer": Peer("sockeye/transformer", subwords=SPM),
    "sockeye/transformer_postnorm_separate": Peer(
        "sockeye/transformer_postnorm_separate",
        subwords=(
            "sockeye/transformer_postnorm_separate/sentencepiece.en.model",
            "sockeye/transformer_postnorm_separate/sentencepiece.de.model",
        ),
    ),
    "opennmt_py/transformer": Peer("opennmt_py/transformer", subwords=SPM),
    "opennmt_py/transformer_relative": Peer("opennmt_py/transformer_relative"),
    "opennmt_py/lstm": Peer("opennmt_py/lstm"),
}
SPECIAL = {  # ids of padding, end and start
    "fairseq": (1, 2, 2),
    "huggingface": (319, 0, 319),
    "sockeye": (0, 3, 2),
    "opennmt_py": (1, 3, 2),
}


def settings(library: str, mode: Any) -> dict[str, Any]:
    """Our decoding settings for those of a library."""
    ours: dict[str, Any] = {}
    if library == "fairseq":
        ours = {
            "beam_size": mode["beam"],
            "alpha": 0.0 if mode.get("unnormalized") else mode["lenpen"],
            "extra_length": mode["max_len_b"] + 1,
            "force_decode_length": mode["max_len_a"] == 0,
        }
    elif library == "huggingface":
        ours = {"beam_size": mode["num_beams"], "extra_length": mode["max_new_tokens"]}
        ours["force_eos"] = "forced_eos_token_id" not in mode
        if mode["num_beams"] > 1:
            ours |= {"alpha": mode["length_penalty"], "early_stopping": mode["early_stopping"]}
    else:
        words = mode.split()
        given = dict(zip(words[::2], words[1::2], strict=False)) if library != "sockeye" else {}
        if library == "sockeye":
            given = {w: v for w, v in zip(words, [*words[1:], ""], strict=True) if w[0] == "-"}
            ours = {"beam_size": int(given["--beam-size"]), "force_eos": "--greedy" not in given}
            if given.get("--beam-search-stop") == "first":
                ours["early_stopping"] = "true"
            if ours["beam_size"] > 1:
                beta = float(given.get("--length-penalty-beta", 0))
                ours |= {
                    "alpha": float(given.get("--length-penalty-alpha", 1)),
                    "length_offset": beta,
                    "length_scale": beta + 1,
                }
            if longest := given.get("--max-output-length"):
                ours |= {"force_decode_length": True, "extra_length": int(longest) + 1}
                ours |= {"extra_length_ratio": 0.0}
        else:
            penalty = given.get("-length_penalty", "avg")
            ours = {"beam_size": int(given["-beam_size"])}
            if ours["beam_size"] > 1:
                ours["alpha"] = 0.0 if penalty == "none" else float(given.get("-alpha", 1))
                if penalty == "wu":
                    ours |= {"length_offset": 6, "length_scale": 6}
            if longest := given.get("-max_length"):
                ours |= {"max_length": int(longest)}
    if ours["beam_size"] == 1:
        ours.pop("alpha", None)
        return ours
    return {**ours, "return_beams": "early_stopping" not in ours or library != "sockeye"}


@pytest.fixture(scope="module", params=PEERS)
def run(request, tmp_path_factory) -> tuple[Peer, Path]:
    """A golden folder, and its import."""
    peer = PEERS[request.param]
    if not (peer.folder / "expected.json").exists():
        pytest.skip(f"{request.param} is not in the repository")
    path = tmp_path_factory.mktemp("imported") / "run"
    t2t.import_run(peer.source, path, subwords=peer.subwords)
    return peer, path


def reader(path: Path, **changes: Any) -> Predictor:
    text = ",".join(f"{name}={str(value).lower()}" for name, value in changes.items())
    defaults = RunDirectory(path).task().decode_hparams
    predictor = load(path, hparams=parse_decode_hparams(text, defaults=defaults))
    assert isinstance(predictor, Predictor)
    return predictor


def test_ids_are_those_of_the_library(run) -> None:
    peer, path = run
    predictor = reader(path)
    order = their_ids(peer, path, "inputs")
    for item in peer.expected["items"]:
        (ids,) = predictor.encode([item["text"]])
        assert [order[i] for i in ids] == item["src_ids"], item["text"]


def their_ids(peer: Peer, path: Path, field: str) -> list[int]:
    """The library's id for each of ours."""
    pad, eos, _ = SPECIAL[peer.library]
    size = len(
        json.loads(
            next(path.glob(f"vocab.*.{field}.pieces"), next(path.glob("vocab.*.pieces"))).read_text(
                "utf-8"
            )
        )["tokens"]
    )
    return [pad, eos, *(i for i in range(size) if i not in (pad, eos))]


def test_logits_are_those_of_the_library(run) -> None:
    peer, path = run
    with np.load(peer.folder / "expected.npz") as arrays:
        golden = dict(arrays)
    read, written = (their_ids(peer, path, field) for field in ("inputs", "targets"))
    model = reader(path).model.eval()
    for row in range(len(golden["rows"])):
        source = golden["src_ids"][row][: golden["src_len"][row]]
        target = golden["tgt_ids"][row][: golden["tgt_len"][row]]
        batch = {
            "inputs": torch.tensor([[read.index(i) for i in source]]),
            "targets": torch.tensor([[written.index(i) for i in target]]),
        }
        with torch.inference_mode():
            logits = model(batch).logits["targets"][0]
        expected = torch.from_numpy(golden["logits"][row][: len(target)])[:, written]
        torch.testing.assert_close(logits, expected, atol=2e-5, rtol=0)


@pytest.mark.sample(1)
def test_outputs_are_those_of_the_library(run) -> None:
    peer, path = run
    written = their_ids(peer, path, "targets")
    start = SPECIAL[peer.library][2]
    encoder = reader(path).features.targets["targets"].encoder
    for name, mode in peer.expected["modes"].items():
        if name == "beam4_avg_ratio2":
            continue  # there is no rule like OpenNMT-py's -ratio here
        predictor = reader(path, batch_size=1, **settings(peer.library, mode))
        predictions = predictor.predict([item["text"] for item in peer.expected["items"]])
        for item, prediction in zip(peer.expected["items"], predictions, strict=True):
            expected, where = item[name], (name, item["text"])
            found = prediction.hypotheses
            if peer.library == "sockeye":
                pieces = [" ".join(encoder.tokens[i] for i in one.ids) for one in found]
                assert pieces == [one["pieces"] for one in expected], where
            else:
                eos = SPECIAL[peer.library][1]
                theirs = [
                    [i for k, i in enumerate(one["ids"]) if i != eos and (k or i != start)]
                    for one in expected
                ]
                assert [[written[i] for i in one.ids] for one in found] == theirs, where
                assert found[0].text == expected[0]["text"], where
            sign = -1 if peer.library == "sockeye" else 1
            if len(expected) > 1:
                scores = [sign * one.score for one in found]
                assert scores == pytest.approx([one["score"] for one in expected], abs=1e-4), where


@pytest.fixture(scope="module")
def translated(tmp_path_factory) -> dict[str, Path]:
    """Folders with texts to train on and to verify with, by suffixes of their files."""
    folder = tmp_path_factory.mktemp("texts")
    peer = PEERS["opennmt_py/lstm"]
    items = peer.expected["items"]
    for split in ("train", "eval"):
        source = "".join(f"{item['text']}\n" for item in items)
        target = "".join(f"{item['greedy'][0]['text']}\n" for item in items)
        for suffix in ("en", "src", "source"):
            (folder / f"{split}.{suffix}").write_text(source, "utf-8")
        for suffix in ("de", "tgt", "target"):
            (folder / f"{split}.{suffix}").write_text(target, "utf-8")
    return folder


@pytest.mark.slow
def test_an_imported_run_trains_on_and_is_exported(run, translated, tmp_path) -> None:
    _, path = run
    copy = tmp_path / "run"
    shutil.copytree(path, copy)
    data = tmp_path / "data"
    data.mkdir()
    for file in path.glob("vocab.*"):
        shutil.copyfile(file, data / file.name)
    task = RunDirectory(path).task()
    flags = [f"--problem={task.problem}", f"--data_dir={data}", f"--tmp_dir={translated}"]
    assert datagen.main([*flags, f"--t2t_usr_dir={path / 'declarations'}"]) == 0
    step = reader(path).run.step
    inputs = ["The dog sees the house.", "the", "Zyx qwk! \N{SNOWMAN}", ""]
    expected = reader(path, beam_size=4).predict(inputs)
    t2t.export(path, tmp_path / "artifact", data, decode_hparams="beam_size=4")
    artifact = t2t.load(tmp_path / "artifact")
    for text, prediction in zip(inputs, expected, strict=True):
        assert artifact([text]) == [prediction.text], text
    trained = t2t.train(data_dir=data, output_dir=copy, train_steps=step + 50, trust_code=True)
    assert trained.run.step == step + 50 and trained(inputs)
    before, after = (load_run(one).model.state_dict() for one in (path, copy))
    changed = [name for name in before if not torch.equal(before[name], after[name])]
    tables = {name for name in before if name.endswith("positions.table")}
    assert changed and {*before} - {*changed} <= tables
