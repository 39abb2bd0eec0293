"""What the commands print and write: the section `commands` of `recording.py`.

The commands run in a temporary folder that their arguments are relative to: `--help` and
`--config_schema` of each, then the lines of `RUNS`, which need each other in this order, `SERVED`
and `REFUSED`.  Of each the exit code and what it prints are recorded, of `RUNS` also files.  What
differs from one time to another is replaced: see `PLACEHOLDERS` and `shortened`.

A change that is meant is recorded again, and `git diff` shows it.  Losses and predictions after
some steps depend on the processor's instructions: compare on the machine of the recording.
"""

from __future__ import annotations

import contextlib
import csv
import difflib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import t2t_torch

COMMANDS = (
    "avg_all bleu build_vocab compare data datagen decoder eval exporter import_run latency "
    "predict query_server quick replay server trainer translate_all tuner"
).split()
NAMES = {"import_run": "import"}
"""Command of the recording -> its name without `t2t-`."""

ROOT = Path(t2t_torch.__file__).resolve().parent.parent
OLD_RUNS = Path(__file__).parent / "t2t_runs"
MOST_LINES = 60
"""Of the difference of an item, so many are printed."""


# The files that the lines below name, besides those of `recording.write_problems` in raw/.


SHARED = {
    "problem": {
        "problem": "trips",
        "kind": "text2class",
        "vocab_type": "word",
        "files": {"train": "raw/before_class.train.jsonl", "eval": "raw/before_class.dev.jsonl"},
    },
    "model": "bilstm_attention_classifier",
    "hparams_set": "bilstm_attention_classifier_tiny",
    "hparams": {"learning_rate_warmup_steps": 4, "layer_prepostprocess_dropout": 0.1},
    "data_dir": "data",
    "datagen": {"num_concurrent_processes": 1, "max_cases": 280},
    "trainer": {
        "train_steps": 20,
        "local_eval_frequency": 10,
        "log_step_count_steps": 10,
        "random_seed": 7,
        "worker_gpu": 0,
        "eval_metrics": ["f1_macro"],
        "keep_checkpoint_max": 5,
    },
    "exporter": {"export_dir": "artifact"},
    "eval": {"worker_gpu": 0},
}
"""One file for all commands, with a declaration, an object of hparams, and flags by command."""

NEW = {
    "problem": "trips",
    "model": "bilstm_attention_classifier",
    "hparams_set": "bilstm_attention_classifier_tiny",
    "data_dir": "data",
    "output_dir": "new",
}
"""What a run needs at least."""

TRIAL = """
import torch
from t2t_torch import PyTorchTrial
from torch.utils.data import DataLoader, TensorDataset


def make_data_loaders(experiment_config, hparams):
    inputs = torch.arange(32.0).reshape(16, 2) / 32
    rows = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    return DataLoader(rows, batch_size=hparams["batch_size"]), DataLoader(rows, batch_size=8)


class Line(PyTorchTrial):
    def build_model(self, hparams):
        return torch.nn.Linear(2, 1)

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=0.1)

    def losses(self, predictions, labels):
        return ((predictions - labels) ** 2).mean()

    def validation_metrics(self, predictions, labels, losses):
        return {"error": losses}
"""

EXPERIMENT = """
description: a line
hyperparameters: {batch_size: 4, slope: {type: double, minval: 0, maxval: 1}}
searcher: {name: single, metric: error, max_length: {batches: 8}}
min_validation_period: {batches: 4}
"""

