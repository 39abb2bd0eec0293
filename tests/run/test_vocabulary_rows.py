"""Warm starts of models whose vocabulary has changed: grown, permuted, learnt again."""

from __future__ import annotations

import json
import random
import re

import pytest
import torch

import t2t_torch as t2t
from t2t_torch import registry
from t2t_torch.errors import UsageError
from t2t_torch.modalities.text import embedding
from t2t_torch.model import T2TModel
from t2t_torch.run.checkpoint_directory import CheckpointDirectory
from t2t_torch.run.directory import RunDirectory
from t2t_torch.run.warm_start import warm_start

pytestmark = pytest.mark.usefixtures("own_registry")

OLD = [f"old{number}" for number in range(40)]
NEW = [f"new{number}" for number in range(500)]


def rows_of(kind, words, count, seed):
    draw = random.Random(seed)
    for _ in range(count):
        text = draw.choices(words, k=draw.randint(2, 6))
        label = "even" if int(re.sub(r"\D", "", text[0])) % 2 == 0 else "odd"
        given = " ".join(text)
        yield {
            "text2class": {"inputs": given, "targets": label},
            "text2text": {"inputs": given, "targets": given},
            "text2self": {"targets": given},
        }[kind]


MODELS = {
    "tied": ("text2text", "transformer", "transformer_test", "vocab_divisor=8"),
    "untied": ("text2text", "lstm_seq2seq", "lstm_seq2seq_tiny", ""),
    "classifier": ("text2class", "text_cnn", "text_cnn_tiny", ""),
    "language_model": ("text2self", "lstm_lm", "lstm_lm_tiny", ""),
}


@pytest.fixture
def run_of(tmp_path):
    """Trains a run of a kind of problem on some words; returns its folder."""

    def made(kind, model, hparams_set, hparams="", words=OLD, name="run", **settings):
        folder = tmp_path / "declared"
        folder.mkdir(exist_ok=True)
        files = {"train": f"{name}-train.jsonl", "eval": f"{name}-eval.jsonl"}
        for split, file in files.items():
            rows = rows_of(kind, words, 400 if split == "train" else 60, split)
            (folder / file).write_text("\n".join(map(json.dumps, rows)) + "\n")
        keys = {"vocab_type": "word", "vocab_size": 2000, **settings.pop("keys", {})}
        problem = f"{name}_{kind}"
        content = {"problem": problem, "kind": kind, "files": files, **keys}
        (folder / f"{problem}.json").write_text(json.dumps(content))
        given = {
            "t2t_usr_dir": str(folder),
            "tmp_dir": folder,
            "data_dir": tmp_path / f"data-{name}",
        }
        generated = settings.pop("generated", {})
        t2t.generate(problem, **given, **generated)
        t2t.train(
            problem, model=model, hparams_set=hparams_set, hparams=hparams, **given,
            **{"output_dir": tmp_path / name, "train_steps": 20, **settings},
        )  # fmt: skip
        return tmp_path / name

    return made


def model_of(run, *, trained=True):
    """Returns the model of a run, trained or with random weights."""
    task = RunDirectory(run).task()
    kind = registry.model(task.model)
    model = kind(
        RunDirectory(run).hparams(kind.HParams), registry.problem(task.problem).features(run)
    )
    if trained:
        CheckpointDirectory(run).newest().load_model(model, averaged=True)
    return model.eval()


def batch_of(model, texts):
    """Returns texts as a batch of a model; targets are the inputs, or a class."""
    batch = {}
    for name, feature in model.features.all.items():
        rows = [feature.encode(text) if feature.is_text else [0] for text in texts]
        longest = max(map(len, rows))
        batch[name] = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
        if not feature.is_text:
            batch[name] = batch[name][:, 0]
    return batch


def logits_of(model, texts):
    """Returns the logits of the target; of a text only those of the old words, by name."""
    with torch.no_grad():
        logits = model(batch_of(model, texts)).logits["targets"]
    target = model.features.targets["targets"]
    if target.is_text:
        ids = [0, 1, *(target.encoder.encode(word)[0] for word in OLD)]
        logits = logits[..., ids]
    return logits


