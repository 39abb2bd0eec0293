"""What every problem, model and set must hold.

Users run the same checks on theirs:

    python -m t2t_torch.testing --t2t_usr_dir=my_usr_dir --tmp_dir=raw_files

Each check returns nothing and raises an AssertionError that says what does not hold.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from absl import flags
from torch import Tensor

from t2t_torch import registry
from t2t_torch.bin import flags as shared
from t2t_torch.features import Features, Text
from t2t_torch.hparam import HParams
from t2t_torch.model import T2TModel
from t2t_torch.problem import Problem
from t2t_torch.text.encoder import EOS
from t2t_torch.text.integer import IntegerEncoder

FLAGS = flags.FlagValues()
shared.define(FLAGS, "t2t_usr_dir", "tmp_dir")

_VOCAB_SIZE = 19
_SAMPLES = 20


def small(hparams: HParams) -> HParams:
    """Returns a set's hparams with sizes at which a check takes a second."""
    sizes = {"hidden_size": 16, "filter_size": 32, "num_heads": 2, "num_hidden_layers": 2}
    known = {name: size for name, size in sizes.items() if name in type(hparams).model_fields}
    return hparams.replace(**known)


def text_features(*, has_inputs: bool = True) -> Features:
    """Returns features of a made-up text problem with a vocabulary of 19 ids."""
    text = Text(IntegerEncoder(_VOCAB_SIZE - 2))
    return Features({"inputs": text} if has_inputs else {}, {"targets": text})


def random_batch(features: Features, *, rows: int = 3, seed: int = 0) -> dict[str, Tensor]:
    """Returns a padded batch of random ids, each row ended by EOS."""
    generator = torch.Generator().manual_seed(seed)
    batch = {}
    for k, name in enumerate(features.all):
        ids = torch.randint(2, _VOCAB_SIZE, (rows, 7 + k), generator=generator)
        for i in range(rows):
            end = 6 + k - 2 * (i % 3)
            ids[i, end] = EOS
            ids[i, end + 1 :] = 0
        batch[name] = ids
    return batch


def check_hparams(name: str) -> None:
    """Checks that a set builds, describes itself, and reads its own JSON and its own flags."""
    hparams = registry.hparams(name)
    described = hparams.describe()
    for field in type(hparams).model_fields:
        assert field in described, f"{name}: {field} is not described"
    again = type(hparams).from_json(hparams.to_json())
    assert again == hparams, f"{name}: its JSON reads back as something else"
    numbers = {
        field: value
        for field in type(hparams).model_fields
        if isinstance(value := getattr(hparams, field), int | float)
    }
    text = ",".join(f"{field}={value}" for field, value in numbers.items())
    assert type(hparams)().parse(text).replace(**hparams.model_dump()) == hparams, name


def check_model(
    model_class: type[T2TModel], hparams: HParams, *, has_inputs: Sequence[bool] = (True, False)
) -> None:
    """Checks a model: shapes, padding, learning, and step-by-step decoding.

    Args:
      model_class: a registered one.
      hparams: of the class that it needs; sizes are made small.
      has_inputs: with which problems: those that have inputs, language models, or both.
    """
    for with_inputs in has_inputs:
        features = text_features(has_inputs=with_inputs)
        torch.manual_seed(0)
        model = model_class(small(hparams), features).eval()
        batch = random_batch(features)
        with torch.no_grad():
            _check_shapes(model, batch)
            _check_padding(model, batch)
            _check_save_and_load(model, batch)
            if type(model).step is not T2TModel.step:
                _check_steps(model, batch)
        _check_learning(model, batch)


def _check_shapes(model: T2TModel, batch: dict[str, Tensor]) -> None:
    output = model(batch)
    assert set(output.losses) == set(model.features.targets)
    for name, logits in output.logits.items():
        vocab_size = model.features.targets[name].vocab_size
        assert logits.shape[:-1] == batch[name].shape, f"{name}: {tuple(logits.shape)}"
        assert logits.size(-1) >= vocab_size and logits.dtype == torch.float32
        assert output.losses[name].weight == (batch[name] != 0).sum()


def _check_padding(model: T2TModel, batch: dict[str, Tensor]) -> None:
    padded = {name: torch.nn.functional.pad(ids, (0, 3)) for name, ids in batch.items()}
    for name, logits in model(batch).logits.items():
        present = batch[name] != 0
        more = model(padded).logits[name][:, : logits.size(1)]
        torch.testing.assert_close(
            more[present], logits[present], atol=1e-5, rtol=1e-5, msg="padding changes the logits"
        )
        alone = model({key: ids[1:2] for key, ids in batch.items()}).logits[name][0]
        torch.testing.assert_close(
            alone[present[1]],
            logits[1][present[1]],
            atol=1e-5,
            rtol=1e-5,
            msg="the rest of the batch changes the logits",
        )


