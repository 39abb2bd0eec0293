"""download_data is called once on a machine, and nobody waits for what will not come."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import forked
import pytest

from t2t_torch.distributed.process_group import ONE_PROCESS
from t2t_torch.errors import TrialError
from t2t_torch.trial.definition import Definition
from t2t_torch.trial.preparation import download_once, this_start
from t2t_torch.trial.pytorch_trial import InvalidHP, TrialContext

SECONDS = 600  # until processes that hang are killed, and the test fails

TRIAL = """
import os, time
from pathlib import Path

from pedl.frameworks.pytorch import PyTorchTrial


def download_data(experiment_config, hparams):
    folder, way = Path(experiment_config["data"]["folder"]), experiment_config["data"]["way"]
    while len(list(folder.glob("waits-%s-*" % way))) < 3:  # all three are about to ask
        time.sleep(0.01)
    with open(folder / "calls", "a") as file:
        file.write("%s %s\\n" % (way, time.time()))
    if way == "raises":
        raise OSError("the server is on fire")
    if way == "dies":
        os._exit(7)
    return str(folder)


def make_data_loaders(experiment_config, hparams): pass


class MyTrial(PyTorchTrial):
    def build_model(self, hparams): pass
    def optimizer(self, model): pass
    def losses(self, predictions, labels): pass
    def validation_metrics(self, predictions, labels, losses): pass
"""


@pytest.fixture(scope="module")
def of_three(tmp_path_factory):
    folder = tmp_path_factory.mktemp("three")
    (folder / "trial.py").write_text(TRIAL)
    program = [Path(__file__).parent / "downloading_process.py", folder / "trial.py", folder]
    processes = [
        forked.start_program(
            [*program, str(rank)], folder / f"told-{rank}", {"TMPDIR": str(folder)}
        )
        for rank in range(3)
    ]
    for process in processes:
        process.join(SECONDS)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    result = [json.loads((folder / f"found-{rank}.json").read_text()) for rank in range(3)]
    calls = [line.split() for line in (folder / "calls").read_text().splitlines()]
    return folder, codes, result, dict(calls), len(calls)


def test_it_is_called_once_and_all_processes_have_its_path(of_three):
    folder, _, result, _, count = of_three
    assert [each["returns"] for each in result] == [str(folder)] * 3
    assert count == 3  # once each way, for three processes


def test_what_it_raises_is_raised_in_all_processes_with_its_traceback(of_three):
    _, _, result, calls, _ = of_three
    for each in result:
        assert "trial.py" in each["raises"] and "in download_data" in each["raises"]
        assert each["raises"].endswith("OSError: the server is on fire")
        assert each["raises at"] - float(calls["raises"]) < 10


def test_a_process_that_dies_in_it_is_not_waited_for(of_three):
    _, codes, result, calls, _ = of_three
    assert codes == [7, 0, 0]
    for each in result[1:]:
        assert "The process that called download_data" in each["dies"]
        assert each["dies at"] - float(calls["dies"]) < 10


def test_every_start_has_its_own_name():
    assert this_start(ONE_PROCESS) != this_start(ONE_PROCESS)


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def defined(download_data) -> Definition:
    return Definition("a.py", Path("a.py"), object, download_data, None, "documented", False, "a")


def download(function, *, rank: int = 0, start: str = "1", seconds: float = 600) -> Path | None:
    made = TrialContext({"data": {"x": 1}}, {"lr": 0.1})
    return download_once(
        defined(function), made, timeout_s=seconds, local_rank=rank, attempt_id=start
    )


def test_without_it_nobody_waits():
    assert download(None, rank=1) is None


def test_it_is_given_the_configuration_and_may_change_it(tmp_path):
    seen = []

    def download_data(experiment_config, hparams):
        seen.append((experiment_config.pop("data"), hparams.pop("lr")))
        return str(tmp_path)

    assert download(download_data, start="1") == tmp_path
    assert download(download_data, start="2") == tmp_path  # a new start calls it again
    assert seen == [({"x": 1}, 0.1)] * 2
    assert download(lambda: str(tmp_path), start="3") == tmp_path


def test_a_relative_directory_is_made_absolute(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    assert download(lambda: "data") == tmp_path / "data"


@pytest.mark.parametrize(
    ("result", "fault"),
    [
        (None, "returned None; a directory, as a string, was expected. Is a return missing?"),
        (Path("/tmp"), "a directory, as a string"),
        ("/no/such/place", "returned '/no/such/place', but /no/such/place is no directory."),
    ],
)
def test_what_is_no_directory_is_told_in_every_process(result, fault):
    for rank in (0, 1):
        with pytest.raises(TrialError) as caught:
            download(lambda: result, rank=rank)
        assert fault in str(caught.value)


def test_another_number_of_arguments_is_told_in_every_process():
    for rank in (0, 1):
        with pytest.raises(TrialError, match=r"Accepted is download_data\(experiment_config, hpa"):
            download(lambda config: "", rank=rank)


def test_impossible_hyperparameters_are_told_as_that_in_every_process():
    def download_data():
        raise InvalidHP("too large")

    for rank in (0, 1):
        with pytest.raises(InvalidHP, match="too large"):
            download(download_data, rank=rank)


def test_what_ends_the_process_ends_it_and_the_others_are_told():
    def download_data():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(download_data)
    with pytest.raises(TrialError, match="KeyboardInterrupt"):
        download(download_data, rank=1)


def test_nobody_waits_longer_than_asked():
    with pytest.raises(TrialError, match=r"more than 0\.05 seconds.*--download_timeout"):
        download(lambda: "", rank=1, seconds=0.05)


def test_two_jobs_of_one_trial_call_it_one_after_the_other(tmp_path):
    inside, most = [], []
    together = threading.Event()

    def download_data():
        inside.append(1)
        most.append(len(inside))
        if len(inside) > 1:
            together.set()
        together.wait(0.2)
        inside.pop()
        return str(tmp_path)

    jobs = [threading.Thread(target=download, args=(download_data,), kwargs={"start": start})
            for start in "12"]  # fmt: skip
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert most == [1, 1]


def test_what_old_starts_have_left_is_removed(tmp_path):
    download(lambda: str(tmp_path), start="old")
    folder = next(tmp_path.glob("t2t_torch-*"))
    left = list(folder.glob("*-*"))
    assert len(left) == 2
    for path in left:
        os.utime(path, (time.time() - 1e6,) * 2)
    download(lambda: str(tmp_path), start="new")
    assert not any(path.exists() for path in left)
    assert folder.stat().st_mode & 0o077 == 0


def test_a_download_that_fails_is_told_with_the_users_lines_only():
    with socket.socket() as closed:  # a port that nobody listens at
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/a.gz"

    def download_data():
        urllib.request.urlretrieve(url)

    with pytest.raises(TrialError) as caught:
        download(download_data)
    said = str(caught.value)
    assert said.startswith(
        "download_data of a.py failed to download: Connection refused. Try again, or get "
    )
    assert "urlretrieve(url)" in said
    assert "urllib/request.py" not in said
