"""A run that was moved, without its data and all that it was made from, is still whole."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import forked
import made_run
import pytest

from .two_problems import PROBLEMS

PROGRAM = """
import json, sys
from t2t_torch.bin.commands import COMMANDS
for name, *arguments in json.loads(sys.argv[1]):
    print("$", name, *arguments, flush=True)
    if name == "python":
        exec(arguments[0])
    elif (code := COMMANDS[f"t2t-{name}"].main(arguments)):
        sys.exit(code)
"""
SMALL = ["--worker_gpu=0", "--local_eval_frequency=2", "--hparams=batch_size=64"]

USERS_MODEL = """
from helpers_of_mine.words import WORDS
from t2t_torch.hparams.text_cnn import TextCnnHParams
from t2t_torch.models.text_classifier import TextCnn
from t2t_torch.registry import register_hparams, register_model
from t2t_torch.hparam import hp

class MyHParams(TextCnnHParams):
    my_field: int = hp(3, "A field of the user's.")

@register_model
class MyCnn(TextCnn):
    HParams = MyHParams

@register_hparams
def my_cnn_set():
    return MyHParams(hidden_size=8)
"""


class Place:
    """A folder of one machine: what is made there, and commands that run in fresh processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def write(self, **files: str) -> None:
        """Writes files by name; `__` stands for `/`, and every name ends in `.py`, or as given."""
        for name, text in files.items():
            path = self.folder / name.replace("__", "/").replace("_DOT_", ".")
            path = path if path.suffix else path.with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))

    def run(self, *commands: Sequence[str], code: int = 0) -> str:
        """Runs commands in one new process; returns what they have printed."""
        program, told = self.folder.parent / "program.py", self.folder.parent / "told"
        program.write_text(PROGRAM)
        told.unlink(missing_ok=True)
        process = forked.start_program([program, json.dumps(commands)], told)
        process.join(300)
        assert process.exitcode == code, told.read_text()
        return told.read_text()


def declaration(there: Place) -> list[str]:
    rows = "\n".join(f"a {word} text,{label}" for word, label in [("red", "r"), ("big", "b")] * 30)
    there.write(mine__reviews_DOT_csv=f"text,kind\n{rows}\n")
    declared: dict[str, Any] = {
        "problem": "my_reviews",
        "kind": "text2class",
        "files": {"train": "reviews.csv", "eval": 0.2},
    }
    declared |= {"fields": {"inputs": "text", "targets": "kind"}, "vocab_size": 300}
    there.write(mine__my_reviews_DOT_json=json.dumps(declared))
    return [f"--t2t_usr_dir={there.folder}/mine", "--problem=my_reviews", "--model=text_cnn"]


def users_folder(there: Place) -> list[str]:
    there.write(helpers_of_mine__words="WORDS = 3\n", mine__own=PROBLEMS)
    there.write(mine__model=USERS_MODEL)
    (there.folder / "helpers_of_mine" / "__init__.py").write_text("")
    return [f"--t2t_usr_dir={there.folder}/mine", "--problem=tiny_kind", "--model=my_cnn"]


def several(there: Place) -> list[str]:
    there.write(mine__own=PROBLEMS)
    return [f"--t2t_usr_dir={there.folder}/mine", "--problem=tiny_both", "--model=joint_bilstm"]


SETS = {"text_cnn": "text_cnn_base", "my_cnn": "my_cnn_set", "joint_bilstm": "joint_bilstm_base"}


def trained(there: Place, flags: list[str]) -> Path:
    """Generates data and trains a run; returns the folder of the run."""
    hparams_set = SETS[flags[-1].partition("=")[2]]
    run, data = there.folder / "run", f"--data_dir={there.folder}/data"
    parts = ["tiny_kind", "tiny_tags"] if "--problem=tiny_both" in flags else [""]
    generate = [
        [
            "datagen",
            *flags[:2],
            *([f"--problem={part}"] if part else []),
            data,
            "--tmp_dir=" + str(there.folder / "mine"),
        ]
        for part in parts
    ]
    train = ["trainer", *flags, data, f"--output_dir={run}", f"--hparams_set={hparams_set}"]
    there.run(*generate, [*train, "--train_steps=4", *SMALL])
    return run


