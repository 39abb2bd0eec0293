"""A user's problem whose examples change online: trained, stopped, resumed, evaluated."""

from __future__ import annotations

import json

import pytest

from t2t_torch.bin.commands import datagen, trainer

PROBLEM = '''
"""Counting, with words left out and swapped in training."""

from t2t_torch.mode import Split
from t2t_torch.registry import register_problem
from t2t_torch.text_problem import Text2TextProblem, VocabType


@register_problem
class CountOn(Text2TextProblem):
    """`three four` -> `five`."""

    vocab_type = VocabType.WORD

    def generate_samples(self, tmp_dir, split):
        words = "one two three four five six seven eight nine ten".split()
        for first in range(8):
            for last in range(first + 1, 9):
                yield {"inputs": " ".join(words[first:last]), "targets": words[last]}

    def preprocess_example(self, example, mode, rng):
        if mode is not Split.TRAIN:
            return example
        ids, end = example["inputs"][:-1], example["inputs"][-1:]
        kept = ids[rng.random(len(ids)) < 0.8]
        if len(kept) > 1 and rng.random() < 0.5:
            kept[[0, 1]] = kept[[1, 0]]
        return {**example, "inputs": [*kept, *end]}
'''


@pytest.fixture
def command(tmp_path, own_registry, request):
    """Returns flags of a run on generated data of the user's problem."""
    folder = tmp_path / f"usr_{tmp_path.name}"
    folder.mkdir()
    (folder / "count_on.py").write_text(getattr(request, "param", PROBLEM))
    common = [f"--t2t_usr_dir={folder}", "--problem=count_on", f"--data_dir={tmp_path / 'data'}"]
    assert datagen.main([*common, f"--tmp_dir={tmp_path}"]) == 0

    def flags(run, **more):
        values = {
            "model": "transformer",
            "hparams_set": "transformer_test",
            "hparams": "batch_size=40,learning_rate_warmup_steps=4",
            "output_dir": tmp_path / run,
            "train_steps": 12,
            "local_eval_frequency": 6,
            "log_step_count_steps": 1,
            "worker_gpu": 0,
            **more,
        }
        return [*common, *(f"--{name}={value}" for name, value in values.items())]

    return flags


def reports(run, split):
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return {line["step"]: line["loss"] for line in lines if line.get("split") == split}


def test_a_run_that_is_resumed_sees_the_same_examples(command, tmp_path):
    assert trainer.main(command("whole")) == 0
    assert trainer.main(command("parts", pause_at_step=5, loader_workers=0)) == 0
    assert trainer.main(command("parts", loader_workers=3)) == 0
    whole, parts = (reports(tmp_path / run, "train") for run in ("whole", "parts"))
    assert len(whole) == 12
    assert parts == whole
    ours, others = (reports(tmp_path / run, "dev") for run in ("whole", "parts"))
    assert ours and all(others[step] == ours[step] for step in ours)


AUGMENTED = PROBLEM[: PROBLEM.index("    def preprocess_example")].replace("WORD", "SUBWORD")
KINDS = "typos:0.2,case:0.2,swap_words,delete_words,mask_spans,sample_subwords:0.3"


@pytest.mark.parametrize("command", [AUGMENTED], indirect=True, ids=["augmented"])
def test_a_run_on_augmented_texts_is_resumed_bit_equal(command, tmp_path):
    hparams = f"batch_size=40,learning_rate_warmup_steps=4,text_augmentation=[{KINDS}]"
    assert trainer.main(command("plain")) == 0
    assert trainer.main(command("whole", hparams=hparams)) == 0
    for more in ({"pause_at_step": 5, "loader_workers": 0}, {"loader_workers": 3}):
        assert trainer.main(command("parts", hparams=hparams, **more)) == 0
    whole, parts, plain = (reports(tmp_path / run, "train") for run in ("whole", "parts", "plain"))
    assert len(whole) == 12 and parts == whole != plain
    ours, others = (reports(tmp_path / run, "dev") for run in ("whole", "parts"))
    assert ours and ours.items() <= others.items()


@pytest.mark.parametrize(
    "command", [PROBLEM.replace("[*kept, *end]", "[999]")], indirect=True, ids=["wrong"]
)
def test_an_error_in_it_ends_the_run_with_a_sentence(command, tmp_path, capsys):
    assert trainer.main(command("run")) == 2
    error = capsys.readouterr().err
    assert "error: CountOn.preprocess_example, of example" in error
    assert "put the id 999 in 'inputs'; expected 0 to " in error
    assert "Traceback" not in error
