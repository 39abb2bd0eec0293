"""Records what the package computes, and compares a later version with it.

    python tests/golden/recording.py record            # writes tests/golden/before/
    python tests/golden/recording.py check             # every section, equal bit for bit
    python tests/golden/recording.py check inventory shards

Sections:
  losses     20 training losses of every model with its smallest hparams set, and the answers to
             the first five rows of the dev split
  shards     sha256 of every file that `t2t-datagen` writes for ten problems
  runs       a checkpoint and an exported artifact of four models, what they answer, and the
             losses of five more steps; `check` decodes and resumes with the recorded ones
  inventory  registered names, flags, hparams with their defaults, error classes, exit codes,
             HTTP routes
  commands   what every command prints and writes: see recorded_commands.py

Everything goes through the commands, whose names are stable.  Losses depend on the processor's
instructions: `check` compares them bit for bit on the machine of the recording alone.
`test_recording.py` compares them with a tolerance anywhere, with those of an Intel Xeon
(losses.json) or of an AMD EPYC (losses_amd_epyc.json), both recorded at a7a06da.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import http.client
import inspect
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import recorded_commands

BEFORE = Path(__file__).parent / "before"
STEPS = 20
ROWS = 5

# What has another name since the recording: section -> name then -> name now.
RENAMED: dict[str, dict[str, str]] = {"flags": {}, "errors": {}, "hparams": {}}

# (command, flag) -> default now, where it was meant to change.
CHANGED_DEFAULTS: dict[tuple[str, str], Any] = {
    # None: 0.1 for the loss, as before, and 0 for other metrics.
    ("trainer", "eval_early_stopping_metric_delta"): None,
    # None: in this command, as before.
    ("datagen", "runner"): None,
}

# (command, flag) -> type now: executors are registered.
CHANGED_TYPES = {("datagen", "runner"): "string"}

# Set -> its `activation_dtype` now: bfloat16 by name was up to fifty times slower than float32 on a
# processor without its instructions.
CHANGED_DTYPES = dict.fromkeys(
    (
        "lstm_lm_ptb_cpu",
        "lstm_lm_shakespeare",
        "transformer_lm_ptb",
        "transformer_lm_shakespeare",
        "transformer_multi30k",
    ),
    "auto",
)

# Model -> its smallest hparams set and one of `PROBLEMS`.
MODELS: dict[str, tuple[str, str]] = {
    "bilstm_attention_classifier": ("bilstm_attention_classifier_tiny", "before_class"),
    "bilstm_slot_attention_tagger": ("bilstm_slot_attention_tagger_tiny", "before_tags"),
    "bilstm_tagger": ("bilstm_tagger_tiny", "before_tags"),
    "bsequential_cnn_tagger": ("bsequential_cnn_tagger_tiny", "before_tags"),
    "fasttext": ("fasttext_tiny", "before_class"),
    "joint_bilstm": ("joint_bilstm_tiny", "before_joint"),
    "joint_cnn": ("joint_cnn_tiny", "before_joint"),
    "lstm_lm": ("lstm_lm_tiny", "before_lm"),
    "lstm_seq2seq": ("lstm_seq2seq_tiny", "before_translate"),
    "lstm_seq2seq_attention": ("lstm_seq2seq_attention_tiny", "before_translate"),
    "pair_classifier": ("pair_classifier_tiny", "before_pair"),
    "pairwise_ranker": ("pairwise_ranker_tiny", "before_ranking"),
    "rnng": ("rnng_tiny", "before_tree"),
    "seqnn": ("seqnn_tiny", "before_turns"),
    "span_qa": ("span_qa_tiny", "before_span"),
    "text_cnn": ("text_cnn_tiny", "before_class"),
    "transformer": ("transformer_test", "before_translate"),
    "transformer_encoder": ("transformer_encoder_tiny", "before_real"),
    "transformer_lm": ("transformer_lm_tiny", "before_lm"),
}

# Registered problems that draw their own samples, besides those of `PROBLEMS`.
DRAWN = ("algorithmic_reverse_binary40_test", "dates_to_iso")

# Models whose run and artifact are kept.
KEPT = ("transformer", "joint_bilstm", "bilstm_attention_classifier", "span_qa")

# Problem -> its declaration, besides its name and files.
PROBLEMS: dict[str, dict[str, Any]] = {
    "before_class": {"kind": "text2class", "vocab_type": "word"},
    "before_joint": {"kind": "intentslot", "features": {"characters": 8, "shape": True}},
    "before_lm": {"kind": "text2self", "vocab_type": "symbol"},
    "before_pair": {"kind": "textpair2class", "vocab_type": "word"},
    "before_ranking": {"kind": "pairranking", "vocab_type": "word"},
    "before_real": {"kind": "text2real", "vocab_type": "word"},
    "before_span": {"kind": "spanqa"},
    "before_tags": {"kind": "text2tags", "features": {"characters": 8}},
    "before_translate": {"kind": "text2text", "vocab_size": 400},
    "before_tree": {"kind": "text2tree"},
    "before_turns": {"kind": "multiturn2class", "vocab_type": "word"},
}

# Problems whose answers are searched for.
TEXTS = ("before_lm", "before_translate", "before_tree")

CITIES = ("Boston", "Denver", "new york", "Oslo", "san jose", "Paris")
DAYS = ("monday", "friday", "today")
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six")


def row(kind: str, rng: random.Random) -> dict[str, Any]:
    """Draws a synthetic row of one of the kinds of `PROBLEMS`."""
    start, end = rng.sample(CITIES, 2)
    day, count = rng.choice(DAYS), rng.randrange(1, 7)
    intent = rng.choice(("flight", "fare", "seats"))
    first = {"flight": "book a flight", "fare": "how much is it", "seats": "are there"}[intent]
    if intent == "seats":
        first += f" {NUMBERS[count]} seats"
    pieces = [(first, ""), ("from", ""), (start, "from"), ("to", ""), (end, "to"), (day, "day")]
    words = [word for text, _ in pieces for word in text.split()]
    tags = [
        f"{'I' if i else 'B'}-{tag}" if tag else "O"
        for text, tag in pieces
        for i, _ in enumerate(text.split())
    ]
    request = " ".join(words)
    tree = " ".join(f"[SL:{tag.upper()} {text} ]" if tag else text for text, tag in pieces)
    other = request.replace(day, rng.choice(DAYS))
    context = f"The flight leaves {start} on {day} . It lands in {end} ."
    rows: dict[str, Callable[[], dict[str, Any]]] = {
        "text2class": lambda: {"inputs": request, "targets": intent},
        "intentslot": lambda: {"inputs": words, "intent": intent, "slots": tags},
        "text2self": lambda: {"targets": request},
        "textpair2class": lambda: {
            "first": request,
            "second": other,
            "targets": "same" if other == request else "different",
        },
        "pairranking": lambda: {
            "query": f"flights to {end}",
            "positive": request,
            "negative": f"trains to {start}",
        },
        "text2real": lambda: {"inputs": request, "targets": 100.0 * count + len(words)},
        "spanqa": lambda: {
            "question": f"which city does the plane from {start} land in ?",
            "context": context,
            "answers": [{"text": end, "answer_start": context.rindex(end)}],
        },
        "text2tags": lambda: {"inputs": words, "targets": tags},
        "text2text": lambda: {"inputs": request, "targets": " ".join(reversed(words)).upper()},
        "text2tree": lambda: {"targets": f"[IN:{intent.upper()} {tree} ]"},
        "multiturn2class": lambda: {"inputs": ["hello", request, day], "targets": intent},
    }
    return rows[kind]()


def write_problems(folder: Path) -> None:
    """Writes the declarations of `PROBLEMS` and their raw files, the same each time."""
    for name, declaration in PROBLEMS.items():
        rng = random.Random(name)
        files = {"train": f"{name}.train.jsonl", "eval": f"{name}.dev.jsonl"}
        for path, count in zip(files.values(), (300, 40), strict=True):
            lines = [json.dumps(row(declaration["kind"], rng)) for _ in range(count)]
            (folder / path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        whole = {"problem": name, "files": files, **declaration}
        (folder / f"{name}.json").write_text(json.dumps(whole, indent=1), encoding="utf-8")


def command(name: str, **flags: object) -> str:
    """Runs `t2t-<name>` in a process of one thread; returns what it prints on stdout.

    Raises:
      RuntimeError: it has failed; with what it printed on stderr.
    """
    arguments = [f"--{flag}={value}" for flag, value in flags.items()]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "t2t_torch.bin", name, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"t2t-{name} {' '.join(arguments)}\n{done.stderr}")
    return done.stdout


class Workspace:
    """A temporary folder in which the recorded problems are generated once.

    Attributes:
      raw: declarations and raw files.
      data: the generated data.
    """

    def __init__(self, folder: Path, *, generates: bool = True) -> None:
        """Writes every problem of `PROBLEMS`, and generates its data if `generates`."""
        self.folder = folder
        self.raw, self.data = folder / "raw", folder / "data"
        self.raw.mkdir(parents=True)
        write_problems(self.raw)
        for name in PROBLEMS if generates else ():
            self.generate(name)

    def generate(self, problem: str) -> None:
        """Generates the data of a problem."""
        command(
            "datagen",
            t2t_usr_dir=self.raw,
            problem=problem,
            data_dir=self.data,
            tmp_dir=self.raw,
            num_concurrent_processes=1,
            max_cases=1000,
        )

    def train(self, model: str, run: Path | None = None, steps: int = STEPS) -> Path:
        """Trains a model of `MODELS`, from its beginning or on; returns the run directory."""
        hparams_set, problem = MODELS[model]
        run = run or self.folder / "run" / model
        command(
            "trainer",
            t2t_usr_dir=self.raw,
            problem=problem,
            model=model,
            hparams_set=hparams_set,
            data_dir=self.data,
            output_dir=run,
            train_steps=steps,
            log_step_count_steps=1,
            eval_steps=1,
            worker_gpu=0,
            random_seed=7,
            # The constant rate of this set has no warm-up.
            hparams="" if model == "text_cnn" else "learning_rate_warmup_steps=4",
        )
        return run

    def inputs_of(self, problem: str) -> Path:
        """Writes the inputs of the first dev rows of a problem, in the form of t2t-decoder."""
        lines = (self.raw / f"{problem}.dev.jsonl").read_text(encoding="utf-8").splitlines()
        targets = {"targets", "intent", "slots", "answers"}
        path = self.folder / f"{problem}.inputs.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for line in lines[:ROWS]:
                fields = json.loads(line)
                inputs = {name: value for name, value in fields.items() if name not in targets}
                if problem == "before_lm":
                    inputs = {"targets": fields["targets"][:12]}
                elif problem == "before_tree":
                    inputs = {"inputs": [w for w in fields["targets"].split() if w[0] not in "[]"]}
                file.write(json.dumps(inputs) + "\n")
        return path

    def decode(self, run: Path, problem: str) -> list[Any]:
        """Returns what a run answers to the first rows of the dev split."""
        outputs = self.folder / f"{run.name}.outputs.jsonl"
        outputs.unlink(missing_ok=True)
        settings = "output_format=jsonl,beam_size=2" if problem in TEXTS else "output_format=jsonl"
        command(
            "decoder",
            t2t_usr_dir=self.raw,
            output_dir=run,
            decode_from_file=self.inputs_of(problem),
            decode_to_file=outputs,
            decode_hparams=settings,
        )
        return [json.loads(line) for line in outputs.read_text(encoding="utf-8").splitlines()]


def losses_of(run: Path) -> list[float]:
    """Returns the training losses of a run, one for each step."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    reports = [json.loads(line) for line in lines]
    return [report["loss"] for report in reports if report.get("split") == "train"]


