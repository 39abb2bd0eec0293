"""Training speed beside Hugging Face transformers: the same architecture, weights and batches.

Speed is target tokens, padding not counted, in a second of whole steps: forward, label-smoothed
loss, backward, clipping, Adam.  Ours is `activation_dtype=auto` in a process set up as
`t2t-trainer` sets it up (our_training.py).  The other side is MarianMTModel, torch's label-smoothed
cross entropy, `clip_grad_norm_` and fused Adam, in a process as Python starts it; `kept` marks
those that have our allocator settings too.  --options measures what our own switches cost and gain;
--loss_curve asks whether bfloat16 learns what float32 does.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import resource
import statistics
from pathlib import Path
from typing import TYPE_CHECKING

from multi30k import argument_parser, hparams, make_data, task
from our_training import OurTraining
from pairing import Side, Stopwatch, Turn, Work, alternate, print_comparison, runnable
from report import print_header, print_table

if TYPE_CHECKING:
    from t2t_torch.train.task import Batch

_OURS = "t2t_torch auto"
_FEW = {"pad_batch": True, "length_bucket_step": 1.6}  # shapes
_OPTIONS: dict[str, tuple[str, dict[str, object]]] = {
    "bfloat16": ("bfloat16", {}),
    "float16": ("float16", {}),
    "float32, medium": ("float32", {"float32_matmul_precision": "medium"}),
    "bfloat16, few shapes": ("bfloat16", _FEW),
    "bfloat16, few shapes, compile": ("bfloat16", {**_FEW, "compile": True}),
    "float32, few shapes": ("float32", _FEW),
    "float32, few shapes, compile": ("float32", {**_FEW, "compile": True}),
    "bfloat16, checkpointing": ("bfloat16", {"activation_checkpointing": True}),
    "bfloat16, EMA": ("bfloat16", {"ema_decay": 0.999}),
}
"""What --options measures: `activation_dtype`, and other changes."""
_WARM_UP = 3  # steps of a turn before the clock starts: another side has just used the caches


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a side is told.

    Attributes:
      data_dir: where the data is.
      changes: to the hparams of our side; of the other, `activation_dtype` alone.
      kept: whether the process keeps freed memory, as the trainer makes it.
      steps: in a turn.
      seed: of weights, batches and dropout.
      attention: transformers' `attn_implementation`.
    """

    data_dir: Path
    changes: dict[str, object]
    kept: bool
    steps: int
    seed: int
    attention: str = "sdpa"


def _training(settings: Settings, count: int) -> OurTraining:
    """Makes what the trainer makes; `auto` is chosen as it chooses."""
    from t2t_torch.distributed.precision import resolve
    from t2t_torch.distributed.process_group import ONE_PROCESS

    chosen = resolve(hparams(**settings.changes), ONE_PROCESS)
    made = task(settings.data_dir, chosen)
    return OurTraining(made, count, settings.seed, ONE_PROCESS.device)


def ours(settings: Settings) -> Turn:
    """Prepares our side."""
    from t2t_torch.train.memory import keep_freed_memory

    if settings.kept:
        keep_freed_memory()
    training = _training(settings, settings.steps)

    def turn(number: int) -> Work:
        del number
        for batch in training.batches[:_WARM_UP]:
            training.step(batch)
        watch = Stopwatch()
        losses = [float(training.step(batch)) for batch in training.batches]
        return _work(training.batches, watch.read(), losses[-1])

    return turn


def theirs(settings: Settings) -> Turn:
    """Prepares the side of transformers."""
    import torch
    from marian import check_same_function, marian, take_weights
    from torch.nn import functional as F

    from t2t_torch.train.memory import keep_freed_memory

    if settings.kept:
        keep_freed_memory()
    training = _training(settings, settings.steps)
    run, batches = training.run, training.batches
    chosen = hparams()
    vocab_size = len(run.model.state_dict()["modalities.targets.bottom.weight"])
    model = marian(chosen, vocab_size, attention=settings.attention)
    take_weights(model, run.model.state_dict())
    check_same_function(run.model, model, batches[0][1])
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    rate, done = run.learning_rate, itertools.count()
    enabled = settings.changes["activation_dtype"] == "bfloat16"

    def step(batch: Batch) -> float:
        targets = batch["targets"]
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            logits = model(
                input_ids=batch["inputs"],
                attention_mask=(batch["inputs"] != 0).long(),
                decoder_input_ids=F.pad(targets, (1, -1)),
                use_cache=False,
            ).logits
            loss = F.cross_entropy(
                logits.flatten(0, 1), targets.flatten(), ignore_index=0, label_smoothing=0.1
            )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), chosen.clip_grad_norm)
        for group in optimizer.param_groups:
            group["lr"] = rate(next(done))
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.detach())

    def turn(number: int) -> Work:
        del number
        for _, batch in batches[:_WARM_UP]:
            step(batch)
        watch = Stopwatch()
        losses = [step(batch) for _, batch in batches]
        return _work(batches, watch.read(), losses[-1])

    return turn


