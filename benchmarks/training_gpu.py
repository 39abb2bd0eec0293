"""Training on a GPU beside Hugging Face transformers: tokens/s and model FLOP utilization (MFU).

`transformer_base` and `transformer_big` with a joint vocabulary of 32,768, bfloat16, on the same
batches of random ids, all rows as long: no padding, so that the arithmetic is known.  The other
side is MarianMTModel of the same sizes in bfloat16, compiled too, with fused Adam.

MFU is the arithmetic of the model (not what recomputation adds) by the time and the peak of the
device.  A weight costs 6 operations for each token that passes it: those of the encoder for source
tokens, those of the decoder and the softmax for target tokens; the embedding is looked up and costs
none.  Attention costs 12 * H * length for each of its queries and layer.
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING, Any

from our_training import OurTraining
from pairing import Side, Stopwatch, Turn, Work, alternate, print_comparison, runnable
from report import print_header

from t2t_torch import registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch
    from torch import Tensor, nn

# Dense bfloat16, 1e12 operations a second, from NVIDIA's data sheets; the first name that fits.
_PEAKS = {"H200": 989.0, "H100 PCIe": 756.0, "H100": 989.0, "A100": 312.0}
_PEAKS |= {"L40S": 362.0, "L4": 121.0}
_POST_NORM = {
    "layer_preprocess_sequence": "none",
    "layer_postprocess_sequence": "dan",
    "use_target_space_embedding": False,
    "norm_epsilon": 1e-5,
    "shared_embedding_and_softmax_weights": True,
}
_WARM_UP = 3


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a side is told: see the flags."""

    hparams_set: str
    device: str
    vocab_size: int
    tokens: int
    length: int
    steps: int
    seed: int
    compile: bool
    peak: float


def _hparams(settings: Settings) -> Any:
    return registry.hparams(settings.hparams_set).replace(
        **_POST_NORM,
        activation_dtype="bfloat16",
        batch_size=settings.tokens,
        pad_batch=True,
        compile=settings.compile,
    )


