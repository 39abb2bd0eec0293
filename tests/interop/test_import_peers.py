"""Models of fairseq, OpenNMT-py, Sockeye and Hugging Face, imported: equal ids, logits, outputs.

The checkpoints are by these libraries' own commands, and so are the expected outputs.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import t2t_torch as t2t
from t2t_torch.decode.hparam import parse_decode_hparams
from t2t_torch.decode.loading import load
from t2t_torch.decode.predictor import Predictor
from t2t_torch.train.run_directory import RunDirectory

GOLDEN = Path("/work/shared/golden/peers")


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
}


def settings(library: str, mode: Any) -> dict[str, Any]:
    """Our decoding settings for those of a library."""
    if library == "fairseq":
        ours = {
            "beam_size": mode["beam"],
            "alpha": 0.0 if mode.get("unnormalized") else mode["lenpen"],
            "extra_length": mode["max_len_b"] + 1,
            "force_decode_length": mode["max_len_a"] == 0,
        }
    if ours["beam_size"] == 1:
        del ours["alpha"]
        return ours
    return {**ours, "return_beams": True}


@pytest.fixture(scope="module", params=PEERS)
def run(request, tmp_path_factory) -> tuple[Peer, Path]:
    """A golden folder, and its import."""
    peer = PEERS[request.param]
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
    pad, eos = {"fairseq": (1, 2)}[peer.library]
    size = len(json.loads(next(path.glob(f"vocab.*.{field}.pieces"), next(path.glob("vocab.*.pieces"))).read_text("utf-8"))["tokens"])
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


def test_outputs_are_those_of_the_library(run) -> None:
    peer, path = run
    written = their_ids(peer, path, "targets")
    for name, mode in peer.expected["modes"].items():
        predictor = reader(path, batch_size=1, **settings(peer.library, mode))
        texts = [item["text"] for item in peer.expected["items"]]
        predictions = predictor.predict(texts)
        gap = peer.expected["smallest_gap_between_neighbours_of_an_nbest_list"][name]
        for item, prediction in zip(peer.expected["items"], predictions, strict=True):
            expected = item[name]
            found = [[written[i] for i in one.ids] for one in prediction.hypotheses]
            assert found == [one["ids"][:-1] for one in expected], (name, item["text"], gap)
            assert prediction.hypotheses[0].text == expected[0]["text"], name
            if len(expected) > 1:
                scores = [one.score for one in prediction.hypotheses]
                assert scores == pytest.approx([one["score"] for one in expected], abs=2e-5)
