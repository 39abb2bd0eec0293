"""Commands and flags of tensor2tensor: t2t-build-vocab, t2t-query-server, flags without effect."""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from t2t_torch.bin.commands import COMMANDS, build_vocab, datagen, decoder, query_server, trainer
from t2t_torch.bin.tensor2tensor_flags import OF_COMMAND, OLD, hint, without_unused
from t2t_torch.errors import UsageError

FLAGS_FILE = Path(__file__).parents[1] / "golden" / "tensor2tensor_flags.txt"
REFUSED_DEFAULTS = {"--cloud_tpu_name=user-tpu"}


def tensor2tensor_commands() -> dict[str, list[tuple[str, str, str]]]:
    """Kind, name and default of the flags of tensor2tensor's commands."""
    commands: dict[str, list[tuple[str, str, str]]] = {}
    for line in FLAGS_FILE.read_text().splitlines():
        if line.startswith("## "):
            flags = commands.setdefault(line[3:], [])
        elif line and not line.startswith("#"):
            kind, name, default = line.split(" ", 2)
            flags.append((kind, name, default))
    for name in ("t2t-decoder", "t2t-eval", "t2t-exporter"):
        commands[name] += commands["t2t-trainer"]
    return commands


@pytest.mark.parametrize("command", tensor2tensor_commands())
def test_every_flag_of_tensor2tensor_is_accepted_left_out_or_refused_with_the_mend(command):
    for kind, name, default in tensor2tensor_commands()[command]:
        values = {"string": ["x", ""], "bool": ["true", "False"], "integer": ["7"]}.get(kind, ["1"])
        defaults = [] if default == "None" else [default.strip('"')]
        for value in dict.fromkeys([*values, *defaults]):
            argument = f"--{name}={value}"
            try:
                COMMANDS[command].settings_of([argument])
            except UsageError as error:
                assert re.search(r"of tensor2tensor; here .|: expected ", str(error)), argument
                assert [value] != defaults or argument in REFUSED_DEFAULTS, argument


def test_a_decoder_takes_a_trainers_flags_but_not_its_settings_of_sampling(capsys):
    given = ["--hparams=batch_size=8", "--train_steps", "9", "--task_id", "-1", "--problem=a"]
    kept = without_unused(["problem"], given, "t2t-decoder")
    assert kept == ["--task_id", "-1", "--problem=a"]
    assert "--hparams is left out: the run directory has them" in capsys.readouterr().err
    assert decoder.main(["--hparams=sampling_method=random", "--output_dir=run"]) == 2
    assert "settings of sampling are --decode_hparams" in capsys.readouterr().err
    assert without_unused(["task_id"], ["--task_id", "-1", "--task_id=2"], "t2t-datagen") == [
        "--task_id=2"
    ]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["--worker_gpu=1", "--problem=a"], ["--problem=a"]),
        (["--worker_gpu", "1", "--problem=a"], ["--problem=a"]),
        (["--worker_gpu=4"], ["--worker_gpu=4"]),
        (["--sync", "--problem=a"], ["--problem=a"]),
        (["--nosync", "--problem=a"], ["--problem=a"]),
        (["--nouse_tpu", "--ps_replicas=0"], []),
        (["--use_tpu"], ["--use_tpu"]),
        (["--use_tpu=False"], []),
        (["--known", "--problem", "a"], ["--known", "--problem", "a"]),
        (["--ps_job", "/job:ps", "x"], ["x"]),
        (["--num_shards=3"], ["--num_shards=3"]),
    ],
)
def test_flags_without_effect_are_left_out(given, kept):
    assert without_unused(["problem", "known"], given) == kept