@pytest.mark.sample(1)
@pytest.mark.parametrize("make", [users_folder, declaration, several])
def test_a_moved_run_answers_and_trains_on_when_its_data_is_back(
    make: Callable[[Place], list[str]], tmp_path: Path
) -> None:
    there, here = Place(tmp_path / "there"), Place(tmp_path / "here")
    flags = make(there)
    run = trained(there, flags)
    several_of = ["--problem=tiny_kind"] if make is several else []
    moved = here.folder / "moved"
    (there.folder / "inputs.txt").write_text("the red dog runs\na cat\n")
    asked = [f"--decode_from_file={here.folder}/inputs.txt", *several_of]
    before = [f"--output_dir={run}", f"--decode_from_file={there.folder}/inputs.txt"]
    there.run(["decoder", *before, *several_of, f"--decode_to_file={there.folder}/answers.txt"])
    answers = (there.folder / "answers.txt").read_text()
    run.rename(moved)
    (there.folder / "data").rename(tmp_path / "away")
    (there.folder / "inputs.txt").rename(here.folder / "inputs.txt")
    shutil.rmtree(there.folder)
    trust = [] if make is declaration else ["--trust_code"]
    if trust:
        said = here.run(["decoder", f"--output_dir={moved}", *asked], code=2)
        assert "would execute the Python code" in said
    answer = [*asked, *trust, f"--decode_to_file={here.folder}/x"]
    artifact = [f"--export_dir={here.folder}/artifact", *several_of, *trust]
    name = "tiny_kind" if several_of else None
    pickled = f"""
        import pickle, t2t_torch
        run = t2t_torch.load({str(moved)!r}, problem={name!r}, trust_code={bool(trust)})
        artifact = t2t_torch.load({str(here.folder / "artifact")!r})
        print(run(["the red dog runs", "a cat"]) == artifact(["the red dog runs", "a cat"]))
        open({str(here.folder / "pickled")!r}, "wb").write(pickle.dumps((run, artifact)))
    """
    said = here.run(
        ["decoder", f"--output_dir={moved}", *answer],
        ["exporter", f"--output_dir={moved}", *artifact],
        ["python", textwrap.dedent(pickled)],
    )
    assert (here.folder / "x").read_text() == answers
    assert "verified on synthetic inputs alone" in said and "(0 of the dev split, " in said
    assert said.splitlines()[-1] == "True"
    restored = f"""
        import pickle
        run, artifact = pickle.load(open({str(here.folder / "pickled")!r}, "rb"))
        print(*run(["the red dog runs", "a cat"]))
        print(*artifact(["the red dog runs", "a cat"]))
    """
    said = here.run(["python", textwrap.dedent(restored)])
    assert said.split("\n")[-3] == said.split("\n")[-2] == " ".join(answers.split())

    (tmp_path / "away").rename(here.folder / "data")
    place = [f"--output_dir={moved}", f"--data_dir={here.folder}/data", *trust]
    here.run(["eval", *place], ["trainer", *place, "--train_steps=6", "--worker_gpu=0"])
    again = here.folder / "again"
    moved.rename(again)
    here.run(["decoder", f"--output_dir={again}", *asked, *trust, f"--decode_to_file={again}/y"])
    assert (again / "ckpt-6").is_dir()


def test_a_moved_trial_answers_is_exported_and_trains_on(tmp_path: Path) -> None:
    there, here = Place(tmp_path / "there"), Place(tmp_path / "here")
    there.write(
        mine__model_def=made_run.code(methods=made_run.DOCUMENTED, takes="x"),
        mine__big_DOT_bin="x" * 2_000_000,
        exp_DOT_json=json.dumps(
            {
                "hyperparameters": {"batch_size": 8},
                "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 2}},
            }
        ),
    )
    run = there.folder / "run"
    begin = [f"--trial={there.folder}/mine", f"--config={there.folder}/exp.json"]
    there.run(["trainer", *begin, f"--output_dir={run}", "--worker_gpu=0"])
    moved = run.rename(here.folder / "moved")
    shutil.rmtree(there.folder)
    assert [one.name for one in (moved / "code" / "mine").iterdir()] == ["model_def.py"]
    place = [f"--output_dir={moved}", "--trust_code"]
    for command in ("decoder", "trainer"):
        assert "--trust_code" in here.run([command, f"--output_dir={moved}"], code=2)
    pickled = f"""
        import pickle, numpy, t2t_torch
        run = t2t_torch.load({str(moved)!r}, trust_code=True)
        row = numpy.ones(3, numpy.float32)
        open({str(here.folder / "pickled")!r}, "wb").write(pickle.dumps((run, run([row]))))
    """
    here.run(
        ["decoder", *place, f"--decode_to_file={here.folder}/x.npz"],
        ["eval", *place],
        ["exporter", *place, f"--export_dir={here.folder}/artifact"],
        ["exporter", *place, f"--export_dir={here.folder}/weights", "--format=safetensors"],
        ["python", textwrap.dedent(pickled)],
    )
    restored = f"""
        import pickle, numpy
        run, answers = pickle.load(open({str(here.folder / "pickled")!r}, "rb"))
        numpy.testing.assert_array_equal(run([numpy.ones(3, numpy.float32)]), answers)
    """
    here.run(
        ["python", textwrap.dedent(restored)],
        ["trainer", *place, "--train_steps=4", "--worker_gpu=0"],
    )
    assert (moved / "ckpt-4").is_dir()
    moved.rename(here.folder / "again")
    here.run(["eval", f"--output_dir={here.folder}/again", "--trust_code"])


@pytest.mark.slow
def test_a_moved_import_answers_and_is_exported(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    there, here = Place(tmp_path / "there"), Place(tmp_path / "here")
    source = Path(__file__).parents[1] / "golden" / "peers" / "huggingface" / "distilbert"
    run = there.folder / "run"
    there.run(["python", f"import t2t_torch as t2t; t2t.import_run({str(source)!r}, {str(run)!r})"])
    moved = run.rename(here.folder / "moved")
    shutil.rmtree(there.folder)
    assert [one.name for one in (moved / "declarations").iterdir()] == ["distilbert.json"]
    (here.folder / "in.txt").write_text("a small text\n")
    said = here.run(
        ["decoder", f"--output_dir={moved}", f"--decode_from_file={here.folder}/in.txt"],
        ["exporter", f"--output_dir={moved}", f"--export_dir={here.folder}/artifact"],
    )
    assert "(0 of the dev split, 112 synthetic)" in said
