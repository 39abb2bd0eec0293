"""Artifacts that answer: inputs, batches, threads, and what is told when they cannot."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import t2t_torch
from t2t_torch.errors import ArtifactError, DecodeError, UsageError
from t2t_torch.runtime import session
from t2t_torch.runtime.prediction import InputError
from t2t_torch.runtime.session import Artifact, CancellationToken
from t2t_torch.runtime.signature import EXAMPLES, FILE, MODEL

ROOT = Path(__file__).resolve().parents[2]

BLOCKED = ("torch", "pydantic", "absl", "sentencepiece", "pyarrow", "onnxruntime_extensions")


def asked(words: Any = "go to oslo", pos: Any = None, **more: Any) -> dict[str, Any]:
    """An input; each word has the label X."""
    if pos is None:
        pos = ["X"] * len(words.split() if isinstance(words, str) else words)
    return {"inputs": words, "pos": pos, "note": "n", "dense": [1, 2.5], **more}


@pytest.mark.parametrize("threads", [0, 1])
def test_a_folder_that_is_not_there_is_told(tmp_path: Path, threads: int) -> None:
    with pytest.raises(UsageError, match="nothing' is not there: expected an artifact or a run"):
        t2t_torch.load(tmp_path / "nothing", threads=threads)


def test_an_input_is_answered_by_target(folder: Path) -> None:
    answer = Artifact(folder).predict([asked()])[0]
    assert answer.values == {
        "slots": ["O", "O", "B-city"],
        "intent": "go",
        "topics": ["go"],
        "doubled": [2.0, 5.0],
    }
    assert answer.probabilities == {"intent": pytest.approx(0.952574, abs=1e-6)}
    assert list(answer.scores["intent"].items()) == [
        ("go", pytest.approx(0.952574, abs=1e-6)),
        ("stay", pytest.approx(0.047426, abs=1e-6)),
    ]
    assert answer.scores["slots"] == pytest.approx([0.786986, 0.843795, 0.964663], abs=1e-6)


def test_words_may_be_a_list_or_a_text(folder: Path) -> None:
    artifact = Artifact(folder)
    expected = artifact.predict([asked("go to oslo")])
    assert artifact.predict([asked(["go", "to", "oslo"], "X X X")]) == expected
    assert artifact.predict([asked(("go", "to", "oslo"), ("X",) * 3)]) == expected
    assert artifact.predict([asked(" go \tto\noslo ")]) == expected
    assert artifact([asked()])[0] == expected[0].values


def test_a_no_break_space_is_part_of_a_word_and_an_empty_text_has_none(folder: Path) -> None:
    glued, empty = Artifact(folder)([asked(["go\u00a0to", "oslo"]), asked("")])
    assert glued["slots"] == ["O", "B-city"]
    assert (empty["slots"], empty["intent"]) == ([], "stay")


def test_answers_come_in_the_order_of_inputs_and_do_not_depend_on_batches(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["go", "", "to oslo go to oslo", "oslo", "go to oslo 😀", "a b c d e f", "oslo go"]
    inputs = [asked(text) for text in texts]
    artifact = Artifact(folder)
    alone = [artifact.predict([one])[0] for one in inputs]
    assert artifact.predict(inputs) == alone
    assert artifact.predict(inputs[::-1]) == alone[::-1]
    sizes = []
    compute = Artifact._computed

    def counted(self: Artifact, numbers: Any, *more: Any) -> Iterator[Any]:
        sizes.append(len(numbers))
        return compute(self, numbers, *more)

    monkeypatch.setattr(Artifact, "_computed", counted)
    monkeypatch.setattr(session, "_BATCH_WORDS", 8)
    assert artifact.predict(inputs) == alone
    assert sizes == [1, 1, 2, 3]  # 6, 5, 4 + 2, 1 + 1 + 0 words
    assert artifact.predict([]) == []


def test_many_threads_ask_at_once(folder: Path) -> None:
    artifact = Artifact(folder, threads=1)
    inputs = [asked("oslo " * (n % 7)) for n in range(64)]
    expected = artifact.predict(inputs)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda one: artifact.predict([one])[0], inputs))
    assert found == expected


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (asked(3, "X"), "no text and no list of words"),
        (asked(["go", ""]), "is no word: empty, or with a space"),
        (asked(["go to"]), "is no word: empty, or with a space"),
        (asked(["go\tto"]), "is no word: a space, tab or line end ends one"),
        (asked("go to", "X"), "2 words and 1 pos, where one for each word was expected"),
        (asked(["go"], [1]), "1 among [1] is no label"),
        (asked(note=None), "None is no text, where one was expected"),
        (asked(note="\ud800"), "lone surrogate at character 1"),
        (asked(dense=[1]), "[1]: 1 numbers; 2 were expected"),
        (asked(dense="x"), "'x' is no number"),
        (asked("go " * 7), "'inputs' has 7 ids, and this model was trained on 6 at most"),
    ],
)
def test_what_cannot_be_encoded_is_named(folder: Path, given: Any, told: str) -> None:
    with pytest.raises(InputError) as error:
        Artifact(folder).predict([asked(), given])
    assert str(error.value).startswith("input 1 cannot be encoded: ")
    assert told in str(error.value)
    assert error.value.number == 1


def test_an_input_on_which_the_graph_fails_is_named_and_not_its_batch(folder: Path) -> None:
    artifact = Artifact(folder)
    with pytest.raises(InputError, match=r"input 2 cannot be encoded: pos: label Z is not known\."):
        artifact.predict([asked(), asked("go"), asked("go", "Z"), asked("to")])


def test_labels_with_spaces_stay_one_label_each(folder: Path) -> None:
    assert Artifact(folder)([asked("go to", ["a b", ""])])[0]["slots"] == ["O", "O"]


def test_what_is_no_input_is_refused_as_a_run_refuses_it(folder: Path) -> None:
    artifact = Artifact(folder)
    with pytest.raises(DecodeError, match="a list of strings, not a string"):
        artifact.predict("go to oslo")
    with pytest.raises(DecodeError, match="a list of mappings, not a mapping"):
        artifact.predict(asked())  # type: ignore[arg-type]
    with pytest.raises(DecodeError, match=r"input 1 is 3, where a text or a mapping with the "):
        artifact.predict([asked(), 3])  # type: ignore[list-item]
    with pytest.raises(
        DecodeError, match="input 0 has no pos, note, dense; 'made_by_hand' takes the fields"
    ):
        artifact.predict(["go to oslo"])


def test_a_folder_that_is_no_artifact_is_told_from_a_damaged_one(
    tmp_path: Path, folder: Path
) -> None:
    with pytest.raises(ArtifactError, match=r"is no artifact: it has no signature.json.*exporter"):
        Artifact(tmp_path / "nowhere")
    signature = folder / FILE
    whole = signature.read_text(encoding="utf-8")
    for text in (
        whole[:50],
        "[]",
        "{}",
        '{"format_version": 1}',
        whole.replace('"kind"', '"sort"'),
    ):
        signature.write_text(text, encoding="utf-8")
        with pytest.raises(ArtifactError, match=r"signature\.json is (damaged|not as it was)"):
            Artifact(folder)
    signature.unlink()
    with pytest.raises(ArtifactError, match="it has no signature"):
        t2t_torch.load(folder)


def test_a_newer_artifact_says_what_reads_it(make: Callable[..., Path]) -> None:
    folder = make()
    told = json.loads((folder / FILE).read_text(encoding="utf-8"))
    newer = {**told, "format_version": 6, "fields": "new"}
    (folder / FILE).write_text(json.dumps(newer), encoding="utf-8")
    with pytest.raises(ArtifactError, match=r"has the format 6, .* reads up to 5\. Install"):
        Artifact(folder)


@pytest.mark.parametrize(("what", "known"), [("fields", "text, words"), ("targets", "class, mul")])
def test_a_kind_that_is_not_known_is_named(
    make: Callable[..., Path], what: str, known: str
) -> None:
    folder = make()
    told = json.loads((folder / FILE).read_text(encoding="utf-8"))
    told[what][-1] |= {"name": "wave", "kind": "sound"}
    _without_checksum(told)
    (folder / FILE).write_text(json.dumps(told), encoding="utf-8")
    match = f"has the {what[:-1]} 'wave' of the kind 'sound', .* does not know; it knows {known}"
    with pytest.raises(ArtifactError, match=match):
        Artifact(folder)


def _without_checksum(told: dict[str, Any]) -> None:
    """Makes it the signature of an older version."""
    del told["sha256"]
    told["format_version"] = 2


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('"name": "dense"', '"name": "dens_"', "input 'dens_' is in one of them alone"),
        ('"name": "intent"', '"name": "intens"', "output 'intens' is in one of them alone"),
        ('"go"', '"gg"', "predicts its example 0 differently .*'labels of intent'"),
        ('"kind": "words"', '"kind": "numbers"', "does not answer its own examples"),
        ('"size": 2', '"size": 5', "does not answer its own examples"),
    ],
    ids=["field", "target", "label", "kind of field", "size"],
)
def test_a_signature_without_a_checksum_is_held_to_the_graph_and_its_examples(
    make: Callable[..., Path], before: str, after: str, message: str
) -> None:
    folder = make()
    values = {
        "slots": ["O", "O", "B-city"],
        "intent": "go",
        "topics": ["go"],
        "doubled": [2.0, 5.0],
    }
    scores = {"intent": {"go": 0.95, "stay": 0.05}}
    example = {"input": asked(), "answer": {"values": values, "scores": scores}}
    (folder / EXAMPLES).write_text(json.dumps(example) + "\n", encoding="utf-8")
    told = json.loads((folder / FILE).read_text(encoding="utf-8"))
    _without_checksum(told)
    text = json.dumps(told, indent=2)
    (folder / FILE).write_text(text, encoding="utf-8")
    Artifact(folder)
    assert before in text
    (folder / FILE).write_text(text.replace(before, after, 1), encoding="utf-8")
    with pytest.raises(ArtifactError, match=message):
        Artifact(folder)


def test_a_changed_or_missing_file_is_named(folder: Path) -> None:
    graph = folder / MODEL
    content = graph.read_bytes()
    graph.write_bytes(content[:-1] + b"x")
    with pytest.raises(ArtifactError, match=r"model\.onnx: another content, by its sha256"):
        Artifact(folder)
    graph.write_bytes(content[:-1])
    with pytest.raises(ArtifactError, match=r"model\.onnx: [\d,]+ bytes instead of"):
        Artifact(folder)
    graph.unlink()
    with pytest.raises(ArtifactError, match=r"model\.onnx: No such file"):
        Artifact(folder)


@pytest.mark.parametrize(
    ("module", "needs_extensions", "told"),
    [
        ("onnxruntime", False, "pip install onnxruntime"),
        ("onnxruntime_extensions", True, "pip install onnxruntime-extensions"),
    ],
)
def test_a_missing_package_is_named(
    make: Callable[..., Path], monkeypatch, module: str, needs_extensions: bool, told: str
) -> None:
    folder = make(needs_extensions=needs_extensions)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ArtifactError, match=told):
        Artifact(folder)


def test_a_graph_that_onnxruntime_cannot_read_says_which_version_made_it(
    make: Callable[..., Path],
) -> None:
    from t2t_torch.runtime.signature import FileChecksum

    folder = make()
    (folder / MODEL).write_bytes(b"no graph")
    make_again = json.loads((folder / FILE).read_text(encoding="utf-8"))
    written = FileChecksum.of(folder / MODEL)
    make_again["files"][MODEL] = {"bytes": written.bytes, "sha256": written.sha256}
    _without_checksum(make_again)
    (folder / FILE).write_text(json.dumps(make_again), encoding="utf-8")
    with pytest.raises(ArtifactError, match=r"cannot read .*made with onnxruntime 1\.20"):
        Artifact(folder)


def test_load_tells_artifacts_from_runs(folder: Path) -> None:
    artifact = t2t_torch.load(folder, device="cpu", threads=1)
    assert isinstance(artifact, t2t_torch.Artifact)
    assert artifact.fields == ("inputs", "pos", "note", "dense")
    with pytest.raises(UsageError, match="checkpoint=7, device='cuda' is for a run directory"):
        t2t_torch.load(folder, 7, device="cuda")
    with pytest.raises(UsageError, match="threads=1 is for an artifact"):
        t2t_torch.load(folder.parent, threads=1)
    with pytest.raises(UsageError, match="threads=-1"):
        t2t_torch.load(folder, threads=-1)


def test_without_torch_what_is_no_artifact_is_named(folder: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "t2t_torch.decode.loading", None)
    (folder / "misspelt").mkdir()
    with pytest.raises(UsageError, match=r"misspelt' is no artifact: .*pip install \."):
        t2t_torch.load(folder / "misspelt")


def test_an_artifact_answers_where_nothing_but_onnxruntime_is_installed(folder: Path) -> None:
    script = f"""
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {BLOCKED}:
            raise ImportError(name + " is not installed")
