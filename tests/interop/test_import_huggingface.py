"""BERT, DistilBERT and GPT-2, imported: ids, hidden states, logits and outputs are equal.

The models and what they give are by Hugging Face's transformers 5.23.0.
"""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import t2t_torch as t2t
from t2t_torch.bin.commands import datagen
from t2t_torch.decode.hparam import parse_decode_hparams
from t2t_torch.decode.loading import load, load_run
from t2t_torch.errors import CheckpointError, DataError, HParamsError, UsageError
from t2t_torch.run.directory import RunDirectory

pytest.importorskip("tokenizers")
pytestmark = pytest.mark.usefixtures("own_registry")
GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "peers" / "huggingface"
PAD, SEP, END = 0, 3, 0  # theirs


def expected_of(name):
    items = json.loads((GOLDEN / name / "expected.json").read_text("utf-8"))["items"]
    with np.load(GOLDEN / name / "expected.npz") as arrays:
        return items, {key: torch.from_numpy(value) for key, value in arrays.items()}


def imported(name, path, **settings):
    t2t.import_run(GOLDEN / name, path, **settings)
    return load_run(path).model.eval()


def our_bert_ids(ids):
    """Ours of BERT's: PAD 0, [SEP] 1, the others in their order."""
    order = [PAD, SEP, *(i for i in range(600) if i not in (PAD, SEP))]
    return [order.index(i) for i in ids]


@pytest.mark.parametrize("name", ["bert", "distilbert"])
def test_an_encoder_computes_the_same_states(name, tmp_path):
    items, arrays = expected_of(name)
    model = imported(name, tmp_path / "run")
    encoder = model.features.inputs["inputs"].encoder
    for number, item in enumerate(items):
        if not isinstance(item["text"], str):
            continue
        ids = [*encoder.encode(item["text"]), 1]
        assert ids == our_bert_ids(item["input_ids"]), item["text"]
        batch = {"inputs": torch.tensor([ids])}
        with torch.inference_mode():
            joined = model.join(model.bottom(batch))
            hidden = model._encode(joined)
            if name == "bert":
                summary = model._summary(hidden, joined.mask)[0]
                close(summary, arrays[f"pooler_output/{number}"])
            close(hidden[0], arrays[f"hidden/{number}"][-1])


@pytest.mark.parametrize("name", ["bert", "distilbert"])
def test_states_do_not_depend_on_the_batch(name, tmp_path):
    _, arrays = expected_of(name)
    model = imported(name, tmp_path / "run")
    there = arrays["batch_attention_mask"].bool()
    ids = torch.tensor([our_bert_ids(row) for row in arrays["batch_input_ids"].tolist()])
    with torch.inference_mode():
        hidden = model._encode(model.join(model.bottom({"inputs": ids})))
    close(hidden[there], arrays["batch_out"][there])


@pytest.mark.parametrize("name", ["bert", "distilbert"])
def test_pairs_have_joint_positions_and_types(name, tmp_path):
    items, arrays = expected_of(name)
    pairs = [(n, one) for n, one in enumerate(items) if not isinstance(one["text"], str)]
    assert len(pairs) == 3
    model = imported(name, tmp_path / "run", kind="textpair2class", labels=["no", "yes"])
    encoders = [model.features.inputs[field].encoder for field in ("first", "second")]
    for number, item in pairs:
        ids = [
            [*encoder.encode(text), 1] for encoder, text in zip(encoders, item["text"], strict=True)
        ]
        assert ids[0] + ids[1] == our_bert_ids(item["input_ids"])
        padded = [[*ids[0], 0, 0], ids[1]]  # what another row of the batch would make
        batch = dict(
            zip(("first", "second"), map(torch.tensor, ([one] for one in padded)), strict=True)
        )
        with torch.inference_mode():
            joined = model.join(model.bottom(batch))
            hidden = model._encode(joined)[joined.mask]
        close(hidden, arrays[f"hidden/{number}"][-1])


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=0)


