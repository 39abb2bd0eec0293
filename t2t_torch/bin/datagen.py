"""Generates the data of problems: vocabulary, shards and manifest.

    t2t-datagen --problem=translate_multi30k_ende --data_dir=data --tmp_dir=raw

Missing raw files are downloaded to --tmp_dir.  Existing data with the same settings is kept.
Several commands may run at the same time.

    t2t-datagen --declare=train.csv --declare_to=my_problems/support_tickets.json

inspects your own data and writes the declaration of a problem (docs/tutorials/own_data.md).
"""

from __future__ import annotations

import fnmatch
import functools
import itertools
import json
import math
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from absl import logging

from t2t_torch import registry
from t2t_torch.bin import flags as shared
from t2t_torch.errors import UsageError
from t2t_torch.mode import Split
from t2t_torch.registry import parse_problem_name
from t2t_torch.settings import Settings, hp
from t2t_torch.train.stopping import ending_on_signals

if TYPE_CHECKING:
    from t2t_torch.data.manifest import Manifest


# `t2t-datagen --declare`: prints or writes the declaration of a problem.


def declare(path: Path, target: Path | None) -> int:
    """Prints or writes a declaration; prints samples, doubts and notes on stderr.

    Raises:
      UsageError: `target` exists or cannot be written.
    """
    from t2t_torch.declaration.draft import draft

    if target is not None:
        _check_absent(target)
    drafted = draft(path)
    if target is not None:
        _write_new(target, drafted.text)
    name, folder = drafted.content["problem"], drafted.path.parent
    lines = ["The first rows, as samples:"]
    lines += [
        f"  {field}: {_shown(value)}" for row in drafted.samples for field, value in row.items()
    ]
    for heading, sentences in (("Please check:", drafted.doubts), ("Notes:", drafted.notes)):
        lines += [heading, *(f"  - {sentence}" for sentence in sentences)] if sentences else []
    if drafted.alternatives:
        lines.append("Alternatives, each a declaration in place of this one:")
    for meaning, content in drafted.alternatives:
        lines += [f"  * {meaning}:", f"    {json.dumps(content, ensure_ascii=False)}"]
    usr_dir = folder if target is None else target.parent
    command = ["t2t-datagen", f"--t2t_usr_dir={usr_dir}", f"--problem={name}", "--data_dir=data"]
    if usr_dir.resolve() != folder.resolve():
        command.append(f"--tmp_dir={folder}")
    if drafted.has_bad_rows:
        command.append("--on_bad_record=skip")
    if target is None:
        again = ["t2t-datagen", f"--declare={path}", f"--declare_to={drafted.path}"]
        lines += ["", f"Save it:  {shlex.join(again)}"]
        lines += ["Check it, and run:", f"  {shlex.join(command)}"]
        lines += [f"(Saved in another folder, it needs --tmp_dir={folder} too.)", ""]
    else:
        lines += ["", f"Wrote {target}. Check it, and run:", f"  {shlex.join(command)}", ""]
    print("\n".join(lines), file=sys.stderr)
    if target is None:
        print(drafted.text)
    return 0


def _check_absent(target: Path) -> None:
    if target.suffix != ".json":
        raise UsageError(
            f"--declare_to={target}: expected a new file whose name ends with .json, such as "
            f"{target / 'mine.json' if target.is_dir() else target.with_suffix('.json')}."
        )
    if os.path.lexists(target):
        raise UsageError(
            f"--declare_to={target} exists, and is not overwritten. Give another name, such as "
            f"--declare_to={_free(target)}, or move it."
        )


def _free(target: Path) -> Path:
    names = (target.with_name(f"{target.stem}_{number}.json") for number in itertools.count(2))
    return next(path for path in names if not os.path.lexists(path))