FILES = {
    "shared.json": json.dumps(SHARED, indent=1),
    "ranges.yaml": "learning_rate_constant: {type: log, minval: -3, maxval: -1, base: 10}\n",
    "line.py": TRIAL,
    "line.yaml": EXPERIMENT.replace("{type: double, minval: 0, maxval: 1}", "0.5"),
    "searched.yaml": EXPERIMENT,
    "in.txt": "book a flight from Paris to Oslo friday\nhow much is it from Denver to Oslo today\n",
    "one.txt": "YADOT OLSO OT REVNED MORF TI SI HCUM WOH\n",
    "pairs.tsv": "book a flight\tTHGILF A KOOB\nhow much\tHCUM WOH\n",
    "new.json": json.dumps(NEW),
    # Wrong ones, for --config.
    "wrong/unknown.json": '{"train_step": 10, "nonsense": 1, "verbosity": 0}',
    "wrong/hyperparameter.json": '{"hidden_size": 64}',
    "wrong/type.json": (
        '{"train_steps": "ten", "eval_use_test_set": 1, "eval_metrics": "f1_macro", '
        '"problem": 3, "hparams": [1], "t2t_usr_dir": "raw", "download_timeout": "long"}'
    ),
    "wrong/bounds.json": '{"train_steps": -5}',
    "wrong/null.json": '{"train_steps": null, "model": null}',
    "wrong/broken.json": '{"train_steps": 10,\n "model": transformer}',
    "wrong/list.json": '[{"train_steps": 10}]',
    "wrong/twice.json": '{"train_steps": 10, "train_steps": 20}',
    "wrong/itself.json": '{"config": "shared.json", "config_schema": true}',
    "wrong/section.json": '{"trainer": {"train_step": 10}, "eval": {"nonsense": 1}}',
    "wrong/section_type.json": '{"trainer": 10}',
    "wrong/other_command.json": '{"export_dir": "artifact", "report": "report.html"}',
    "wrong/hparams.json": json.dumps(
        {**NEW, "hparams": {"hiden_size": 64, "num_hidden_layers": "two"}}
    ),
    "wrong/declaration.json": json.dumps(
        {**NEW, "problem": {"problem": "wrong", "kind": "text2clas"}}
    ),
}


# The command lines.


class Run(NamedTuple):
    """A command line that does something.

    Attributes:
      line: a name of `COMMANDS` and its arguments.
      folders: folders whose files are listed afterwards.
      files: files that are recorded.
      is_exact: True if what is printed does not depend on trained weights.
      typed: the standard input.
    """

    line: str
    folders: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    is_exact: bool = False
    typed: str = ""


_OF_RUN = ("config.json", "task.json", "hparams.json", "starts.jsonl")
_TRANSLATE = "--problem=before_translate --t2t_usr_dir=raw --data_dir=data"

