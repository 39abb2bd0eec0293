"""Beam-4 decoding beside CTranslate2 and transformers: the same weights, the Multi30k test inputs.

Speed is sentences in a second, from ids to texts.  Ours is what `t2t-decoder` runs: bfloat16, where
the machine is much faster in it, and float32 beside it, in a process set up as the command sets it
up.
CTranslate2 has what `t2t-exporter --format=ctranslate2` writes, in float32 and int8, and sorts and
batches inputs itself.  transformers is `MarianMTModel.generate` on inputs sorted by length, in
batches of several sizes.

With --device=cuda ours and transformers decode on the GPU, transformers with weights in the type
named; CTranslate2 stays on the CPU.  --compile adds ours with a compiled step, in float32.
A side of --theirs or --ctranslate2 without a number is left out.

The searches differ in their length penalty and in when they stop.  With --forced every output has
just so many tokens, none of them the end: then all do the same work.  Outputs as long as the model
likes (--forced=0) are what a user sees; the tokens that each makes and its BLEU say how equal the
work was then.

The weights are of a short training, made when they are not there.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from multi30k import ARCHITECTURE, PROBLEM, argument_parser, make_data
from pairing import Side, Stopwatch, Turn, Work, alternate, print_comparison, runnable
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
      batch_size: input tokens; of transformers sentences.
      extra_length: tokens that an output may be longer than its input (theirs: than the longest
        input of the batch; of CTranslate2: of all).
      forced: tokens that every output has, without an end; 0: as many as the search finds.
      early_stopping: transformers' setting.
      kept: whether the process keeps freed memory, as `t2t-decoder` does.
      dtype: of activations; of CTranslate2 of weights.
      device: of ours and of transformers.
      compile: whether our step is compiled.
    """

    run_dir: Path
    inputs: tuple[str, ...]
    references: tuple[str, ...]
    batch_size: int
    extra_length: int
    forced: int = 0
    early_stopping: bool = True
    kept: bool = False
    dtype: str = "float32"
    device: str = "cpu"
    compile: bool = False


_BEAM = 4
_ALPHA = 0.6
_WARM_UP = 32  # sentences


def ours(settings: Settings) -> Turn:
    """Prepares our side."""
    import t2t_torch
    from t2t_torch.decode.hparam import DecodeHParams
    from t2t_torch.train.memory import keep_freed_memory

    if settings.kept:
        keep_freed_memory()
    predictor = t2t_torch.load(settings.run_dir, device=settings.device)
    how = DecodeHParams(
        beam_size=_BEAM,
        alpha=_ALPHA,
        batch_tokens=settings.batch_size,
        extra_length=settings.forced or settings.extra_length,
        force_decode_length=bool(settings.forced),
        min_length=settings.forced,
        activation_dtype=settings.dtype,
        compile=settings.compile,
    )
    ids = predictor.encode(settings.inputs, how)

    def turn(number: int) -> Work:
        del number
        list(predictor.predict_ids(ids if settings.compile else ids[:_WARM_UP], how))
        watch = Stopwatch()
        found = dict(predictor.predict_ids(ids, how))
        taken = watch.read()
        best = [found[index].hypotheses[0] for index in range(len(ids))]
        tokens = sum(len(one.ids) + (not settings.forced) for one in best)
        return _work([one.text for one in best], tokens, taken, settings.references)

    return turn


def ctranslate2(settings: Settings) -> Turn:
    """Prepares the side of CTranslate2."""
    import ctranslate2 as engine

    import t2t_torch
    from t2t_torch.decode.loading import load_run
    from t2t_torch.interop.ctranslate2 import convert, tokens_of

    loaded = load_run(settings.run_dir)
    source, target = loaded.features.inputs["inputs"], loaded.features.targets["targets"]
    read, written = tokens_of(source, target)
    number_of = {token: number for number, token in enumerate(written)}
    ids = t2t_torch.load(settings.run_dir, device="cpu").encode(settings.inputs)
    inputs = [[read[i] for i in row[:-1]] for row in ids]
    with tempfile.TemporaryDirectory() as folder:
        convert(loaded, Path(folder), None if settings.dtype == "float32" else settings.dtype)
        # Torch takes as many threads by itself.
        threads = len(os.sched_getaffinity(0))
        translator = engine.Translator(folder, intra_threads=threads)
    longest = max(map(len, ids)) + settings.extra_length

    def decode(rows: Sequence[list[str]]) -> tuple[list[str], int]:
        found = translator.translate_batch(
            rows,
            beam_size=_BEAM,
            length_penalty=_ALPHA,
            max_batch_size=settings.batch_size,
            batch_type="tokens",
            min_decoding_length=settings.forced or 1,
            max_decoding_length=settings.forced or longest,
        )
        made = [[number_of[token] for token in each.hypotheses[0]] for each in found]
        return [target.decode(row) for row in made], sum(map(len, made))

    def turn(number: int) -> Work:
        del number
        decode(inputs[:_WARM_UP])
        watch = Stopwatch()
        texts, tokens = decode(inputs)
        taken = watch.read()
        ends = 0 if settings.forced else len(texts)
        return _work(texts, tokens + ends, taken, settings.references)

    return turn