@pytest.mark.slow
def test_an_encoder_is_trained_on_a_users_texts(tmp_path):
    imported("bert", tmp_path / "run", labels=["dog", "cat"], problem="animals")
    rows = [f"the {kind} number {n} sleeps\t{kind}" for n in range(30) for kind in ("dog", "cat")]
    (tmp_path / "animals-train.tsv").write_text("\n".join(["inputs\ttargets", *rows]) + "\n")
    shutil.copyfile(tmp_path / "animals-train.tsv", tmp_path / "animals-eval.tsv")
    rows = (tmp_path / "animals-eval.tsv").read_text().replace("number", "with number")
    (tmp_path / "animals-eval.tsv").write_text(rows)
    data, run = tmp_path / "data", tmp_path / "run"
    data.mkdir()
    for file in run.glob("vocab.*"):
        shutil.copyfile(file, data / file.name)
    flags = ["--problem=animals", f"--data_dir={data}", f"--tmp_dir={tmp_path}"]
    assert datagen.main([*flags, f"--t2t_usr_dir={run}/declarations"]) == 0
    trained = t2t.train(
        data_dir=data, output_dir=run, train_steps=60, hparams="learning_rate_constant=0.002"
    )
    assert trained(["a dog", "a cat"]) == ["dog", "cat"]
    assert t2t.evaluate(run, data_dir=data)["accuracy"] == 1.0
    t2t.export(run, tmp_path / "artifact", data)
    texts = ["A dog, and", "", "the CAT number 7"]
    artifact = t2t.load(tmp_path / "artifact").predict(texts)
    for ours, theirs in zip(trained.predict(texts), artifact, strict=True):
        assert theirs.scores["targets"] == pytest.approx(ours.scores["targets"], abs=1e-5)


@pytest.mark.parametrize("kind", ["bert", "distilbert"])
def test_a_classifier_of_the_checkpoint_is_read(kind, tmp_path):
    source = tmp_path / "old"
    shutil.copytree(GOLDEN / kind, source)
    weights = {
        f"{kind}.{name}": one for name, one in load_file(source / "model.safetensors").items()
    }
    weights["classifier.weight"], weights["classifier.bias"] = torch.randn(3, 32), torch.randn(3)
    if kind == "distilbert":
        weights["pre_classifier.weight"] = torch.randn(32, 32)
        weights["pre_classifier.bias"] = torch.randn(32)
    weights["cls.predictions.bias"] = torch.zeros(600)
    save_file(weights, source / "model.safetensors")
    config = json.loads((source / "config.json").read_text())
    config["id2label"] = {"0": "bad", "1": "fair", "2": "good"}
    (source / "config.json").write_text(json.dumps(config))
    t2t.import_run(source, tmp_path / "run")
    model = load_run(tmp_path / "run").model
    assert torch.equal(
        model.state_dict()["modalities.targets.top.weight"], weights["classifier.weight"]
    )
    (found,) = load(tmp_path / "run").predict(["the dog"])
    assert set(found.scores["targets"]) == {"bad", "fair", "good"}


def test_a_language_model_computes_the_same_logits(tmp_path):
    items, arrays = expected_of("gpt2")
    model = imported("gpt2", tmp_path / "run")
    encoder = model.features.targets["targets"].encoder
    for number, item in enumerate(items):
        ids = encoder.encode(item["text"])
        assert [i - 1 for i in ids] == item["ids"]
        assert encoder.decode(ids) == item["decoded"]
        if number < 4:
            batch = {"targets": torch.tensor([[*ids, 1]])}
            with torch.inference_mode():
                logits = model(batch).logits["targets"][0, 1:, 1:]
            close(logits, arrays[f"logits/{number}"])


def test_texts_are_continued_as_the_library_does(tmp_path):
    items, _ = expected_of("gpt2")
    imported("gpt2", tmp_path / "run")
    greedy = continued(tmp_path / "run", items, "beam_size=1,extra_length=16")
    for item, (best, *_) in zip(items, greedy, strict=True):
        theirs = item["greedy_ids"][len(item["ids"]) :]
        assert [i - 1 for i in best.ids] == [i for i in theirs if i != END], item["text"]
        assert best.text == item["greedy_text"]
    beams = continued(
        tmp_path / "run",
        items,
        "beam_size=4,extra_length=16,alpha=1,return_beams=True,length_offset=0,length_scale=1",
    )
    for item, found in zip(items, beams, strict=True):
        theirs = [beam["ids"][len(item["ids"]) :] for beam in item["beam4"]]
        scores = [beam["score"] for beam in item["beam4"]]
        assert [one.score for one in found] == pytest.approx(scores, abs=1e-4), item["text"]
        gap = min(a - b for a, b in itertools.pairwise(scores))
        if gap > 1e-4:
            ours = [[i - 1 for i in one.ids] for one in found]
            assert ours == [[i for i in one if i != END] for one in theirs], item["text"]


def continued(run, items, settings):
    defaults = RunDirectory(run).task().decode_hparams
    hparams = parse_decode_hparams(settings, defaults=defaults)
    predictions = load(run, hparams=hparams).predict([item["text"] for item in items])
    return [one.hypotheses for one in predictions]


