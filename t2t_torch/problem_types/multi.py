"""Multi-task problems: several problems of different types, with shared model parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch import registry
from t2t_torch.errors import RegistryError, UsageError
from t2t_torch.features import Feature, Features
from t2t_torch.mode import Split
from t2t_torch.problem import Problem


class SeveralProblems(Problem):
    """Base class of problems that train others, and have no data of their own.

    Attributes:
      problem_names: names of the problems, optionally with `_rev` and `_copy`.
    """

    problem_names: ClassVar[tuple[str, ...]]
    setting_names = ("problem_names",)

    def __init__(self, *, reverse: bool = False, copy: bool = False) -> None:
        super().__init__(reverse=reverse, copy=copy)
        if reverse or copy:
            raise UsageError(
                f"{self.name!r} is of several problems: say _rev or _copy of those that it names."
            )

    @property
    def kept_vocab_files(self) -> tuple[str, ...]:
        """All vocabulary files, as they belong to other problems."""
        return self.vocab_files

    def component(self, name: str) -> Problem:
        """Returns one of the problems; UsageError if the name is unknown."""
        if name not in self.problem_names:
            raise UsageError(
                f"{name!r} is none of the problems of {self.name!r}. They are: "
                f"{', '.join(self.problem_names)}."
            )
        return self.components[self.problem_names.index(name)]

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Raises an error: there is no data."""
        raise UsageError(
            f"{self.name!r} has no data of its own. Generate what it names:  "
            f"t2t-datagen --problem={','.join(self.problem_names)}"
        )


class MultiProblem(SeveralProblems):
    """Several problems with separate features, trained together.

    Each problem has its own model, by default of the run's class and hyperparameters.  Models share
    parameters where possible (hparam `multiproblem_shared`).  Each batch belongs to one problem.
    Generate the data of each problem separately.  Problems whose words share an embedding need
    one vocabulary: `use_vocab_from_other_problem`.

    Attributes:
      mixing_schedule: selection of the problem of each batch: "round_robin", "by_size" (in
        proportion to the problem's batches), constant proportions such as "0.7 0.3", or
        tensor2tensor's "step @0 0.7 0.3" or "linear @0 1 0 @1000 0 1".
      models: by problem, its model if it is not the run's, as "model/hparams_set" and any number of
        "/name=value"; the hparam `multiproblem_models` overrides it.
      selected: by problem, its metric in the sum used to select checkpoints, as
        "<target>/<metric>"; by default the first metric of the first target.
    """

    mixing_schedule: ClassVar[str] = "round_robin"
    models: ClassVar[Mapping[str, str]] = {}
    selected: ClassVar[Mapping[str, str]] = {}
    metrics: ClassVar[tuple[str, ...]] = ()
    batch_size_means_tokens = True
    suggested_flags = (
        "--model=transformer_encoder --hparams_set=transformer_encoder_small --train_steps=3000"
    )

    def __init__(self, *, reverse: bool = False, copy: bool = False) -> None:
        super().__init__(reverse=reverse, copy=copy)
        if len(set(self.problem_names)) != len(self.problem_names) or not self.problem_names:
            raise RegistryError(f"{self.name!r}: problem_names are to be different ones.")
        if unused := set(self.models) - set(self.problem_names):
            raise RegistryError(
                f"{self.name!r} has a model of {min(unused)!r}, which is none of its problems: "
                f"{', '.join(self.problem_names)}."
            )
        if unknown := set(self.selected) - set(self.problem_names):
            raise RegistryError(f"{self.name!r} selects a metric of {min(unknown)!r}: not its own.")

    @property
    def components(self) -> Sequence[Problem]:
        """New instances of the problems; RegistryError if one has no data of its own."""
        made = []
        for name in self.problem_names:
            if name == self.name or registry.problem(name).mixing_schedule is not None:
                raise RegistryError(
                    f"{self.name!r} names {name!r}, which has no data of its own. Name the "
                    "problems themselves in `problem_names`."
                )
            made.append(registry.problem(name))
        return made

    @property
    def vocab_files(self) -> tuple[str, ...]:
        """The vocabulary files of all problems, without duplicates."""
        names = (name for problem in self.components for name in problem.vocab_files)
        return tuple(dict.fromkeys(names))

    def stored_features(self, directory: Path) -> Features:
        """Returns the features of all problems, named as in a batch: "<problem>/<feature>"."""
        groups: dict[str, dict[str, Feature]] = {"inputs": {}, "targets": {}, "notes": {}}
        for problem in self.components:
            own = problem.features(directory)
            for name, feature in own.all.items():
                groups[own.role(name)][member(problem.full_name, name)] = feature
        return Features(groups["inputs"], groups["targets"], notes=groups["notes"])


def member(problem: str, name: str) -> str:
    """Returns the name in a batch of a problem's feature."""
    return f"{problem}/{name}"


def split_member(name: str) -> tuple[str, str]:
    """Returns the problem and the feature of a name in a batch."""
    problem, _, feature = name.partition("/")
    return problem, feature
