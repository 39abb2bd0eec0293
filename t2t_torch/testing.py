"""Contracts of every problem, model and set.

Users run the same checks on theirs:

    python -m t2t_torch.testing --t2t_usr_dir=my_usr_dir --tmp_dir=raw_files

Each check returns nothing and raises an AssertionError that says what does not hold.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from t2t_torch import errors, registry, trust
from t2t_torch.data import encoding, raw_file, vocabulary_builder
from t2t_torch.features import (
    UNKNOWN,
    Audio,
    Choice,
    ClassLabel,
    Feature,
    Features,
    Image,
    MaskedTokens,
    MultiLabel,
    PixelSequence,
    Real,
    RowWeight,
    SoftLabel,
    Span,
    Tags,
    Text,
    Transcript,
    TreeFeature,
    Turns,
    WordLabel,
    Words,
    WordShape,
)
from t2t_torch.features.feature import select_sequences
from t2t_torch.hparam import HParams
from t2t_torch.metrics.metric import metric_of
from t2t_torch.model import T2TModel, check_features
from t2t_torch.pipeline.collate import random_batch
from t2t_torch.pipeline.reader import file_decoder
from t2t_torch.problem import Problem, metric_names
from t2t_torch.reporter import output
from t2t_torch.reports import draw
from t2t_torch.settings import require
from t2t_torch.text.encoder import EOS, ClassLabelEncoder, IntegerEncoder
from t2t_torch.text.tree import TransitionEncoder
from t2t_torch.workflows.context import TMP_DIR

_VOCAB_SIZE = 19
_SAMPLES = 20


def small(hparams: HParams) -> HParams:
    """Returns hparams with small sizes, for checks of about a second."""
    sizes: dict[str, Any] = {
        "hidden_size": 16,
        "filter_size": 32,
        "num_heads": 2,
        "num_hidden_layers": 2,
    }
    sizes |= {"embedding_size": 16, "character_size": 4}
    sizes |= {"num_filters": 4, "attention_size": 4, "encoder_size": 8}
    sizes |= {"audio_num_mel_bins": 20, "audio_num_filters": 4, "num_zeropad_frames": 3}
    sizes |= {"lstm_size": 8, "attention_hops": 2, "ngram_buckets": 50}
    sizes |= {"num_rec_steps": 2, "act_max_steps": 3}
    sizes |= {"layer_sizes": (1, 1), "filter_sizes": (4, 8, 8), "patch_size": 4, "block_length": 4}
    fields = type(hparams).model_fields
    known = {name: size for name, size in sizes.items() if name in fields}
    if layers := known.get("num_hidden_layers"):
        lowest = [one.ge for one in fields["num_hidden_layers"].metadata if hasattr(one, "ge")]
        known["num_hidden_layers"] = max(layers, *lowest)
    return hparams.replace(**known).in_small(_VOCAB_SIZE)


def text_features(*, has_inputs: bool = True) -> Features:
    """Returns features of a synthetic text problem with a vocabulary of 19 ids."""
    text = Text(IntegerEncoder(_VOCAB_SIZE - 2))
    return Features({"inputs": text} if has_inputs else {}, {"targets": text})


def features_for(model_class: type[T2TModel]) -> Iterator[Features]:
    """Yields synthetic features that a model supports: one set for each type of target."""
    words = Words(IntegerEncoder(_VOCAB_SIZE - 2))
    labels = ClassLabelEncoder(["a", "b", "c"])
    text = Text(IntegerEncoder(_VOCAB_SIZE - 2))
    candidates: dict[str, Feature] = {"query": text, "positive": text, "negative": text}

    def fits(features: Features) -> bool:
        try:
            check_features(model_class, features)
        except errors.HParamsError:
            return False
        return True

    made: list[tuple[type[Feature], dict[str, Feature], Feature]] = [
        (ClassLabel, {"inputs": text, "dense": Real(2)}, ClassLabel(labels)),
        (ClassLabel, {"inputs": words, "inputs_shape": WordShape("inputs")}, ClassLabel(labels)),
        (ClassLabel, {"inputs": Turns(text.encoder), "dense": Real(2)}, ClassLabel(labels)),
        (MultiLabel, {"inputs": text}, MultiLabel(labels)),
        (SoftLabel, {"inputs": Image(8, 8, 3)}, SoftLabel(labels)),
        (ClassLabel, {"inputs": Image(8, 12, 1)}, ClassLabel(labels)),
        (SoftLabel, {"inputs": text}, SoftLabel(labels)),
        (ClassLabel, {"first": text, "second": text}, ClassLabel(labels)),
        (Real, {"first": text, "second": text}, Real(2)),
        (Real, {"inputs": text}, Real(2)),
        (PixelSequence, {"inputs": text}, PixelSequence(height=2, width=3, channels=2)),
        (PixelSequence, {}, PixelSequence(height=1, width=4, channels=1)),
        (MaskedTokens, {"inputs": text}, MaskedTokens(text.encoder)),
        (Tags, {"inputs": words, "inputs_shape": WordShape("inputs")}, Tags(labels)),
        (Span, {"question": words, "context": words}, Span()),
        (Choice, candidates, Choice(("positive", "negative"))),
        (TreeFeature, {"inputs": words}, TreeFeature(TransitionEncoder(["IN:A", "SL:B", "SL:C"]))),
        (ClassLabel, {"inputs": Audio()}, ClassLabel(labels)),
        (Text, {"inputs": Audio()}, Transcript(text.encoder)),
        (
            TreeFeature,
            {"inputs": words, "inputs_tags": WordLabel("inputs", labels)},
            TreeFeature(TransitionEncoder(["S", "NP", "VP"])),
        ),
    ]
    if Text in model_class.produces and not model_class.needs_inputs:
        yield from filter(fits, (text_features(), text_features(has_inputs=False)))
    for kind, inputs, target in made:
        notes = {"weight": RowWeight()} if kind is ClassLabel else {}
        features = Features(inputs, {"targets": target}, notes=notes)
        is_claimed = Audio() not in inputs.values() or Audio in model_class.reads
        if kind in model_class.produces and is_claimed and fits(features):
            yield features
    both = Features(
        {"inputs": words, "inputs_shape": WordShape("inputs"), "dense": Real(2)},
        {"intent": ClassLabel(labels), "slots": Tags(labels)},
    )
    if {ClassLabel, Tags} <= set(model_class.produces) and fits(both):
        yield both


def check_hparams(name: str) -> None:
    """Checks that a set can be built and described, and round-trips through JSON and flags."""
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
      model_class: registered model class.
      hparams: hyperparameters of its class; sizes are reduced.
      has_inputs: types of problems to check: True with inputs, False for language models.
    """
    for features in features_for(model_class):
        if features.has_inputs not in has_inputs:
            continue
        torch.manual_seed(0)
        model = model_class(small(hparams), features).eval()
        batch = random_batch(features)
        with torch.no_grad():
            if model.searches:
                _check_shapes(model, batch)
                _check_padding(model, batch)
            else:
                _check_frames(model, batch)
            other = type(model)(model.hparams, model.features).eval()
            other.load_state_dict(model.state_dict())
            for name, logits in model(batch).logits.items():
                assert torch.equal(other(batch).logits[name], logits), "a loaded model differs"
            if type(model).step is not T2TModel.step and model.searches:
                _check_steps(model, batch)
        _check_learning(model, batch)