TEXTS = ["old1 old2 old3", "old39", "old7 old7 old8 old30"]


def grown(run_of, tmp_path, case, words=(*NEW, *OLD[:5]), **settings):
    """Trains a run, and one of a vocabulary that has further words, from it."""
    old = run_of(*MODELS[case])
    added = tmp_path / "words.txt"
    added.write_text("\n".join(words) + "\n")
    settings = {
        "train_steps": 2,
        "generated": {"vocabulary_from": old, "add_tokens": added},
        **settings,
    }
    new = run_of(*MODELS[case], words=NEW, name="new", warm_start_from=old, **settings)
    return old, new


@pytest.mark.parametrize("case", MODELS)
def test_a_vocabulary_grown_by_500_words_changes_no_output(case, run_of, tmp_path):
    old, new = grown(run_of, tmp_path, case)
    before, after = model_of(old), model_of(new, trained=False)
    report = warm_start(after, old)
    text = next(iter(after.features.inputs or after.features.targets))
    sizes = [model.features.all[text].encoder.vocab_size for model in (before, after)]
    assert sizes == [43, 543]
    assert report.by_token
    assert all(
        re.match("43 by token, 0 from pieces, 500 from the mean, 0 dropped", counts)
        for _, counts in report.by_token
    )
    assert not report.missing
    assert not report.doubts
    assert logits_of(after, TEXTS).sub(logits_of(before, TEXTS)).abs().max() <= 1e-6
    assert "43 by token, 0 from pieces" in (new / "warm_start.txt").read_text()


@torch.no_grad()
def loss_on(run, rows):
    """Returns the mean loss on rows of new words."""
    model = model_of(run)
    target = model.features.targets["targets"]
    total, count = 0.0, 0.0
    for row in rows:
        batch = batch_of(model, [row.get("inputs", row["targets"])])
        values = target.encode(row["targets"])
        batch["targets"] = torch.tensor(values).reshape((1, -1) if target.is_text else 1)
        loss = model(batch).losses["targets"]
        total, count = total + float(loss.sum), count + float(loss.weight)
    return total / count


def test_the_new_words_are_learnt(run_of, tmp_path):
    old, new = grown(run_of, tmp_path, "classifier", train_steps=150)
    rows = list(rows_of("text2class", NEW, 400, "train"))[:60]
    assert loss_on(new, rows) < 0.5 * loss_on(old, rows)


def test_the_order_of_the_tokens_may_differ(run_of, tmp_path):
    """Sizes are equal, so that every tensor would fit as it is."""
    case = "tied"
    old = run_of(*MODELS[case])
    file = next(old.glob("vocab.*.words"))
    lines = file.read_text().splitlines()
    data = tmp_path / "data-permuted"
    data.mkdir()
    shuffled = [*lines[:3], *reversed(lines[3:])]
    (data / "vocab.mine.words").write_text("\n".join(shuffled) + "\n")
    generated = {"vocabulary_from": data}
    new = run_of(
        *MODELS[case], name="permuted2", generated=generated, warm_start_from=old, train_steps=2
    )
    before, after = model_of(old), model_of(new, trained=False)
    report = warm_start(after, old)
    kept = "43 by token, 0 from pieces, 0 from the mean, 0 dropped"
    assert all(counts.startswith(kept) for _, counts in report.by_token)
    ids = [model.features.inputs["inputs"].encode("old1") for model in (before, after)]
    assert ids[0] != ids[1]
    assert logits_of(after, TEXTS).sub(logits_of(before, TEXTS)).abs().max() <= 1e-6


def test_a_smaller_vocabulary_drops_rows(run_of, tmp_path):
    old = run_of(*MODELS["classifier"])
    new = run_of(*MODELS["classifier"], words=OLD[:20], name="small", train_steps=2)
    before, after = model_of(old), model_of(new, trained=False)
    report = warm_start(after, old)
    ((_, counts),) = report.by_token
    assert counts == "23 by token, 0 from pieces, 0 from the mean, 20 dropped"
    texts = ["old1 old2", "old19 old3"]
    assert logits_of(after, texts).sub(logits_of(before, texts)).abs().max() <= 1e-6


