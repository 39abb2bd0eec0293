"""Beam-4 decoding beside Hugging Face transformers: the same weights, the Multi30k test inputs.

Speed is sentences in a second, from ids to texts.  Ours is what `t2t-decoder` runs: bfloat16, as
the run was trained in it, and float32 beside it, in a process set up as the command sets it up.
The other side is `MarianMTModel.generate` on inputs sorted by length, in batches of several sizes.
The tokens that each makes and its BLEU say whether the work was equal: the two searches differ in
their length penalty and in when they stop.

The weights are of a short training, made when they are not there.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from multi30k import ARCHITECTURE, PROBLEM, argument_parser, make_data
from pairing import Side, Stopwatch, Turn, Work, alternate, print_comparison
from report import print_header

from t2t_torch import registry
from t2t_torch.mode import Split


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a side is told.

    Attributes:
      run_dir: where the weights are.
      inputs: texts.
      references: texts.
      batch_size: ours: input tokens; theirs: sentences.
      extra_length: tokens that an output may be longer than its input (theirs: than the longest
        input of the batch).
      early_stopping: transformers' setting.
      kept: whether the process keeps freed memory, as `t2t-decoder` does.
      dtype: of activations.
    """

    run_dir: Path
    inputs: tuple[str, ...]
    references: tuple[str, ...]
    batch_size: int
    extra_length: int
    early_stopping: bool = True
    kept: bool = False
    dtype: str = "float32"


_BEAM = 4
_ALPHA = 0.6
_WARM_UP = 32  # sentences


def ours(settings: Settings) -> Turn:
    """Prepares our side."""
    import t2t_torch
    from t2t_torch.allocator import keep_freed_memory
    from t2t_torch.decode.hparam import DecodeHParams

    if settings.kept:
        keep_freed_memory()
    predictor = t2t_torch.load(settings.run_dir, device="cpu")
    how = DecodeHParams(
        beam_size=_BEAM,
        alpha=_ALPHA,
        batch_tokens=settings.batch_size,
        extra_length=settings.extra_length,
        activation_dtype=settings.dtype,
    )
    ids = predictor.encode(settings.inputs, how)

    def turn(number: int) -> Work:
        del number
        list(predictor.predict_ids(ids[:_WARM_UP], how))
        watch = Stopwatch()
        found = dict(predictor.predict_ids(ids, how))
        taken = watch.read()
        best = [found[index].hypotheses[0] for index in range(len(ids))]
        tokens = sum(len(one.ids) + 1 for one in best)
        return _work([one.text for one in best], tokens, taken, settings.references)

    return turn


def theirs(settings: Settings) -> Turn:
    """Prepares the side of transformers."""
    import torch
    from marian import check_same_function, marian, take_weights

    import t2t_torch
    from t2t_torch.allocator import keep_freed_memory
    from t2t_torch.text.encoder import EOS, PAD

    if settings.kept:
        keep_freed_memory()
    predictor = t2t_torch.load(settings.run_dir, device="cpu")
    target = predictor.features.targets["targets"]
    ids = predictor.encode(settings.inputs)
    hparams: Any = predictor.model.hparams
    model = marian(hparams, target.vocab_size, tied=False).eval()
    take_weights(model, predictor.model.state_dict())
    few = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in ids[:8]], True, PAD)
    check_same_function(predictor.model, model, {"inputs": few, "targets": few})

    def generate(rows: Sequence[list[int]]) -> list[list[int]]:
        padded = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], True, PAD)
        made = model.generate(
            input_ids=padded,
            attention_mask=(padded != PAD).long(),
            num_beams=_BEAM,
            do_sample=False,
            length_penalty=_ALPHA,
            early_stopping=settings.early_stopping,
            max_new_tokens=padded.size(1) + settings.extra_length,
        )
        return [_content(row[1:], EOS, PAD) for row in made.tolist()]

    def decode(rows: Sequence[list[int]]) -> tuple[list[str], int]:
        order = sorted(range(len(rows)), key=lambda index: -len(rows[index]))
        texts, tokens = [""] * len(rows), 0
        for start in range(0, len(rows), settings.batch_size):
            indices = order[start : start + settings.batch_size]
            for index, made in zip(indices, generate([rows[i] for i in indices]), strict=True):
                texts[index] = target.decode(made)
                tokens += len(made) + 1
        return texts, tokens

    @torch.inference_mode()
    def turn(number: int) -> Work:
        del number
        with torch.autocast("cpu", torch.bfloat16, enabled=settings.dtype == "bfloat16"):
            decode(ids[:_WARM_UP])
            watch = Stopwatch()
            texts, tokens = decode(ids)
        return _work(texts, tokens, watch.read(), settings.references)

    return turn