def _check_shapes(model: T2TModel, batch: dict[str, Tensor]) -> None:
    output = model(batch)
    for part, values in (("logits", output.logits), ("losses", output.losses)):
        expected = list(model.features.targets)
        assert set(values) == set(expected), f"{part}: expected {expected}, got {list(values)}"
    for name, logits in output.logits.items():
        said = f"top of {name!r}: expected float32 logits of {len(batch[name])} rows, got "
        said += f"{logits.dtype} {list(logits.shape)}"
        assert logits.dtype == torch.float32 and len(logits) == len(batch[name]), said
        feature = model.features.targets[name]
        if name in select_sequences(model.features.targets):
            wanted = [*batch[name].shape, feature.vocab_size]
            said = f"top of {name!r}: expected logits of {wanted}, got {list(logits.shape)}"
            assert logits.shape[:-1] == batch[name].shape, said
            assert logits.size(-1) >= feature.vocab_size, said
            present = (batch[name] != feature.padding).float()
            several = len(output.losses) > 1  # then each counts by examples
            weight = present.amax(1).sum() if several else present.sum()
            got = output.losses[name].weight
            said = f"loss of {name!r}: expected the weight {float(weight):g}, got {float(got):g}"
            torch.testing.assert_close(got, weight, msg=said)


def _check_frames(model: T2TModel, batch: dict[str, Tensor]) -> None:
    """Checks that the outputs of frames do not depend on padding or on the batch."""
    (name,) = model.features.targets
    padded = _lengthened(model.features, batch)
    alone = {key: values[1:2] for key, values in batch.items()}
    logits, more, one = (model.logits(each)[name] for each in (batch, padded, alone))
    torch.testing.assert_close(more[:, : logits.size(1)], logits, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(one[0], logits[1], atol=1e-5, rtol=1e-5)
    losses = [model(each).losses[name] for each in (batch, padded)]
    torch.testing.assert_close(losses[0].sum, losses[1].sum)
    assert losses[0].weight == losses[1].weight == (batch[name] > EOS).sum()


def _check_padding(model: T2TModel, batch: dict[str, Tensor]) -> None:
    padded = _lengthened(model.features, batch)
    alone = {key: values[1:2] for key, values in batch.items()}
    for name, logits in model(batch).logits.items():
        feature = model.features.targets[name]
        more, one = model(padded).logits[name], model(alone).logits[name][0]
        if name in select_sequences(model.features.targets):  # else there are no positions
            present = batch[name] != feature.padding
            more, logits, one = more[:, : logits.size(1)][present], logits, one[present[1]]
            first, second = logits[present], logits[1][present[1]]
        else:
            more, one = _cut(more, logits), _cut(one, logits[1])
            first, second = logits, logits[1]
        torch.testing.assert_close(
            more, first, atol=1e-5, rtol=1e-5, msg="padding changes the logits"
        )
        torch.testing.assert_close(
            one, second, atol=1e-5, rtol=1e-5, msg="the rest of the batch changes the logits"
        )


def _lengthened(features: Features, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns a batch whose sequences have three more positions, of padding."""
    longer = {}
    for name, feature in select_sequences(features.all).items():
        values = batch[name]
        more = values.new_full((len(values), 3, *values.shape[2:]), feature.padding)
        longer[name] = torch.cat([values, more], 1)
    return {**batch, **longer}


def _cut(values: Tensor, to: Tensor) -> Tensor:
    return values[tuple(slice(size) for size in to.shape)]


def _check_steps(model: T2TModel, batch: dict[str, Tensor]) -> None:
    """Checks that stepwise decoding equals a teacher-forced pass: no pass sees the future."""
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
        computed = model(batch).losses
        loss = torch.stack([loss.sum / loss.weight for loss in computed.values()]).sum()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    idle = [name for name, p in model.named_parameters() if p.grad is None]
    assert not idle, f"parameters that no loss reaches: {idle}"
    assert losses[-1] < 0.8 * losses[0], f"20 steps on one batch: {losses[0]} -> {losses[-1]}"


def check_problem(problem: Problem, data_dir: Path, tmp_dir: Path) -> None:
    """Checks that a problem generates samples, that features round-trip, and that names agree.

    For a mixture, every problem is checked.

    Args:
      problem: any problem, also with `_rev`.
      data_dir: empty folder for the vocabulary.
      tmp_dir: folder with raw files, for a problem that needs them.
    """
    if problem.mixing_schedule is not None:  # it has no data of its own
        for component in problem.components:
            check_problem(component, data_dir, tmp_dir)
        assert set(problem.features(data_dir).all)
        return
    spec = registry.parse_problem_name(problem.full_name)
    assert (spec.was_reversed, spec.was_copy) == (problem.was_reversed, problem.was_copy)
    problem.prepare(tmp_dir)
    problem.build_vocab(data_dir, tmp_dir)
    for file in vocabulary_builder.vocab_files_in(problem, data_dir):
        assert (data_dir / file).is_file(), f"{problem.name}: no {file}"
    stored = problem.stored_features(data_dir)
    for split in problem.shards:
        samples = list(itertools.islice(raw_file.samples_of(problem, tmp_dir, split), _SAMPLES))
        assert samples, f"{problem.name}: no samples in {split}"
        for sample in samples:
            _check_sample(problem, stored, sample)
    assert set(problem.features(data_dir).columns.values()) <= set(stored.all)
    for target, feature in problem.features(data_dir).targets.items():
        for metric in metric_names(problem, target):
            metric_of(metric, feature)


def _check_sample(problem: Problem, features: Features, sample: dict[str, Any]) -> None:
    expected = sorted(features.sources.values())
    said = f"{problem.name}.generate_samples: expected keys {expected}, got {sorted(sample)}"
    assert sorted(sample) == sorted(set(expected)), said
    for name, feature in features.all.items():
        place = f"{problem.name}/{name}"
        value = sample[feature.source or name]
        ids: Any = feature.encode(value)
        if feature.vocab_size:
            low, high = encoding.lowest_id(feature), feature.vocab_size
            assert all(low <= i < high for i in ids), f"{place}: {ids}"
        again = feature.decode(ids)
        if _reads_back(feature) and UNKNOWN not in ids:
            picture = draw(feature, ids)
            again = again if picture is None else picture
            assert np.array_equal(again, value), f"{place}: {value!r}"


def _reads_back(feature: Feature) -> bool:
    """Returns True if values can be decoded exactly; a word vocabulary merges unknown words."""
    if isinstance(feature, Text):
        return feature.encoder.is_lossless
    if file_decoder(feature):  # files in place of pixels
        return False
    return isinstance(feature, ClassLabel | Tags | Choice | Image | Span)


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
                yield label, lambda name=entry.name: _check_registered(name, tmp_dir)


def _check_registered(name: str, tmp_dir: Path) -> None:
    """Checks the registered problem of a name with a temporary vocabulary."""
    problem = registry.problem(name)
    if problem.mixing_schedule is not None:  # its problems are checked separately
        return
    with tempfile.TemporaryDirectory() as data_dir:
        check_problem(problem, Path(data_dir), tmp_dir)


class CheckSettings(trust.UsrDirSettings):
    """Checks the contracts of every problem, model and set of a folder.

        python -m t2t_torch.testing --t2t_usr_dir=my_usr_dir --tmp_dir=raw_files

    Prints a line for each; the exit code is 1 if one fails.
    """

    tmp_dir: str | None = TMP_DIR


def check_declarations(settings: CheckSettings) -> int:
    """Checks all declarations of a user's folders; returns 1 if a check fails."""
    require(settings, "t2t_usr_dir", "tmp_dir")
    failures = 0
    for usr_dir in registry.usr_dirs():
        for label, check in _checks(Path(usr_dir), Path(str(settings.tmp_dir))):
            try:
                check()
            except Exception as error:  # user code may raise anything: continue
                failures += 1
                output(f"FAILED  {label}: {type(error).__name__}: {error}")
            else:
                output(f"ok      {label}")
    return 1 if failures else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the checks as a command; returns the exit code."""
    from t2t_torch.bin.command import Command

    command = Command("t2t_torch.testing", CheckSettings, check_declarations, lists_names=False)
    return command.main(argv)


if __name__ == "__main__":
    sys.exit(main())
