"""Models of other libraries whose encoder and decoder differ, and other rare options.

`tests/golden/make_unlike_peers.py` wrote the checkpoints with the libraries themselves, and what
they compute.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import t2t_torch as t2t
from t2t_torch.bin.commands import datagen
from t2t_torch.decode.hparam import parse_decode_hparams
from t2t_torch.decode.loading import load, load_run
from t2t_torch.errors import ExportError, HParamsError
from t2t_torch.interop import ctranslate2, fairseq, marian, opennmt, sockeye
from t2t_torch.interop.importer import import_run
from t2t_torch.interop.settings import ImportSettings
from t2t_torch.run.directory import RunDirectory

pytestmark = pytest.mark.usefixtures("own_registry")
ROOT = Path(__file__).resolve().parent.parent.parent
GOLDEN = ROOT / "tests" / "golden" / "peers" / "unlike"
FOLDERS = sorted(str(path.parent.relative_to(GOLDEN)) for path in GOLDEN.glob("*/*/expected.json"))
SEARCH = {  # the beam of make_unlike_peers.py, of ten words, in our settings
    "fairseq": "beam_size=4,extra_length=11",
    "opennmt": "beam_size=4,max_length=10",
    "sockeye": "beam_size=4,extra_length=11,extra_length_ratio=0,force_decode_length=true",
}
SILENT = {"<s>", "<pad>", "<unk>", "<blank>"}
EOS = 1


def words(text: str) -> str:
    """A text without the special tokens, which not every library prints."""
    return " ".join(word for word in text.split() if word not in SILENT)


def translated(model: Any, source: str, target: str, *, ends: bool) -> tuple[torch.Tensor, Any]:
    """Logits of a target, [T, V], and the tokens of the vocabulary."""
    read, written = (model.features.all[name].encoder for name in ("inputs", "targets"))
    ids = [*read.encode(source), EOS] if ends else read.encode(source)
    batch = {
        "inputs": torch.tensor([ids]),
        "targets": torch.tensor([[*written.encode(target), EOS]]),
    }
    return model(batch).logits["targets"][0], written.tokens


def computed(model: Any, library: str, source: str, target: str) -> tuple[torch.Tensor, Any]:
    """What the library computed with `make_unlike_peers.py`, of our model; see `translated`."""
    if model.features.has_inputs:
        return translated(model, source, target, ends=library != "opennmt")
    encoder = model.features.targets["targets"].encoder
    batch = {"targets": torch.tensor([[*encoder.encode(source), EOS]])}
    return model(batch).logits["targets"][0][1:], encoder.tokens  # the first id is given


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", FOLDERS)
def test_what_a_library_can_write_is_imported(name, tmp_path):
    folder, library = GOLDEN / name, name.partition("/")[0]
    t2t.import_run(folder, tmp_path / "run")
    expected = json.loads((folder / "expected.json").read_text("utf-8"))
    model = load_run(tmp_path / "run").model.eval()
    with np.load(folder / "expected.npz") as arrays:
        logits = [torch.from_numpy(arrays[str(n)]) for n in range(len(expected["sources"]))]
    pairs = zip(expected["sources"], expected["targets"], logits, strict=True)
    for source, target, theirs in pairs:
        with torch.inference_mode():
            ours, tokens = computed(model, library, source, target)
        # In our order, without padding that the library has not.
        known = [n for n, token in enumerate(tokens) if token in expected["tokens"]]
        ours = ours[:, known]
        theirs = theirs[:, [expected["tokens"].index(tokens[n]) for n in known]]
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=0)
    if not expected["beams"]:
        return
    defaults = RunDirectory(tmp_path / "run").task().decode_hparams
    search = parse_decode_hparams(f"{SEARCH[library]},return_beams=true", defaults=defaults)
    predictor: Any = load(tmp_path / "run", hparams=search)
    tokens = predictor.features.targets["targets"].encoder.tokens
    for found, theirs in zip(
        predictor.predict(expected["sources"]), expected["beams"], strict=True
    ):
        texts = [words(" ".join(tokens[n] for n in one.ids)) for one in found.hypotheses]
        assert texts == [words(text) for text, _ in theirs]
        scores = [abs(one.score) for one in found.hypotheses]
        assert scores == pytest.approx([abs(score) for _, score in theirs], abs=1e-4)


@pytest.mark.slow
def test_a_model_with_unlike_sides_is_exported(tmp_path):
    run, data, texts = tmp_path / "run", tmp_path / "data", tmp_path / "texts"
    t2t.import_run(GOLDEN / "fairseq" / "everything", run, decode_hparams=SEARCH["fairseq"])
    for folder in (data, texts):
        folder.mkdir()
    for file in run.glob("vocab.*"):
        (data / file.name).write_bytes(file.read_bytes())
    for split in ("train", "eval"):
        for language in ("en", "de"):
            (texts / f"{split}.{language}").write_text("w1 w2\nw3 w4 w5\n" * 8)
    problem = RunDirectory(run).task().problem
    flags = [f"--problem={problem}", f"--data_dir={data}", f"--tmp_dir={texts}"]
    assert datagen.main([*flags, f"--t2t_usr_dir={run / 'declarations'}"]) == 0
    inputs = ["w1 w2 w3 w4", "w5", "w7 w7 w19"]
    t2t.export(run, tmp_path / "artifact", data)
    assert t2t.load(tmp_path / "artifact")(inputs) == t2t.load(run)(inputs)


def test_ctranslate2_refuses_unlike_sides_by_name(tmp_path):
    t2t.import_run(GOLDEN / "fairseq" / "everything", tmp_path / "run")
    with pytest.raises(ExportError, match=r"decoder_hparams=\[.*num_heads=2"):
        ctranslate2.check_convertible(load_run(tmp_path / "run"))


def test_an_error_names_the_option_and_the_page_of_the_library(tmp_path):
    source = tmp_path / "old"
    (source / "data-bin").mkdir(parents=True)
    golden = GOLDEN / "fairseq" / "everything"
    for file in golden.glob("data-bin/*"):
        (source / "data-bin" / file.name).write_bytes(file.read_bytes())
    content = torch.load(golden / "checkpoints" / "checkpoint_best.pt", weights_only=False)
    content["cfg"]["model"].cross_self_attention = True
    torch.save(content, source / "checkpoint_best.pt")
    with pytest.raises(HParamsError, match=r"cross_self_attention=True. docs/how_to/from_fairseq"):
        import_run(ImportSettings(source=str(source), output_dir=str(tmp_path / "run")))


@pytest.mark.parametrize(
    ("module", "page"),
    [
        (fairseq, "from_fairseq"),
        (opennmt, "from_opennmt_py"),
        (sockeye, "from_sockeye"),
        (marian, "from_marian"),
    ],
)
def test_the_page_of_a_library_lists_what_is_refused(module, page):
    text = (ROOT / "docs" / "how_to" / f"{page}.md").read_text("utf-8")
    refused = {**module._MUST_BE, **getattr(module, "_MUST_BE_OF_STACK", {})}
    assert [name for name in refused if f"`{name}`" not in text] == []
