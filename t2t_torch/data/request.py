"""What data set is asked for, and whether it is there already."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from absl import logging

from t2t_torch.data import raw_files, vocabulary
from t2t_torch.data.lock import exclusive
from t2t_torch.data.manifest import Manifest, RawFileEntry, datagen_command
from t2t_torch.data.samples import seeded
from t2t_torch.errors import DataError
from t2t_torch.mode import Split
from t2t_torch.readers.bad_records import BadRecords, Policy

if TYPE_CHECKING:
    from t2t_torch.problem import Problem

_FLAGS = {"max_cases": "max_cases", "on_bad_record": "on_bad_record", "shuffle_seed": "random_seed"}
"""By setting, the flag of t2t-datagen that gives it."""


@dataclasses.dataclass(frozen=True)
class Request:
    """A data set that is asked for.  Make one with `Request.of`.

    Attributes:
      problem: whose.
      folder: where to.
      raw_folder: where its raw files are.
      settings: everything that changes the bytes, as JSON gives it back.
    """

    problem: Problem
    folder: Path
    raw_folder: Path
    settings: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        problem: Problem,
        data_dir: str | Path,
        tmp_dir: str | Path,
        *,
        seed: int | None,
        max_cases: int,
        on_bad_record: Policy,
    ) -> Request:
        """Checks what is asked for, and makes the folders that are not there.

        Raises:
          DataError: a folder cannot be made, or the number of shards is impossible.
          UsageError: there is no such policy.
        """
        BadRecords(on_bad_record)
        folder, raw_folder = Path(data_dir), Path(tmp_dir)
        _make_directory(folder, "the data (--data_dir)")
        _make_directory(raw_folder, "the raw files (--tmp_dir)")
        settings = {
            **problem.settings(),
            "shuffle_seed": problem.shuffle_seed if seed is None else seed,
            "max_cases": max_cases,
        }
        if on_bad_record != get_args(Policy)[0]:
            settings["on_bad_record"] = on_bad_record
        for split, count in problem.shards.items():
            if not 1 <= count <= 99999:  # five digits in a shard's name
                raise DataError(
                    f"{problem.dataset_name!r} asks for {count} {split.value} shards, not 1 to "
                    "99999. Mend the problem's `shards`."
                )
        return cls(problem, folder, raw_folder, json.loads(json.dumps(settings)))

    @property
    def name(self) -> str:
        """The data set's name."""
        return self.problem.dataset_name

    @property
    def seed(self) -> int:
        """Of the shuffle and of the global generators."""
        return int(self.settings["shuffle_seed"])

    @property
    def max_cases(self) -> int:
        """At most so many samples of each split; 0 is all."""
        return int(self.settings["max_cases"])

    @property
    def on_bad_record(self) -> Policy:
        """What becomes of bad records, and of samples that cannot be encoded."""
        policy: Policy = self.settings.get("on_bad_record", get_args(Policy)[0])
        return policy

    def where(self, split: Split) -> str:
        """The data set and the split, for messages."""
        return f"{self.name!r} {split.value}"

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Who holds this lock may change the data set."""
        return exclusive(self.folder / f".{self.name}.lock", f"generating {self.name!r}")

    def prepare(self) -> Mapping[str, RawFileEntry]:
        """Fetches the raw files; returns which they are."""
        with seeded(self.seed, "prepare"):
            return self._fetch()

    def learn(self, staging: Path) -> tuple[Mapping[str, RawFileEntry], Path]:
        """Fetches the raw files and makes the vocabulary files.

        Args:
          staging: an empty folder for what is learnt.

        Returns:
          The raw files, and the folder of all vocabulary files: the data folder if none is learnt.
        """
        # Reading for the vocabulary counts no bad record: each split's own reading does.
        self.problem.bad_records = BadRecords(self.on_bad_record)
        with seeded(self.seed, "prepare"):
            made_from = self._fetch()
            return made_from, vocabulary.make(self.problem, self.folder, self.raw_folder, staging)

    def _fetch(self) -> Mapping[str, RawFileEntry]:
        self.problem.prepare(self.raw_folder)
        return raw_files.entries(self.problem, self.raw_folder)

    def differences(self, settings: Mapping[str, Any]) -> list[str]:
        """Says of each setting how it differs from what is asked for."""
        return different_settings(settings, self.settings)

    def complete(self, *, thorough: bool) -> Manifest | None:
        """The manifest of what is there, if it is whole and what is asked for; else None.

        Args:
          thorough: hash every byte also of files that did not change since that was last done.

        Raises:
          DataError: something else is there under this name.
        """
        if not Manifest.path(self.folder, self.name).exists():
            return None
        manifest = Manifest.load(self.folder, self.name)
        if differences := self.differences(manifest.settings):
            raise self.refusal("with other settings", differences, self._flags(manifest.settings))
        if changes := raw_files.changes(self.problem, self.raw_folder, manifest.raw_files):
            raise self.refusal("from other raw files", changes)
        vocabulary.check_kept(self.problem, self.folder, manifest.vocab_files)
        try:
            manifest.verify(self.folder, thorough=thorough)
        except DataError as error:
            logging.warning("%s\nIt is made anew now.", str(error).rpartition("\n")[0])
            return None
        return manifest

    def tell_complete(self) -> None:
        """Logs that there is nothing to do."""
        logging.info("%r in %s is complete (--overwrite makes it anew).", self.name, self.folder)

    def _flags(self, settings: Mapping[str, Any]) -> str:
        """The flags that ask for what is there; "" if it differs in what no flag says."""
        usual = {"on_bad_record": get_args(Policy)[0]}
        there, asked = {**usual, **settings}, {**usual, **self.settings}
        differing = [key for key in there | asked if there.get(key) != asked.get(key)]
        if not all(key in _FLAGS and key in there for key in differing):
            return ""
        return " ".join(f"--{_FLAGS[key]}={there[key]}" for key in differing)

    def refusal(self, how: str, differences: Sequence[str], flags: str = "") -> DataError:
        """Says that the data that is there is not what is asked for, but for these flags."""
        taken = f"Take it as it is, by  {flags}\nOr keep" if flags else "Keep"
        return DataError(
            f"{self.folder} has data of {self.name!r} that was made {how}:\n  "
            + "\n  ".join(differences)
            + f"\n{taken} it and choose another --data_dir, or replace it:  "
            + f"{datagen_command(self.name, self.folder)} --overwrite"
        )


def different_settings(
    there: Mapping[str, Any], asked: Mapping[str, Any], within: str = ""
) -> list[str]:
    """Says of each setting how what is there differs from what is asked for.

    Of texts that both cut into words it is said what differs in the cutters.

    Args:
      there: as JSON gives them back.
      asked: likewise.
      within: stands before their names.
    """
    found = []
    for key in sorted(there.keys() | asked.keys()):
        one, other, name = there.get(key), asked.get(key), f"{within}{key}"
        is_part = within or key == "cutters"
        if is_part and isinstance(one, Mapping) and isinstance(other, Mapping):
            found += different_settings(one, other, f"{name}.")
        elif one != other:
            found.append(f"{name}: there {one!r}, asked {other!r}")
    return found


def _make_directory(path: Path, purpose: str) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"The directory for {purpose}, {path}, cannot be made: {error.strerror}. "
            "Choose another."
        ) from None
