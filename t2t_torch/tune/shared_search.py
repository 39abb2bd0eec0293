"""A search that tuners share: its ledger, what follows from it, and who is alive."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

from t2t_torch.errors import CheckpointError, DataError
from t2t_torch.tune.ledger import Ledger
from t2t_torch.tune.presence import Presence, whereabouts
from t2t_torch.tune.search_plan import SearchPlan, differences
from t2t_torch.tune.searcher import Searcher, Task
from t2t_torch.tune.space import Space
from t2t_torch.tune.trial_state import TrialState

NONE_BEGUN = (
    "no search was begun here. Begin one: t2t-tuner --problem=... --model=... --hparams_set=... "
    "--hparams_range=... --data_dir=... --output_dir=..."
)


class SharedSearch:
    """What one tuner sees of a search, and what it adds.

    Args:
      ledger: of the search.

    Attributes:
      began: seconds since 1970, of the first entry; 0 before it.
      last: of the newest one.
      id: of its beginning, the same to all tuners; empty if it was begun before there were ids.
      subject: what is trained, as the search was begun with.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.began = 0.0
        self.last = 0.0
        self.id = ""
        self.subject: dict[str, Any] = {}
        self._searcher: Searcher | None = None

    @property
    def searcher(self) -> Searcher:
        """The state of the search."""
        if self._searcher is None:
            raise DataError(NONE_BEGUN)
        return self._searcher

    @property
    def has_begun(self) -> bool:
        """Whether somebody has begun it."""
        return self._searcher is not None

    def begin(self, plan: SearchPlan, space: Space, subject: Mapping[str, Any]) -> None:
        """Begins the search, or joins it if it is the same.

        Args:
          plan: what is asked for.
          space: what is searched.
          subject: what is trained, as JSON can say it.

        Raises:
          CheckpointError: another search is kept here; says what it differs in.
        """
        self.sync()
        asked: dict[str, Any] = json.loads(
            json.dumps({"plan": plan.to_dict(), "space": space.to_list(), "subject": dict(subject)})
        )
        begin = {"do": "begin", "id": uuid.uuid4().hex[:12], **asked}
        if not self.has_begun:  # of two that begin at once, the second finds the first one's
            self._add(begin)
        told = self._differences(asked)
        if told and self.searcher.is_blank:  # nothing would be lost
            self._add(begin)
            told = self._differences(asked)
        if told:
            raise CheckpointError(
                "another search is kept here, and it cannot go on as this one:\n  "
                + "\n  ".join(told)
                + "\nGo on with it: t2t-tuner with the same flags, or with --output_dir alone. Or "
                "begin this one in another --output_dir (of a shared --storage, with another "
                "--study_name)."
            )

    def _differences(self, asked: Mapping[str, Any]) -> list[str]:
        """Returns what the search that is kept here differs in from the one that is asked for."""
        plan, space = SearchPlan.from_dict(asked["plan"]), Space.from_list(asked["space"])
        told = differences((self.searcher.plan, self.searcher.space), (plan, space))
        return told + [
            f"{name}: {self.subject.get(name)!r} there, {value!r} asked for"
            for name, value in asked["subject"].items()
            if self.subject.get(name) != value
        ]

    def sync(self) -> list[tuple[Mapping[str, Any], bool]]:
        """Takes what has been added; returns the entries, and whether each was valid."""
        taken: list[tuple[Mapping[str, Any], bool]] = []
        for entry in self.ledger.new_entries():
            self.last = float(entry.get("time", self.last))
            if self._searcher is None and entry.get("do") != "begin":
                raise DataError("the search's ledger does not begin with its beginning.")
            if self._searcher is None or self._begins_anew(entry):
                self.began, self.subject = self.last, dict(entry["subject"])
                self.id = str(entry.get("id", ""))
                plan, space = SearchPlan.from_dict(entry["plan"]), Space.from_list(entry["space"])
                self._searcher = Searcher(plan, space)
                taken.append((entry, True))
            else:
                taken.append((entry, self._searcher.apply(entry)))
        return taken

    def _begins_anew(self, entry: Mapping[str, Any]) -> bool:
        """Whether an entry begins another search, where nothing is lost.

        The same one has begun already: of two tuners that bring it at the same moment, the second
        one joins.
        """
        may = entry["do"] == "begin" and self.searcher.is_blank
        return may and bool(self._differences(entry))

    def take(self, presence: Presence) -> Task | None:
        """Claims what is to be done next; None if there is nothing for this tuner now."""

        def is_reachable(trial: TrialState) -> bool:
            # Elsewhere it waits for those who have its checkpoint, or begins anew without them.
            return trial.place == presence.place or not presence.place_is_alive(trial.place)

        while True:
            self.sync()
            task = self.searcher.next_task(is_reachable)
            if task is None:
                return None
            entry: dict[str, Any] = {
                "do": "take",
                "tuner": presence.tuner,
                "place": presence.place,
                "trial": task.trial,
                "to": task.to,
            }
            if task.is_new:
                entry |= {"hparams": dict(task.hparams), "is_default": task.is_default}
            if self._add(entry):
                return task

    def tell(self, presence: Presence, do: str, trial: int, **more: Any) -> bool:
        """Adds what became of a trial; returns whether it was this tuner's to tell."""
        return self._add({"do": do, "tuner": presence.tuner, "trial": trial, **more})

    def whereabouts(self, trial: int) -> str:
        """Returns the machine and the folder of who trained a trial last; empty if unknown."""
        return whereabouts(self.ledger, self.searcher.trials[trial].place)

    def free_lost(self, presence: Presence) -> list[TrialState]:
        """Frees the trials of tuners that are dead; returns those that this call has freed."""
        held = [trial for trial in self.searcher.trials if trial.status == "held"]
        freed = []
        for trial in held:
            if not presence.is_alive(trial.tuner, trial.place):
                entry = {"do": "lost", "tuner": presence.tuner, "trial": trial.number}
                if self._add({**entry, "holder": trial.tuner}):
                    freed.append(trial)
        return freed

    def _add(self, entry: Mapping[str, Any]) -> bool:
        """Adds an entry; returns whether it was valid when its turn came."""
        written = json.loads(json.dumps(entry))
        self.ledger.append(written)
        return any(
            valid and {key: one.get(key) for key in written} == written
            for one, valid in self.sync()
        )