sys.meta_path.insert(0, Blocker())
import t2t_torch
model = t2t_torch.load({str(folder)!r})
print(model([{asked()!r}])[0]["intent"])
print(sorted({set(BLOCKED)} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert (done.stdout, done.stderr) == ("go\n[]\n", "")


def test_no_artifact_imports_torch_where_it_is_installed() -> None:
    artifacts = sorted(map(str, (ROOT / "tests" / "golden" / "before").glob("*/artifact")))
    script = f"""
import sys, t2t_torch
forms = [t2t_torch.load(path) for path in {artifacts}]
print(len(forms), any(form.signature.needs_extensions for form in forms), "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert (done.stdout, done.stderr) == (f"{len(artifacts)} True False\n", "")


@pytest.mark.slow
def test_an_artifact_answers_in_an_environment_of_onnxruntime_alone(
    folder: Path, tmp_path: Path
) -> None:
    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    place = tmp_path / "environment"
    made = run(sys.executable, "-m", "virtualenv", "-q", str(place))
    if made.returncode:
        made = run(sys.executable, "-m", "venv", str(place))
    python = str(place / "bin" / "python")
    if made.returncode or run(python, "-m", "pip", "install", "-q", "onnxruntime").returncode:
        pytest.skip("no environment with onnxruntime can be made here: no pip, or no index")
    source = tmp_path / "source"  # a build leaves files where it builds
    shutil.copytree(ROOT / "t2t_torch", source / "t2t_torch")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    built = ["--no-deps", "--no-build-isolation", "--no-index"]
    installed = run(python, "-m", "pip", "install", "-q", "setuptools>=77")
    assert installed.returncode == 0, installed.stderr
    installed = run(python, "-m", "pip", "install", "-q", *built, str(source))
    assert installed.returncode == 0, installed.stderr
    script = (
        "import sys, t2t_torch\n"
        f"print(t2t_torch.load({str(folder)!r})([{asked()!r}])[0]['intent'])\n"
        f"print([name for name in {BLOCKED} if __import__('importlib.util').util.find_spec(name)])"
    )
    answered = run(python, "-c", script)
    assert (answered.stdout, answered.stderr) == ("go\n[]\n", "")


def test_after_a_long_input_memory_is_given_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[bool] = []
    run = CancellationToken.run

    def noted(self: CancellationToken, *, gives_back: bool = False) -> Any:
        given.append(gives_back)
        return run(self, gives_back=gives_back)

    monkeypatch.setattr(CancellationToken, "run", noted)
    artifact = Artifact(folder, threads=1)
    short, long = asked(), asked(note="letters " * session.LONG)
    assert artifact.predict([long]) == artifact.predict([short])
    assert given == [True, False]
    artifact.predict([short, long], stop=CancellationToken())
    assert sorted(given[2:]) == [False, True]


MEMORY = """
import os
from pathlib import Path
import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from t2t_torch.runtime.session import CancellationToken

def memory():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

number = TensorProto.FLOAT
nodes = [
    helper.make_node("Mul", ["column", "row"], ["square"]),
    helper.make_node("ReduceMax", ["square"], ["most"], keepdims=0),
]
given = [("column", ["n", 1]), ("row", [1, "n"])]
inputs = [helper.make_tensor_value_info(name, number, shape) for name, shape in given]
outputs = [helper.make_tensor_value_info("most", number, [])]
graph = helper.make_graph(nodes, "square", inputs, outputs)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
opened = onnxruntime.InferenceSession(
    model.SerializeToString(), providers=["CPUExecutionProvider"]
)

def run(size, gives_back):
    values = np.ones(size, np.float32)
    with CancellationToken().run(gives_back=gives_back) as options:
        opened.run(None, {"column": values[:, None], "row": values[None]}, options)

run(1, False)
before, size = memory(), 5000
run(size, True)
assert memory() - before < size * size  # of 4 bytes each
run(size, False)
assert memory() - before > 3 * size * size
run(1, True)
assert memory() - before < size * size
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="Linux tells it")
def test_memory_that_is_given_back_is_the_systems() -> None:
    # In a process of its own: what other tests have allocated changes what is returned.
    subprocess.run([sys.executable, "-c", MEMORY], check=True)