def test_equal_vocabularies_are_loaded_as_they_are(run_of):
    old = run_of(*MODELS["tied"])
    after = model_of(old, trained=False)
    report = warm_start(after, old)
    assert report.by_token == ()
    assert "rows by token" not in str(report)
    for name, value in model_of(old).state_dict().items():
        assert value.equal(after.state_dict()[name]), name


def test_a_subword_vocabulary_learnt_again_begins_with_pieces(run_of):
    keys = {"vocab_type": "subword", "vocab_size": 300}
    old = run_of(*MODELS["classifier"], keys=keys)
    keys, longer = {"vocab_type": "subword", "vocab_size": 350}, [f"old{n}old" for n in range(99)]
    new = run_of(*MODELS["classifier"], keys=keys, words=longer, name="new", train_steps=2)
    before, after = model_of(old), model_of(new, trained=False)
    ((name, counts),) = warm_start(after, old).by_token
    assert re.search(r"[1-9]\d* from pieces, 0 from the mean", counts)
    table, known = after.state_dict()[name], before.state_dict()[name]
    ours, theirs = (model.features.inputs["inputs"].encoder for model in (after, before))
    made = {token: number for number, token in enumerate(ours.tokens)}
    token = next(
        one
        for one in made
        if one.isalnum() and one not in theirs.tokens and len(theirs.encode(one)) > 1
    )
    pieces = theirs.encode(token)
    assert len(pieces) > 1
    assert torch.allclose(table[made[token]], known[pieces].mean(0), atol=1e-6)


def test_a_layer_of_the_user_needs_no_code(run_of, tmp_path):
    """A table of the library anywhere, and a plain map whose size has changed."""
    old, new = grown(run_of, tmp_path, "classifier")

    class Own(T2TModel):
        name = "own"
        HParams = registry.model("text_cnn").HParams
        produces = registry.model("text_cnn").produces

        def __init__(self, hparams, features):
            super().__init__(hparams, features)
            text = features.inputs["inputs"]
            self.table = embedding(text, hparams)
            self.other = torch.nn.Embedding(text.vocab_size, 3)
            self.head = torch.nn.Linear(3, text.vocab_size)

        def body(self, features):
            raise NotImplementedError

    hparams = RunDirectory(old).hparams(Own.HParams)
    before, after = (Own(hparams, model_of(run).features) for run in (old, new))
    from safetensors.torch import save_file

    checkpoint = CheckpointDirectory(old).newest().path / "model.safetensors"
    save_file({k: v.contiguous() for k, v in before.state_dict().items()}, checkpoint)
    report = warm_start(after, checkpoint)
    assert not report.doubts
    names = {name for name, _ in report.by_token}
    assert names >= {"table.weight", "other.weight", "head.weight", "head.bias"}
    assert after.head.bias[:43].equal(before.head.bias)
    assert torch.allclose(after.other.weight[43], before.other.weight[2:].mean(0))


def test_a_vocabulary_that_is_not_known_is_warned_of(run_of, tmp_path):
    old, new = grown(run_of, tmp_path, "classifier")
    next(old.glob("vocab.*.words")).unlink()
    report = warm_start(model_of(new, trained=False), old)
    assert report.by_token == ()
    assert [name for name, _, _ in report.mismatched] == ["modalities.inputs.bottom.weight"]
    assert "taken in the order of ids, not by token" in report.warning


def test_what_cannot_grow_is_refused(run_of, tmp_path):
    old = run_of(*MODELS["classifier"], keys={"vocab_type": "subword", "vocab_size": 300})
    words = tmp_path / "words.txt"
    words.write_text("fresh\n")
    data = tmp_path / "new"
    with pytest.raises(UsageError, match="subword vocabulary, which has pieces of every word"):
        t2t.generate("run_text2class", data, vocabulary_from=old, add_tokens=words)
    with pytest.raises(UsageError, match="of an exported artifact, the run that was exported"):
        t2t.generate("run_text2class", data, vocabulary_from=tmp_path)
    with pytest.raises(UsageError, match="adds to the vocabulary of"):
        t2t.generate("run_text2class", data, add_tokens=words)
    assert not data.exists()
