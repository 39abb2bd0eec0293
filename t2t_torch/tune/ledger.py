"""The ledger of a search: what has happened, in one order that all tuners agree on.

It is kept in optuna's storage, whatever that is: a journal file by default, SQLite, PostgreSQL.  An
entry is a trial of a study of its own, `<search>/ledger`, which the storage creates whole, gives
the next number and never changes: that is all that agreement needs.  Beside it stands the study of
the search's name, which optuna's tools read; it is written and never read by a search.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from t2t_torch.errors import DataError
from t2t_torch.tune.optuna_extra import optuna_module

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

_T = TypeVar("_T")
_PATIENCE_SECONDS = 60.0  # with a database that does not answer


class Ledger:
    """The entries of one search.

    Args:
      storage: see `study.open_storage`.
      name: of the search; several may share a storage.
    """

    def __init__(self, storage: BaseStorage, name: str) -> None:
        self.storage = storage
        self.name = name
        self._optuna = optuna_module()
        self._study = self._insist(lambda: self._study_id(_study_name(name)))
        self._read = 0

    @staticmethod
    def is_in(storage: BaseStorage, name: str) -> bool:
        """Whether a storage has the ledger of a search; nothing is made."""
        try:
            storage.get_study_id_from_name(_study_name(name))
        except KeyError:
            return False
        return True

    def new_entries(self) -> list[dict[str, Any]]:
        """Returns the entries that have come since the last call, in their order."""
        trials = self._insist(lambda: self.storage.get_all_trials(self._study, deepcopy=False))
        entries = []
        for trial in trials[self._read :]:
            try:
                entries.append(json.loads(trial.user_attrs["entry"]))
            except (KeyError, TypeError, ValueError) as error:
                raise DataError(
                    f"entry {trial.number} of the search's ledger is damaged: {error!r}. Was it "
                    "changed by hand? Begin in another --output_dir, or with another --study_name."
                ) from error
        self._read = len(trials)
        return entries

    def append(self, entry: Mapping[str, Any]) -> None:
        """Adds an entry; what came of it is known when it is read."""
        text = json.dumps({**entry, "time": round(time.time(), 3)})
        template = self._optuna.trial.create_trial(
            state=self._optuna.trial.TrialState.COMPLETE, value=0.0, user_attrs={"entry": text}
        )
        # Where the answer is lost it is added twice; the second one is void.
        self._insist(lambda: self.storage.create_new_trial(self._study, template))

    def note(self, key: str, value: Any) -> None:
        """Sets a note of the search; the last one of a key holds."""
        self._insist(lambda: self.storage.set_study_user_attr(self._study, key, value))

    def notes(self) -> dict[str, Any]:
        """Returns the notes."""
        return self._insist(lambda: self.storage.get_study_user_attrs(self._study))

    def _study_id(self, name: str) -> int:
        optuna = self._optuna
        with contextlib.suppress(KeyError):
            return int(self.storage.get_study_id_from_name(name))
        minimize = optuna.study.StudyDirection.MINIMIZE
        try:
            return int(self.storage.create_new_study([minimize], name))
        except optuna.exceptions.DuplicatedStudyError:  # by another tuner, at this moment
            return int(self.storage.get_study_id_from_name(name))

    def _insist(self, action: Callable[[], _T]) -> _T:
        """Does something with the storage, again for a minute where a database is away or busy."""
        began, pause = time.monotonic(), 0.1
        while True:
            try:
                return action()
            except self._optuna.exceptions.StorageInternalError as error:
                if time.monotonic() - began > _PATIENCE_SECONDS:
                    cause = error.__cause__ or error
                    raise DataError(
                        f"the storage of the search does not answer: {cause}. Run the same "
                        "command when it does: the search goes on."
                    ) from error
            except (ValueError, json.JSONDecodeError) as error:
                raise DataError(
                    f"the storage of the search is damaged: {error}. Restore it, or begin in "
                    "another --output_dir."
                ) from error
            time.sleep(pause)
            pause = min(2 * pause, 2.0)


def _study_name(search: str) -> str:
    return f"{search}/ledger"
