"""Several problems of different kinds, trained together by models that share parts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from together import run_together

import t2t_torch
from t2t_torch import registry
from t2t_torch.bin.commands import decoder, trainer
from t2t_torch.bin.commands import evaluation as evaluate_command
from t2t_torch.errors import HParamsError, RegistryError, UsageError
from t2t_torch.loss import total_loss
from t2t_torch.mode import Split
from t2t_torch.run.tensors import StoredTensors, tensors_at
from t2t_torch.train.multi_model import problem_weights, share
from t2t_torch.train.multi_task import named, task_of

from .two_problems import SMALL

PROGRAM = Path(__file__).with_name("process_of_two.py")
STILL = "layer_prepostprocess_dropout=0,attention_dropout=0,relu_dropout=0,symbol_dropout=0"


@pytest.fixture
def data_dir(tiny_problems):
    """The tiny problems', in place of the other tests'."""
    return tiny_problems


def evaluated(task, model):
    """The metrics of a split."""
    evaluator = task.evaluator()
    with torch.no_grad():
        for batch in task.eval_batches(Split.EVAL, rank=0, world_size=1):
            evaluator.update(model.eval()(batch), batch)
    return evaluator.result()


def test_bodies_and_words_are_shared_as_objects_and_targets_are_not(make_multi):
    model = make_multi().model()
    one, other = model.problems["tiny_kind"], model.problems["tiny_tags"]
    for name, parameter in one.named_parameters():
        is_target = name.startswith("modalities.targets")
        assert (other.get_parameter(name) is parameter) != is_target
    shared = {part.name for part in model.parts if len(part.problems) == 2}
    assert shared == {"modalities.inputs", "encoder", "encoder_output"}


def test_patterns_choose_what_is_shared(make_multi):
    model = make_multi("multiproblem_shared=[^encoder\\.]").model()
    one, other = model.problems["tiny_kind"], model.problems["tiny_tags"]
    for name, parameter in one.named_parameters():
        assert (other.get_parameter(name) is parameter) == name.startswith("encoder.")
    with pytest.raises(HParamsError, match="no weight of such a name"):
        make_multi("multiproblem_shared=[absent]").model()
    with pytest.raises(HParamsError, match=r"Names begin with encoder, encoder_output, modalities"):
        make_multi("multiproblem_shared=[absent]").model()
    with pytest.raises(HParamsError, match="no list of regular expressions"):
        make_multi("multiproblem_shared=[(]").model()


def test_a_model_that_does_not_fit_is_told_with_the_problem(data_dir):
    model, both = registry.model("lstm_lm"), registry.problem("tiny_both")
    with pytest.raises(HParamsError, match="produces Text; 'targets' of tiny_kind is a ClassLabel"):
        task_of(
            both, model, registry.hparams("lstm_lm_tiny"), data_dir=data_dir, vocab_dir=data_dir
        )


def test_words_with_other_ids_are_not_shared_and_that_is_told(make_multi):
    model = make_multi(problem="tiny_strangers").model()
    own = [part for part in model.parts if part.name == "modalities.inputs"]
    assert [part.problems for part in own] == [("tiny_kind",), ("other_kind",)]
    assert "the ids mean other things" in own[1].why


def test_weights_that_are_tied_in_a_model_stay_tied(make_multi):
    models = {name: make_multi(problem=name).model() for name in ("tiny_kind", "tiny_tags")}
    for model in models.values():
        model.tied = model.encoder_output
    share(models, ["^encoder_output"])
    one, other = models.values()
    names = [name for name, _ in other.tied.named_parameters()]
    assert names
    for name in names:
        assert other.tied.get_parameter(name) is one.encoder_output.get_parameter(name)


def test_batches_come_in_turn_and_are_a_function_of_their_number(make_multi):
    def first(count, **at):
        source = make_multi().train_batches(seed=3, **at)
        return [batch for batch, _ in zip(source, range(count), strict=False)]

    whole = first(8, start=0, rank=0, world_size=1)
    names = [next(iter(batch)).partition("/")[0] for batch in whole]
    assert names == ["tiny_kind", "tiny_tags"] * 4
    later = first(2, start=4, rank=1, world_size=2)
    for result, expected in zip(later, (whole[5], whole[7]), strict=True):
        assert result.keys() == expected.keys()
        assert all(torch.equal(result[name], expected[name]) for name in result)


def test_by_size_and_given_shares_are_schedules_too(make_multi):
    source = make_multi("mixing_schedule=by_size").train_batches(
        seed=3, start=0, rank=0, world_size=1
    )
    sizes = [component.plan.batches_per_epoch for component in source.components]
    assert source.plan.schedule.shares == (tuple(size / sum(sizes) for size in sizes),)
    given = make_multi("mixing_schedule=0.25 0.75")
    source = given.train_batches(seed=3, start=0, rank=0, world_size=1)
    assert source.plan.schedule.shares == ((0.25, 0.75),)


def test_a_problem_is_measured_as_when_it_is_evaluated_alone(make_multi):
    both = make_multi()
    model = both.model()
    result = evaluated(both, model)
    loss = 0.0
    for name in both.tasks:
        alone = evaluated(make_multi(problem=name), model.problems[name])
        loss += alone.pop("loss")
        for metric, value in alone.items():
            assert result[metric] == pytest.approx(value, rel=1e-9)
    assert result["loss"] == pytest.approx(loss)
    total = (
        result["metrics-tiny_kind/targets/accuracy"] + result["metrics-tiny_tags/targets/accuracy"]
    )
    assert result["metrics-tiny_both/all_problems/sum"] == pytest.approx(total)


def test_the_first_batches_of_an_evaluation_are_of_all_problems(make_multi):
    task = make_multi("batch_size=8")
    whole = task.eval_batches(Split.EVAL, rank=0, world_size=1)
    names = [next(iter(batch)).partition("/")[0] for batch in whole]
    assert len(names) == len(whole) > 4
    assert names[:4] == ["tiny_kind", "tiny_tags"] * 2
    rows = [
        tuple(batch[next(iter(batch))].flatten().tolist())
        for rank in range(2)
        for batch in task.eval_batches(Split.EVAL, rank=rank, world_size=2)
    ]
    alone = [tuple(batch[next(iter(batch))].flatten().tolist()) for batch in whole]
    assert sorted(rows) == sorted(alone)


def test_a_metric_that_there_is_not_cannot_be_selected_by(make_multi, monkeypatch):
    kind = type(registry.problem("tiny_both"))
    monkeypatch.setattr(kind, "selected", {"tiny_tags": "targets/f1"})
    with pytest.raises(UsageError, match="has no metric 'targets/f1'"):
        make_multi()


def test_the_gradient_of_a_step_of_several_problems_is_the_sum_of_theirs(make_multi):
    task = make_multi(f"multiproblem_weights=[tiny_tags:3],{STILL}")
    model = task.model().train()
    objective = task.objective(model)
    source = iter(task.train_batches(seed=3, start=0, rank=0, world_size=1))
    batches = [next(source), next(source)]
    table = model.problems["tiny_kind"].modalities["inputs"].bottom.weight
    for batch in batches:
        total_loss(objective(batch)).sum.backward()
    together = table.grad.clone()
    by_hand = torch.zeros_like(table)
    for batch, weight in zip(batches, (1.0, 3.0), strict=True):
        table.grad = None
        problem = next(iter(batch)).partition("/")[0]
        own = {name.partition("/")[2]: values for name, values in batch.items()}
        (total_loss(model.problems[problem](own)).sum * weight).backward()
        by_hand += table.grad
    torch.testing.assert_close(together, by_hand)


def test_what_holds_after_a_step_holds_in_the_model_of_each_problem(make_multi):
    task = make_multi()
    model = task.model()
    called = []
    for name, own in model.problems.items():
        own.after_step = lambda name=name: called.append(name)
    model.after_step()
    assert called == list(task.tasks)


def test_examples_count_once_where_one_problem_counts_positions(make_multi):
    task = make_multi()
    model = task.model()
    rows = {}
    for number, batch in enumerate(task.train_batches(seed=3, start=0, rank=0, world_size=1)):
        ((name, loss),) = model.train()(batch).losses.items()
        rows[name] = float(loss.weight), len(batch[f"{name.partition('/')[0]}/inputs"])
        if number:
            break
    assert task.counted == "examples"
    assert len(rows) == 2
    assert all(weight == pytest.approx(count) for weight, count in rows.values())


def test_a_run_resumes_bit_by_bit(make_multi, make_estimator):
    def run(name, *stops):
        for steps in stops:
            estimator = make_estimator(name, task=make_multi(), train_steps=20)
            estimator.train(steps)
            estimator.close()
        return estimator.model.state_dict()

    whole, parts = run("whole", 12), run("parts", 5, 12)
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_accumulated_batches_of_both_problems_make_one_step(make_multi, make_estimator):
    task = make_multi("optimizer_multistep_accumulate_steps=2")
    estimator = make_estimator("run", task=task, train_steps=20)
    before = {name: p.clone() for name, p in estimator.begin().model.named_parameters()}
    estimator.train(2)
    changed = [n for n, p in estimator.model.named_parameters() if not torch.equal(p, before[n])]
    assert any("tiny_kind.modalities.targets" in name for name in changed)
    assert any("tiny_tags.modalities.targets" in name for name in changed)


@pytest.mark.slow
def test_two_processes_with_a_batch_of_each_problem_learn_what_one_does(
    make_multi, make_estimator, data_dir, tmp_path
):
    hparams = f"{SMALL},{STILL}"
    alone = make_estimator(
        "alone", task=make_multi(f"{STILL},optimizer_multistep_accumulate_steps=2")
    )
    alone.train(3)
    settings = {
        "problem": "tiny_both",
        "data_dir": str(data_dir),
        "output_dir": str(tmp_path / "both"),
        "hparams": hparams,
        "steps": 3,
        "model": "transformer_encoder",
        "hparams_set": "transformer_encoder_tiny",
        "usr_dir": str(tmp_path / "tiny_problems"),
    }
    codes, errors = run_together([PROGRAM, json.dumps(settings)], 2)
    assert codes == [0, 0], errors
    result = StoredTensors(tensors_at(tmp_path / "both" / "ckpt-3", "model")).read()
    expected = alone.model.state_dict()
    assert result
    for name, tensor in result.items():
        torch.testing.assert_close(tensor, expected[name])


def test_what_several_problems_cannot_have_is_refused(make_multi):
    for hparams, text in {
        "shard_weights=True": "have layers in common",
        "stream_length=5": "reads a text on",
        "multiproblem_weights=[tiny_tag:1]": "'tiny_tag:1' should be one of tiny_kind, tiny_tags",
    }.items():
        with pytest.raises(HParamsError, match=text):
            make_multi(hparams)
    task = make_multi(problem="tiny_kind")
    one = task.problem, registry.model("transformer_encoder")
    for hparams in ("mixing_schedule=by_size", "multiproblem_weights=[a:1]"):
        with pytest.raises(HParamsError, match=hparams.partition("=")[0]):
            task_of(*one, task.hparams.parse(hparams), data_dir=Path(), vocab_dir=Path())
    with pytest.raises(HParamsError, match="nothing to train"):
        problem_weights("[a:0]", ["a"])
    kind = type(registry.problem("tiny_both"))
    body = {"name": "nested", "problem_names": ("tiny_both",), "selected": {}}
    nested = type("Nested", (kind,), body)
    with pytest.raises(RegistryError, match="no data of its own"):
        _ = nested().components


def test_names_in_a_batch_tell_the_problem():
    assert named("a", {"inputs": torch.zeros(1)}).keys() == {"a/inputs"}


def test_commands_train_evaluate_and_decode_each_problem(data_dir, tmp_path, capsys):
    run = tmp_path / "run"
    where = [f"--data_dir={data_dir}", f"--output_dir={run}"]
    assert not trainer.main(
        [
            *where,
            "--problem=tiny_both",
            "--model=transformer_encoder",
            "--hparams_set=transformer_encoder_tiny",
            f"--hparams={SMALL}",
            "--train_steps=6",
            "--local_eval_frequency=3",
            "--hooks=confusion_matrix",
            "--eval_early_stopping_metric=all_problems/sum",
            "--worker_gpu=0",
        ]
    )
    printed = capsys.readouterr()
    assert "shared: tiny_kind, tiny_tags" in printed.out + printed.err
    assert not evaluate_command.main([*where, "--worker_gpu=0"])
    assert "tiny_tags/accuracy" in capsys.readouterr().out
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("red dog runs\n", encoding="utf-8")
    files = [f"--decode_from_file={source}", f"--decode_to_file={target}"]
    for problem, words in {"tiny_kind": 1, "tiny_tags": 3}.items():
        assert not decoder.main([f"--output_dir={run}", f"--problem={problem}", *files])
        assert len(target.read_text(encoding="utf-8").split()) == words
    assert decoder.main([f"--output_dir={run}", *files])
    assert (
        "Choose one with --problem= (in Python problem=): tiny_kind, tiny_tags"
        in capsys.readouterr().err
    )
    twice = [where[0], f"--output_dir={run},{run}/ckpt-3", "--worker_gpu=0"]
    assert evaluate_command.main(twice) == 2
    assert (
        "Choose one with --problem= (in Python problem=): tiny_kind, tiny_tags"
        in capsys.readouterr().err
    )
    rows = tmp_path / "rows.tsv"
    for which in (where, [*twice, "--problem=tiny_kind"]):
        requested = ["--decode_hparams=beam_size=4", f"--output={rows}", "--worker_gpu=0"]
        assert evaluate_command.main([*which, *requested]) == 2
        assert "does not read beam_size. It reads num_labels" in capsys.readouterr().err
    assert not evaluate_command.main([*twice, "--problem=tiny_kind", f"--output={rows}"])
    assert "tiny_kind, dev, checkpoints: best or newest" in capsys.readouterr().out
    assert len(rows.read_text(encoding="utf-8").splitlines()) == 1 + 6
    with pytest.raises(UsageError, match="is a run of tiny_kind, tiny_tags, not of"):
        t2t_torch.load(run, problem="other_kind")


def test_heads_are_drawn_of_each_problem_with_its_own_sentence(
    make_multi, make_estimator, tmp_path, monkeypatch
):
    from matplotlib.figure import Figure

    hook, drawn = registry.hook("attention_maps")(), {}

    def draw(matrices, *, title, rows, columns, **_):
        drawn[title.partition(",")[0]] = (torch.from_numpy(matrices[0]), rows, columns)
        return Figure()

    monkeypatch.setattr("t2t_torch.hooks.attention_maps.heat_maps", draw)
    estimator = make_estimator("run", task=make_multi(), hooks=[hook])
    estimator.train(1)
    estimator.evaluate()
    names = {f"{problem}/encoder.0.attention" for problem in ("tiny_kind", "tiny_tags")}
    assert drawn.keys() == names
    for matrix, rows, columns in drawn.values():
        assert rows == columns
        torch.testing.assert_close(matrix.sum(1), torch.ones(len(rows)))
    figures = tmp_path / "run" / "figures" / "attention"
    assert {str(path.relative_to(figures).with_suffix("")) for path in figures.rglob("*.png")} == (
        names
    )