def test_a_language_model_trains_on(tmp_path):
    imported("gpt2", tmp_path / "run", problem="tales")
    text = "".join(f"the small dog sees {n} houses\n" for n in range(80))
    for split in ("train", "eval"):
        (tmp_path / f"tales-{split}.txt").write_text(text if split == "train" else text.upper())
    data, run = tmp_path / "data", tmp_path / "run"
    data.mkdir()
    for file in run.glob("vocab.*"):
        shutil.copyfile(file, data / file.name)
    flags = ["--problem=tales", f"--data_dir={data}", f"--tmp_dir={tmp_path}"]
    assert datagen.main([*flags, f"--t2t_usr_dir={run}/declarations"]) == 0
    before = load_run(run).model.state_dict()
    t2t.train(data_dir=data, output_dir=run, train_steps=50)
    after = load_run(run).model.state_dict()
    assert [name for name in before if torch.equal(before[name], after[name])] == []
    with pytest.raises(t2t.errors.ExportError, match="PyTorch"):
        t2t.export(run, tmp_path / "artifact", data)


def test_old_folders_have_a_tokenizer_of_separate_files(tmp_path):
    for name in ("bert", "distilbert", "gpt2"):
        source = tmp_path / name
        shutil.copytree(GOLDEN / name, source)
        (source / "tokenizer.json").unlink()
        t2t.import_run(source, tmp_path / f"run_{name}")
        features = load_run(tmp_path / f"run_{name}").model.features
        (field,) = features.texts if hasattr(features, "texts") else list(features.all)[:1]
        encoder = features.all[field].encoder
        for item in expected_of(name)[0]:
            if isinstance(item["text"], str):
                ids = encoder.encode(item["text"])
                theirs = item.get("ids") or item["input_ids"][:-1]
                ours = [i + 1 for i in theirs] if name == "gpt2" else our_bert_ids(theirs)
                assert ids == ours, item["text"]


@pytest.mark.parametrize(
    ("name", "change", "error", "named"),
    [
        ("bert", {"position_embedding_type": "relative_key"}, HParamsError, "relative_key"),
        ("bert", {"hidden_act": "mish"}, HParamsError, "mish"),
        ("bert", {"problem_type": "regression"}, HParamsError, "regression"),
        ("gpt2", {"add_cross_attention": True}, HParamsError, "add_cross_attention=True"),
        ("gpt2", {"model_type": "gpt_neo"}, UsageError, "gpt_neo"),
        ("bert", {"num_attention_heads": 5}, HParamsError, "num_heads"),
    ],
)
def test_other_models_are_refused_by_name(name, change, error, named, tmp_path):
    source = tmp_path / "old"
    shutil.copytree(GOLDEN / name, source)
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(error, match=named):
        t2t.import_run(source, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("remove", "add", "named"),
    [
        ("encoder.layer.1.output.dense.weight", None, "encoder.layer.1.output.dense.weight"),
        (None, "encoder.layer.0.attention.self.relative.weight", "relative"),
    ],
)
def test_weights_too_few_or_too_many_are_named(remove, add, named, tmp_path):
    source = tmp_path / "old"
    shutil.copytree(GOLDEN / "bert", source)
    weights = load_file(source / "model.safetensors")
    if remove:
        del weights[remove]
    if add:
        weights[add] = torch.zeros(2)
    save_file(weights, source / "model.safetensors")
    with pytest.raises(CheckpointError, match=named):
        t2t.import_run(source, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_tokenizer_of_another_model_is_refused(tmp_path):
    source = tmp_path / "old"
    shutil.copytree(GOLDEN / "bert", source)
    shutil.copyfile(GOLDEN / "gpt2" / "tokenizer.json", source / "tokenizer.json")
    with pytest.raises(DataError, match=r"\[SEP\]"):
        t2t.import_run(source, tmp_path / "run")
    for content in ("{}", "[", '{"model": {"vocab": {"[SEP]": "x"}}}'):
        (source / "tokenizer.json").write_text(content)
        with pytest.raises(DataError, match="tokenizer"):
            t2t.import_run(source, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_labels_must_fit_the_classes(tmp_path):
    source = tmp_path / "old"
    shutil.copytree(GOLDEN / "bert", source)
    weights = load_file(source / "model.safetensors")
    weights["classifier.weight"], weights["classifier.bias"] = torch.zeros(3, 32), torch.zeros(3)
    save_file(weights, source / "model.safetensors")
    with pytest.raises(UsageError, match="3 classes"):
        t2t.import_run(source, tmp_path / "run", labels=["a", "b"])
    with pytest.raises(UsageError, match="kind"):
        t2t.import_run(GOLDEN / "gpt2", tmp_path / "run", kind="text2class")
