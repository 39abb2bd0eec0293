"""Several problems whose models are of different classes, with weights shared by pattern."""

from __future__ import annotations

import json
from typing import ClassVar

import pytest
import torch

import t2t_torch
from t2t_torch import registry
from t2t_torch.bin.commands import decoder, exporter, server, trainer
from t2t_torch.bin.commands import evaluation as evaluate_command
from t2t_torch.errors import HParamsError, RegistryError
from t2t_torch.problem_types.multi import MultiProblem
from t2t_torch.runtime.session import CancellationToken
from t2t_torch.workflows import serve

from .two_problems import SMALL

SHARED = (
    "multiproblem_shared=[^encoder,^decoder=>encoder,"
    "^modalities\\.(inputs|targets)\\.bottom=>modalities.words]"
)


@pytest.fixture
def data_dir(tiny_problems):
    """The tiny problems', in place of the other tests'."""
    return tiny_problems


def test_each_problem_has_its_own_class_and_hyperparameters(make_multi):
    task = make_multi("label_smoothing=0.3,learning_rate_constant=0.7", problem="tiny_unlike")
    model = task.model()
    kind, text = model.problems["tiny_kind"], model.problems["tiny_text"]
    assert (kind.name, text.name) == ("transformer_encoder", "transformer")
    assert (kind.hparams.label_smoothing, text.hparams.label_smoothing) == (0.3, 0.1)
    assert text.hparams.learning_rate_constant == 0.7  # the run's
    assert text.hparams.num_hidden_layers == 1


def test_patterns_share_weights_of_other_names(make_multi):
    model = make_multi(SHARED, problem="tiny_unlike").model()
    kind, text = model.problems["tiny_kind"], model.problems["tiny_text"]
    for name, parameter in text.named_parameters():
        renamed = name.replace("decoder", "encoder").replace("targets", "inputs")
        assert kind.get_parameter(renamed) is parameter
    assert {part.name for part in model.parts if len(part.problems) == 1} == {"modalities.targets"}
    alone = make_multi(problem="tiny_unlike").model()
    assert all(len(part.problems) == 1 for part in alone.parts)


def test_a_run_of_unlike_models_resumes_bit_by_bit(make_multi, make_estimator):
    def run(name, *stops):
        for steps in stops:
            task = make_multi(SHARED, problem="tiny_unlike")
            estimator = make_estimator(name, task=task, train_steps=20)
            estimator.train(steps)
            estimator.close()
        return estimator.model.state_dict()

    whole, parts = run("whole", 8), run("parts", 3, 8)
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_bad_choices_of_models_are_named(make_multi):
    for choice, error, text in (
        ("tiny_txt:transformer/transformer_tiny", HParamsError, "should be one of tiny_kind"),
        ("tiny_text:transformer", HParamsError, "has no hparams set"),
        ("tiny_text:transfomer/transformer_tiny", RegistryError, "Did you mean"),
        ("tiny_text:transformer/transformer_tiny/hidden=3", HParamsError, "hidden_size"),
        ("tiny_kind:transformer/transformer_tiny", HParamsError, "tiny_kind"),
    ):
        with pytest.raises(error, match=text):
            make_multi(f"multiproblem_models=[{choice}]", problem="tiny_unlike")
    with pytest.raises(HParamsError, match="of several problems, and 'tiny_kind' is one"):
        make_task = t2t_torch.train.multi_task.task_of
        kind = registry.model("transformer_encoder")
        hparams = registry.hparams("transformer_encoder_tiny").parse("multiproblem_models=[a:b/c]")
        make_task(registry.problem("tiny_kind"), kind, hparams, data_dir=None, vocab_dir=None)


def test_a_model_of_no_problem_is_refused():
    class Wrong(MultiProblem):
        name = "wrong"
        problem_names = ("tiny_algo",)
        models: ClassVar = {"cola": "transformer/transformer_tiny"}

    with pytest.raises(RegistryError, match="has a model of 'cola'"):
        Wrong()


def command_of(data_dir, run):
    return [
        f"--data_dir={data_dir}",
        f"--output_dir={run}",
        "--problem=tiny_unlike",
        "--model=transformer_encoder",
        "--hparams_set=transformer_encoder_tiny",
        f"--hparams={SMALL},{SHARED}",
        "--local_eval_frequency=3",
        "--worker_gpu=0",
    ]


def test_commands_train_decode_and_serve_unlike_models(data_dir, tmp_path, capsys, monkeypatch):
    run = tmp_path / "run"
    assert not trainer.main([*command_of(data_dir, run), "--train_steps=3"])
    assert "shared: tiny_kind, tiny_text" in capsys.readouterr().err
    stored = json.loads((run / "hparams.json").read_text("utf-8"))
    described = json.loads(stored["multiproblem_architecture"])
    assert described["tiny_text"]["hparams"]["hidden_size"] == 16
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("red dog runs\n", encoding="utf-8")
    files = [f"--decode_from_file={source}", f"--decode_to_file={target}"]
    assert not decoder.main([f"--output_dir={run}", "--problem=tiny_kind", *files])
    assert target.read_text(encoding="utf-8") in ("pet\n", "none\n")
    model = t2t_torch.load(run, problem="tiny_text")
    assert model.model.name == "transformer"
    assert len(model(["red dog"])) == 1
    sources = []
    monkeypatch.setattr(serve, "_serve", lambda _, found: sources.extend(found) or 0)
    assert not server.main([f"--output_dir={run}", "--decode_hparams=beam_size=2", "--threads=0"])
    classes = {"tiny_kind": "transformer_encoder", "tiny_text": "transformer"}
    assert [source.name for source in sources] == list(classes)
    for source in sources:
        served = source.load(source.name, "", source.path)
        assert served.problem == source.name
        assert served.architecture == classes[source.name]
        sample = {served.fields[0].name: "red dog"}
        assert len(served.predict([sample], CancellationToken())) == 1


@pytest.mark.slow
def test_commands_resume_evaluate_and_export_unlike_models(data_dir, tmp_path, capsys):
    run = tmp_path / "run"
    for steps in (3, 6):
        assert not trainer.main([*command_of(data_dir, run), f"--train_steps={steps}"])
    assert not evaluate_command.main([f"--data_dir={data_dir}", f"--output_dir={run}"])
    assert "  word_perplexity " in capsys.readouterr().out
    twice = [f"--data_dir={data_dir}", f"--output_dir={run},{run}/ckpt-3"]
    assert not evaluate_command.main([*twice, "--problem=tiny_text"])
    artifact = tmp_path / "artifact"
    exported = [f"--output_dir={run}", "--problem=tiny_kind", f"--export_dir={artifact}"]
    assert not exporter.main(exported)
    assert t2t_torch.load(artifact)(["red dog"]) in (["pet"], ["none"])
