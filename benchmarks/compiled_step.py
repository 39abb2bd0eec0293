"""Beam-4 decoding with a compiled step and with the plain one, by turns in one process.

The weights are random and so are the inputs, of 7 to 26 tokens: every output is forced to about 16
tokens, so both do the same work.  The first decode with the compiled step, which waits for the
compiler, is told apart.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from pairing import Stopwatch
from report import print_header, print_table, spread

_VOCAB_SIZE = 8192
_SIZES = {"hidden_size": 256, "filter_size": 1024, "num_heads": 4, "num_hidden_layers": 3}
_BEAM = 4
_LENGTH = 16
_WARM_UP = 40  # sentences
_ANYWHERE = ("cpu", "cuda")


def predictor(seed: int, device: str) -> Any:
    """Returns a transformer of the benchmarks' size that has learnt nothing."""
    import torch

    from t2t_torch import registry
    from t2t_torch.decode.predictor import Predictor
    from t2t_torch.features import Features, Text
    from t2t_torch.text.encoder import NUM_RESERVED, IntegerEncoder

    text = Text(IntegerEncoder(_VOCAB_SIZE - NUM_RESERVED))
    features = Features(inputs={"inputs": text}, targets={"targets": text})
    hparams = registry.hparams("transformer_base").replace(**_SIZES)
    torch.manual_seed(seed)
    model = registry.model("transformer")(hparams, features).to(device)
    return Predictor(model, registry.problem("tiny_algo"), features)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--device", choices=_ANYWHERE, default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    import torch

    from t2t_torch.decode.hparam import DecodeHParams
    from t2t_torch.train.memory import keep_freed_memory

    keep_freed_memory()
    torch.set_num_threads(arguments.threads)
    print_header(arguments.seed)
    model = predictor(arguments.seed, arguments.device)
    inputs = _inputs(arguments)
    plain = DecodeHParams(
        beam_size=_BEAM,
        extra_length=_LENGTH,
        force_decode_length=True,
        min_length=_LENGTH,
        activation_dtype=arguments.dtype,
    )
    ways = {"plain": plain, "compiled": plain.replace(compile=True)}
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    found: dict[str, dict[int, Any]] = {}
    for name, how in ways.items():
        watch = Stopwatch()
        dict(model.predict_ids(inputs[:_WARM_UP], how))
        wall, cpu = watch.read()
        print(f"first {_WARM_UP} sentences, {name}: {wall:.1f} s, {cpu:.1f} of the processor")
    for _ in range(arguments.rounds):
        for name, how in ways.items():
            watch = Stopwatch()
            found[name] = dict(model.predict_ids(inputs, how))
            taken[name].append(watch.read())
    _print_table(arguments.sentences, taken)
    pairs = [
        (found["plain"][i].hypotheses[0], found["compiled"][i].hypotheses[0])
        for i in found["plain"]
    ]
    same = sum(a.ids == b.ids for a, b in pairs)
    apart = max(abs(a.score - b.score) for a, b in pairs)
    print(f"{same} of {len(pairs)} texts are equal, scores within {apart:.1e}")


def _inputs(arguments: argparse.Namespace) -> list[list[int]]:
    """Returns ids of 7 to 26 tokens, the end among them."""
    import torch

    generator = torch.Generator().manual_seed(arguments.seed)
    lengths = torch.randint(6, 26, (arguments.sentences,), generator=generator).tolist()
    return [
        [*torch.randint(2, _VOCAB_SIZE, (length,), generator=generator).tolist(), 1]
        for length in lengths
    ]


def _print_table(sentences: int, taken: dict[str, list[tuple[float, float]]]) -> None:
    """Prints the speed of each way, given seconds and processor seconds of its turns."""
    rows = []
    for name, times in taken.items():
        ratios = [
            [ours[i] / its[i] for ours, its in zip(taken["plain"], times, strict=True)]
            for i in (0, 1)
        ]
        cpu = statistics.median(cpu for _, cpu in times)
        speeds = [sentences / wall for wall, _ in times]
        both = [" / ".join(map(str, spread(each))) for each in ratios]
        rows.append([name, *spread(speeds, 1), f"{sentences / cpu:.1f}", *both])
    faster = "times plain, median / min / max"
    print_table(
        ["step", "sentences/s, median", "min", "max", "sentences/CPU s", faster, "by CPU s"], rows
    )


if __name__ == "__main__":
    main()