def _content(row: list[int], eos: int, pad: int) -> list[int]:
    """Returns the ids before the end symbol."""
    row = row[: row.index(eos)] if eos in row else row
    return [token for token in row if token != pad]


def _work(
    texts: list[str], tokens: int, taken: tuple[float, float], references: Sequence[str]
) -> Work:
    import sacrebleu

    bleu = sacrebleu.corpus_bleu(texts, [list(references)]).score
    return Work(len(texts), *taken, {"tokens": tokens, "BLEU": bleu})


def _train(arguments: argparse.Namespace) -> None:
    """Trains the weights, if they are not there."""
    from t2t_torch.bin import trainer

    schedule = {"learning_rate_constant": 0.001, "learning_rate_warmup_steps": 300}
    changes = ",".join(f"{name}={value}" for name, value in (ARCHITECTURE | schedule).items())
    code = trainer.main(
        [
            f"--problem={PROBLEM}",
            "--model=transformer",
            "--hparams_set=transformer_multi30k",
            f"--hparams={changes}",
            f"--data_dir={arguments.data_dir}",
            f"--output_dir={arguments.run_dir}",
            f"--train_steps={arguments.train_steps}",
            f"--random_seed={arguments.seed}",
            "--schedule=train",
        ]
    )
    if code:
        raise SystemExit(code)


def _sides(arguments: argparse.Namespace, settings: dict[str, Any]) -> list[Side]:
    sides = []
    for size in arguments.ours:
        for dtype in ("bfloat16", "float32"):
            these = Settings(batch_size=size, dtype=dtype, kept=True, **settings)
            sides.append(Side(f"t2t_torch {dtype}, {size} tokens", ours, these))
    for size in arguments.theirs:
        for stops in (True, False) if arguments.both_stops else (True,):
            for dtype in ("float32", "bfloat16"):
                how = {"early_stopping": stops, "dtype": dtype, "kept": arguments.kept}
                these = Settings(batch_size=size, **how, **settings)
                late = "" if stops else ", late stop"
                sides.append(Side(f"transformers {dtype}, {size} sentences{late}", theirs, these))
    return sides


def main() -> None:
    """Prints the table."""
    parser = argument_parser(__doc__ or "")
    parser.add_argument("--run_dir", type=Path, help="[DATA_DIR/decoding_run]")
    parser.add_argument("--train_steps", type=int, default=700)
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--ours", type=int, nargs="+", default=[2048], help="batch_tokens")
    parser.add_argument("--theirs", type=int, nargs="+", default=[8, 16, 32, 64], help="sentences")
    parser.add_argument("--both_stops", action="store_true", help="also early_stopping=False")
    parser.add_argument("--kept", action="store_true", help="transformers with our allocator")
    parser.add_argument("--extra_length", type=int, default=100, help="outputs beyond inputs")
    arguments = parser.parse_args()
    arguments.run_dir = arguments.run_dir or arguments.data_dir / "decoding_run"
    make_data(arguments.data_dir, arguments.tmp_dir)
    if not arguments.run_dir.exists():
        _train(arguments)
    print_header(arguments.seed)
    problem = registry.problem(PROBLEM)
    samples = list(problem.generate_samples(arguments.tmp_dir, Split.TEST))[: arguments.sentences]
    settings = {
        "run_dir": arguments.run_dir,
        "extra_length": arguments.extra_length,
        "inputs": tuple(sample["inputs"] for sample in samples),
        "references": tuple(sample["targets"] for sample in samples),
    }
    sides = _sides(arguments, settings)
    print_comparison(alternate(sides, arguments.rounds), sides[0].name, "sentences")


if __name__ == "__main__":
    main()