class Server:
    """`t2t-server` with artifacts, while the `with` block runs."""

    def __init__(self, artifacts: dict[str, Path]) -> None:
        """Names what is served: a name -> an artifact."""
        self.flags = [f"--artifact={name}={path}" for name, path in artifacts.items()]

    def __enter__(self) -> Server:
        """Starts the server and waits for its port."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "t2t_torch.bin", "server", "--port=0", *self.flags],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stderr
        heard = []
        for line in self.process.stderr:
            heard.append(line)
            match = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            if match:
                self.port = int(match.group(1))
                self.reader = threading.Thread(target=self.process.stderr.read)
                self.reader.start()
                return self
        raise RuntimeError("".join(heard))

    def __exit__(self, *_: object) -> None:
        """Stops the server."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        self.reader.join()
        assert self.process.stderr
        self.process.stderr.close()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Returns the JSON of a response.

        Raises:
          RuntimeError: its status is not 200.
        """
        content = None if body is None else json.dumps(body)
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port)) as connection:
            connection.request(method, path, content, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read().decode()
        if response.status != 200:
            raise RuntimeError(f"{method} {path}: {response.status} {text}")
        return json.loads(text)


def losses(workspace: Workspace) -> dict[str, Any]:
    """Trains each model and lets it answer."""
    recorded = {}
    for model, (hparams_set, problem) in MODELS.items():
        run = workspace.train(model)
        recorded[model] = {
            "hparams_set": hparams_set,
            "problem": problem,
            "losses": losses_of(run),
            "answers": workspace.decode(run, problem),
        }
    return recorded


def shards(workspace: Workspace) -> dict[str, str]:
    """Returns the sha256 of each generated file but the manifests, which hold dates."""
    for name in DRAWN:
        workspace.generate(name)
    return {
        str(path.relative_to(workspace.data)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(workspace.data.rglob("*"))
        if path.is_file() and path.suffix != ".json" and path.suffix != ".lock"
    }


def answers_of(workspace: Workspace, folder: Path) -> dict[str, Any]:
    """Returns what the runs and artifacts in a folder answer, and the addresses of the server."""
    answers: dict[str, Any] = {}
    for model in KEPT:
        problem = MODELS[model][1]
        # Decoding takes a lock and may remove leftovers: the recording stays as it is.
        run = workspace.folder / "kept" / model
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(folder / model / "run", run)
        answers[model] = {"run": workspace.decode(run, problem)}
        workspace.train(model, run, steps=STEPS + 5)
        answers[model]["losses_when_resumed"] = losses_of(run)
    with Server({model: folder / model / "artifact" for model in KEPT}) as server:
        for model in KEPT:
            lines = workspace.inputs_of(MODELS[model][1]).read_text(encoding="utf-8").splitlines()
            body = {"inputs": [json.loads(line) for line in lines]}
            answer = server.ask("POST", f"/models/{model}/predict", body)
            answers[model]["artifact"] = answer["outputs"]
        paths = server.ask("GET", "/openapi.json")["paths"]
    answers["routes"] = {
        path: {method: sorted(one["responses"]) for method, one in methods.items()}
        for path, methods in paths.items()
        if not any(model in path for model in KEPT[1:])
    }
    return answers


def keep_runs(workspace: Workspace, folder: Path) -> None:
    """Writes a run and an artifact of each model of `KEPT`."""
    for model in KEPT:
        run = workspace.folder / "run" / model
        if not run.exists():
            workspace.train(model)
        target = folder / model
        shutil.rmtree(target, ignore_errors=True)
        unread = ("events.*", "eval", "report.html", "starts.jsonl", "*.lock")
        shutil.copytree(run, target / "run", ignore=shutil.ignore_patterns(*unread))
        command(
            "exporter",
            t2t_usr_dir=workspace.raw,
            output_dir=run,
            data_dir=workspace.data,
            export_dir=target / "artifact",
        )


def inventory(_: Workspace | None = None) -> dict[str, Any]:
    """Returns the names that a user meets: registered ones, flags, hparams, errors."""
    from t2t_torch import errors, registry
    from t2t_torch.bin.commands import COMMANDS
    from t2t_torch.decode.hparam import DecodeHParams

    kinds = ("problem", "model", "hparams", "ranged_hparams", "optimizer", "loss", "metric", "hook")
    flags = {}
    for command_name, one in COMMANDS.items():
        made = one.new_flags()
        name = command_name.removeprefix("t2t-").replace("-", "_")
        flags["import_run" if name == "import" else name] = {
            flag: [str(made[flag].flag_type()), made[flag].default] for flag in sorted(made)
        }
    by_class = {}
    for name in registry.list_names("model"):
        made = registry.model(name).HParams()
        by_class[name] = made.model_dump(mode="json")
    changed = {}
    for name in registry.list_names("hparams"):
        made = registry.hparams(name)
        values = made.model_dump(mode="json")
        defaults = type(made)().model_dump(mode="json")
        changed[name] = {k: v for k, v in values.items() if v != defaults[k]}
    return {
        "registered": {kind: registry.list_names(kind) for kind in kinds},
        "flags": flags,
        "hparams": by_class,
        "hparams_sets": changed,
        "decode_hparams": DecodeHParams().model_dump(mode="json"),
        "errors": {
            name: [thing.__bases__[0].__name__, thing.exit_code]
            for name, thing in sorted(vars(errors).items())
            if inspect.isclass(thing) and issubclass(thing, errors.T2TError)
        },
    }


SECTIONS = ("inventory", "commands", "shards", "losses", "runs")
WITHOUT_DATA = ("inventory", "commands")
"""Sections that do not read the data of a `Workspace`."""


def read(section: str) -> Any:
    """Returns a recorded section."""
    return json.loads((BEFORE / f"{section}.json").read_text(encoding="utf-8"))


def renamed(recorded: dict[str, Any]) -> dict[str, Any]:
    """Returns a recorded inventory with the names of today."""
    flags = {
        command_name: {RENAMED["flags"].get(name, name): value for name, value in values.items()}
        for command_name, values in recorded["flags"].items()
    }
    for (command_name, name), default in CHANGED_DEFAULTS.items():
        flags[command_name][name][1] = default
    for (command_name, name), kind in CHANGED_TYPES.items():
        flags[command_name][name][0] = kind
    errors = {
        RENAMED["errors"].get(name, name): [RENAMED["errors"].get(base, base), code]
        for name, (base, code) in recorded["errors"].items()
    }
    hparams = {
        section: {
            name: {RENAMED["hparams"].get(field, field): value for field, value in values.items()}
            for name, values in recorded[section].items()
        }
        for section in ("hparams", "hparams_sets")
    }
    for name, dtype in CHANGED_DTYPES.items():
        hparams["hparams_sets"][name]["activation_dtype"] = dtype
    return {**recorded, "flags": flags, "errors": errors, **hparams}


def compute(section: str, workspace: Workspace, folder: Path) -> Any:
    """Computes a section; `folder` holds the kept runs and artifacts."""
    if section == "inventory":
        return json.loads(json.dumps(inventory()))
    if section == "commands":
        return recorded_commands.record(workspace.folder / "commands", workspace.raw)
    if section == "runs":
        return answers_of(workspace, folder)
    computed = losses(workspace) if section == "losses" else shards(workspace)
    return json.loads(json.dumps(computed))


def differences(recorded: Any, computed: Any, place: str = "", tolerance: float = 0) -> list[str]:
    """Lists where two JSON values differ; numbers may by a relative `tolerance`."""
    if isinstance(recorded, dict) and isinstance(computed, dict):
        found = [f"{place}/{key}: is gone" for key in recorded.keys() - computed.keys()]
        for key in recorded.keys() & computed.keys():
            found += differences(recorded[key], computed[key], f"{place}/{key}", tolerance)
        return found
    if place.startswith("/registered/"):  # names may be added
        return [f"{place}: {name!r} is gone" for name in recorded if name not in computed]
    if isinstance(recorded, list) and isinstance(computed, list) and len(recorded) == len(computed):
        pairs = enumerate(zip(recorded, computed, strict=True))
        return [d for i, (a, b) in pairs for d in differences(a, b, f"{place}/{i}", tolerance)]
    if isinstance(recorded, float) and isinstance(computed, float) and tolerance:
        close = math.isclose(recorded, computed, rel_tol=tolerance, abs_tol=tolerance)
        return [] if close else [f"{place}: {recorded!r} was recorded, is {computed!r}"]
    return [] if recorded == computed else [f"{place}: {recorded!r} was recorded, is {computed!r}"]


def main() -> int:
    """Records or checks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("record", "check"))
    parser.add_argument("sections", nargs="*", default=SECTIONS)
    asked = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        reads_data = not {*asked.sections} <= {*WITHOUT_DATA}
        workspace = Workspace(Path(folder) / "workspace", generates=reads_data)
        for section in asked.sections:
            if asked.action == "record" and section == "runs":
                keep_runs(workspace, BEFORE)
            computed = compute(section, workspace, BEFORE)
            if asked.action == "record":
                text = json.dumps(computed, indent=1, ensure_ascii=False) + "\n"
                (BEFORE / f"{section}.json").write_text(text, encoding="utf-8")
                continue
            recorded = read(section)
            if section == "inventory":
                recorded = renamed(recorded)
            of_section = recorded_commands.differences if section == "commands" else differences
            found += [f"{section}{line}" for line in of_section(recorded, computed)]
    print("\n".join(found) or f"{asked.action}: {', '.join(asked.sections)}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