def _batches(settings: Settings) -> list[dict[str, Tensor]]:
    import torch

    generator = torch.Generator().manual_seed(settings.seed)
    shape = (settings.tokens // settings.length, settings.length)
    return [
        {
            name: torch.randint(2, settings.vocab_size, shape, generator=generator)
            for name in ("inputs", "targets")
        }
        for _ in range(settings.steps)
    ]


class _Source:
    """The batches, as a task gives them."""

    def __init__(self, batches: list[dict[str, Tensor]]) -> None:
        self._batches = batches

    def one_of_each_shape(self) -> Iterator[dict[str, Tensor]]:
        """Yields the one shape."""
        return iter(self._batches[:1])

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        """Yields them once."""
        return iter(self._batches)


def _task(settings: Settings) -> Any:
    """Returns a task of random ids; all but the data is what `t2t-trainer` trains."""
    from t2t_torch.features import Features, Text
    from t2t_torch.text.encoder import IntegerEncoder
    from t2t_torch.train.problem_task import ProblemTask
    from t2t_torch.train.task import BatchAdapter

    class RandomIds(ProblemTask):
        def __init__(self) -> None:
            text = Text(IntegerEncoder(settings.vocab_size - 2))
            self.hparams = _hparams(settings)
            self.features = Features({"inputs": text}, {"targets": text})
            self.batches = BatchAdapter({"inputs": 0, "targets": 0})

        def model(self) -> nn.Module:
            model: nn.Module = registry.model("transformer")(self.hparams, self.features)
            return model

        def objective(self, model: nn.Module) -> nn.Module:
            return model

        def train_batches(self, **position: int) -> Any:
            return _Source(_batches(settings))

    return RandomIds()


def operations(model: nn.Module, hparams: Any, tokens: int, length: int, vocab_size: int) -> float:
    """Returns the operations of a step, backward too, on as many source as target tokens."""
    layers = [
        p.numel()
        for name, p in model.named_parameters()
        if name.startswith(("encoder.", "decoder."))
    ]
    weights = sum(layers) + vocab_size * hparams.hidden_size
    encoder = hparams.num_encoder_layers or hparams.num_hidden_layers
    decoder = hparams.num_decoder_layers or hparams.num_hidden_layers
    attentions = encoder + 2 * decoder
    return tokens * (6.0 * weights + 12.0 * hparams.hidden_size * length * attentions)


def _turn(
    settings: Settings, step: Callable[[int], Tensor], arithmetic: float, device: torch.device
) -> Turn:
    import torch

    def finish() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def turn(number: int) -> Work:
        del number
        for index in range(min(_WARM_UP, settings.steps)):
            step(index)
        finish()
        watch = Stopwatch()
        for index in range(settings.steps):
            loss = step(index)
        finish()
        taken = watch.read()
        notes = {
            "ms/step": 1e3 * taken[0] / settings.steps,
            "MFU, %": 100 * arithmetic * settings.steps / taken[0] / (settings.peak * 1e12),
            "last loss": float(loss),
        }
        if device.type == "cuda":
            notes["peak MiB"] = torch.cuda.max_memory_allocated(device) / 2**20
        return Work(settings.steps * settings.tokens, *taken, notes)

    return turn


def ours(settings: Settings) -> Turn:
    """Prepares our side."""
    import torch

    device = torch.device(settings.device)
    training = OurTraining(_task(settings), settings.steps, settings.seed, device)
    hparams = training.run.model.hparams
    sizes = (settings.tokens, settings.length, settings.vocab_size)
    arithmetic = operations(training.run.model, hparams, *sizes)
    return _turn(settings, lambda i: training.step(training.batches[i]), arithmetic, device)


def theirs(settings: Settings) -> Turn:
    """Prepares the side of transformers; the arithmetic counted is that of our model."""
    import torch
    from marian import marian
    from torch.nn import functional as F

    device = torch.device(settings.device)
    task, chosen = _task(settings), _hparams(settings)
    sizes = (settings.tokens, settings.length, settings.vocab_size)
    arithmetic = operations(task.model(), chosen, *sizes)
    torch.manual_seed(settings.seed)
    model = marian(chosen, settings.vocab_size).to(device).train()
    network = torch.compile(model, dynamic=False) if settings.compile else model
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    batches = [
        {name: ids.to(device) for name, ids in batch.items()} for batch in _batches(settings)
    ]

    def step(index: int) -> Tensor:
        inputs, targets = batches[index]["inputs"], batches[index]["targets"]
        with torch.autocast(device.type, torch.bfloat16):
            logits = network(
                input_ids=inputs,
                attention_mask=torch.ones_like(inputs),
                decoder_input_ids=F.pad(targets, (1, -1)),
                use_cache=False,
            ).logits
            loss = F.cross_entropy(
                logits.flatten(0, 1), targets.flatten(), ignore_index=0, label_smoothing=0.1
            )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return _turn(settings, step, arithmetic, device)


def main() -> None:
    """Prints a table for each set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--device", default="cuda", help="cpu only shows that it runs")
    sets = ["transformer_base", "transformer_big"]
    parser.add_argument("--hparams_set", nargs="+", default=sets)
    parser.add_argument("--vocab_size", type=int, default=32_768)
    parser.add_argument("--tokens", type=int, default=25_600, help="of a batch, on each side")
    parser.add_argument("--length", type=int, default=64, help="of each row")
    parser.add_argument("--steps", type=int, default=20, help="in a turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--peak", type=float, default=0.0, help="1e12/s; 0: by the GPU's name")
    parser.add_argument("--ours_only", action="store_true", help="without transformers")
    flags = vars(parser.parse_args())
    print_header(flags["seed"])
    rounds, sets, alone = flags.pop("rounds"), flags.pop("hparams_set"), flags.pop("ours_only")
    flags["peak"] = flags["peak"] or _peak(flags["device"])
    for name in sets:
        settings = Settings(hparams_set=name, **flags)
        sides = [Side(f"t2t_torch {name}", ours, settings)]
        if not alone:
            sides.append(Side(f"transformers {name}", theirs, settings, "transformers"))
        print_comparison(
            alternate(runnable(sides, flags["device"]), rounds), sides[0].name, "target tokens"
        )


def _peak(device: str) -> float:
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        print("left out: there is no GPU here; --device=cpu --peak=1 only shows that it runs")
        raise SystemExit(0)
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    for known, peak in _PEAKS.items():
        if known in name:
            return peak
    raise SystemExit(f"the peak of {name} is not known here: give --peak=... (1e12 operations/s)")


if __name__ == "__main__":
    main()