RUNS = (
    Run("datagen --config=shared.json", ("data",), ("data/trips.json",), is_exact=True),
    Run("datagen --config=shared.json --verbosity=-1", is_exact=True),
    Run(f"datagen {_TRANSLATE} --tmp_dir=raw --num_concurrent_processes=1", is_exact=True),
    Run("datagen --problem=before_* --exclude_problems=*s --t2t_usr_dir=raw --only_list"),
    Run("datagen --declare=trips.csv", is_exact=True),
    Run("build_vocab --problem=before_translate --t2t_usr_dir=raw --tmp_dir=raw --data_dir=vocab"),
    Run(
        "data --problem=trips --data_dir=data --num_samples=1 --report=data.html --json=data.json "
        "--hparams_set=bilstm_attention_classifier_tiny --hparams=batch_size=1024",
        is_exact=True,
    ),
    Run("trainer --registry_help --problem=trips --data_dir=data", is_exact=True),
    Run("trainer --config=shared.json --output_dir=run --print_config", is_exact=True),
    Run("trainer --config=shared.json --help_hparams --hp_batch_size=64", is_exact=True),
    Run("trainer --config=shared.json --output_dir=run --dry_run", is_exact=True),
    Run(
        "trainer --config=shared.json --output_dir=run",
        ("run",),
        tuple(f"run/{name}" for name in _OF_RUN),
    ),
    Run("trainer --output_dir=run --train_steps=25 --print_config", is_exact=True),
    Run(
        "trainer --output_dir=run --data_dir=data --train_steps=30 --eval_steps=1 --worker_gpu=0 "
        "--hparams=layer_prepostprocess_dropout=0.2 --keep_checkpoint_max=2",
        ("run",),
        tuple(f"run/{name}" for name in _OF_RUN),
    ),
    Run(
        "eval --config=shared.json --output_dir=run --output=evaluation",
        ("evaluation",),
        ("evaluation/results.json",),
    ),
    Run("eval --output_dir run --checkpoint_path 20 --eval_steps 1 --noeval_use_test_set"),
    Run(
        "decoder --output_dir=run --decode_from_file=in.txt --decode_to_file=out.txt",
        files=("out.txt",),
    ),
    Run("decoder --output_dir=run --decode_interactive", typed="how much is it\n"),
    Run(
        "exporter --config=shared.json --output_dir=run --checkpoint=latest",
        ("artifact",),
        ("artifact/signature.json",),
    ),
    Run("latency --artifact=artifact --inputs=in.txt --passes=1 --warm_up=5 --json=latency.json"),
    Run(
        f"trainer {_TRANSLATE} --model=transformer --hparams_set=transformer_test "
        "--output_dir=translate --hp_learning_rate_warmup_steps=4 --hparams=hidden_size=8 "
        "--train_steps=20 --local_eval_frequency=10 --schedule=train_eval_and_decode "
        "--decode_hparams=beam_size=2,num_samples=4 --random_seed=7 --worker_gpu=0",
        ("translate",),
        ("translate/config.json", "translate/task.json", "translate/hparams.json"),
    ),
    Run("decoder --output_dir=translate --data_dir=data --decode_hparams=beam_size=2"),
    Run("decoder --output_dir=translate --score_file=pairs.tsv"),
    Run("decoder --help_decode_hparams", is_exact=True),
    Run("avg_all --model_dir=translate --output_dir=average --n=2", ("average",)),
    Run(
        "translate_all --model_dir=translate --source=in.txt --translations_dir=translations "
        "--beam_size=2 --decode_hparams=extra_length=5",
        ("translations",),
        ("translations/before_translate-decode.json",),
    ),
    Run("bleu --translations_dir=translations --reference=in.txt", ("translations",)),
    Run("bleu --translation=in.txt --reference=in.txt --scores=bleu,chrf", is_exact=True),
    Run("compare run translate --report=compare.html"),
    Run(
        "quick trips.csv --minutes=5 --output_dir=quick --random_seed=7",
        ("quick",),
        ("quick/problem/trips.json", "quick/run/config.json", "quick/run/task.json"),
    ),
    Run(
        "tuner --problem=trips --model=bilstm_attention_classifier --ranges=ranges.yaml "
        "--hparams_set=bilstm_attention_classifier_tiny --data_dir=data --output_dir=search "
        "--train_steps=10 --max_trials=2 --searcher=random --worker_gpu=0",
        ("search",),
        ("search/tuner.json", "search/trials/1/config.json", "search/trials/1/starts.jsonl"),
    ),
    Run("tuner --output_dir=search --report_only"),
    Run("trainer --trial=line.py --config=line.yaml --output_dir=line --test_mode", ("line",)),
    Run(
        "trainer --trial=line.py --config=line.yaml --output_dir=line --worker_gpu=0",
        ("line",),
        ("line/config.json", "line/task.json"),
    ),
    Run(
        "import_run --source=t2t_runs/pairs_transformer --data_dir=t2t_runs/data "
        "--output_dir=imported --verify=one.txt --expect=one.txt --allow_differences=1",
        ("imported",),
    ),
)

SERVER = "server --artifact=trips=artifact --port=0 --max_inputs=3"

SERVED = (
    Run("query_server --server={server} --inputs_once='how much is it'"),
    Run("query_server --server={server} --servable_name=trips", typed=FILES["in.txt"]),
    Run("query_server --server={server} --servable_name=other --inputs_once=hello"),
)
"""What is asked of this server."""

