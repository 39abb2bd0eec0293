"""Pretrained models are fine-tuned on every kind of problem, resumed, exported and refused."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

import t2t_torch as t2t
from t2t_torch import registry
from t2t_torch.errors import CheckpointError, DataError, ExportError, HParamsError, UsageError
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.directory import RunDirectory
from t2t_torch.run.warm_start import warm_start
from t2t_torch.text.pretrained import PretrainedFolder
from tests.pretrained.folders import save_model

pytestmark = pytest.mark.usefixtures("own_registry")

ANIMALS, VERBS = ("fox", "dog"), ("jumps", "reads")


def sentence(draw):
    words = draw.choices(["the", "quick", "brown", "lazy", *ANIMALS, *VERBS], k=draw.randint(2, 7))
    return " ".join([draw.choice(ANIMALS), *words])


def rows_of(kind, count, seed):
    draw = random.Random(seed)
    for _ in range(count):
        one, other = sentence(draw), sentence(draw)
        words, label = one.split(), one.split()[0]
        tags = [f"B-{word}" if word in ANIMALS else "O" for word in words]
        yield {
            "text2class": {"inputs": one, "targets": label},
            "textpair2class": {
                "first": one, "second": other, "targets": str(label == other.split()[0]),
            },
            "text2real": {"inputs": one, "targets": len(words)},
            "text2multilabel": {"inputs": one, "targets": sorted({*words} & {*ANIMALS})},
            "text2tags": {"inputs": words, "targets": tags},
            "intentslot": {"inputs": words, "intent": label, "slots": tags},
            "pairranking": {
                "query": one, "positive": f"{label} {other}", "negative": other[::-1],
            },
            "spanqa": {
                "question": "which animal", "context": one,
                "answers": [{"text": label, "answer_start": 0}],
            },
            "text2text": {"inputs": one, "targets": f"{label} jumps"},
            "text2self": {"targets": one},
        }[kind]  # fmt: skip


KINDS = (
    "text2class", "textpair2class", "text2real", "text2multilabel", "text2tags", "intentslot",
    "pairranking", "spanqa", "text2text", "text2self",
)  # fmt: skip
USUAL = ("text2class", "intentslot")
FAMILIES_OF = {
    "text2tags": ["bert", "xlm-roberta", "deberta-v2"],
    "text2text": ["bart", "t5"],
    "text2self": ["gpt2", "llama", "qwen2"],
}


@pytest.fixture
def training_of(tmp_path):
    """Returns the settings of a training of a kind of problem."""

    def made(kind, family, folder=None, **settings):
        folder = folder or tmp_path / family
        name = {"text2text": "pretrained_seq2seq", "text2self": "pretrained_lm"}
        model = name.get(kind, "pretrained_encoder")
        auto = {
            "pretrained_lm": "AutoModelForCausalLM",
            "pretrained_seq2seq": "AutoModelForSeq2SeqLM",
        }
        if not folder.exists():
            save_model(family, folder, auto.get(model, "AutoModel"))
        declared = tmp_path / "declared"
        declared.mkdir(exist_ok=True)
        files = {"train": f"{kind}-train.jsonl", "eval": f"{kind}-eval.jsonl"}
        for split, file in files.items():
            rows = rows_of(kind, 60 if split == "train" else 20, split)
            (declared / file).write_text("\n".join(map(json.dumps, rows)) + "\n")
        content = {"problem": f"mine_{kind}", "kind": kind, "files": files}
        (declared / f"{kind}.json").write_text(json.dumps(content))
        rate = settings.pop("rate", 0.001)
        return {
            "problem": f"mine_{kind}",
            "model": model,
            "hparams_set": f"{model}_base",
            "hparams": f"pretrained={folder},batch_size=256,learning_rate_constant={rate}",
            "t2t_usr_dir": str(declared),
            "tmp_dir": declared,
            "data_dir": tmp_path / "data",
            "output_dir": tmp_path / f"run-{kind}",
            "generate_data": True,
            "train_steps": 3,
            **settings,
        }

    return made


def requests_of(kind):
    inputs = {"text2self": ("targets",), "spanqa": ("question", "context")}
    for row in rows_of(kind, 5, "requests"):
        left = {k: v for k, v in row.items() if k not in ("targets", "intent", "slots", "answers")}
        row = {k: row[k] for k in inputs.get(kind, left)}
        yield next(iter(row.values())) if len(row) == 1 else row


_WITHOUT = """
import sys
sys.modules.update(torch=None, transformers=None, tokenizers=None)
import json, t2t_torch as t2t
requests = json.load(sys.stdin)
print(json.dumps([[one.values, one.scores] for one in t2t.load(sys.argv[1]).predict(requests)]))
"""


@pytest.mark.parametrize(
    ("kind", "family"),
    [
        pytest.param(kind, one, marks=() if kind in USUAL else pytest.mark.slow)
        for kind in KINDS
        for one in FAMILIES_OF.get(kind, ["bert"])
    ],
)
def test_a_problem_is_trained_exported_and_answered_alike(kind, family, tmp_path, training_of):
    run = t2t.train(**training_of(kind, family))
    assert (tmp_path / f"run-{kind}" / "ckpt-3").is_dir()
    requests = list(requests_of(kind))
    answers = run.predict(requests)
    artifact = tmp_path / "artifact"
    t2t.export(tmp_path / f"run-{kind}", artifact, tmp_path / "data")
    told = subprocess.run(
        [sys.executable, "-c", _WITHOUT, str(artifact)],
        input=json.dumps(requests), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    for ours, (values, _) in zip(answers, json.loads(told.stdout), strict=True):
        assert values == json.loads(json.dumps(ours.values)) or kind == "text2real"
        if kind == "text2real":
            assert values["targets"] == pytest.approx(ours.values["targets"], abs=1e-4)


def weights(folder):
    return {
        name: one.numpy().tobytes()
        for f in folder.glob("*.safetensors")
        for name, one in load_file(f).items()
    }


@pytest.mark.parametrize("family", ["electra", pytest.param("deberta-v2", marks=pytest.mark.slow)])
def test_a_resumed_run_is_bit_equal(family, tmp_path, training_of):
    t2t.train(**training_of("text2class", family, output_dir=tmp_path / "whole", train_steps=4))
    part = training_of(
        "text2class", family, output_dir=tmp_path / "part", pause_at_step=2, train_steps=4
    )
    t2t.train(**part)
    shutil.rmtree(tmp_path / family)  # the run needs the folder no more
    t2t.train(**{**part, "pause_at_step": 0})
    assert weights(tmp_path / "whole" / "ckpt-4") == weights(tmp_path / "part" / "ckpt-4")


@pytest.mark.parametrize(
    ("kind", "family", "model"),
    [
        ("masked", "bert", "pretrained_encoder"),
        pytest.param("noised", "bart", "pretrained_seq2seq", marks=pytest.mark.slow),
    ],
)
def test_pretraining_goes_on_with_own_texts(kind, family, model, tmp_path, training_of):
    folder = tmp_path / family
    save_model(family, folder, "AutoModel" if kind == "masked" else "AutoModelForSeq2SeqLM")
    settings = training_of("text2class", family, train_steps=4)
    settings |= {
        "problem": f"mine_text2class_{kind}", "model": model, "hparams_set": f"{model}_base",
    }  # fmt: skip
    whole = t2t.train(**settings)
    part = {**settings, "output_dir": tmp_path / "part"}
    t2t.train(**part, pause_at_step=2)
    t2t.train(**part)
    assert weights(tmp_path / "run-text2class" / "ckpt-4") == weights(tmp_path / "part" / "ckpt-4")
    with pytest.raises(ExportError, match="restores corrupted texts"):
        t2t.export(tmp_path / "part", tmp_path / "artifact", tmp_path / "data")
    if kind == "masked":
        with pytest.raises(UsageError, match="warm_start_from"):
            whole.predict(["the fox"])
        start = {"warm_start_from": tmp_path / "part", "output_dir": tmp_path / "next"}
        t2t.train(**training_of("text2class", family, **start))
        report = (tmp_path / "next" / "warm_start.txt").read_text()
        loaded = {line.split()[1] for line in report.splitlines() if line.startswith("loaded")}
        stored = weights(tmp_path / "part" / "ckpt-4").keys()
        own = {name for name in stored if name.startswith("network.") and "/" not in name}
        assert own <= loaded
        assert "network.inner.embeddings.word_embeddings.weight" in loaded


@pytest.mark.parametrize(
    ("kind", "family"),
    [
        ("text2class", "bert"),
        pytest.param("text2self", "llama", marks=pytest.mark.slow),
        pytest.param("text2text", "t5", marks=pytest.mark.slow),
    ],
)
def test_recomputed_layers_compute_the_same(kind, family, tmp_path, training_of):
    settings = training_of(kind, family, output_dir=tmp_path / "plain")
    t2t.train(**settings)
    settings["hparams"] += ",activation_checkpointing=True"
    t2t.train(**{**settings, "output_dir": tmp_path / "again"})
    assert weights(tmp_path / "plain" / "ckpt-3") == weights(tmp_path / "again" / "ckpt-3")


def test_an_adapter_of_a_pretrained_folder_is_loaded_onto_it(tmp_path, training_of):
    settings = training_of("text2class", "bert")
    settings["hparams"] += ",lora_rank=2"
    run = t2t.train(**settings)
    adapter = t2t.export(tmp_path / "run-text2class", tmp_path / "adapter", format="adapter")
    texts = ["the quick fox", "a dog reads"]
    again = t2t.load(adapter)
    assert [one.scores for one in again.predict(texts)] == [o.scores for o in run.predict(texts)]
    size = (tmp_path / "adapter" / "adapter.safetensors").stat().st_size
    assert size < (tmp_path / "bert" / "model.safetensors").stat().st_size
    shutil.move(tmp_path / "bert", tmp_path / "moved")
    with pytest.raises(CheckpointError, match="ln -sfn"):
        t2t.load(adapter)
    with pytest.raises(UsageError, match=r"bert"):
        t2t.export(tmp_path / "run-text2class", tmp_path / "second", format="adapter")
    (adapter / "base").symlink_to(tmp_path / "gone")
    with pytest.raises(CheckpointError, match="gone, which is missing"):
        t2t.load(adapter)
    (adapter / "base").unlink()
    (adapter / "base").symlink_to(tmp_path / "moved")
    assert t2t.load(adapter).predict(texts)[0].scores == run.predict(texts)[0].scores
    save_model("bert", tmp_path / "other", seed=1)
    (adapter / "base").unlink()
    (adapter / "base").symlink_to(tmp_path / "other")
    with pytest.raises(CheckpointError, match="changed"):
        t2t.load(adapter)


def test_a_tokenizer_without_marks_is_refused(tmp_path, training_of):
    save_model("t5", tmp_path / "t5", "AutoModelForSeq2SeqLM")
    settings = training_of("text2class", "t5")
    settings |= {
        "problem": "mine_text2class_spans", "model": "pretrained_seq2seq",
        "hparams_set": "pretrained_seq2seq_base",
    }  # fmt: skip
    with pytest.raises(HParamsError, match="<extra_id_0>"):
        t2t.train(**settings)


@pytest.mark.parametrize("kind", ["text2tags", "text2class", "spanqa"])
def test_all_weights_are_trained(kind, tmp_path, training_of):
    """Distributed runs need a gradient of each weight."""
    settings = training_of(kind, "bert")
    t2t.train(**settings)
    before = weights(settings["output_dir"] / "ckpt-3")
    t2t.train(**{**settings, "train_steps": 6})
    after = weights(settings["output_dir"] / "ckpt-6")
    keys = {name for name in after if name.endswith("key.bias")}  # no output depends on them
    assert {name for name in after if after[name] == before[name]} <= keys


def test_classes_are_learnt(training_of):
    settings = training_of("text2class", "roberta", rate=0.003, train_steps=40)
    t2t.train(**settings)
    scores = t2t.evaluate(settings["output_dir"], data_dir=settings["data_dir"])
    assert scores["accuracy"] == 1.0


def test_a_causal_body_is_summarized_at_its_end(training_of):
    settings = training_of("text2class", "llama")
    with pytest.raises(HParamsError, match="summary=last"):
        t2t.train(**settings)
    t2t.train(**{**settings, "hparams": settings["hparams"] + ",summary=last"})


def damaged(folder, how):
    weights, config = folder / "model.safetensors", folder / "config.json"
    if how == "no weights":
        weights.rename(folder / "pytorch_model.bin")
    elif how == "cut":
        weights.write_bytes(weights.read_bytes()[:-10])
    elif how == "pointer":
        weights.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    elif how == "missing shard":
        weights.unlink()
        index = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    elif how == "code":
        (folder / "modeling_mine.py").write_text("print('executed')")
    elif how == "auto map":
        config.write_text(json.dumps({**json.loads(config.read_text()), "auto_map": {"A": "b.C"}}))
    elif how == "unknown model":
        config.write_text(json.dumps({**json.loads(config.read_text()), "model_type": "none"}))
    elif how == "other tokenizer":
        config.write_text(json.dumps({**json.loads(config.read_text()), "vocab_size": 20}))
    elif how == "no tokenizer":
        for path in folder.glob("tokenizer*"):
            path.unlink()
    elif how in ("other shape", "not a number"):
        tensors = load_file(weights)
        name = "encoder.layer.0.attention.self.query.weight"
        its = tensors[name]
        tensors[name] = its[:3].clone() if how == "other shape" else its * float("nan")
        save_file(tensors, weights, {"format": "pt"})
    elif how == "end beyond":
        config.write_text(json.dumps({**json.loads(config.read_text()), "eos_token_id": 5000}))
    elif how == "other architecture":
        config.write_text(json.dumps({**json.loads(config.read_text()), "num_hidden_layers": 5}))
    return folder


BAD = {
    "no weights": (CheckpointError, "is a pickle"),
    "cut": (CheckpointError, "its header names"),
    "pointer": (CheckpointError, "git lfs pull"),
    "missing shard": (CheckpointError, "00001-of-00002.safetensors is missing"),
    "code": (UsageError, "code of its own"),
    "auto map": (UsageError, "code of its own"),
    "unknown model": (DataError, "reads no model of texts"),
    "other tokenizer": (DataError, "different models"),
    "no tokenizer": (DataError, "tokenizer"),
    "other architecture": (CheckpointError, "lacks"),
    "other shape": (CheckpointError, r"query.weight in .* is \[3, 32\], and .* says \[32, 32\]"),
    "not a number": (CheckpointError, "query.weight in .*: not all numbers are finite"),
    "end beyond": (DataError, "end 5000 is no id"),
}


@pytest.mark.parametrize("how", BAD)
def test_a_bad_folder_is_refused_by_name(how, tmp_path, training_of):
    settings = training_of("text2class", "bert")
    damaged(tmp_path / "bert", how)
    error, says = BAD[how]
    with pytest.raises(error, match=says):
        t2t.train(**settings)
    assert not list((tmp_path / "run-text2class").glob("ckpt-*"))


def test_weights_that_changed_since_are_refused(tmp_path, training_of):
    settings = training_of("text2class", "bert")
    known = PretrainedFolder(str(tmp_path / "bert")).architecture()
    save_model("bert", tmp_path / "bert", seed=3)
    with pytest.raises(CheckpointError, match="it has changed, or is of another"):
        PretrainedFolder(str(tmp_path / "bert")).check_is(known)
    assert settings


def test_data_of_another_vocabulary_is_refused(tmp_path, training_of):
    settings = training_of("text2class", "bert")
    t2t.train(**settings)
    other = training_of("text2class", "roberta", output_dir=tmp_path / "other")
    with pytest.raises(UsageError, match="has other tokens than those of"):
        t2t.train(**other)
    with pytest.raises(HParamsError, match="t2t-datagen"):
        t2t.train(**{**other, "generate_data": False})


def test_a_place_that_is_no_folder_and_no_name_is_refused(training_of):
    settings = training_of("text2class", "bert")
    hparams = settings["hparams"].split(",", 1)[1]
    with pytest.raises(UsageError, match="no such folder"):
        t2t.train(**{**settings, "hparams": f"pretrained=/nowhere/at/all,{hparams}"})
    with pytest.raises(HParamsError, match="pretrained=FOLDER"):
        t2t.train(**{**settings, "hparams": hparams})


@pytest.mark.parametrize(
    "kind, family", [("text2class", "bert"), ("text2text", "t5"), ("text2self", "qwen3")]
)
def test_a_run_is_exported_for_transformers(kind, family, tmp_path, training_of):
    import transformers

    settings = training_of(kind, family)
    t2t.train(**settings)
    folder = tmp_path / "exported"
    t2t.export(settings["output_dir"], folder, format="huggingface")
    model = {"text2text": "AutoModelForSeq2SeqLM", "text2self": "AutoModelForCausalLM"}
    loaded = getattr(transformers, model.get(kind, "AutoModel")).from_pretrained(folder)
    ours = weights(settings["output_dir"] / "ckpt-3")
    for name, weight in loaded.named_parameters():
        if not name.startswith("pooler."):
            assert ours[f"network.inner.{name}"] == weight.detach().numpy().tobytes()
    tokenizers = [
        transformers.AutoTokenizer.from_pretrained(one) for one in (tmp_path / family, folder)
    ]
    first, second = (one("the quick fox, naïve") for one in tokenizers)
    assert dict(first) == dict(second)
    again = training_of(
        kind, family, folder, output_dir=tmp_path / "again", data_dir=tmp_path / "new"
    )
    t2t.train(**again)


def test_a_run_of_another_model_is_not_exported_for_transformers(tmp_path, training_of):
    settings = training_of(
        "text2class", "bert", model="text_cnn", hparams_set="text_cnn_tiny", hparams=""
    )
    t2t.train(**settings)
    with pytest.raises(ExportError, match="transformers has no model"):
        t2t.export(settings["output_dir"], tmp_path / "exported", format="huggingface")


def test_adapters_of_a_pretrained_model_are_merged_in_its_graph(tmp_path, training_of):
    settings = training_of("text2class", "gpt2", rate=0.01, train_steps=10)
    settings["hparams"] += ",summary=last,lora_rank=2"
    run = t2t.train(**settings)
    own = load_file(settings["output_dir"] / "ckpt-10" / "model.safetensors")
    base = load_file(tmp_path / "gpt2" / "model.safetensors")
    adapters = [name for name in own if name.endswith("lora_b")]
    assert adapters
    assert all(own[name].any() for name in adapters)
    for name, weight in base.items():
        assert own[f"network.inner.{name}"].equal(weight)
    t2t.export(settings["output_dir"], tmp_path / "artifact", settings["data_dir"])
    requests = list(requests_of("text2class"))
    for ours, theirs in zip(
        run.predict(requests), t2t.load(tmp_path / "artifact").predict(requests), strict=True
    ):
        assert theirs.scores["targets"] == pytest.approx(ours.scores["targets"], abs=1e-5)


def grow(folder, target, words, auto):
    """Adds words to a pretrained model, as people do it with transformers."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(words)
    model = getattr(transformers, auto).from_pretrained(folder)
    model.resize_token_embeddings(len(tokenizer))
    tokenizer.save_pretrained(target)
    model.save_pretrained(target)


