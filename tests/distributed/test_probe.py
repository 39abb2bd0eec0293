"""Which type of number this machine computes a model's layers fastest with."""

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

    return make


@pytest.mark.parametrize(
    ("float32", "bfloat16", "choice"),
    [(10, 4, "bfloat16"), (10, 9, "float32"), (10, 12, "float32")],
)
def test_bfloat16_is_chosen_only_where_it_is_much_faster(pretend, float32, bfloat16, choice):
    pretend(float32=float32, bfloat16=bfloat16)
    said = []
    assert resolve(AUTO, ONE_PROCESS, say=said.append).activation_dtype == choice
    (line,) = said
    assert f"float32 {float32:.2f} ms" in line
    assert line.endswith(choice)


def test_the_hparams_say_who_chose(pretend):
    pretend(float32=1, bfloat16=9)
    chosen = resolve(AUTO, ONE_PROCESS, say=lambda _: None)
    assert chosen.provenance["activation_dtype"] == "probe of the machine"
    assert chosen == AUTO.replace(activation_dtype="float32")


def test_a_run_goes_on_with_what_it_began_with(pretend):
    pretend(float32=1, bfloat16=9)
    before = AUTO.replace(activation_dtype="bfloat16")
    assert resolve(AUTO, ONE_PROCESS, before).activation_dtype == "bfloat16"


def test_what_is_asked_for_is_not_measured(pretend):
    pretend()
    asked = AUTO.replace(activation_dtype="float16")
    assert resolve(asked, ONE_PROCESS) is asked


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