_SEARCHED = (
    "--problem=trips --data_dir=data --output_dir=new --train_steps=5 "
    "--model=bilstm_attention_classifier --hparams_set=bilstm_attention_classifier_tiny"
)

REFUSED = (
    "avg_all",
    "avg_all --model_dir=run --output_dir=run",
    "avg_all --model_dir=run --output_dir=new --best=1 --steps=10",
    "avg_all --model_dir=run --output_dir=new --steps=last",
    "avg_all --model_dir=run --output_dir=new --n=0",
    "bleu",
    "bleu --translation=in.txt --reference=one.txt",
    "bleu --translation=in.txt --translations_dir=translations --reference=in.txt",
    "bleu --translation=in.txt --reference=in.txt --min_steps=3 --tag_suffix=_a",
    "bleu --translation=in.txt --reference=in.txt --scores=blue",
    "bleu --translation=in.txt --reference=in.txt --source=in.txt --bleu_variant=lower",
    "build_vocab",
    "build_vocab --problem=before_clas --t2t_usr_dir=raw --data_dir=new",
    "build_vocab --problem=before_class --t2t_usr_dir=nowhere --data_dir=new",
    "compare run",
    "compare run run",
    "compare run translate --report=nowhere/compare.html",
    "compare run nowhere --registry_help",
    "data --problem=trips",
    "data --problem=trips --data_dir=data --hparams=batch_size=64",
    "data --problem=trips --data_dir=data --num_samples=-1",
    "datagen",
    "datagen --problem=before_clas --t2t_usr_dir=raw --data_dir=new",
    "datagen --problem=nothing_* --data_dir=new",
    "datagen --problem=trips --exclude_problems=trips --data_dir=data",
    "datagen --problem=trips --data_dir=data --num_tasks=2",
    "datagen --problem=trips --data_dir=data --num_tasks=2 --task_id=2",
    "datagen --problem=trips --data_dir=data --runner=ray --task_id=0",
    "datagen --problem=trips --data_dir=data --on_bad_record=ask",
    "datagen --problem=trips --data_dir=data --import_tfrecords=raw --max_cases=5",
    "datagen --declare_to=new.json",
    "datagen --declare=nowhere.csv",
    "datagen --problem=trips --data_dir=data --num_shards=10",
    "decoder",
    "decoder --output_dir=nowhere --decode_from_file=in.txt",
    "decoder --output_dir=translate",
    "decoder --output_dir=translate --decode_from_file=in.txt --score_file=in.txt",
    "decoder --output_dir=translate --decode_reference=in.txt",
    "decoder --output_dir=translate --decode_from_file=in.txt --beam_size=4",
    "decoder --output_dir=translate --decode_hparams=beam_size=0,nonsense=1",
    "decoder --output_dir=translate --decode_shards=0",
    "decoder --output_dir=translate --decode_shards=2 --decode_hparams=shards=3",
    "decoder --output_dir=translate --hparams=sampling_method=random --train_steps=5 --use_tpu",
    "decoder --output_dir=translate --decode_from_file=in.txt --problem=other",
    "decoder --output_dir=line --decode_hparams=beam_size=2 --data_dir=data",
    "eval",
    "eval --output_dir=nowhere",
    "eval --output_dir=run --train_steps=5 --notfdbg --worker_gpu=2",
    "eval --output_dir=run --model=transformer",
    "eval --output_dir=run --output_json=nowhere/eval.json",
    "eval --output_dir=run --output=evaluation --eval_steps=1",
    "eval --output_dir=line --data_dir=data --hparams=hidden_size=8",
    "exporter",
    "exporter --output_dir=run --export_dir=new --checkpoint=best --checkpoint_path=20",
    "exporter --output_dir=run --export_dir=new --verify_rows=many --overwrite=perhaps",
    "exporter --output_dir=run --export_dir=new --format=safetensors --data_dir=data",
    "exporter --output_dir=run --export_dir=new --format=torch --decode_hparams=beam_size=2",
    "exporter --output_dir=run --export_dir=new --format=pickle",
    "exporter --output_dir=run --export_dir=artifact",
    "import_run",
    "import_run --source=run --output_dir=new --verify=in.txt",
    "import_run --source=run --output_dir=new --kind=text2text",
    "import_run --source=nowhere --output_dir=new --allow_differences=1",
    "latency",
    "latency --artifact=artifact --data_dir=data",
    "latency --artifact=artifact --problem=trips --rows=10",
    "latency --artifact=nowhere --threads=0",
    "latency --artifact=nowhere",
    "query_server --timeout_secs=0",
    "query_server --server=127.0.0.1:9 --inputs_once=hello --t2t_usr_dir=raw",
    "quick",
    "quick nowhere.csv",
    "quick trips.csv --minutes=0",
    "quick in.txt --output_dir=quick",
    "server",
    "server --artifact=artifact --output_dir=run",
    "server --artifact=artifact --checkpoint_path=20",
    "server --artifact=artifact --artifact=vocab/../artifact",
    "server --artifact=artifact --port=70000",
    "server --artifact=nowhere",
    "trainer",
    "trainer run",
    "trainer --output_dir=run --nonsense=1",
    "trainer --output_dir=run --train_step=10",
    "trainer --output_dir=run --hidden_size=512 --beam_size=4",
    "trainer --output_dir=run --train_steps=ten",
    "trainer --output_dir=run --train_steps=-1",
    "trainer --output_dir=run --train_steps=99999999999",
    "trainer --output_dir=run --keep_checkpoint_every_n_hours=nan",
    "trainer --output_dir=run --eval_use_test_set=perhaps",
    "trainer --output_dir=run --schedule=sometimes",
    "trainer --output_dir=run --signal_exit_code=256",
    "trainer --output_dir=run --hp_hidden_size",
    "trainer --output_dir=run --data_dir=data --hp_hiden_size=3",
    "trainer --output_dir=run --data_dir=data --hparams=hidden_size=wide",
    "trainer --output_dir=run --data_dir=data --model=transformer",
    "trainer --output_dir=run --data_dir=data --hparams=hidden_size=64",
    "trainer --output_dir=run --iterations_per_loop=100 --sync --use_tpu --worker_gpu=1",
    "trainer --output_dir=run --ps_replicas=2",
    "trainer --output_dir=data --data_dir=data --problem=trips",
    "trainer --output_dir=new --problem=trips --data_dir=data",
    "trainer --output_dir=new --problem=trips --data_dir=data --model=auto --hparams_set=mine",
    "trainer --output_dir=new --problem=trips --data_dir=data --hparams_set=text_cnn_tiny "
    "--model=text_cn",
    "trainer --config=new.json --t2t_usr_dir=nowhere",
    "trainer --config=new.json --hooks=nonsense",
    "trainer --config=new.json --data_dir=vocab",
    "trainer --config=new.json --train_steps=5 --train_epochs=2 --warm_start_patterns=a "
    "--worker_gpu=3 --print_config --dry_run --eval_patience=2 --local_eval_frequency=0 "
    "--decode_problem=a --decode_hparams=beam_size=2 --reduce_lr_on_plateau_patience=3",
    "trainer --config=new.json --schedule=evaluate --train_epochs=2 --generate_data",
    "trainer --config=new.json --schedule=continuous_decode_from_file "
    "--decode_reference=nowhere.txt",
    "trainer --config=new.json --dry_run --generate_data",
    "trainer --config=new.json --test_mode --max_restarts=3",
    "trainer --config=new.json --autotune_objective=loss --autotune_max_trials=3",
    "trainer --config=new.json --hparams_range=transformer_tiny_range --dry_run --threads=2",
    "trainer --help_hparams --model=transformer",
    "trainer --trial=line.py --config=line.yaml --output_dir=new --hparams=slop=1",
    "trainer --trial=line.py --config=line.yaml --output_dir=new --problem=trips",
    "trainer --trial=line.py --config=shared.json --output_dir=new",
    "trainer --trial=line.py --config=searched.yaml --output_dir=new",
    "trainer --trial=nowhere.py --config=line.yaml --output_dir=new",
    *(f"trainer --config={name}" for name in FILES if name.startswith("wrong/")),
    "trainer --config=wrong/nowhere.json",
    "trainer --config=wrong",
    "eval --config=wrong/unknown.json",
    "eval --config=wrong/section.json",
    "server --config=wrong/type.json --artifact=artifact",
    "translate_all",
    "translate_all --model_dir=translate --source=nowhere.txt",
    "translate_all --model_dir=translate --source=in.txt --beam_size=2.5",
    "translate_all --model_dir=translate --source=in.txt --alpha=1 --decode_hparams=alpha=2",
    "translate_all --model_dir=translate --source=in.txt --translations_dir=translations",
    "translate_all --model_dir=run --source=in.txt --decoder_command=mine --data_dir=data",
    "tuner",
    "tuner --output_dir=new --report_only",
    "tuner --output_dir=new --searcher=best",
    "tuner --output_dir=new --config=shared.json",
    f"tuner {_SEARCHED}",
    f"tuner {_SEARCHED} --ranges=ranges.yaml --searcher=random --mode=standard --divisor=2",
    f"tuner {_SEARCHED} --ranges=ranges.yaml --max_trials=0",
    "tuner --trial=line.py --config=line.yaml --output_dir=new --data_dir=data",
)


