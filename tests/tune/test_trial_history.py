"""One order that all agree on, whatever was killed when."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from t2t_torch.errors import CheckpointError, DataError, UsageError
from t2t_torch.search_space import Double, Space
from t2t_torch.tune.search_plan import SearchPlan

pytest.importorskip("optuna")

from t2t_torch.tune import study
from t2t_torch.tune.shared_search import SharedSearch
from t2t_torch.tune.study import JOURNAL, Heartbeat, TrialHistory, open_storage, without_password

PLAN = SearchPlan("random", "loss", lower_is_better=True, length=10, max_trials=3)
SPACE = Space({"x": Double(0.0, 1.0)})
WRITER = """
import sys
from pathlib import Path
from t2t_torch.tune.study import TrialHistory
from t2t_torch.tune.study import open_storage
ledger = TrialHistory(open_storage(Path(sys.argv[1]), sys.argv[2]), "s")
for number in range(20):
    ledger.append({"do": "x", "who": sys.argv[3], "number": number})
"""


def history(folder) -> TrialHistory:
    return TrialHistory(open_storage(folder, ""), "s")


def joined(folder) -> SharedSearch:
    search = SharedSearch(history(folder))
    search.begin(PLAN, SPACE, {"problem": "p"})
    return search


def test_what_two_processes_write_at_once_has_one_order(tmp_path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), "", who]) for who in "ab"
    ]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    one, other = history(tmp_path).new_entries(), history(tmp_path).new_entries()
    assert one == other
    assert len(one) == 40
    for who in "ab":
        assert [entry["number"] for entry in one if entry["who"] == who] == list(range(20))


def test_an_entry_that_a_kill_has_cut_is_none(tmp_path) -> None:
    first = history(tmp_path)
    first.append({"do": "a"})
    journal = tmp_path / JOURNAL
    whole = journal.read_bytes()
    first.append({"do": "b"})
    longer = journal.read_bytes()
    for cut in (1, len(longer) - len(whole) - 1):
        journal.write_bytes(longer[: len(whole) + cut])
        again = history(tmp_path)
        assert [entry["do"] for entry in again.new_entries()] == ["a"]
        again.append({"do": "c"})
        assert [entry["do"] for entry in history(tmp_path).new_entries()] == ["a", "c"]


def test_a_journal_that_is_damaged_inside_is_told(tmp_path) -> None:
    first = history(tmp_path)
    for word in "abc":
        first.append({"do": word})
    journal = tmp_path / JOURNAL
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:-2], b"{torn\n", lines[-1]]))
    with pytest.raises(DataError, match="damaged"):
        history(tmp_path).new_entries()


def test_of_two_that_ask_for_one_trial_one_has_it(tmp_path) -> None:
    one, other = joined(tmp_path), joined(tmp_path)
    with (
        Heartbeat(tmp_path, one.history, beats=False) as a,
        Heartbeat(tmp_path, other.history, beats=False) as b,
    ):
        assert a.place == b.place
        taken = [one.take(a), other.take(b), one.take(a)]
        assert [task.trial for task in taken] == [0, 1, 2]
        assert other.take(b) is None
        assert not other.report(b, "leave", 0)  # it is a's
        assert one.report(a, "leave", 0)
        assert other.take(b).trial == 0


def test_the_trials_of_the_dead_are_freed_once(tmp_path) -> None:
    one, other = joined(tmp_path), joined(tmp_path)
    with Heartbeat(tmp_path, one.history, beats=False) as a:
        one.take(a)
        with Heartbeat(tmp_path, other.history, beats=False) as b:
            other.sync()
            assert other.free_lost(b) == []
    with Heartbeat(tmp_path, other.history, beats=False) as b:
        assert [trial.number for trial in other.free_lost(b)] == [0]
        assert other.free_lost(b) == []


def test_a_trial_waits_for_those_who_have_its_checkpoint(tmp_path, monkeypatch) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    storage = f"sqlite:///{tmp_path}/search.db"
    pytest.importorskip("sqlalchemy")
    searches = [
        SharedSearch(TrialHistory(open_storage(folder, storage), "s")) for folder in (here, there)
    ]
    for search in searches:
        search.begin(PLAN, SPACE, {})
    now = [1000.0]
    monkeypatch.setattr("t2t_torch.tune.study.time.monotonic", lambda: now[0])
    with Heartbeat(there, searches[1].history, beats=True) as b:
        a = Heartbeat(here, searches[0].history, beats=True)
        a.__enter__()
        assert searches[0].take(a).trial == 0
        searches[0].report(a, "leave", 0)
        assert searches[1].take(b).trial == 1  # not the first one's, whose place is alive
        a.__exit__(None, None, None)
        assert searches[1].take(b).trial == 2
        assert searches[1].take(b) is None
        now[0] += 1000.0  # nothing was heard of that place
        assert searches[1].take(b).trial == 0


def test_of_two_that_begin_the_same_search_one_begins_it(tmp_path) -> None:
    one, other = joined(tmp_path), joined(tmp_path)
    assert one.id == other.id != ""
    # Both had looked before either of them wrote.
    began = {"do": "begin", "id": "late", "plan": vars(PLAN), "space": SPACE.to_list()}
    other.history.append({**began, "subject": {"problem": "p"}})
    one.sync()
    assert one.id == other.id
    # Another one, before anything has come of it, is begun anew.
    again = SharedSearch(history(tmp_path))
    again.begin(PLAN, SPACE, {"problem": "q"})
    one.sync()
    assert one.id == again.id != other.id


def test_whose_ledger_is_there_can_be_looked_for(tmp_path) -> None:
    storage = open_storage(tmp_path, "")
    assert not TrialHistory.is_in(storage, "s")
    TrialHistory(storage, "s")
    assert TrialHistory.is_in(storage, "s")
    assert not TrialHistory.is_in(storage, "t")


def test_a_place_tells_where_it_is_if_there_are_others(tmp_path) -> None:
    search = joined(tmp_path)
    with Heartbeat(tmp_path, search.history, beats=True) as heartbeat:
        search.take(heartbeat)
    assert search.whereabouts(0).endswith(f":{tmp_path}")


def test_a_database_that_others_begin_at_this_moment_is_opened_again(tmp_path, monkeypatch) -> None:
    error = pytest.importorskip("sqlalchemy.exc").OperationalError
    storages = study.optuna_module().storages
    opened = storages.get_storage
    said = ["table studies already exists", "UNIQUE constraint failed: alembic_version"]

    def busy(database):
        if said:
            raise error("CREATE TABLE", {}, Exception(said.pop(0)))
        return opened(database)

    monkeypatch.setattr(storages, "get_storage", busy)
    monkeypatch.setattr(study, "_PAUSES", (0.0, 0.0))
    url = f"sqlite:///{tmp_path}/search.db"
    TrialHistory(open_storage(tmp_path, url), "s")
    assert (tmp_path / "search.db.lock").exists()
    said[:] = ["deadlock detected"] * 3
    with pytest.raises(UsageError, match="deadlock"):
        open_storage(tmp_path, url)


def test_many_begin_a_database_at_once(tmp_path) -> None:
    pytest.importorskip("sqlalchemy")
    url = f"sqlite:///{tmp_path}/search.db"
    with ThreadPoolExecutor(4) as pool:
        assert len(list(pool.map(lambda _: open_storage(tmp_path, url), range(4)))) == 4


def test_another_search_is_told_what_it_differs_in(tmp_path) -> None:
    first = joined(tmp_path)
    with Heartbeat(tmp_path, first.history, beats=False) as heartbeat:
        first.take(heartbeat)
        other = Space({"x": Double(0.0, 2.0), "y": Double(0.0, 1.0)})
        with pytest.raises(CheckpointError) as caught:
            SharedSearch(history(tmp_path)).begin(PLAN, other, {"problem": "q"})
    lines = str(caught.value)
    for part in ("space of x", "space of y: None there", "problem: 'p' there, 'q' requested"):
        assert part in lines


def test_passwords_are_not_shown() -> None:
    assert without_password("postgresql://me:secret@host/db") == "postgresql://me:***@host/db"
    assert without_password("sqlite:///search.db") == "sqlite:///search.db"


def test_a_url_that_nobody_answers_is_told(tmp_path) -> None:
    with pytest.raises(UsageError, match="cannot be opened"):
        open_storage(tmp_path, f"sqlite:///{tmp_path}/no/folder.db")
