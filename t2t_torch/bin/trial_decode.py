"""`t2t-decoder` of a run of a trial."""

from __future__ import annotations

from pathlib import Path

from absl import flags

from t2t_torch.errors import UsageError

_OF_PROBLEMS = (
    *("data_dir", "problem", "model", "hparams_set", "decode_reference", "score_file"),
    *("decode_hparams", "decode_shards", "decode_interactive", "eval_use_test_set"),
)


def run(values: flags.FlagValues) -> int:
    """Runs the command; returns its exit code.

    Args:
      values: the flags.

    Raises:
      UsageError: one means nothing for a trial, or a file is of no kind that is read or written.
    """
    check_flags(values, _OF_PROBLEMS)
    from t2t_torch.compute.distributed import World
    from t2t_torch.decode.target import check_target
    from t2t_torch.trial.decoding import TrialDecoder, check_files, device
    from t2t_torch.trial.opened_run import OpenedRun

    run_dir = Path(str(values["output_dir"].value)).expanduser()
    given, asked = values["decode_from_file"].value, values["decode_to_file"].value
    source = Path(given) if given else None
    if asked:
        check_files(source, Path(asked))
        check_target(Path(asked), *([source] if source else []))
    elif source:
        check_files(source, source)
    opened = OpenedRun.of(run_dir, World(0, 1, device()))
    decoder = TrialDecoder(opened, values["checkpoint_path"].value)
    step = decoder.predictor.chosen.step
    if asked:
        target = Path(asked)
    elif source:
        target = source.with_name(f"{source.stem}.{opened.task.name}.{step}{source.suffix}")
    else:
        target = run_dir / "decodes" / f"validation-{step}.npz"
    check_target(target, *([source] if source else []))
    count = decoder.decode(source, target)
    what = source or "the validation loader"
    print(f"{count:,} records of {what}, {decoder.predictor.chosen.told}: {target}")
    return 0


def check_flags(values: flags.FlagValues, of_problems: tuple[str, ...]) -> None:
    """Checks flags against what a trial is.

    Args:
      values: the flags.
      of_problems: those that mean nothing for a trial.

    Raises:
      UsageError: one is given; all are told.
    """
    named = [f"--{name}" for name in of_problems if values[name].present]
    if "," in str(values["output_dir"].value):
        named.append("several runs in --output_dir")
    if named:
        are = "are" if len(named) > 1 else "is"
        raise UsageError(
            f"{', '.join(named)} {are} for a run of a problem, and '{values['output_dir'].value}' "
            f"is one of a trial: leave {'them' if are == 'are' else 'it'} out."
        )
