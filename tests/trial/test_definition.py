"""A user's trial is found, imported and checked, whatever way it was written."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from t2t_torch.errors import TrialError
from t2t_torch.trial import user_code
from t2t_torch.trial.pytorch_trial import InvalidHP
from t2t_torch.trial.user_code import load_definition

HEAD = "from pedl.frameworks.pytorch import PyTorchTrial\n"
LOADERS = "def make_data_loaders(experiment_config, hparams): pass\n"
TRIAL = """
class {name}({base}):
    def build_model(self, hparams): pass
    def optimizer(self, model): pass
    def losses(self, predictions, labels): pass
    def validation_metrics(self, predictions, labels, losses): pass
"""


def trial(name: str = "MyTrial", base: str = "PyTorchTrial") -> str:
    return TRIAL.format(name=name, base=base)


GOOD = HEAD + LOADERS + trial()


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture(autouse=True)
def entered(enter):
    enter({"hidden_size": 4, "optimizer": {"learning_rate": 0.1}})


@pytest.mark.parametrize(
    ("spec", "name", "generation", "has_download", "has_function"),
    [
        ("gen0.py", "LineTrial", "documented", True, True),
        ("mnist", "MNistTrial", "documented", True, True),
        ("gen1_prime.py", "CIFARTrial", "documented", False, True),
        ("gen2", "TwoMoonsTrial", "train_batch", False, True),
        ("full_dataset.py", "CubeTrial", "train_batch", False, True),
        ("multi_input.py", "TwoLossesTrial", "documented", False, True),
        ("per_class.py", "BlobsTrial", "documented", False, False),
        ("yolo_like.py", "YOLOv3Trial", "train_batch", True, True),
    ],
)
def test_trials_as_they_were_written_load(
    trials, spec, name, generation, has_download, has_function
):
    result = load_definition(str(trials / spec))
    assert result.trial_class.__name__ == name
    assert result.path == trials / spec
    assert result.generation == generation
    assert (result.download_data is not None) == has_download
    assert (result.make_data_loaders is not None) == has_function
    named = load_definition(f"{trials / spec}:{name}")
    assert (named.trial_class.__name__, named.spec) == (name, f"{trials / spec}:{name}")


def test_a_module_is_found_by_its_dotted_name(tmp_path, monkeypatch):
    write(tmp_path, {"dotted_trials/__init__.py": "", "dotted_trials/one.py": GOOD})
    monkeypatch.chdir(tmp_path)
    for spec in ("dotted_trials.one:MyTrial", "dotted_trials.one"):
        result = load_definition(spec)
        assert result.trial_class.__module__ == "dotted_trials.one"
        assert result.path == tmp_path / "dotted_trials" / "one.py"
    del sys.modules["dotted_trials.one"], sys.modules["dotted_trials"]


FILES_IMPORT = {
    "relatively, all in __init__": {
        "__init__.py": "from .model_def import MyTrial\nfrom .data import make_data_loaders\n",
        "model_def.py": HEAD + "from .layers import WIDTH\n" + trial(),
        "layers.py": "WIDTH = 3\n",
        "data.py": "from .layers import WIDTH\n" + LOADERS,
    },
    "absolutely, all in __init__": {
        "__init__.py": "from model_def import MyTrial\nfrom data import make_data_loaders\n",
        "model_def.py": HEAD + "from layers import WIDTH\n" + trial(),
        "layers.py": "WIDTH = 3\n",
        "data.py": LOADERS,
    },
    "both ways": {
        "__init__.py": "from .model_def import MyTrial, make_data_loaders\n",
        "model_def.py": HEAD
        + "from layers import WIDTH\nfrom .data import make_data_loaders\n"
        + trial(),
        "layers.py": "WIDTH = 3\n",
        "data.py": "import layers\n" + LOADERS,
    },
    "with an empty __init__": {
        "__init__.py": "",
        "model_def.py": HEAD + "from .data import make_data_loaders\n" + trial(),
        "data.py": LOADERS,
    },
    "without an __init__": {
        "model_def.py": HEAD + "from data import make_data_loaders\n" + trial(),
        "data.py": LOADERS,
    },
    "relatively, without an __init__": {
        "model_def.py": HEAD + "from .data import make_data_loaders\n" + trial(),
        "data.py": LOADERS,
    },
    "not at all": {"model_def.py": HEAD + trial(), "data.py": LOADERS, "setup.py": "1 / 0\n"},
    "not at all, with an __init__": {
        "__init__.py": "from model_def import MyTrial\n",
        "model_def.py": HEAD + trial(),
        "data.py": LOADERS,
    },
    "with a base of their own": {
        "base.py": HEAD + trial("Base"),
        "model_def.py": "import base\n" + LOADERS + "class MyTrial(base.Base): pass\n",
    },
}


@pytest.mark.parametrize("how", FILES_IMPORT)
def test_files_of_a_directory_import_each_other(tmp_path, how):
    folder = write(tmp_path / "my-trial 2", FILES_IMPORT[how])
    for spec in (str(folder), f"{folder}:MyTrial"):
        result = load_definition(spec)
        assert result.trial_class.__name__ == "MyTrial"
        assert result.make_data_loaders is not None


def test_a_file_may_import_its_neighbours(tmp_path):
    files = {"a.py": HEAD + "from .b import *\n" + trial(), "b.py": "from c import *\n"}
    folder = write(tmp_path / "together", {**files, "c.py": LOADERS})
    assert load_definition(str(folder / "a.py")).make_data_loaders is not None


def test_a_second_trial_does_not_see_the_first_ones_files(tmp_path):
    first = write(tmp_path / "one", {"m.py": "from layers import *\n" + GOOD, "layers.py": "W=1"})
    second = write(tmp_path / "two", {"m.py": "from layers import *\n" + GOOD, "layers.py": "W=2"})
    for folder, width in ((first, 1), (second, 2), (first, 1)):
        loaded = load_definition(str(folder)).trial_class
        assert vars(sys.modules[loaded.__module__])["W"] == width
    assert str(second) not in sys.path


def test_a_file_named_like_a_module_of_python_hides_none(tmp_path):
    folder = write(tmp_path, {"random.py": GOOD, "random_trial.py": ""})
    assert load_definition(str(folder)).trial_class.__module__ == "trial_random"
    assert not Path(sys.modules["random"].__file__).is_relative_to(folder)


def test_what_was_imported_before_from_the_folder_stays(tmp_path, monkeypatch):
    folder = write(tmp_path, {"m.py": GOOD, "lib/kept.py": "", "lib/__init__.py": ""})
    monkeypatch.syspath_prepend(str(folder))
    module = importlib.import_module("lib.kept")
    for _ in range(2):
        load_definition(str(folder))
    assert sys.modules["lib.kept"] is module
    del sys.modules["lib.kept"], sys.modules["lib"]


def test_hyperparameters_are_there_while_a_module_loads(tmp_path):
    asking = "import pedl\nSIZE = pedl.get_hyperparameter('hidden_size')\n"
    loaded = load_definition(str(write(tmp_path, {"m.py": asking + GOOD}))).trial_class
    assert sys.modules[loaded.__module__].SIZE == 4
    wrong = "import pedl\nSIZE = pedl.get_hyperparameter('hiden_size')\n"
    with pytest.raises(TrialError, match="Did you mean 'hidden_size'"):
        load_definition(str(write(tmp_path, {"m.py": wrong + GOOD})))


def test_a_module_may_say_that_its_hyperparameters_are_impossible(tmp_path):
    raising = "import pedl\nraise pedl.InvalidHP('too wide')\n"
    with pytest.raises(InvalidHP, match="too wide"):
        load_definition(str(write(tmp_path, {"m.py": raising + GOOD})))


def refused(folder: Path, files: dict[str, str], suffix: str = "") -> str:
    with pytest.raises(TrialError) as caught:
        load_definition(f"{write(folder, files)}{suffix}")
    return str(caught.value)


def test_a_place_that_is_not_there_is_said(tmp_path):
    for spec in (f"{tmp_path}/none", f"{tmp_path}/none.py:Trial", "no such"):
        with pytest.raises(TrialError, match=r"no such directory or Python file.*pkg\.mod"):
            load_definition(spec)
    with pytest.raises(TrialError, match="no directory, Python file or module of that name"):
        load_definition("nowhere_at_all:Trial")
    with pytest.raises(TrialError, match=r"importing json\.nowhere failed:\n.*No module named"):
        load_definition("json.nowhere:Trial")


def test_no_trial_is_said(tmp_path):
    assert "It has: no Python file" in refused(tmp_path, {})
    assert "It has: m.py" in refused(tmp_path, {"m.py": LOADERS})
    assert "no subclass of PyTorchTrial in" in refused(tmp_path, {"m.py": LOADERS}, "/m.py")


def test_of_several_trials_one_is_to_be_chosen(tmp_path):
    both = {"a.py": GOOD, "b.py": GOOD.replace("MyTrial", "Other")}
    said = refused(tmp_path, both)
    assert "several trials: MyTrial (a.py), Other (b.py)" in said and f"{tmp_path}:MyTrial" in said
    assert load_definition(f"{tmp_path}:Other").trial_class.__name__ == "Other"
    one_file = {"c.py": GOOD + trial("Third")}
    assert "several trials: MyTrial, Third" in refused(tmp_path, one_file, "/c.py")
    assert load_definition(f"{tmp_path}/c.py:Third").trial_class.__name__ == "Third"
    init = {"__init__.py": "from a import MyTrial\nfrom b import Other\n"}
    said = refused(tmp_path, init)
    assert "several trials: MyTrial, Other" in said


def test_a_class_that_is_not_there_or_no_trial_is_said(tmp_path):
    files = {"m.py": GOOD + "class Net: pass\n"}
    assert "has no class Trial. Its trials: MyTrial" in refused(tmp_path, files, "/m.py:Trial")
    assert "has Net, no subclass" in refused(tmp_path, files, "/m.py:Net")
    assert "defines Trial, a subclass of PyTorchTrial. It has: MyTrial (m.py)" in refused(
        tmp_path, files, ":Trial"
    )


def test_all_that_is_missing_is_said_at_once(tmp_path):
    bare = "class MyTrial(PyTorchTrial):\n    def build_model(self): pass\n"
    said = refused(tmp_path, {"m.py": HEAD + LOADERS + bare})
    assert "MyTrial is missing: losses, optimizer, validation_metrics (as of documented " in said
    alone = {"m.py": HEAD + trial()}
    assert "missing: make_data_loaders, a function beside the class or in a file of " in refused(
        tmp_path, alone
    )
    later = GOOD.replace("losses(self", "train_batch(self")
    said = refused(tmp_path, {"m.py": later})
    assert "is missing: evaluate_batch or evaluate_full_dataset (as of train_batch trials)" in said


def test_two_interfaces_are_not_mixed(tmp_path):
    mixed = GOOD + "    def train_batch(self, batch, model, epoch_idx, batch_idx): pass\n"
    assert "both losses and train_batch" in refused(tmp_path, {"m.py": mixed})
    both = "".join(f"    def {name}(self, a, b): pass\n" for name in ("build_model", "optimizer"))
    both += "".join(
        f"    def {name}(self, a, b): pass\n"
        for name in ("train_batch", "evaluate_batch", "evaluate_full_dataset")
    )
    text = HEAD + LOADERS + "class MyTrial(PyTorchTrial):\n" + both
    assert "both evaluate_batch and evaluate_full_dataset" in refused(tmp_path, {"m.py": text})


def test_an_error_of_the_users_import_keeps_the_users_traceback(tmp_path):
    files = {"m.py": "import layers\n" + GOOD, "layers.py": "def f():\n    1 / 0\nf()\n"}
    said = refused(tmp_path, files)
    assert re.search(r'm\.py", line 1.*layers\.py", line 3.*ZeroDivisionError', said, re.DOTALL)
    assert "t2t_torch/trial" not in said and "importlib" not in said
    said = refused(tmp_path, {"layers.py": "def f(:\n"})
    assert "SyntaxError" in said and 'layers.py", line 1' in said
    said = refused(tmp_path, {"layers.py": "import no_such_package\n"})
    assert "No module named 'no_such_package'" in said
    said = refused(tmp_path, {"layers.py": "import argparse, sys\nsys.exit(3)\n"})
    assert "ended the process (SystemExit(3))" in said and "__main__" in said


def test_a_trial_with_one_of_two_loaders_names_the_other(tmp_path):
    text = GOOD + "    def build_training_data_loader(self): pass\n"
    assert "build_validation_data_loader" in refused(tmp_path, {"m.py": text})


@pytest.mark.parametrize("name", ["context", "trial_context"])
def test_a_trial_of_the_older_interface_may_take_a_context(tmp_path, name):
    text = GOOD + f"    def __init__(self, {name}): pass\n"
    definition = load_definition(str(write(tmp_path, {"m.py": text})))
    assert definition.takes_context and definition.generation == "documented"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("from determined.pytorch import Trainer\n" + GOOD, "determined.pytorch.Trainer"),
        ("import determined.util\n" + GOOD, "determined.util"),
        ("from determined.keras import TFKerasTrial\n" + GOOD, "determined.keras"),
    ],
)
def test_names_of_determined_that_are_not_supported_are_refused(tmp_path, text, named):
    assert named in refused(tmp_path, {"m.py": text})


def test_a_method_that_makes_loaders_comes_before_a_function(tmp_path):
    method = "    def make_data_loaders(self, experiment_config, hparams): pass\n"
    assert load_definition(str(write(tmp_path, {"m.py": GOOD + method}))).make_data_loaders is None


def test_what_a_class_has_can_be_asked(trials):
    result = load_definition(str(trials / "gen2"))
    assert result.has("create_lr_scheduler")
    assert not result.has("training_metrics")


@pytest.mark.parametrize(
    "line",
    [
        "from pedl.frameworks.keras import TFKerasTrial",
        "from pedl.frameworks import keras",
        "import tensorflow as tf",
        "from pedl.frameworks.tensorflow import EstimatorTrial",
    ],
)
def test_a_trial_of_another_framework_is_refused_by_name(tmp_path, enter, line):
    enter()
    (tmp_path / "model_def.py").write_text(f"{line}\n\n\nclass MyTrial(object):\n    pass\n")
    for spec in (tmp_path, tmp_path / "model_def.py", f"{tmp_path}:MyTrial"):
        with pytest.raises(TrialError, match=r"no trial of PyTorch: .*Keras, TensorFlow"):
            load_definition(str(spec))


def test_numpys_names_of_the_time_are_there_while_a_trial_is(tmp_path, enter):
    enter()
    file = tmp_path / "old.py"
    file.write_text(f"{GOOD}\nimport numpy as np\nKINDS = np.int, np.float, np.Inf, np.bool(1)\n")
    load_definition(str(file))
    assert (int, float, float("inf"), True) == sys.modules["old"].KINDS
    user_code._Loaded.forget()
    assert not hasattr(np, "float")
