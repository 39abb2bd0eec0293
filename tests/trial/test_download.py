"""download_data is called once on a machine, and nobody waits for what will not come."""

from __future__ import annotations

import json
import socket
import tempfile
import threading
import urllib.request
from pathlib import Path

import pytest
from together import run_together

from t2t_torch.distributed.process_group import ONE_PROCESS
from t2t_torch.errors import TrialError
from t2t_torch.trial.preparation import download
from t2t_torch.trial.pytorch_trial import InvalidHP, TrialContext
from t2t_torch.trial.user_code import Definition

PROCESS = Path(__file__).parent / "downloading_process.py"

TRIAL = """
import os, time
from pathlib import Path

from pedl.frameworks.pytorch import PyTorchTrial


def download_data(experiment_config, hparams):
    folder, way = Path(experiment_config["data"]["folder"]), experiment_config["data"]["way"]
    with open(folder / "calls", "a") as file:
        file.write("%s\\n" % time.time())
    if way == "raises":
        raise OSError("the server is on fire")
    if way == "dies":
        os._exit(7)
    if way == "lasts":
        time.sleep(4)
    return str(folder)


def make_data_loaders(experiment_config, hparams): pass


class MyTrial(PyTorchTrial):
    def build_model(self, hparams): pass
    def optimizer(self, model): pass
    def losses(self, predictions, labels): pass
    def validation_metrics(self, predictions, labels, losses): pass
"""


def of_three(folder: Path, way: str) -> tuple[list[int], dict[int, str], float]:
    """The exit codes, the results by rank, and the most seconds that one came after the call."""
    (folder / "trial.py").write_text(TRIAL)
    local = {rank: {"LOCAL_RANK": str(rank)} for rank in range(3)}
    codes, _ = run_together([PROCESS, folder / "trial.py", folder, way], 3, local)
    called = [float(line) for line in (folder / "calls").read_text().splitlines()]
    assert len(called) == 1
    files = sorted(folder.glob(f"{way}-*.json"))
    result = {int(file.stem[-1]): json.loads(file.read_text()) for file in files}
    most = max(at for _, at in result.values()) - called[0]
    return codes, {rank: text for rank, (text, _) in result.items()}, most


def test_it_is_called_once_and_all_processes_have_its_path(tmp_path):
    assert of_three(tmp_path, "returns")[1] == dict.fromkeys(range(3), str(tmp_path))


def test_what_it_raises_is_raised_in_all_processes_with_its_traceback(tmp_path):
    _, result, _ = of_three(tmp_path, "raises")
    assert result.keys() == {0, 1, 2}
    for said in result.values():
        assert "trial.py" in said and "in download_data" in said
        assert said.endswith("OSError: the server is on fire")


@pytest.mark.parametrize("way", ["dies", "lasts"])
def test_a_process_that_dies_or_takes_long_is_not_waited_for(tmp_path, way):
    codes, result, seconds = of_three(tmp_path, way)
    assert way == "lasts" or codes[0] == 7
    for rank in (1, 2):
        assert "The process that called download_data" in result[rank]
        assert "died, or took more than" in result[rank]
        assert "--download_timeout" in result[rank]
    assert seconds < 10


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def defined(download_data) -> Definition:
    return Definition("a.py", Path("a.py"), object, download_data, None)


def call_download(function) -> Path | None:
    context = TrialContext({"data": {"x": 1}}, {"lr": 0.1})
    return download(defined(function), context, ONE_PROCESS, timeout_s=600)


def test_a_trial_may_have_none():
    assert call_download(None) is None


def test_it_is_given_the_configuration_and_may_change_it(tmp_path):
    seen = []

    def download_data(experiment_config, hparams):
        seen.append((experiment_config.pop("data"), hparams.pop("lr")))
        return str(tmp_path)

    assert call_download(download_data) == tmp_path
    assert call_download(download_data) == tmp_path  # a new start calls it again
    assert seen == [({"x": 1}, 0.1)] * 2
    assert call_download(lambda: str(tmp_path)) == tmp_path


def test_a_relative_directory_is_made_absolute(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    assert call_download(lambda: "data") == tmp_path / "data"


@pytest.mark.parametrize(
    ("result", "fault"),
    [
        (None, "returned None; an existing directory, as a string, was expected. Is a return"),
        (Path("/tmp"), "an existing directory, as a string"),
        ("/no/such/place", "returned '/no/such/place'; an existing directory"),
    ],
)
def test_what_is_no_directory_is_told(result, fault):
    with pytest.raises(TrialError) as caught:
        call_download(lambda: result)
    assert fault in str(caught.value)


def test_another_number_of_arguments_is_told():
    with pytest.raises(TrialError, match=r"Accepted is download_data\(experiment_config, hpa"):
        call_download(lambda config: "")


@pytest.mark.parametrize("error", [InvalidHP("too large"), KeyboardInterrupt()])
def test_other_errors_are_raised_as_they_are(error):
    def download_data():
        raise error

    with pytest.raises(type(error)) as caught:
        call_download(download_data)
    assert caught.value is error


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

    jobs = [threading.Thread(target=call_download, args=(download_data,)) for _ in range(2)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert most == [1, 1]


def test_a_download_that_fails_is_told_with_the_users_lines_only():
    with socket.socket() as closed:  # a port that nobody listens at
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/a.gz"

    def download_data():
        urllib.request.urlretrieve(url)

    with pytest.raises(TrialError) as caught:
        call_download(download_data)
    said = str(caught.value)
    assert said.startswith(
        "download_data of a.py failed to download: Connection refused. Try again, or get "
    )
    assert "urlretrieve(url)" in said
    assert "urllib/request.py" not in said
