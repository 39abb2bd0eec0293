"""Which type of number this machine computes a model's layers fastest with."""

import os
import re
import subprocess
import sys

import pytest
import torch

from t2t_torch import registry
from t2t_torch.distributed import precision
from t2t_torch.distributed.precision import Probe, resolve
from t2t_torch.distributed.process_group import ONE_PROCESS, World

AUTO = registry.hparams("transformer_test").replace(activation_dtype="auto")


@pytest.fixture
def pretend(monkeypatch):
    """Makes the two measurements what a test says, in milliseconds."""

    def make(**milliseconds):
        def measured(work, device):
            work()
            return milliseconds[str(work.args[0]).removeprefix("torch.")] / 1e3

        monkeypatch.setattr(precision, "_measured", measured)
        monkeypatch.setattr(precision, "multiplies_bfloat16", lambda: True)

    return make


@pytest.mark.parametrize(
    ("float32", "bfloat16", "choice"),
    [(10, 4, "bfloat16"), (10, 9, "float32"), (10, 12, "float32")],
)
def test_bfloat16_is_chosen_only_where_it_is_much_faster(
    pretend, capsys, float32, bfloat16, choice
):
    pretend(float32=float32, bfloat16=bfloat16)
    assert resolve(AUTO, ONE_PROCESS).activation_dtype == choice
    (line,) = capsys.readouterr().err.splitlines()
    assert f"float32 {float32:.2f} ms" in line
    assert line.endswith(choice)


def test_nothing_is_measured_on_a_processor_without_bfloat16(monkeypatch, capsys):
    has = {"avx2": True, "avx512_bf16": False, "amx_bf16": False}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has, raising=False)
    monkeypatch.setattr(precision, "_measured", None)
    assert resolve(AUTO, ONE_PROCESS).activation_dtype == "float32"
    assert "no instructions for bfloat16" in capsys.readouterr().err
    has["amx_bf16"] = True
    assert precision.multiplies_bfloat16()


def test_the_hparams_say_who_chose(pretend):
    pretend(float32=1, bfloat16=9)
    chosen = resolve(AUTO, ONE_PROCESS)
    assert chosen.provenance["activation_dtype"] == "probe of the machine"
    assert chosen == AUTO.replace(activation_dtype="float32")


def test_a_run_goes_on_with_what_it_began_with(pretend):
    pretend(float32=1, bfloat16=9)
    before = AUTO.replace(activation_dtype="bfloat16")
    assert resolve(AUTO, ONE_PROCESS, before).activation_dtype == "bfloat16"


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
@pytest.mark.parametrize("resumed", [False, True])
def test_a_type_that_is_slower_than_float32_is_warned_of_with_the_factor(
    pretend, capsys, name, resumed
):
    pretend(float32=1, **{name: 19.94})
    asked = AUTO.replace(activation_dtype=name)
    if resumed:
        assert resolve(AUTO, ONE_PROCESS, asked).activation_dtype == name
    else:
        assert resolve(asked, ONE_PROCESS) is asked
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"warning: activation_dtype={name} is 19.9 times slower than float32")
    assert line.endswith("Set activation_dtype=float32.")


@pytest.mark.parametrize("slower", [0.2, 1.0, 1.2])
def test_a_type_that_is_as_fast_is_not_warned_of(pretend, capsys, slower):
    pretend(float32=1, bfloat16=slower)
    asked = AUTO.replace(activation_dtype="bfloat16")
    assert resolve(asked, ONE_PROCESS) is asked
    assert capsys.readouterr() == ("", "")


def test_float32_is_not_measured(pretend):
    pretend()
    asked = AUTO.replace(activation_dtype="float32")
    assert resolve(asked, ONE_PROCESS) is asked


def test_no_set_names_a_type_that_a_processor_may_lack():
    names = [name for name in registry.list_names("hparams") if not name.endswith("_fp16")]
    types = {registry.hparams(name).activation_dtype for name in names}
    assert types == {"float32", "auto"}


EMULATED = """
import torch
from t2t_torch import registry
from t2t_torch.distributed.precision import resolve
from t2t_torch.distributed.process_group import ONE_PROCESS
hparams = registry.hparams("transformer_multi30k").replace(batch_size=256)
print(resolve(hparams, ONE_PROCESS).activation_dtype)
resolve(hparams.replace(activation_dtype="bfloat16"), ONE_PROCESS)
"""


@pytest.mark.skipif(
    not torch.backends.cpu.get_cpu_capability().startswith("AVX"), reason="not oneDNN's variable"
)
def test_a_processor_without_bfloat16_trains_in_float32_and_is_told_of_bfloat16():
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    command = [sys.executable, "-c", EMULATED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    measured, warning = done.stderr.splitlines()
    assert measured.endswith(": float32")
    assert done.stdout == "float32\n"
    assert re.match(r"warning: activation_dtype=bfloat16 is \d+\.\d times slower", warning)


def test_a_measurement_ends_as_soon_as_it_is_certain(monkeypatch):
    turns = []
    monkeypatch.setattr(
        precision,
        "_measured",
        lambda work, _: turns.append(work) or (9.0 if work.args[0] is torch.bfloat16 else 1.0),
    )
    assert Probe.of(AUTO, torch.device("cpu")).choice == "float32"
    assert len(turns) == 4  # the first of each, which allocates, and a turn


def test_processes_choose_as_their_leader(pretend, monkeypatch):
    pretend()
    monkeypatch.setattr(World, "from_leader", lambda world, value: 1)
    follower = World(1, 2, torch.device("cpu"))
    assert resolve(AUTO, follower).activation_dtype == "bfloat16"


@pytest.mark.parametrize("name", ["transformer_tiny", "resnet_mnist"])
def test_the_machine_is_measured(name):
    hparams = registry.hparams(name).replace(activation_dtype="auto", batch_size=64)
    state = torch.get_rng_state()
    found = Probe.of(hparams, torch.device("cpu"))
    assert found.choice in found.milliseconds
    assert all(value > 0 for value in (*found.milliseconds.values(), *found.gflops.values()))
    assert torch.equal(torch.get_rng_state(), state)