def _write_new(target: Path, text: str) -> None:
    """Writes a file that must not exist yet; creates its parent folders."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("x", encoding="utf-8") as file:
            try:
                file.write(f"{text}\n")
                file.flush()
            except OSError:
                target.unlink()
                raise
    except FileExistsError:
        _check_absent(target)
        raise UsageError(f"--declare_to={target}: {target.parent} is not a folder.") from None
    except OSError as error:
        raise UsageError(f"--declare_to={target} cannot be written: {error.strerror}.") from None


def _shown(value: object) -> str:
    """Formats a value on one line, shortened if necessary."""
    if isinstance(value, bytes):
        return f"a file of {len(value):,} bytes"
    text = f"a picture of {value.shape}" if hasattr(value, "shape") else repr(value)
    return text if len(text) <= 200 else f"{text[:197]}..."


class DatagenOptions(Settings):
    """Flags of `t2t-datagen`."""

    problem: str | None = hp(
        None,
        "Problems to generate: a name, names separated by commas, or a pattern such as "
        "algorithmic*.",
    )
    random_seed: int | None = hp(
        None, "Random seed of the order of examples; default: the problem's own."
    )
    exclude_problems: tuple[str, ...] = hp((), "Problems to skip: names or patterns.")
    num_concurrent_processes: int | None = hp(
        None,
        "Number of encoding processes, which does not change the result; default: all CPUs "
        "for large data.",
        low=1,
        high=1024,
    )
    max_cases: int = hp(0, "Maximum number of examples per split; 0: all.", low=0)
    overwrite: bool = hp(
        False, "Generates existing data and vocabularies again, and replaces them."
    )
    on_bad_record: Literal["fail", "skip"] = hp(
        "fail",
        "Policy for records that cannot be read or encoded; skip: they are skipped, counted "
        "and listed.",
    )
    num_tasks: int | None = hp(
        None,
        "Number of tasks that share the work; each is one command, or one task of Ray.",
        low=1,
        high=100000,
    )
    task_id: int | None = hp(
        None,
        "Index of this command's task, from 0 to --num_tasks - 1; the last to finish combines"
        " the data.",
        low=0,
    )
    runner: Literal["local", "ray"] = hp(
        "local",
        "Executor: local processes, or the Ray cluster at RAY_ADDRESS.",
    )
    import_tfrecords: str | None = hp(
        None,
        "Directory of tensor2tensor whose data of --problem is imported, with the same ids "
        "and vocabulary.",
        path=True,
    )
    only_list: bool = hp(False, "Lists the selected problems and exits.")
    declare: str | None = hp(
        None,
        "File or folder of your own data to inspect; prints a declaration in JSON and exits.",
        path=True,
    )
    declare_to: str | None = hp(
        None,
        "With --declare: file of the declaration; must not exist. Default: standard output.",
        path=True,
    )


FLAGS = shared.CommandFlags(
    "t2t-datagen",
    DatagenOptions,
    common=("problem", "data_dir", "tmp_dir", "t2t_usr_dir", "random_seed", "registry_help"),
)
_flag = FLAGS.value_of

_IMPORTING = "import_tfrecords problem data_dir tmp_dir t2t_usr_dir overwrite verbosity".split()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return shared.run_main(run, FLAGS, __doc__, argv)


def run() -> int:
    """Generates the data, or does what the flags select instead; returns the exit code."""
    if _flag("declare"):
        target = _flag("declare_to")
        with shared.phase("reading the data to declare"):
            return declare(Path(_flag("declare")), Path(target) if target else None)
    if _flag("declare_to"):
        raise UsageError(
            "--declare_to needs the data:  t2t-datagen --declare=FILE --declare_to=NEW"
        )
    if _flag("import_tfrecords"):
        return _import(_flag("import_tfrecords"))
    names = _chosen()
    if _flag("only_list"):
        print("\n".join(names))
        return 0
    if not _flag("problem"):
        print("\n".join(f"  * {name}" for name in names))
    shared.require(FLAGS, "problem", "data_dir")
    _check_tasks()
    data_dir = Path(_flag("data_dir"))
    # tensor2tensor's default is /tmp/t2t_datagen.
    tmp_dir = Path(_flag("tmp_dir") or Path(tempfile.gettempdir()) / "t2t_datagen")
    with ending_on_signals():
        for name in names:
            _generate(name, data_dir, tmp_dir)
    return 0


def _generate(name: str, data_dir: Path, tmp_dir: Path) -> None:
    problem = registry.problem(name)
    if problem.mixing_schedule is not None:  # it has no data of its own
        for component in problem.components:
            _generate(component.full_name, data_dir, tmp_dir)
        print(f"\nNext, all of them together:\n{_next(name, data_dir)}")
        return
    from t2t_torch.data import generate

    logging.info("%s: generating in %s; raw files: %s", name, data_dir, tmp_dir)
    start = time.perf_counter()
    options: dict[str, Any] = {
        "seed": _flag("random_seed"),
        "max_cases": _flag("max_cases"),
        "on_bad_record": _flag("on_bad_record"),
        "overwrite": _flag("overwrite"),
    }
    num_tasks, task_id = _flag("num_tasks"), _flag("task_id")
    manifest: Manifest | None
    if _flag("runner") == "ray":
        manifest = generate.generate_on_ray(
            problem, data_dir, tmp_dir, num_tasks=num_tasks, **options
        )
    elif num_tasks is not None:
        options |= {"num_processes": _flag("num_concurrent_processes")}
        outcome = generate.run_task(
            problem, data_dir, tmp_dir, task_id=task_id, num_tasks=num_tasks, **options
        )
        manifest = outcome.manifest
        missing = ", ".join(map(str, outcome.missing)) or "none"
        print(f"{problem.dataset_name}: task {task_id} of {num_tasks} done; missing: {missing}")
    else:
        options |= {"num_processes": _flag("num_concurrent_processes")}
        with shared.phase(f"generating {name}"):
            manifest = generate.generate_data(problem, data_dir, tmp_dir, **options)
    if manifest is not None:
        _report(manifest, name, data_dir, start)


def _check_tasks() -> None:
    """Checks the flags of tasks and of Ray.

    Raises:
      UsageError: they contradict each other.
    """
    num_tasks, task_id = _flag("num_tasks"), _flag("task_id")
    if _flag("runner") == "ray":
        for flag in ("task_id", "num_concurrent_processes"):
            if _flag(flag) is not None:
                raise UsageError(f"--{flag} does not go with --runner=ray; leave it out.")
    elif (num_tasks is None) != (task_id is None):
        raise UsageError(
            "--num_tasks and --task_id go together: each of N commands says --num_tasks=N and "
            "another --task_id, from 0 to N - 1. (With --runner=ray, --num_tasks alone.)"
        )
    elif task_id is not None and task_id >= num_tasks:
        raise UsageError(
            f"--task_id={task_id}: with --num_tasks={num_tasks} the last is {num_tasks - 1}."
        )


def _import(source: str) -> int:
    """Imports TFRecord files of tensor2tensor."""
    from t2t_torch.data.import_tfrecords import import_named

    shared.require(FLAGS, "problem", "data_dir")
    for flag in FLAGS:
        if FLAGS[flag].present and flag not in _IMPORTING:
            raise UsageError(f"--{flag} does not go with --import_tfrecords; leave it out.")
    data_dir = Path(_flag("data_dir"))
    with ending_on_signals():
        for name in filter(None, map(str.strip, _flag("problem").split(","))):
            start = time.perf_counter()
            manifest = import_named(name, source, data_dir, overwrite=_flag("overwrite"))
            _report(manifest, name, data_dir, start)
    return 0


def _report(manifest: Manifest, name: str, data_dir: Path, start: float) -> None:
    """Prints a summary of the data, its baselines and the next command."""
    from t2t_torch.reports.baseline import write_baselines

    seconds = time.perf_counter() - start
    print(f"\n{manifest.problem} in {data_dir}, {seconds:.1f} seconds\n")
    print(summary(manifest))
    if any(entry.skipped for entry in manifest.splits.values()):
        skipped = ", ".join(f"{entry.skipped:,} of {key}" for key, entry in manifest.splits.items())
        print(f"\nSkipped: {skipped}; see {data_dir / f'{manifest.problem}.skipped.txt'}")
    for key, entry in manifest.splits.items():
        for feature, count in entry.unknown.items():
            print(f"\n{_unknown_line(key, feature, count, entry.unknown_labels.get(feature, ()))}")
    numbers = [f for f in manifest.features.values() if "float" in f.type and f.role != "notes"]
    if numbers and Split.TRAIN.value in manifest.splits:
        _warn_of_scales(name, data_dir)
    with shared.phase("labels and baselines"):
        findings = _label_findings(name, data_dir) if Split.TRAIN.value in manifest.splits else ()
        for finding in findings:
            print(f"\n{finding}")
        baselines = write_baselines(registry.problem(name), data_dir)
    for is_perfect, head in (
        (False, "A trained model should exceed, on dev:"),
        (True, "No model can exceed this on dev, which cannot rank models:"),
    ):
        if lines := [f"  {one}" for one in baselines if one.is_perfect is is_perfect]:
            print("", head, *lines, sep="\n")
    if dev := _dev_line(name, data_dir):
        print(f"\n{dev}")
    if not shared.is_called_from_python():
        print(f"\nNext:\n{_next(name, data_dir)}")


_FEW_INPUTS = 50  # of a dev split, which tell little about others


def _dev_line(name: str, data_dir: Path) -> str:
    """Returns the number of distinct inputs of the dev split, and how precise an accuracy is."""
    from t2t_torch.data.manifest import Manifest
    from t2t_torch.data.shards import Shards
    from t2t_torch.reports.column_statistics import Column, combined, distinct, row_hashes

    problem = registry.problem(name)
    if problem.mixing_schedule is not None:
        return ""
    if Split.EVAL.value not in Manifest.load(data_dir, problem.dataset_name).splits:
        return ""
    features = problem.features(data_dir)
    shards = Shards.open(data_dir, problem.dataset_name, Split.EVAL)
    columns = [
        Column(shards.column(features.columns[one]))
        for one, its in features.inputs.items()
        if its.vocab_size
    ]
    if not columns:
        return ""
    count = distinct(functools.reduce(combined, map(row_hashes, columns)))
    line = f"dev: {len(shards):,} rows of {count:,} distinct inputs."
    if any(one.classifies and not one.is_sequence for one in features.targets.values()):
        # Of 0.9, by the normal approximation: equal inputs count once, as their answers are equal.
        line += f" An accuracy of 0.9 is certain to +-{1.96 * math.sqrt(0.09 / count):.3f} (95 %)."
    return line if count >= _FEW_INPUTS else f"{line} These are too few to choose models by."


def _unknown_line(split: str, feature: str, count: int, labels: Sequence[str]) -> str:
    """Returns the message about labels of a split that training does not have."""
    from t2t_torch.data.manifest import MAX_UNKNOWN_LABELS

    verb = f"{feature!r} label never occurs" if count == 1 else f"{feature!r} labels never occur"
    shown = ", ".join(labels)
    more = ", ..." if len(labels) >= MAX_UNKNOWN_LABELS else ""
    return f"{split}: {count:,} {verb} in training{f': {shown}{more}' if shown else ''}"


def _label_findings(name: str, data_dir: Path) -> Iterator[str]:
    """Yields sentences about rare, imbalanced or similar labels of the training data."""
    from t2t_torch.reports.column_statistics import count_labels, tag_faults
    from t2t_torch.reports.data_report import label_findings, labels_in_training
    from t2t_torch.text.tags import scheme_of

    for target, feature, column in labels_in_training(registry.problem(name), data_dir):
        if feature.is_sequence and feature.aligned_to:
            yield f"The tags of {target}: {scheme_of(feature.labels)}."
            faults = tag_faults(feature.labels, column)
            if faults.broken:
                yield f"Tags break the rules of this scheme in {faults}."
        is_class = feature.classifies and not feature.is_sequence
        yield from label_findings(target, count_labels(feature, column), is_class=is_class)


def _next(name: str, data_dir: Path) -> str:
    """Returns the recommended command of t2t-trainer, that of the `--config` file, or that of the
    imported run whose declaration was read.
    """
    if _flag("config"):
        command = ["t2t-trainer", f"--config={_flag('config')}", f"--data_dir={data_dir}"]
        return f"  {shlex.join([*command, '--output_dir=run'])}"
    from t2t_torch.files import read_json

    for run in (Path(folder).parent for folder in _flag("t2t_usr_dir")):
        if (run / "task.json").exists() and read_json(run / "task.json")["problem"] == name:
            command = ["t2t-trainer", f"--output_dir={run}", f"--data_dir={data_dir}"]
            return (
                f"  {shlex.join(command)} --train_steps=STEPS\n"
                "(trains the imported model further; STEPS count those that it has)"
            )
    from t2t_torch.train.recommendation import recommend

    return recommend(name, data_dir).command(name, data_dir, _flag("t2t_usr_dir"))


def _warn_of_scales(name: str, data_dir: Path) -> None:
    """Warns about numbers whose scale makes training difficult."""
    from t2t_torch.data.shards import Shards
    from t2t_torch.reports.column_statistics import scale_warnings

    problem = registry.problem(name)
    shards = Shards.open(data_dir, problem.dataset_name, Split.TRAIN)
    for warning in scale_warnings(problem.stored_features(data_dir), shards):
        print(f"\nwarning: {warning}")


def summary(manifest: Manifest) -> str:
    """Returns a table with a row for each feature of each split."""
    head = ("split", "shards", "rows", "feature", "tokens", "mean", "max", "vocabulary")
    lines = [head]
    for split, entry in manifest.splits.items():
        first = (split, f"{len(entry.shards):,}", f"{entry.rows:,}")
        for name, feature in manifest.features.items():
            if feature.role == "kept":
                continue
            tokens = entry.tokens[name]
            lines.append(
                (
                    *first,
                    name,
                    f"{tokens:,}",
                    f"{tokens / entry.rows:.1f}",
                    f"{entry.max_length[name]:,}",
                    f"{feature.vocab_size:,}" if feature.vocab_size else "",
                )
            )
            first = ("", "", "")
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    names = (0, 3)  # columns of words, aligned on their left
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in names else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _chosen() -> list[str]:
    """Returns the requested problems in order; all problems by default.

    `x` and `x_rev` share their data, so only the first of them is returned.

    Raises:
      T2TError: a name is unknown or its file does not import, or no problem is left.
    """
    requested = [part.strip() for part in (_flag("problem") or "*").split(",") if part.strip()]
    if not requested:
        raise UsageError(
            f"--problem={_flag('problem')} names no problem. List all:  t2t-datagen --only_list"
        )
    chosen: dict[str, str] = {}
    for name in requested:
        for match in _matching(name):
            chosen.setdefault(parse_problem_name(match).base_name, match)
    excluded = {
        parse_problem_name(match).base_name
        for name in _flag("exclude_problems")
        if name.strip()
        for match in _matching(name.strip())
    }
    left = [name for base, name in chosen.items() if base not in excluded]
    if not left:
        raise UsageError(
            f"--exclude_problems={','.join(_flag('exclude_problems'))} leaves none of: "
            f"{', '.join(chosen.values())}. Exclude fewer."
        )
    return left


def _matching(name: str) -> list[str]:
    """Returns the problems that match a pattern, or a single name, which is looked up.

    Raises:
      T2TError: there is no match, or the file of the problem does not import.
    """
    if not any(mark in name for mark in "*?["):
        registry.problem(name)
        return [name]
    matching = fnmatch.filter(registry.list_names("problem"), name)
    if not matching:
        raise UsageError(f"no problem matches {name!r}. List all:  t2t-datagen --only_list")
    return matching


if __name__ == "__main__":
    sys.exit(main())