@pytest.mark.parametrize(
    ("kind", "family", "auto"),
    [("text2class", "bert", "AutoModel"), ("text2self", "gpt2", "AutoModelForCausalLM")],
)
def test_a_tokenizer_may_have_further_tokens(kind, family, auto, tmp_path, training_of):
    settings = training_of(kind, family)
    t2t.train(**settings)
    old, folder = tmp_path / f"run-{kind}", tmp_path / "grown"
    grow(tmp_path / family, folder, [f"zx{number}q" for number in range(500)], auto)
    name = f"{settings['problem']}_pretrained"
    words = tmp_path / "words.txt"
    words.write_text("fresh\n")
    with pytest.raises(
        UsageError, match=r"tokenizer.add_tokens(.|\n)*t2t-datagen --pretrained=NEW"
    ):
        t2t.generate(name, tmp_path / "no", vocabulary_from=old, add_tokens=words)
    new = tmp_path / "new"
    t2t.train(
        **training_of(kind, family, folder, data_dir=tmp_path / "data-new", output_dir=new)
        | {"warm_start_from": old, "train_steps": 2}
    )
    table = (new / "warm_start.txt").read_text()
    assert re.search(r"rows by token +network\S+: \d+ by token, \d+ from pieces", table)
    before, after = (model_of(run, trained=run == old) for run in (old, new))
    report = warm_start(after, old)
    assert not report.doubts
    assert not report.mismatched
    assert logits_of(after, kind).sub(logits_of(before, kind)).abs().max() <= 1e-5


def model_of(run, *, trained):
    task = RunDirectory(run).task()
    kind, features = registry.model(task.model), registry.problem(task.problem).features(run)
    model = kind(RunDirectory(run).hparams(kind.HParams), features)
    if trained:
        CheckpointDirectory(run).newest().load_model(model, averaged=True)
    return model.eval()


def logits_of(model, kind):
    """Returns the logits for three texts; of a text only those of the tokens of both models."""
    texts = [row.get("inputs", row["targets"]) for row in rows_of(kind, 3, "texts")]
    name = "inputs" if model.features.inputs else "targets"
    encoder = model.features.all[name].encoder
    rows = [[*encoder.encode(text), 1] for text in texts]
    longest = max(map(len, rows))
    batch = {name: torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])}
    if name == "inputs":
        batch["targets"] = torch.zeros(len(rows), dtype=torch.int64)
        return model(batch).logits["targets"].detach()
    logits = model(batch).logits["targets"].detach()
    there = {token: number for number, token in enumerate(encoder.tokens)}
    known = [there[token] for token in sorted(there) if re.fullmatch(r"[a-zĠ]+", token)]
    return logits[..., known] * (batch[name] != 0)[..., None]