def test_a_file_of_flags_may_have_hparams_of_tensor2tensor_that_nothing_reads(tmp_path, capsys):
    file = tmp_path / "run.json"
    for value, code in ((False, 0), (True, 2)):
        hparams = {"symbol_modality_num_shards": 16, "hidden_size": 8, "proximity_bias": value}
        flags = {"model": "transformer", "hparams_set": "transformer_tiny", "hparams": hparams}
        file.write_text(json.dumps(flags))
        assert trainer.main([f"--config={file}", "--help_hparams"]) == code
    assert "'proximity_bias': tensor2tensor has it" in capsys.readouterr().err


def test_a_flag_that_a_command_has_is_its_own():
    assert without_unused(["worker_gpu"], ["--worker_gpu=1"]) == ["--worker_gpu=1"]


def test_a_flag_that_is_left_out_is_named(capsys):
    without_unused([], ["--eval_throttle_seconds=600"])
    assert "--eval_throttle_seconds is left out: --local_eval_freq" in capsys.readouterr().err


def test_every_flag_has_a_sentence_for_an_error():
    assert all(hint(name) for name in OLD)
    assert all(hint(name, command) for command, own in OF_COMMAND.items() for name in own)
    assert hint("problem") == ""


def test_a_vocabulary_is_built_once_and_is_that_of_datagen(tmp_path, capsys):
    (tmp_path / "raw").mkdir()
    for split in ("train", "eval"):
        for side in ("inputs", "targets"):
            (tmp_path / "raw" / f"{side}.{split}.txt").write_text("a text of words\n" * 50)
    flags = ["--problem=text2text_tmpdir", f"--tmp_dir={tmp_path / 'raw'}"]
    first, second = tmp_path / "a", tmp_path / "b"
    assert build_vocab.main([*flags, f"--data_dir={first}"]) == 0
    assert capsys.readouterr().out.startswith("built  ")
    assert build_vocab.main([*flags, f"--data_dir={first}"]) == 0
    assert capsys.readouterr().out.startswith("kept  ")
    assert datagen.main([*flags, f"--data_dir={second}"]) == 0
    (file,) = first.glob("vocab.*")
    assert file.read_bytes() == (second / file.name).read_bytes()
    assert build_vocab.main(["--problem=algorithmic_reverse_binary40_test",
                             f"--data_dir={first}"]) == 2  # fmt: skip
    assert "has no vocabulary" in capsys.readouterr().err


class _Server(BaseHTTPRequestHandler):
    """Answers as t2t-server."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = body["inputs"][0]
        record = {"targets": {"value": f"{text} in reverse"}}
        if isinstance(text, dict):
            record["more"] = {"value": 0.5}
            record["targets"] = {"value": "yes"}
        content, status = {"outputs": [record]}, 200
        if self.path != "/predict" and self.path != "/models/one/predict":
            content, status = {"error": "there is no model 'two'; there are: one."}, 404
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, *_: object) -> None:
        """Writes nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    """The address of a server."""
    http = HTTPServer(("127.0.0.1", 0), _Server)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"127.0.0.1:{http.server_port}"
    http.shutdown()
    thread.join()
    http.server_close()


def test_a_server_is_asked_once_or_for_each_line(server, capsys, monkeypatch):
    assert query_server.main([f"--server={server}", "--inputs_once=a b"]) == 0
    monkeypatch.setattr("sys.stdin", io.StringIO('c\n{"first": "d"}\n\n'))
    flags = [f"--server=http://{server}/", "--servable_name=one", "--problem=poetry"]
    assert query_server.main(flags) == 0
    assert capsys.readouterr().out.splitlines() == [
        "a b in reverse",
        "c in reverse",
        '{"targets": "yes", "more": 0.5}',
        " in reverse",
    ]


def test_errors_of_a_server_are_shown(server, capsys):
    flags = [f"--server={server}", "--servable_name=two", "--inputs_once=a"]
    assert query_server.main(flags) == 2
    assert "there is no model 'two'; there are: one." in capsys.readouterr().err
    assert query_server.main(["--server=127.0.0.1:9", "--inputs_once=a"]) == 2
    assert "127.0.0.1:9/predict does not answer" in capsys.readouterr().err