# What differs each time, or on another machine.


PLACEHOLDERS = tuple(
    (re.compile(pattern, re.MULTILINE), placeholder)
    for pattern, placeholder in (
        (r"^.*: \d+ s so far\n", ""),
        (r"^step \d+(/\d+)?\n", ""),  # after ten seconds without another line
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)", "DATE"),
        (r"\b\d\d:\d\d:\d\d\b", "TIME"),
        (r"\b[\d:-]+ left$", "TIME left"),
        (r"[\d.,]+ (seconds?\b|per second|tokens/s|examples/s)", r"N \1"),
        (r"took +\d+ ", "took N "),
        (r" +(\d+ min )?\d+ s\b", " N s"),
        (r": .* on the CPUs of this machine", ": TIME on the CPUs of this machine"),
        (r"machine \d+ cores of .*$", "machine MACHINE"),
        (r"^(PyTorch|artifact) +\d.*$", r"\1 TIMES"),
        (r"scores within [\d.e-]+", "scores within N"),
        (r"^race: (?!run is).*\n", ""),
        (r"^\w+_(base|small) +[\d.]+ .*$", "STANDING"),
        (r"^(train (seconds|memory_mib), last) .*$", r"\1 N"),
        (r"\b[0-9a-f]{64}\b", "SHA256"),
        (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
        (r"\|version:[\d.]+", "|version:N"),
        (rf'"{re.escape(t2t_torch.__version__)}"', '"VERSION"'),
        (r'"(device|host|system|python|torch|onnx|onnxruntime)": "[^"]*"', r'"\1": "NAME"'),
        (r'"(time|milliseconds)": "?[\w.]+"?', r'"\1": "TIME"'),
        (r'"(bytes|threads)": \d+', r'"\1": "N"'),
        (r'"(request_id)": "[^"]*"', r'"\1": "ID"'),
        (r"events\.out\.tfevents\.[\w.-]+", "events.out.tfevents.NAME"),
    )
)


