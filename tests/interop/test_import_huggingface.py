"""Models of transformers, imported with their heads: labels, logits and texts are equal."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import t2t_torch as t2t
from t2t_torch.bin.commands import datagen
from t2t_torch.decode.hparam import parse_decode_hparams
from t2t_torch.decode.loading import load, load_run
from t2t_torch.errors import CheckpointError, DataError, HParamsError, UsageError
from t2t_torch.run.directory import RunDirectory
from tests.pretrained.folders import TEXTS, save_model

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.usefixtures("own_registry")
GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "peers" / "huggingface"
END = 0  # of GPT-2's vocabulary here
LABELS = {"id2label": {0: "bad", 1: "fair", 2: "good"}, "num_labels": 3}
CLASSIFIER = "AutoModelForSequenceClassification"
TAGGER = "AutoModelForTokenClassification"


@pytest.mark.parametrize(
    "family",
    [
        "distilbert",
        "roberta",
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in ("bert", "electra", "xlm-roberta", "deberta-v2", "modernbert", "gpt2")
        ),
    ],
)
def test_a_classifier_gives_the_same_probabilities(family, tmp_path):
    theirs, tokenizer = save_model(family, tmp_path / "old", CLASSIFIER, **LABELS)
    t2t.import_run(tmp_path / "old", tmp_path / "run")
    shutil.rmtree(tmp_path / "old")  # the run needs it no more
    for text, answer in zip(TEXTS, t2t.load(tmp_path / "run").predict(TEXTS), strict=True):
        if family == "gpt2" and not text:
            continue  # transformers reads no text without ids
        with torch.inference_mode():
            logits = theirs(**tokenizer(text, return_tensors="pt")).logits[0]
        expected = dict(zip(LABELS["id2label"].values(), logits.softmax(-1).tolist(), strict=True))
        assert answer.scores["targets"] == pytest.approx(expected, abs=1e-4), text


def test_a_classifier_of_pairs_and_an_artifact(tmp_path):
    theirs, tokenizer = save_model("bert", tmp_path / "old", CLASSIFIER, **LABELS)
    t2t.import_run(tmp_path / "old", tmp_path / "run", kind="textpair2class", labels=list("abc"))
    t2t.export(tmp_path / "run", tmp_path / "artifact")
    pairs = list(zip(TEXTS[:3], TEXTS[3:6], strict=True))
    rows = [{"first": first, "second": second} for first, second in pairs]
    for pair, answer in zip(pairs, t2t.load(tmp_path / "artifact").predict(rows), strict=True):
        with torch.inference_mode():
            logits = theirs(**tokenizer(*pair, return_tensors="pt")).logits[0]
        expected = dict(zip("abc", logits.softmax(-1).tolist(), strict=True))
        assert answer.scores["targets"] == pytest.approx(expected, abs=1e-4)


def test_several_labels_and_tags(tmp_path):
    multi = {**LABELS, "problem_type": "multi_label_classification"}
    theirs, tokenizer = save_model("bert", tmp_path / "multi", CLASSIFIER, **multi)
    t2t.import_run(tmp_path / "multi", tmp_path / "run")
    (answer,) = t2t.load(tmp_path / "run").predict([TEXTS[0]])
    with torch.inference_mode():
        logits = theirs(**tokenizer(TEXTS[0], return_tensors="pt")).logits[0]
    expected = dict(zip(LABELS["id2label"].values(), logits.sigmoid().tolist(), strict=True))
    assert answer.scores["targets"] == pytest.approx(expected, abs=1e-4)
    theirs, tokenizer = save_model("bert", tmp_path / "tags", TAGGER, **LABELS)
    t2t.import_run(tmp_path / "tags", tmp_path / "tagger")
    words = ["the", "quick", "foxes", "jumped"]
    (answer,) = t2t.load(tmp_path / "tagger").predict([words])
    batch = tokenizer(words, is_split_into_words=True, return_tensors="pt")
    first = [batch.word_ids().index(number) for number in range(len(words))]
    with torch.inference_mode():
        best = theirs(**batch).logits[0, first].argmax(-1)
    assert answer.values["targets"] == [LABELS["id2label"][int(number)] for number in best]


def test_a_classifier_trains_on_and_lends_its_head(tmp_path):
    save_model("distilbert", tmp_path / "old", CLASSIFIER, id2label={0: "dog", 1: "cat"})
    t2t.import_run(tmp_path / "old", tmp_path / "run", problem="animals")
    rows = [f"the {kind} number {n} sleeps\t{kind}" for n in range(30) for kind in ("dog", "cat")]
    for split in ("train", "eval"):
        lines = [row.replace("number", split) for row in rows]
        (tmp_path / f"animals-{split}.tsv").write_text("\n".join(["inputs\ttargets", *lines]))
    data, run = tmp_path / "data", tmp_path / "run"
    data.mkdir()
    for file in run.glob("vocab.*"):
        shutil.copyfile(file, data / file.name)
    flags = ["--problem=animals", f"--data_dir={data}", f"--tmp_dir={tmp_path}"]
    assert datagen.main([*flags, f"--t2t_usr_dir={run}/declarations"]) == 0
    trained = t2t.train(
        data_dir=data,
        output_dir=run,
        train_steps=40,
        hparams="learning_rate_constant=0.003,learning_rate_warmup_steps=4",
    )
    assert trained(["a dog", "a cat"]) == ["dog", "cat"]
    settings = {
        "problem": "animals", "model": "pretrained_encoder", "train_steps": 2, "data_dir": data,
        "hparams_set": "pretrained_encoder_base", "t2t_usr_dir": f"{run}/declarations",
        "tmp_dir": tmp_path, "generate_data": True,
    }  # fmt: skip
    hparams = f"pretrained={tmp_path / 'old'},pretrained_head=True"
    again = t2t.train(**settings, hparams=hparams, output_dir=tmp_path / "again")
    assert set(again.predict(["x"])[0].scores["targets"]) == {"dog", "cat"}
    shutil.copytree(tmp_path / "old", tmp_path / "turned")
    config = json.loads((tmp_path / "turned" / "config.json").read_text())
    config |= {"id2label": {0: "cat", 1: "dog"}, "label2id": {"cat": 0, "dog": 1}}
    (tmp_path / "turned" / "config.json").write_text(json.dumps(config))
    scores = []
    for folder in ("old", "turned"):
        still = f"pretrained={tmp_path / folder},pretrained_head=True,learning_rate_constant=1e-12"
        run = t2t.train(**settings, hparams=still, output_dir=tmp_path / f"by-{folder}")
        scores.append(run.predict(["the dog"])[0].scores["targets"])
    first, turned = scores
    assert first["dog"] == pytest.approx(turned["cat"], abs=1e-6) != pytest.approx(first["cat"])
    t2t.train(**settings, hparams=f"{hparams},lora_rank=2", output_dir=tmp_path / "adapted")
    head = "network.inner.classifier.weight"
    steps = [
        load_file(tmp_path / name / "model.safetensors")[head.removeprefix(prefix)]
        for name, prefix in (("old", "network.inner."), ("adapted/ckpt-2", ""))
    ]
    assert not torch.equal(*steps)
    save_model("bert", tmp_path / "other", CLASSIFIER, **LABELS)
    with pytest.raises(HParamsError, match="bad, fair, good"):
        settings |= {"hparams": hparams.replace("old", "other"), "data_dir": tmp_path / "new"}
        t2t.train(**settings, output_dir=tmp_path / "third")


def expected_of(name):
    items = json.loads((GOLDEN / name / "expected.json").read_text("utf-8"))["items"]
    with np.load(GOLDEN / name / "expected.npz") as arrays:
        return items, {key: torch.from_numpy(value) for key, value in arrays.items()}


def test_a_language_model_computes_the_same_logits(tmp_path):
    items, arrays = expected_of("gpt2")
    t2t.import_run(GOLDEN / "gpt2", tmp_path / "run")
    model = load_run(tmp_path / "run").model.eval()
    encoder = model.features.targets["targets"].encoder
    order = model.network.order
    for number, item in enumerate(items):
        ids = encoder.encode(item["text"])
        assert order[ids].tolist() == item["ids"]
        assert encoder.decode(ids) == item["decoded"]
        if number < 4:
            with torch.inference_mode():
                logits = model({"targets": torch.tensor([[*ids, 1]])}).logits["targets"][0, 1:]
            theirs = arrays[f"logits/{number}"][:, order[1:]]
            torch.testing.assert_close(logits[:, 1:], theirs, atol=2e-5, rtol=0)


def test_texts_are_continued_as_the_library_does(tmp_path):
    items, _ = expected_of("gpt2")
    t2t.import_run(GOLDEN / "gpt2", tmp_path / "run")
    order = load_run(tmp_path / "run").model.network.order
    greedy = continued(tmp_path / "run", items, "beam_size=1,extra_length=16")
    for item, (best, *_) in zip(items, greedy, strict=True):
        theirs = item["greedy_ids"][len(item["ids"]) :]
        assert ids_in(order, best) == [i for i in theirs if i != END]
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
        if min(a - b for a, b in itertools.pairwise(scores)) > 1e-4:
            ours = [ids_in(order, one) for one in found]
            assert ours == [[i for i in one if i != END] for one in theirs], item["text"]


def ids_in(order, hypothesis):
    """Their ids of a hypothesis, without the end."""
    return [i for i in order[torch.tensor(hypothesis.ids).long()].tolist() if i != END]


def continued(run, items, settings):
    defaults = RunDirectory(run).task().decode_hparams
    hparams = parse_decode_hparams(settings, defaults=defaults)
    predictions = load(run, hparams=hparams).predict([item["text"] for item in items])
    return [one.hypotheses for one in predictions]


def test_an_encoder_decoder_writes_the_same_texts(tmp_path):
    theirs, tokenizer = save_model("bart", tmp_path / "old", "AutoModelForSeq2SeqLM")
    settings = {"max_length": 13, "num_beams": 2, "no_repeat_ngram_size": 2, "do_sample": True}
    settings["forced_bos_token_id"] = tokenizer.bos_token_id
    settings["forced_eos_token_id"] = tokenizer.eos_token_id
    (tmp_path / "old" / "generation_config.json").write_text(json.dumps(settings))
    report = t2t.import_run(tmp_path / "old", tmp_path / "run")
    assert "do_sample=True" in str(report)
    search = {**settings, "do_sample": False}
    for text, answer in zip(TEXTS, t2t.load(tmp_path / "run").predict(TEXTS), strict=True):
        ids = theirs.generate(**tokenizer(text, return_tensors="pt"), **search)[0]
        assert answer.value == tokenizer.decode(ids, skip_special_tokens=True), text


def test_a_body_without_a_head_is_refused(tmp_path):
    with pytest.raises(HParamsError, match="--hparams=pretrained=FOLDER"):
        t2t.import_run(GOLDEN / "bert", tmp_path / "run")
    save_model("bert", tmp_path / "number", CLASSIFIER, num_labels=1)
    with pytest.raises(HParamsError, match="gives a number"):
        t2t.import_run(tmp_path / "number", tmp_path / "run")
    with pytest.raises(UsageError, match="kind"):
        t2t.import_run(GOLDEN / "gpt2", tmp_path / "run", kind="text2class")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "change", "error", "named"),
    [
        ("gpt2", {"model_type": "gpt_of_mine"}, DataError, "gpt_of_mine"),
        ("gpt2", {"auto_map": {"AutoModel": "code.Model"}}, UsageError, "code"),
        ("gpt2", {"n_embd": 10**6}, HParamsError, "cannot build"),
        ("gpt2", {"n_layer": 3}, CheckpointError, "lacks"),
        ("bert", {"architectures": ["BertForQuestionAnswering"]}, HParamsError, "QuestionAnswer"),
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


def test_a_tokenizer_of_another_model_is_refused(tmp_path):
    save_model("bert", tmp_path / "old", CLASSIFIER, **LABELS)
    for content in ("{}", "[", '{"model": {"vocab": {"[SEP]": "x"}}}'):
        (tmp_path / "old" / "tokenizer.json").write_text(content)
        with pytest.raises(DataError, match="tokenizer"):
            t2t.import_run(tmp_path / "old", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_labels_must_fit_the_classes(tmp_path):
    save_model("bert", tmp_path / "old", CLASSIFIER, **LABELS)
    with pytest.raises(UsageError, match="3 classes"):
        t2t.import_run(tmp_path / "old", tmp_path / "run", labels=["a", "b"])
    config = json.loads((tmp_path / "old" / "config.json").read_text())
    for names in ({"0": "x", "1": "y", "3": "z"}, {"0": "x", "1": "x", "2": "y"}):
        (tmp_path / "old" / "config.json").write_text(json.dumps({**config, "id2label": names}))
        with pytest.raises(HParamsError, match="id2label"):
            t2t.import_run(tmp_path / "old", tmp_path / "run")