def theirs(settings: Settings) -> Turn:
    """Prepares the side of transformers."""
    import torch
    from marian import check_same_function, marian, take_weights

    import t2t_torch
    from t2t_torch.text.encoder import EOS, PAD
    from t2t_torch.train.memory import keep_freed_memory

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
    on_gpu = settings.device != "cpu"
    model.to(settings.device, getattr(torch, settings.dtype) if on_gpu else None)

    def generate(rows: Sequence[list[int]]) -> list[list[int]]:
        padded = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], True, PAD)
        padded = padded.to(settings.device)
        made = model.generate(
            input_ids=padded,
            attention_mask=(padded != PAD).long(),
            num_beams=_BEAM,
            do_sample=False,
            length_penalty=_ALPHA,
            early_stopping=settings.early_stopping,
            min_new_tokens=settings.forced or None,
            max_new_tokens=settings.forced or padded.size(1) + settings.extra_length,
        )
        return [_content(row[1:], EOS, PAD) for row in made.tolist()]

    def decode(rows: Sequence[list[int]]) -> tuple[list[str], int]:
        order = sorted(range(len(rows)), key=lambda index: -len(rows[index]))
        texts, tokens = [""] * len(rows), 0
        for start in range(0, len(rows), settings.batch_size):
            indices = order[start : start + settings.batch_size]
            for index, made in zip(indices, generate([rows[i] for i in indices]), strict=True):
                texts[index] = target.decode(made)
                tokens += len(made) + (not settings.forced)
        return texts, tokens

    @torch.inference_mode()
    def turn(number: int) -> Work:
        del number
        mixed = settings.dtype == "bfloat16" and not on_gpu
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
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
    from t2t_torch.bin.commands import trainer

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
            f"--hp_batch_size={arguments.train_batch}",
            f"--hp_learning_rate_warmup_steps={min(300, arguments.train_steps // 2)}",
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
            for compiled in (False, True) if arguments.compile and dtype == "float32" else (False,):
                how = {"kept": True, "dtype": dtype, "compile": compiled}
                these = Settings(batch_size=size, **how, **settings)
                name = f"t2t_torch {dtype}, {size} tokens{', compiled' if compiled else ''}"
                sides.append(Side(name, ours, these, dtype=dtype))
    for size in arguments.ctranslate2:
        for dtype in ("float32", "int8"):
            these = Settings(batch_size=size, dtype=dtype, **settings)
            name = f"CTranslate2 {dtype}, {size} tokens"
            sides.append(Side(name, ctranslate2, these, "ctranslate2"))
    for size in arguments.theirs:
        for stops in (True, False) if arguments.both_stops else (True,):
            for dtype in ("float32", "bfloat16"):
                how = {"early_stopping": stops, "dtype": dtype, "kept": arguments.kept}
                these = Settings(batch_size=size, **how, **settings)
                late = "" if stops else ", late stop"
                name = f"transformers {dtype}, {size} sentences{late}"
                sides.append(Side(name, theirs, these, "transformers", dtype))
    return runnable(sides, arguments.device)


def main() -> None:
    """Prints the table."""
    parser = argument_parser(__doc__ or "")
    parser.add_argument("--run_dir", type=Path, help="[DATA_DIR/decoding_run]")
    parser.add_argument("--train_steps", type=int, default=700)
    parser.add_argument("--train_batch", type=int, default=4096, help="tokens of its batches")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--ours", type=int, nargs="+", default=[2048], help="batch_tokens")
    parser.add_argument("--theirs", type=int, nargs="*", default=[8, 16, 32, 64], help="sentences")
    parser.add_argument(
        "--ctranslate2", type=int, nargs="*", default=[512, 2048], help="tokens of its batches"
    )
    parser.add_argument(
        "--forced", type=int, nargs="+", default=[16, 0], help="tokens of every output; 0: free"
    )
    parser.add_argument("--both_stops", action="store_true", help="also early_stopping=False")
    parser.add_argument("--kept", action="store_true", help="transformers with our allocator")
    parser.add_argument("--device", default="cpu", help="of ours and of transformers")
    parser.add_argument(
        "--compile", action="store_true", help="ours with a compiled step in float32, too"
    )
    parser.add_argument("--extra_length", type=int, default=100, help="outputs beyond inputs")
    arguments = parser.parse_args()
    arguments.run_dir = arguments.run_dir or arguments.data_dir / "decoding_run"
    make_data(arguments.data_dir, arguments.tmp_dir)
    if not any(arguments.run_dir.glob("ckpt-*")):
        _train(arguments)
    print_header(arguments.seed)
    problem = registry.problem(PROBLEM)
    samples = list(problem.generate_samples(arguments.tmp_dir, Split.TEST))[: arguments.sentences]
    settings = {
        "run_dir": arguments.run_dir,
        "extra_length": arguments.extra_length,
        "device": arguments.device,
        "inputs": tuple(sample["inputs"] for sample in samples),
        "references": tuple(sample["targets"] for sample in samples),
    }
    for forced in arguments.forced:
        print(f"outputs of {forced} tokens" if forced else "outputs as long as the search finds")
        sides = _sides(arguments, {**settings, "forced": forced})
        print_comparison(alternate(sides, arguments.rounds), sides[0].name, "sentences")


if __name__ == "__main__":
    main()