def _work(batches: list[tuple[int, Batch]], taken: tuple[float, float], loss: float) -> Work:
    tokens = sum(int((batch["targets"] != 0).sum()) for _, batch in batches)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    notes = {"ms/step": 1000 * taken[0] / len(batches), "peak MiB": peak, "last loss": loss}
    return Work(tokens, *taken, notes)


def _compare(arguments: argparse.Namespace) -> None:
    def settings(dtype: str, *, kept: bool, attention: str = "sdpa", **more: object) -> Settings:
        changes = {"activation_dtype": dtype, **more}
        return Settings(
            arguments.data_dir, changes, kept, arguments.steps, arguments.seed, attention
        )

    sides = [
        Side(_OURS, ours, settings("auto", kept=True)),
        Side("t2t_torch float32", ours, settings("float32", kept=True)),
    ]
    if arguments.options:
        sides += [
            Side(f"t2t_torch {name}", ours, settings(dtype, kept=True, **more))
            for name, (dtype, more) in _OPTIONS.items()
        ]
    else:
        sides += [
            Side("transformers float32", theirs, settings("float32", kept=False)),
            Side("transformers bfloat16", theirs, settings("bfloat16", kept=False)),
        ]
    if arguments.kept:
        sides += [
            Side("transformers float32, kept", theirs, settings("float32", kept=True)),
            Side("transformers bfloat16, kept", theirs, settings("bfloat16", kept=True)),
        ]
    if arguments.eager:
        sides += [
            Side(
                f"transformers {dtype}, eager{', kept' if kept else ''}",
                theirs,
                settings(dtype, kept=kept, attention="eager"),
            )
            for dtype in ("float32", "bfloat16")
            for kept in ((False, True) if arguments.kept else (False,))
        ]
    sides = [
        dataclasses.replace(
            side,
            needs="transformers" if side.prepare is theirs else "",
            dtype=side.settings.changes["activation_dtype"],
        )
        for side in sides
        if arguments.sides in side.name or side.name == _OURS
    ]
    chosen = runnable(sides)
    print_comparison(alternate(chosen, arguments.rounds), _OURS, "target tokens")


def _compare_losses(arguments: argparse.Namespace) -> None:
    """Trains in float32, in bfloat16, and in float32 with other dropout; prints the curves."""
    curves = []
    for dtype, seed in (("float32", 0), ("bfloat16", 0), ("float32", 1)):
        settings = Settings(
            arguments.data_dir, {"activation_dtype": dtype}, True, 0, arguments.seed
        )
        training = _training(settings, 0)
        training.state.seed = arguments.seed + seed  # of the dropout
        batches = itertools.islice(training.run.batches, arguments.loss_curve)
        curves.append([float(training.step(batch)) for batch in batches])
        print(f"{dtype}, dropout {seed}: done", flush=True)
    every = max(1, arguments.loss_curve // 10)
    starts = range(0, arguments.loss_curve, every)
    means = [[statistics.fmean(curve[i : i + every]) for i in starts] for curve in curves]
    rows = [
        [f"{i + 1}-{min(i + every, arguments.loss_curve)}", *(f"{mean[k]:.4f}" for mean in means)]
        for k, i in enumerate(starts)
    ]
    print_table(["steps, mean loss", "float32", "bfloat16", "float32, other dropout"], rows)
    for name, other, other_means in zip(
        ("bfloat16", "float32 with other dropout"), curves[1:], means[1:], strict=True
    ):
        gaps = [abs(a - b) for a, b in zip(curves[0], other, strict=True)]
        step = gaps.index(max(gaps))
        mean_gap = max(abs(a - b) for a, b in zip(means[0], other_means, strict=True))
        print(
            f"greatest gap of {name} from float32: {gaps[step]:.4f} nats in one step (step "
            f"{step + 1}, loss {curves[0][step]:.4f}), {mean_gap:.4f} between the means above"
        )


def main() -> None:
    """Prints the table."""
    parser = argument_parser(__doc__ or "")
    parser.add_argument("--steps", type=int, default=20, help="in a turn")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each side")
    parser.add_argument("--options", action="store_true", help="our options, not transformers")
    parser.add_argument("--kept", action="store_true", help="also transformers + our allocator")
    parser.add_argument("--eager", action="store_true", help="also transformers' eager attention")
    parser.add_argument("--sides", default="", help="only sides with this in their name, and ours")
    parser.add_argument("--loss_curve", type=int, default=0, help="steps of the loss curves")
    arguments = parser.parse_args()
    make_data(arguments.data_dir, arguments.tmp_dir)
    print_header(arguments.seed)
    if arguments.loss_curve:
        from t2t_torch.train.memory import keep_freed_memory

        keep_freed_memory()
        _compare_losses(arguments)
    else:
        _compare(arguments)


if __name__ == "__main__":
    main()
