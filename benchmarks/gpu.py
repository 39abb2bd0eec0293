"""Ten minutes on one GPU: what works there, and how fast; a table, and JSON after each part.

    python benchmarks/gpu.py --output_json=gpu.json
    python benchmarks/gpu.py --device=cpu --quick      # the same code without a GPU

Parts: all models beside the CPU (models_gpu.py); a training that is resumed, bit-equal to one that
is not, and FSDP2 of one process beside the plain network; transformer_base and transformer_big in
bfloat16 with their MFU (training_gpu.py); decoding beside transformers and CTranslate2 where they
are installed, and with a compiled step (decoding.py, which needs the raw files of Multi30k in
--tmp_dir).  Each part is a process with a limit of time, ten minutes in all; a part that fails or
takes too long is reported, and the others run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from report import machine, print_header, print_table

HERE = Path(__file__).parent
OWN = ("resume", "fsdp2")
PROBLEM = "algorithmic_reverse_binary40"
_TRAINING = ("--vocab_size=128", "--tokens=64", "--length=16", "--steps=1", "--rounds=1")
_DECODING = ("--rounds=1", "--train_steps=100", "--sentences=300", "--forced", "16")
_QUICK = (
    *("--rounds=1", "--train_steps=2", "--train_batch=256", "--sentences=20", "--forced", "4"),
    f"--run_dir={Path(tempfile.gettempdir(), 't2t_quick_decoding')}",
)


def parts_of(flags: argparse.Namespace) -> dict[str, tuple[int, list[str]]]:
    """Returns seconds and command of each part."""
    device, places = f"--device={flags.device}", f"--tmp_dir={flags.tmp_dir}"
    is_gpu, is_quick = flags.device == "cuda", flags.quick
    few = ["--models", "transformer", "transformer_encoder", "bilstm_tagger"] if is_quick else []
    alone = [] if is_gpu else ["--no-compile", "--peak=1", "--ours_only"]
    training = [device, *alone, *(_TRAINING if is_quick else ("--rounds=3",))]
    base, big = ("tiny", "tiny") if is_quick else ("base", "big")
    decoding = [device, places, *(_QUICK if is_quick else _DECODING)]
    beside = ["--theirs", "64", "--ctranslate2", "2048"]
    compiled = ["--compile", "--theirs", "--ctranslate2", "--sentences=100"]
    commands = {
        "models": (80, ["models_gpu.py", device, *few]),
        "resume": (45, ["gpu.py", device, "--part=resume"]),
        "fsdp2": (35, ["gpu.py", device, "--part=fsdp2"]),
        "base": (115, ["training_gpu.py", f"--hparams_set=transformer_{base}", *training]),
        "big": (115, ["training_gpu.py", f"--hparams_set=transformer_{big}", *training]),
        "decoding": (130, ["decoding.py", *decoding, *beside]),
    }
    if is_gpu:  # a processor compiles for minutes
        commands["compiled"] = 80, ["decoding.py", *decoding, *compiled]
    return {name: part for name, part in commands.items() if name in flags.parts}


def run(command: Sequence[str], seconds: int) -> dict[str, Any]:
    """Runs a part; returns its state, its seconds, its tables and the end of what it said."""
    started, words = time.monotonic(), [sys.executable, str(HERE / command[0]), *command[1:]]
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "4")}
    with tempfile.TemporaryFile("w+") as said:
        try:
            code = subprocess.run(
                words, stdout=said, stderr=said, timeout=seconds, env=environment, check=False
            ).returncode
            state = "done" if code == 0 else f"failed with {code}"
        except subprocess.TimeoutExpired:
            state = f"stopped after {seconds} s"
        said.seek(0)
        lines = said.read().splitlines()
    tables = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if line.startswith("|") and not line.startswith("|-")
    ]
    if state == "done" and not tables:  # the script says why in its last lines
        state = "left out"
    taken = round(time.monotonic() - started, 1)
    return {"state": state, "seconds": taken, "table": tables, "end": lines[-8:]}


def has_gpu() -> bool:
    """Returns whether torch sees a GPU."""
    import torch

    return torch.cuda.is_available()


def resume(device: str) -> list[list[str]]:
    """Trains 12 steps, and 6 and, from their checkpoint, 6; compares the weights."""
    import torch

    from t2t_torch import registry
    from t2t_torch.data.generate import generate_data
    from t2t_torch.distributed.process_group import World
    from t2t_torch.run.directory import RunDirectory, TaskRecord
    from t2t_torch.train.estimator import Estimator
    from t2t_torch.train.problem_task import ProblemTask
    from t2t_torch.train.run_config import RunConfig

    problem, model = registry.problem(PROBLEM), registry.model("transformer")
    hparams = registry.hparams("transformer_tiny").parse("batch_size=1024")
    hparams = hparams.replace(activation_dtype="bfloat16" if device == "cuda" else "float32")
    weights: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        generate_data(problem, place, place, num_processes=1, max_cases=500, progress=False)
        for name, stops in {"whole": (12,), "resumed": (6, 12)}.items():
            for stop in stops:
                task = ProblemTask(problem, model, hparams, data_dir=place, vocab_dir=place)
                directory = RunDirectory(place / name)
                directory.begin(TaskRecord(problem=PROBLEM, model="transformer"), hparams)
                config = RunConfig(train_steps=12, local_eval_frequency=0)
                world = World(0, 1, torch.device(device))
                with Estimator(task, directory, config, world=world) as estimator:
                    estimator.begin()
                    began = estimator.state.step
                    estimator.train(stop)
                    state = estimator.model.state_dict().items()
                    weights.append({key: value.cpu().clone() for key, value in state})
    assert began == 6, f"the second start began after {began} steps"
    whole, _, resumed = weights
    other = [name for name in whole if not torch.equal(whole[name], resumed[name])]
    assert not other, f"a resumed run has other weights: {other}"
    return [["tensors that are bit-equal after a resume", f"{len(whole)} of {len(whole)}"]]


def fsdp2(device: str) -> list[list[str]]:
    """Compares a step of a sharded network of one process with that of the plain one.

    `network` shards for two processes and more; this is what it does then, torch's `fully_shard` of
    each layer, on NCCL.
    """
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    from t2t_torch import registry, testing
    from t2t_torch.distributed.network import layers_of
    from t2t_torch.pipeline.collate import random_batch

    backend = "nccl" if device == "cuda" else "gloo"
    with tempfile.TemporaryDirectory() as folder:
        store = dist.FileStore(str(Path(folder, "store")), 1)
        dist.init_process_group(backend, store=store, rank=0, world_size=1)
        model_class = registry.model("transformer")
        features = testing.text_features()
        batch = {name: value.to(device) for name, value in random_batch(features).items()}
        gradients, seconds = [], []
        for is_sharded in (False, True):
            torch.manual_seed(0)
            hparams = testing.small(model_class.HParams())
            model = model_class(hparams, features).eval().to(device)
            if is_sharded:
                mesh = init_device_mesh(device, (1,))
                for layer in [*layers_of(model), model]:
                    fully_shard(layer, mesh=mesh)
            for _ in range(2):
                model.zero_grad()
                started = time.perf_counter()
                torch.stack([one.sum for one in model(batch).losses.values()]).sum().backward()
                if device == "cuda":
                    torch.cuda.synchronize()
                seconds.append(time.perf_counter() - started)
            named = [(name, one.grad) for name, one in model.named_parameters()]
            full = {name: getattr(g, "full_tensor", lambda g=g: g)() for name, g in named}
            gradients.append(full)
        plain, sharded = gradients
        for name in plain:
            torch.testing.assert_close(sharded[name], plain[name], rtol=1e-5, atol=1e-6)
        dist.destroy_process_group()
    return [
        ["gradients that are equal with FSDP2", f"{len(plain)} of {len(plain)}"],
        ["a pass without and with it, ms", f"{1e3 * seconds[1]:.1f}, {1e3 * seconds[3]:.1f}"],
    ]


def main() -> int:
    """Runs the parts; returns 1 if one failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda", help="cpu only shows that it runs")
    parser.add_argument("--quick", action="store_true", help="small sizes: it runs")
    names = ["models", "resume", "fsdp2", "base", "big", "decoding", "compiled"]
    parser.add_argument("--parts", nargs="+", default=names, choices=names)
    parser.add_argument("--part", choices=OWN, help="runs one part in this process")
    parser.add_argument("--output_json", type=Path, help="where the results are written")
    default = Path(tempfile.gettempdir(), "t2t_datagen")
    parser.add_argument("--tmp_dir", type=Path, default=default, help="where raw files are")
    flags = parser.parse_args()
    if flags.part:
        print_table(["what", "found"], {"resume": resume, "fsdp2": fsdp2}[flags.part](flags.device))
        return 0
    print_header(0)
    if flags.device == "cuda" and not has_gpu():
        print("left out: there is no GPU here; --device=cpu --quick only shows that it runs")
        return 0
    results: dict[str, Any] = {"machine": machine(), "device": flags.device, "parts": {}}
    rows = []
    for name, (seconds, command) in parts_of(flags).items():
        found = results["parts"][name] = run(command, seconds)
        if flags.output_json:
            flags.output_json.write_text(json.dumps(results, indent=2) + "\n")
        rows.append([name, found["state"], f"{found['seconds']}"])
        print(f"{name}: {found['state']}, {found['seconds']} s", flush=True)
        for line in found["table"]:
            print(f"  {' | '.join(line)}")
        if found["state"] not in ("done", "left out"):
            print("  " + "\n  ".join(found["end"]), flush=True)
    print()
    print_table(["part", "state", "seconds"], rows)
    return int(any(state.startswith(("failed", "stopped")) for _, state, _ in rows))


if __name__ == "__main__":
    sys.exit(main())