def shortened(text: str) -> str:
    """Returns a text with at most two decimals, of numbers below 1 two that are not 0."""
    return re.sub(r"(?<![\w.])(0\.0*[1-9]\d|[1-9]\d*\.\d\d)\d+(?![\w.])", r"\1…", text)


def differences(recorded: Any, computed: Any, place: str = "") -> list[str]:
    """Returns unified differences of the texts of two recordings, with the places of the texts."""
    if isinstance(recorded, dict) and isinstance(computed, dict):
        found = []
        for key in dict.fromkeys([*recorded, *computed]):
            if key in recorded and key in computed:
                found += differences(recorded[key], computed[key], f"{place}/{key}")
            else:
                found.append(f"{place}/{key}: is {'gone' if key in recorded else 'new'}")
        return found
    if recorded == computed:
        return []
    texts = [one if isinstance(one, list) else [str(one)] for one in (recorded, computed)]
    lines = list(difflib.unified_diff(*texts, "recorded", "now", lineterm="", n=2))
    more = [f"... {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
    return ["\n".join([place, *lines[:MOST_LINES], *more])]


# How the commands are run.


_LIBRARIES = (
    "numpy pyarrow pydantic sacrebleu sentencepiece torch torch._dynamo "
    "torch.distributed.checkpoint torch.utils.tensorboard torchmetrics"
).split()

_FORKING = """
import atexit, importlib, json, os, runpy, sys, traceback
for name in sys.argv[1:]:
    importlib.import_module(name)
for line in sys.stdin:
    module, arguments, files = json.loads(line)
    child = os.fork()
    if not child:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
for number, file in enumerate(files):
    os.dup2(os.open(file, os.O_RDWR), number)
sys.stdin = open(0, encoding="utf-8", closefd=False)
sys.argv[1:] = arguments
code = 0
try:
    runpy.run_module(module, run_name="__main__", alter_sys=True)
except SystemExit as stop:
    code = stop.code or 0
except BaseException:
    traceback.print_exc()
    code = 1
atexit._run_exitfuncs()
sys.stdout.flush()
os._exit(code)
"""
"""Imports libraries; for each line of its standard input forks, and runs a module as `python -m`
does.  To import torch each time, and to take it down, takes longer than most of the commands."""


class Commands:
    """Runs commands in a folder of their own.

    Args:
      folder: a folder, which is created.
      raw: declarations and raw files of `recording.write_problems`.
    """

    def __init__(self, folder: Path, raw: Path) -> None:
        """Writes the files that the command lines name."""
        self.folder = folder
        shutil.copytree(raw, folder / "raw")
        shutil.copytree(OLD_RUNS, folder / OLD_RUNS.name)
        for name, text in FILES.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        (folder / "tmp").mkdir()
        self._write_table()

    def _write_table(self) -> None:
        """Writes a table without a declaration."""
        lines = (self.folder / "raw/before_class.train.jsonl").read_text("utf-8").splitlines()
        rows = [json.loads(line) for line in lines[:240]]
        with (self.folder / "trips.csv").open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, rows[0])
            table.writeheader()
            table.writerows(rows)

    def _start(self, *words: str) -> subprocess.Popen[str]:
        """Starts Python in the folder, with one thread and without a GPU."""
        outside = ("RANK", "WORLD_SIZE", "T2T_API_KEY", "COLUMNS")
        packages = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {
            **{name: value for name, value in os.environ.items() if name not in outside},
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(packages),
            "TMPDIR": str(self.folder / "tmp"),
        }
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, *words],
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
            encoding="utf-8",
            cwd=self.folder,
            env=environment,
        )

    def plain(self, text: str, *, is_exact: bool = True) -> list[str]:
        """Returns the lines of a text without what differs each time."""
        for path, placeholder in ((self.folder, "FOLDER"), (ROOT, "ROOT")):
            for form in (path.resolve(), path):
                text = text.replace(str(form), placeholder)
        for pattern, placeholder in PLACEHOLDERS:
            text = pattern.sub(placeholder, text)
        return (text if is_exact else shortened(text)).splitlines()

    def answer(self, command: str, flag: str) -> list[str]:
        """Returns what `python -m` prints of a command for a flag."""
        with self._start("-m", "t2t_torch.bin", NAMES.get(command, command), flag) as process:
            return process.communicate()[0].splitlines()

    @contextlib.contextmanager
    def forking(self) -> Iterator[None]:
        """Makes `printed` possible while the `with` block runs."""
        with self._start("-c", _FORKING, *_LIBRARIES) as self._forks:
            yield
            self._forks.communicate()

    def printed(self, line: str, *, is_exact: bool = True, typed: str = "") -> dict[str, Any]:
        """Runs a command line; returns its exit code and what it prints."""
        command, *arguments = shlex.split(line)
        streams = [self.folder / "tmp" / name for name in ("stdin", "stdout", "stderr")]
        for stream, text in zip(streams, (typed, "", ""), strict=True):
            stream.write_text(text, encoding="utf-8")
        name = NAMES.get(command, command)
        asked = ["t2t_torch.bin", [name, *arguments], list(map(str, streams))]
        assert self._forks.stdin and self._forks.stdout
        self._forks.stdin.write(json.dumps(asked) + "\n")
        self._forks.stdin.flush()
        recorded: dict[str, Any] = {"exit": int(self._forks.stdout.readline())}
        for stream in streams[1:]:
            if lines := self.plain(stream.read_text("utf-8"), is_exact=is_exact):
                recorded[stream.name] = lines
        return recorded

    def run(self, run: Run) -> dict[str, Any]:
        """Runs a command line; returns what it prints and writes."""
        recorded = self.printed(run.line, is_exact=run.is_exact, typed=run.typed)
        for name in run.folders:
            recorded[f"files of {name}"] = self._listed(self.folder / name)
        for name in run.files:
            file = self.folder / name
            text = file.read_text("utf-8") if file.exists() else "none"
            recorded[name] = self.plain(text, is_exact=file.name != "results.json")
        return recorded

    def _listed(self, folder: Path) -> list[str]:
        """Returns the sorted names of the files in a folder."""
        paths = [path for path in folder.rglob("*") if path.is_file()]
        names = [str(path.relative_to(folder)) for path in paths if path.suffix != ".pyc"]
        return sorted(self.plain("\n".join(names)))

    def serve(self, line: str, asked: Sequence[Run]) -> dict[str, Any]:
        """Runs a server and what is asked of it; returns what they print.

        Args:
          line: the command line of the server.
          asked: command lines, with `{server}` for its address.

        Raises:
          RuntimeError: the server does not start.
        """
        command, *arguments = shlex.split(line)
        with self._start("-m", "t2t_torch.bin", command, *arguments) as process:
            assert process.stderr
            heard, match = "", None
            while match is None and (text := process.stderr.readline()):
                heard, match = heard + text, re.search(r"127\.0\.0\.1:\d+", text)
            if match is None:
                raise RuntimeError(heard)
            try:
                recorded = {
                    one.line: self.printed(one.line.format(server=match[0]), typed=one.typed)
                    for one in asked
                }
            finally:
                process.send_signal(signal.SIGTERM)
                out, rest = process.communicate()
        printed = {"stdout": self.plain(out), "stderr": self.plain(heard + rest)}
        return {line: {"exit": process.returncode, **printed}, **recorded}


def record(folder: Path, raw: Path) -> dict[str, Any]:
    """Returns what the commands print and write.

    Args:
      folder: a folder, which is created.
      raw: declarations and raw files of `recording.write_problems`.
    """
    commands = Commands(folder, raw)
    with commands.forking():
        return {
            "help": {one: commands.answer(one, "--help") for one in COMMANDS},
            "config_schema": {one: commands.answer(one, "--config_schema") for one in COMMANDS},
            "runs": {run.line: commands.run(run) for run in RUNS},
            "served": commands.serve(SERVER, SERVED),
            "refused": {line: commands.printed(line) for line in REFUSED},
        }