def _check_save_and_load(model: T2TModel, batch: dict[str, Tensor]) -> None:
    other = type(model)(model.hparams, model.features).eval()
    other.load_state_dict(model.state_dict())
    for name, logits in model(batch).logits.items():
        assert torch.equal(other(batch).logits[name], logits), "a loaded model differs"


def _check_steps(model: T2TModel, batch: dict[str, Tensor]) -> None:
    """Decoding step by step sees what one teacher-forced pass sees, so no pass sees the future."""
    expected = model(batch).logits["targets"]
    targets = batch["targets"]
    state = model.encode(batch)
    last = torch.zeros(len(targets), dtype=torch.int64)
    for t in range(targets.size(1)):
        logits, state = model.step(last, state)
        present = targets[:, t] != 0
        torch.testing.assert_close(
            logits[present],
            expected[present, t],
            atol=1e-4,
            rtol=1e-4,
            msg=f"step {t} differs from the teacher-forced pass",
        )
        last = targets[:, t]


def _check_learning(model: T2TModel, batch: dict[str, Tensor]) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    model.train()
    losses = []
    for _ in range(20):
        found = model(batch).losses
        loss = torch.stack([loss.sum / loss.weight for loss in found.values()]).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    idle = [name for name, p in model.named_parameters() if p.grad is None]
    assert not idle, f"parameters that no loss reaches: {idle}"
    assert losses[-1] < 0.8 * losses[0], f"20 steps on one batch: {losses[0]} -> {losses[-1]}"


def check_problem(problem: Problem, data_dir: Path, tmp_dir: Path) -> None:
    """Checks that a problem makes samples, that its features read them back, and that names agree.

    Args:
      problem: any, also with `_rev`.
      data_dir: an empty folder for the vocabulary.
      tmp_dir: the raw files, for a problem that needs some.
    """
    spec = registry.parse_problem_name(problem.full_name)
    assert (spec.was_reversed, spec.was_copy) == (problem.was_reversed, problem.was_copy)
    problem.prepare(tmp_dir)
    problem.build_vocab(data_dir, tmp_dir)
    for file in problem.vocab_files:
        assert (data_dir / file).is_file(), f"{problem.name}: no {file}"
    stored = problem.stored_features(data_dir)
    for split in problem.shards:
        samples = list(itertools.islice(problem.generate_samples(tmp_dir, split), _SAMPLES))
        assert samples, f"{problem.name}: no samples in {split}"
        for sample in samples:
            _check_sample(problem, stored, sample)
    assert set(problem.features(data_dir).columns.values()) <= set(stored.all)
    for metric in problem.metrics:
        registry.metric(metric)


def _check_sample(problem: Problem, features: Features, sample: dict[str, Any]) -> None:
    assert set(sample) == set(features.all), f"{problem.name}: {sorted(sample)}"
    for name, feature in features.all.items():
        ids = feature.encode(sample[name])
        assert all(0 <= i < feature.vocab_size for i in ids), f"{problem.name}/{name}: {ids}"
        assert feature.decode(ids) == sample[name], f"{problem.name}/{name}: {sample[name]!r}"


def _checks(directory: Path, tmp_dir: Path) -> Iterator[tuple[str, Any]]:
    """Yields a label and a check for each name declared below `directory`."""
    for kind in ("hparams", "model", "problem"):
        for entry in registry.entries(kind):
            if not Path(entry.path).resolve().is_relative_to(directory.resolve()):
                continue
            label = f"{kind} {entry.name}"
            if kind == "hparams":
                yield label, lambda name=entry.name: check_hparams(name)
            elif kind == "model":
                model_class = registry.model(entry.name)
                yield label, lambda m=model_class: check_model(m, m.HParams())
            else:
                problem = registry.problem(entry.name)
                data_dir = tmp_dir / "testing" / entry.name
                data_dir.mkdir(parents=True, exist_ok=True)
                yield label, lambda p=problem, d=data_dir: check_problem(p, d, tmp_dir)


def _run() -> int:
    shared.require(FLAGS, "t2t_usr_dir", "tmp_dir")
    failures = 0
    for usr_dir in registry.usr_dirs():
        for label, check in _checks(Path(usr_dir), Path(FLAGS.tmp_dir)):
            try:
                check()
            except Exception as error:  # a check of somebody's code: whatever it raises, go on
                failures += 1
                print(f"FAILED  {label}: {type(error).__name__}: {error}")
            else:
                print(f"ok      {label}")
    return 1 if failures else 0


def main() -> int:
    """Checks all that a user's folder declares; 1 if something does not hold."""
    return shared.run_main(_run, FLAGS, __doc__)


if __name__ == "__main__":
    sys.exit(main())
