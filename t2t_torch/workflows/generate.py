"""Generation of the data of problems, import of data of tensor2tensor, drafts of declarations."""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import itertools
import json
import math
import os
import shlex
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from absl import logging

from t2t_torch import registry
from t2t_torch.atomic_files import write_text
from t2t_torch.errors import UsageError, listed
from t2t_torch.executor import RunnerSettings
from t2t_torch.files import MAX_VOCABULARY, read_bytes, read_entries, replace_if_other
from t2t_torch.mode import Split
from t2t_torch.registry import parse_problem_name
from t2t_torch.remote import url_of
from t2t_torch.reporter import Reporter, message, output, phase
from t2t_torch.settings import Settings, hp, hp_path, require
from t2t_torch.trust import UsrDirSettings, running, workflow
from t2t_torch.workflows.context import CONFIG, DATA_DIR, PROBLEM, TMP_DIR

if TYPE_CHECKING:
    from t2t_torch.data.manifest import Manifest
    from t2t_torch.declaration.draft import Draft


class GenerateSettings(UsrDirSettings, RunnerSettings):
    """Settings of the generation of data."""

    problem: str | None = hp(
        None,
        "Problems to generate: a name, names separated by commas, or a pattern such as "
        "algorithmic*.",
    )
    data_dir: str | None = DATA_DIR
    tmp_dir: str | None = TMP_DIR
    pretrained: str | None = hp_path(
        "Folder of a pretrained model, as save_pretrained of transformers writes it: its tokenizer "
        "reads the texts, and the problem is called <problem>_pretrained from then on."
    )
    vocabulary_from: str | None = hp_path(
        "Run or data directory whose vocabulary of the problem is taken in place of a learnt one."
    )
    add_tokens: str | None = hp_path(
        "With --vocabulary_from: file of words, one a line, that are added to that vocabulary."
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
    merge_labels: bool = hp(
        False,
        "Merges labels that differ only by case or blanks; the mapping is printed, and written "
        "into the declaration.",
    )
    num_tasks: int | None = hp(
        None,
        "Number of tasks that share the work; each is one command, or one of --runner.",
        low=1,
        high=100000,
    )
    task_id: int | None = hp(
        None,
        "Index of this command's task, from 0 to --num_tasks - 1; the last to finish combines"
        " the data.",
        low=0,
    )
    import_tfrecords: str | None = hp_path(
        "Directory of tensor2tensor whose data of --problem is imported, with the same ids "
        "and vocabulary."
    )
    only_list: bool = hp(False, "Lists the selected problems and exits.")


class DeclareSettings(Settings):
    """Settings of a draft of a declaration."""

    declare: str | None = hp_path(
        "File or folder of your own data to inspect; prints a declaration in JSON and exits."
    )
    declare_to: str | None = hp_path(
        "With --declare: file of the declaration; must not exist. Default: standard output."
    )
    declare_choice: int = hp(
        0, "With --declare: number of the declaration, 1 or that of an alternative.", low=0
    )


class DatagenSettings(GenerateSettings, DeclareSettings):
    """Generates the data of problems: vocabulary, shards and manifest.

        t2t-datagen --problem=translate_multi30k_ende --data_dir=data --tmp_dir=raw

    Missing raw files are downloaded to --tmp_dir.  Existing data with the same settings is kept.
    Several commands may run at the same time.

        t2t-datagen --declare=train.csv --declare_to=my_problems/support_tickets.json

    inspects your own data and writes the declaration of a problem (docs/tutorials/own_data.md).
    """

    config: str | None = CONFIG


_IMPORTING = "import_tfrecords problem data_dir tmp_dir t2t_usr_dir overwrite".split()


def generate(settings: GenerateSettings, *, reporter: Reporter | None = None) -> list[str]:
    """Generates the data of problems, or imports that of tensor2tensor.

    Data that exists already is kept, unless `overwrite` is set.

    Args:
      settings: problems, and where and how their data is generated.
      reporter: where a summary of the data is reported; None: to the current one.

    Returns:
      Names of the problems whose data is complete, in order; a mixture follows its components.

    Raises:
      T2TError: a setting does not fit, or raw files are missing or malformed.
    """
    with running(settings, reporter):
        if settings.import_tfrecords:
            return _import(settings, settings.import_tfrecords)
        names = _chosen(settings)
        if settings.only_list:
            output("\n".join(names))
            return []
        if not settings.problem:
            output("\n".join(f"  * {name}" for name in names))
        require(settings, "problem", "data_dir")
        _check_tasks(settings)
        data_dir = Path(str(settings.data_dir))
        if settings.pretrained:
            names = [pretrained_name(name) for name in names]
            _write_pretrained_vocabularies(settings.pretrained, names, data_dir)
        if settings.add_tokens and not settings.vocabulary_from:
            raise UsageError("--add_tokens adds to the vocabulary of --vocabulary_from: give it.")
        if settings.vocabulary_from:
            _write_vocabularies(settings, settings.vocabulary_from, names, data_dir)
        # tensor2tensor's default is /tmp/t2t_datagen.
        tmp_dir = Path(settings.tmp_dir or Path(tempfile.gettempdir()) / "t2t_datagen")
        if settings.merge_labels:
            from t2t_torch.data.manifest import Manifest

            for name in names:
                has_data = Manifest.path(data_dir, registry.problem(name).dataset_name).exists()
                merge_labels(name, tmp_dir, may_change=settings.overwrite or not has_data)
        return [made for name in names for made in _generate(settings, name, data_dir, tmp_dir)]


def pretrained_name(name: str) -> str:
    """Returns the name of a problem whose texts have the tokens of a pretrained model."""
    spec = parse_problem_name(name)
    base = spec.base_name.removesuffix(registry.PRETRAINED) + registry.PRETRAINED
    return registry.get_problem_name(base, *spec[1:])


def _write_pretrained_vocabularies(place: str, names: Sequence[str], data_dir: Path) -> None:
    """Writes the tokens of a pretrained model as the vocabularies of problems.

    Raises:
      UsageError: a problem has the tokens of another model there.
    """
    from t2t_torch.text.pretrained import PretrainedFolder

    content = PretrainedFolder(place).vocabulary
    for name in names:
        for file in registry.problem(name).kept_vocab_files:
            _write_vocabulary(data_dir / file, content, place)


def _write_vocabulary(path: Path, content: bytes, place: str) -> None:
    """Writes a vocabulary; UsageError if another one is there."""
    if path.exists() and read_bytes(path, max_bytes=MAX_VOCABULARY) != content:
        raise UsageError(f"{path} has other tokens than those of {place}. Give another --data_dir.")
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_if_other(path, content)


def _write_vocabularies(
    settings: GenerateSettings, place: str, names: Sequence[str], data_dir: Path
) -> None:
    """Writes the vocabularies of a run, with further words, as those of problems.

    Raises:
      UsageError: there is no vocabulary, another one is in the data folder, or words cannot be
        added to it.
    """
    from t2t_torch.text.vocabulary_growth import add_words

    if settings.has_runner():
        raise UsageError("--vocabulary_from: give --num_concurrent_processes in place of --runner.")
    words = read_entries(Path(settings.add_tokens)) if settings.add_tokens else []
    contents = {}
    for problem in (part for name in names for part in registry.problem(name).components):
        lower_case = getattr(problem, "lower_case_words", False)
        for file in getattr(problem, "text_vocab_files", ()):
            kind = f"vocab.*{Path(file).suffix}"
            there = (
                [Path(place, file)] if Path(place, file).is_file() else [*Path(place).glob(kind)]
            )
            if len(there) != 1:
                raise UsageError(
                    f"--vocabulary_from={place}: {problem.full_name!r} needs one {kind}, and there "
                    f"are {len(there)} ({listed(there) or 'none'}). Give a run with such a "
                    "vocabulary; of an exported artifact, the run that was exported."
                )
            contents[data_dir / file] = add_words(there[0], words, lower_case=lower_case)
    if not contents:
        raise UsageError(f"--vocabulary_from: the ids of {listed(names)} are fixed. Leave it out.")
    for path, content in contents.items():
        _write_vocabulary(path, content, place)


def _generate(settings: GenerateSettings, name: str, data_dir: Path, tmp_dir: Path) -> list[str]:
    """Generates the data of a problem; returns the names of what is complete."""
    problem = registry.problem(name)
    if problem.mixing_schedule is not None:  # it has no data of its own
        parts = [one.full_name for one in problem.components]
        made = [one for part in parts for one in _generate(settings, part, data_dir, tmp_dir)]
        return [*made, name] if set(parts) <= set(made) else made
    from t2t_torch.data import generate as data

    vars(problem)["keeps_vocabulary"] = bool(settings.vocabulary_from)
    logging.info("%s: generating in %s; raw files: %s", name, data_dir, tmp_dir)
    start = time.perf_counter()
    options: dict[str, Any] = {
        "seed": settings.random_seed,
        "max_cases": settings.max_cases,
        "on_bad_record": settings.on_bad_record,
        "overwrite": settings.overwrite,
    }
    folders, processes = (data_dir, tmp_dir), settings.num_concurrent_processes
    manifest: Manifest | None
    if settings.runner:
        options |= {"executor": settings.executor(), "num_tasks": settings.num_tasks}
        manifest = data.generate_by_ranks(problem, *folders, **options)
    elif settings.task_id is not None:
        options |= {"task_id": settings.task_id, "num_tasks": settings.num_tasks}
        outcome = data.run_task(problem, *folders, num_processes=processes, **options)
        manifest = outcome.manifest
        missing = ", ".join(map(str, outcome.missing)) or "none"
        task = f"task {settings.task_id} of {settings.num_tasks}"
        output(f"{problem.dataset_name}: {task} done; missing: {missing}")
    else:
        with phase(f"generating {name}"):
            manifest = data.generate_data(problem, *folders, num_processes=processes, **options)
    if manifest is None:
        return []
    _report(manifest, name, data_dir, start)
    return [name]


def merge_labels(name: str, tmp_dir: Path, *, may_change: bool = True) -> dict[str, str]:
    """Writes into a problem's declaration which spellings of labels are merged; reports them.

    Args:
      name: name of the problem.
      tmp_dir: folder of the raw files.
      may_change: False if there is data, which another declaration would not fit.

    Returns:
      For each spelling in the declared files, the most frequent one that differs only by case or
      blanks, without blanks at its ends.

    Raises:
      UsageError: the problem is not declared in a file, or has no labels; or the declaration may
        not change.
    """
    from t2t_torch.declaration.problem import DeclaredProblem, problem_of
    from t2t_torch.declaration.rows import RowFiles, UnfitError
    from t2t_torch.readers.text_file import BadRecords
    from t2t_torch.text.near_duplicates import spellings

    path = Path(getattr(registry.problem(name), "declared_in", ""))
    content = (registry.json_declaration(path) if path.is_file() else None) or {}
    was = content.pop("merge_labels", {})
    problem = problem_of({**content, "labels": ()}, path) if content else None
    if not isinstance(problem, DeclaredProblem) or not problem.sample_maker.labelled:
        raise UsageError(f"--merge_labels: {name!r} declares no labels in a file. Leave it out.")
    rows, counts = RowFiles(problem.declaration, path, tmp_dir), Counter[str]()
    for split in rows.splits():
        for record in rows.records(split, BadRecords("skip")):
            with contextlib.suppress(UnfitError):  # reported when samples are made
                maker = problem.sample_maker
                counts.update(maker.labels_of(maker.sample(record.values)))
    merged: dict[str, str] = {}
    for several in spellings(counts):
        stripped = Counter[str]()
        for label in several:
            stripped[label.strip()] += counts[label]
        best = max(stripped, key=lambda label: (stripped[label], label))
        merged |= {label: best for label in several if label != best}
        output(f"labels merged: {', '.join(map(repr, sorted({*several} - {best})))} -> {best!r}")
    if not merged:
        output("labels merged: none")
    if was != merged and not may_change:
        raise UsageError(
            f"--merge_labels changes the declaration of {name!r}, whose data is there already. "
            "Generate it again with t2t-datagen --overwrite; with t2t-quick, delete data, run and "
            "run.race of its folder."
        )
    if was != merged:
        if labels := content.get("labels"):
            content["labels"] = list(dict.fromkeys(merged.get(one, one) for one in labels))
        text = json.dumps({**content, "merge_labels": merged}, indent=2, ensure_ascii=False)
        replace_if_other(path, f"{text}\n".encode())
    return merged


def _check_tasks(settings: GenerateSettings) -> None:
    """Checks the settings of tasks and of their executor.

    Raises:
      UsageError: they contradict each other.
    """
    if (settings.has_runner() or settings.num_tasks) and url_of(str(settings.data_dir)):
        raise UsageError(
            f"--data_dir={url_of(str(settings.data_dir))}: tasks that share the work need a folder "
            "that they share. Generate in one, or leave --num_tasks and --runner out."
        )
    if settings.has_runner():
        for flag in ("task_id", "num_concurrent_processes"):
            if getattr(settings, flag) is not None:
                raise UsageError(
                    f"--{flag} does not go with --runner={settings.runner}; leave it out."
                )
    elif (settings.num_tasks is None) != (settings.task_id is None):
        raise UsageError(
            "--num_tasks and --task_id go together: each of N commands says --num_tasks=N and "
            "another --task_id, from 0 to N - 1. (With --runner=ray, --num_tasks alone.)"
        )


def _import(settings: GenerateSettings, source: str) -> list[str]:
    """Imports TFRecord files of tensor2tensor; returns the names of the problems."""
    from t2t_torch.data.import_tfrecords import import_named

    require(settings, "problem", "data_dir")
    for flag in settings.declared():
        if flag in settings.given and flag not in _IMPORTING:
            raise UsageError(f"--{flag} does not go with --import_tfrecords; leave it out.")
    data_dir = Path(str(settings.data_dir))
    names = [name.strip() for name in str(settings.problem).split(",") if name.strip()]
    for name in names:
        start = time.perf_counter()
        manifest = import_named(name, source, data_dir, overwrite=settings.overwrite)
        _report(manifest, name, data_dir, start)
    return names


def _report(manifest: Manifest, name: str, data_dir: Path, start: float) -> None:
    """Reports a summary of the data and its baselines."""
    from t2t_torch.reports.baseline import write_baselines

    seconds = time.perf_counter() - start
    output(f"\n{manifest.problem} in {data_dir}, {seconds:.1f} seconds\n")
    output(_summary(manifest))
    if any(entry.skipped for entry in manifest.splits.values()):
        skipped = ", ".join(f"{entry.skipped:,} of {key}" for key, entry in manifest.splits.items())
        output(f"\nSkipped: {skipped}; see {data_dir / f'{manifest.problem}.skipped.txt'}")
    for key, entry in manifest.splits.items():
        for feature, count in entry.unknown.items():
            output(f"\n{unknown_line(key, feature, count, entry.unknown_labels.get(feature, ()))}")
    numbers = [f for f in manifest.features.values() if "float" in f.type and f.role != "notes"]
    if numbers and Split.TRAIN.value in manifest.splits:
        _warn_of_scales(name, data_dir)
    with phase("labels and baselines"):
        findings = _label_findings(name, data_dir) if Split.TRAIN.value in manifest.splits else ()
        for finding in findings:
            output(f"\n{finding}")
        baselines = write_baselines(registry.problem(name), data_dir)
    for is_perfect, head in (
        (False, "A trained model should exceed, on dev:"),
        (True, "No model can exceed this on dev, which cannot rank models:"),
    ):
        if lines := [f"  {one}" for one in baselines if one.is_perfect is is_perfect]:
            output("\n".join(["", head, *lines]))
    if Split.EVAL.value in manifest.splits and (dev := _dev_line(name, data_dir)):
        output(f"\n{dev}")


_FEW_INPUTS = 50  # of a dev split, which tell little about others


def _dev_line(name: str, data_dir: Path) -> str:
    """Returns the number of distinct inputs of the dev split, and how precise an accuracy is."""
    from t2t_torch.data.shards import Shards
    from t2t_torch.features.feature import select_classes
    from t2t_torch.reports.column_statistics import StoredColumn, combined, distinct, row_hashes

    problem = registry.problem(name)
    features = problem.features(data_dir)
    shards = Shards.open(data_dir, problem.dataset_name, Split.EVAL)
    columns = [
        StoredColumn(shards.column(features.columns[one]))
        for one, its in features.inputs.items()
        if its.vocab_size
    ]
    if not columns:
        return ""
    count = distinct(functools.reduce(combined, map(row_hashes, columns)))
    line = f"dev: {len(shards):,} rows of {count:,} distinct inputs."
    if select_classes(features.targets):
        # Of 0.9, by the normal approximation: equal inputs count once, as their answers are equal.
        line += f" An accuracy of 0.9 is certain to +-{1.96 * math.sqrt(0.09 / count):.3f} (95 %)."
    return line if count >= _FEW_INPUTS else f"{line} These are too few to choose models by."


def unknown_line(split: str, feature: str, count: int, labels: Sequence[str]) -> str:
    """Returns the message about labels of a split that training does not have."""
    from t2t_torch.data.manifest import MAX_UNKNOWN_LABELS

    verb = f"{feature!r} label never occurs" if count == 1 else f"{feature!r} labels never occur"
    shown = ", ".join(labels)
    more = ", ..." if len(labels) >= MAX_UNKNOWN_LABELS else ""
    return f"{split}: {count:,} {verb} in training{f': {shown}{more}' if shown else ''}"


def _label_findings(name: str, data_dir: Path) -> Iterator[str]:
    """Yields sentences about rare, imbalanced or similar labels of the training data."""
    from t2t_torch.features.feature import find_alignments, select_classes
    from t2t_torch.reports.column_statistics import count_labels, tag_faults
    from t2t_torch.reports.data_report import label_findings, labels_in_training
    from t2t_torch.text.tags import scheme_of

    for target, feature, column in labels_in_training(registry.problem(name), data_dir):
        if find_alignments({target: feature}):
            yield f"The tags of {target}: {scheme_of(feature.labels)}."
            faults = tag_faults(feature.labels, column)
            if faults.broken:
                yield f"Tags break the rules of this scheme in {faults}."
        is_class = bool(select_classes({target: feature}))
        yield from label_findings(target, count_labels(feature, column), is_class=is_class)


def _warn_of_scales(name: str, data_dir: Path) -> None:
    """Warns about numbers whose scale makes training difficult."""
    from t2t_torch.data.shards import Shards
    from t2t_torch.reports.column_statistics import scale_warnings

    problem = registry.problem(name)
    shards = Shards.open(data_dir, problem.dataset_name, Split.TRAIN)
    for warning in scale_warnings(problem.stored_features(data_dir), shards):
        output(f"\nwarning: {warning}")


def _summary(manifest: Manifest) -> str:
    """Returns a table with a row for each feature of each split."""
    from t2t_torch.reports.section import aligned

    lines = [("split", "shards", "rows", "feature", "tokens", "mean", "max", "vocabulary")]
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
    return "\n".join(aligned(lines, (0, 3)))


def _chosen(settings: GenerateSettings) -> list[str]:
    """Returns the requested problems in order; all problems by default.

    `x` and `x_rev` share their data, so only the first of them is returned.

    Raises:
      T2TError: a name is unknown or its file does not import, or no problem is left.
    """
    requested = list(_matching((settings.problem or "*").split(",")))
    if not requested:
        raise UsageError(
            f"--problem={settings.problem} names no problem. List all:  t2t-datagen --only_list"
        )
    chosen: dict[str, str] = {}
    for name in requested:
        chosen.setdefault(parse_problem_name(name).base_name, name)
    excluded = {parse_problem_name(name).base_name for name in _matching(settings.exclude_problems)}
    left = [name for base, name in chosen.items() if base not in excluded]
    if not left:
        raise UsageError(
            f"--exclude_problems={','.join(settings.exclude_problems)} leaves none of: "
            f"{', '.join(chosen.values())}. Exclude fewer."
        )
    return left


def _matching(patterns: Sequence[str]) -> Iterator[str]:
    """Yields the problems that match patterns, or are single names, which are looked up.

    Raises:
      T2TError: one has no match, or the file of a problem does not import.
    """
    for name in filter(None, map(str.strip, patterns)):
        matching = [name]
        if any(mark in name for mark in "*?["):
            matching = fnmatch.filter(registry.list_names("problem"), name)
        else:
            registry.problem(name)
        if not matching:
            raise UsageError(f"no problem matches {name!r}. List all:  t2t-datagen --only_list")
        yield from matching


class UnsureError(UsageError):
    """Several declarations are as likely, and none was chosen."""


def declare(
    path: Path,
    target: Path | None,
    choice: int = 1,
    ask: Callable[[Sequence[str]], int] | None = None,
) -> None:
    """Prints or writes a declaration; reports samples, doubts and notes.

    Args:
      path: file or folder of data.
      target: file of the declaration; None: standard output.
      choice: number of the declaration, 1 or that of an alternative; 0 for the first if no other
        is as likely.
      ask: returns the number of one of several descriptions, if `choice` is 0 and several are as
        likely; None raises an error.

    Raises:
      UnsureError: several declarations are as likely, and none was chosen.
      UsageError: `target` exists or cannot be written, or there is no such choice.
    """
    from t2t_torch.declaration.draft import draft, text_of

    if target is not None:
        _check_absent(target)
    drafted = draft(path, choice or 1)
    if not choice and drafted.is_unsure:
        shown = [f"{meaning}:\n    {_on_a_line(content)}" for meaning, content in drafted.choices]
        if ask is None:
            choices = "\n".join(f"  {number}. {one}" for number, one in enumerate(shown, 1))
            raise UnsureError(
                f"{path}: several problems are as likely:\n{choices}\n"
                "Choose one with --declare_choice=NUMBER; --yes takes the first."
            )
        if (choice := ask(shown)) > 1:
            drafted = draft(path, choice)
    text = text_of(drafted.content)
    if target is not None:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_text(target, f"{text}\n")
        except FileExistsError:
            raise UsageError(f"--declare_to={target}: {target.parent} is not a folder.") from None
        except OSError as error:
            why = error.strerror
            raise UsageError(f"--declare_to={target} cannot be written: {why}.") from None
    message(_described(path, target, drafted))
    if target is None:
        output(text)


def _described(path: Path, target: Path | None, drafted: Draft) -> str:
    """Returns the samples, doubts, notes and alternatives of a draft, and the next command."""
    name, folder = drafted.content["problem"], drafted.path.parent
    lines = [f"It learns {drafted.meaning}."]
    lines += ["The first rows, as samples:"] if drafted.samples else []
    lines += [
        f"  {field}: {_shown(value)}" for row in drafted.samples for field, value in row.items()
    ]
    for heading, sentences in (("Please check:", drafted.doubts), ("Notes:", drafted.notes)):
        lines += [heading, *(f"  - {sentence}" for sentence in sentences)] if sentences else []
    if drafted.alternatives:
        lines.append("Alternatives, each a declaration in place of this one:")
    for number, (meaning, content) in enumerate(drafted.alternatives, 2):
        lines += [f"  * {meaning} (--declare_choice={number}):", f"    {_on_a_line(content)}"]
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
    return "\n".join(lines)


def _on_a_line(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False)


def _check_absent(target: Path) -> None:
    if target.suffix != ".json":
        raise UsageError(
            f"--declare_to={target}: expected a new file whose name ends with .json, such as "
            f"{target / 'mine.json' if target.is_dir() else target.with_suffix('.json')}."
        )
    if os.path.lexists(target):
        names = (target.with_name(f"{target.stem}_{number}.json") for number in itertools.count(2))
        raise UsageError(
            f"--declare_to={target} exists, and is not overwritten. Give another name, such as "
            f"--declare_to={next(path for path in names if not os.path.lexists(path))}, or move it."
        )


def _shown(value: object) -> str:
    """Formats a value on one line, shortened if necessary."""
    if isinstance(value, bytes):
        return f"a file of {len(value):,} bytes"
    text = f"a picture of {value.shape}" if hasattr(value, "shape") else repr(value)
    return text if len(text) <= 200 else f"{text[:197]}..."


class VocabSettings(UsrDirSettings):
    """Builds the vocabulary of a problem, without its data.

        t2t-build-vocab --problem=translate_multi30k_ende --data_dir=data --tmp_dir=raw

    A vocabulary that is in the data directory already is kept.  t2t-datagen builds it, too; this
    command is for several machines that are to share one, and for a look at it.
    """

    problem: str | None = PROBLEM
    data_dir: str | None = DATA_DIR
    tmp_dir: str | None = TMP_DIR


@workflow
def build_vocab(settings: VocabSettings) -> None:
    """Builds the vocabulary of a problem."""
    from t2t_torch.features.feature import select_texts

    require(settings, "problem", "data_dir")
    problem, data_dir = registry.problem(str(settings.problem)), Path(str(settings.data_dir))
    tmp_dir = Path(settings.tmp_dir or data_dir)
    if not problem.vocab_files:
        raise UsageError(f"problem {problem.full_name!r} has no vocabulary: its ids are fixed.")
    data_dir.mkdir(parents=True, exist_ok=True)
    before = {name for name in problem.vocab_files if (data_dir / name).exists()}
    problem.prepare(tmp_dir)
    problem.build_vocab(data_dir, tmp_dir)
    features = problem.features(data_dir)
    for name in problem.vocab_files:
        state = "kept" if name in before else "built"
        output(f"{state}  {data_dir / name}")
    for name, feature in select_texts(features.all).items():
        output(f"{name}: {feature.vocab_size:,} ids")
