"""The contract of a task: few methods, and nobody asks which class it has."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import torch

import t2t_torch
from t2t_torch.train.estimator import train_step
from t2t_torch.train.task import BatchAdapter, Task

PACKAGE = Path(t2t_torch.__file__).parent
TASKS = {"LearningTask", "ProblemTask", "MultiTask", "TrialTask"}


def trees(folder):
    return {path: ast.parse(path.read_text("utf-8")) for path in (PACKAGE / folder).rglob("*.py")}


def test_a_task_has_at_most_eight_methods():
    methods = [
        name
        for name, value in vars(Task).items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
    ]
    assert len(methods) <= 8, methods


def test_training_does_not_ask_for_the_class_of_a_task():
    requested = [
        f"{path}:{node.lineno}"
        for path, tree in trees("train").items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "isinstance"
        and TASKS & {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)}
    ]
    assert not requested


def test_nothing_sets_an_attribute_of_the_estimator_but_itself():
    owners = ("estimator", "self.estimator", "self._estimator")
    written = [
        f"{path}:{target.lineno} {ast.unparse(target)}"
        for path, tree in trees(".").items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
        for whole in (node.targets if isinstance(node, ast.Assign) else [node.target])
        for target in ast.walk(whole)
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name | ast.Attribute)
        if ast.unparse(target.value) in owners
    ]
    assert not written


def test_a_step_is_one_function_that_can_be_read_at_once():
    lines, _ = inspect.getsourcelines(train_step)
    assert len(lines) <= 80


def test_pieces_of_a_batch_have_all_of_its_rows():
    adapter = BatchAdapter()
    batch = {"inputs": torch.arange(10).reshape(5, 2), "targets": torch.arange(5)}
    pieces = adapter.split(batch, 2)
    assert [adapter.rows_of(piece) for piece in pieces] == [3, 2]
    for name, tensor in adapter.tensors(batch).items():
        assert torch.equal(torch.cat([piece[name] for piece in pieces]), tensor)
