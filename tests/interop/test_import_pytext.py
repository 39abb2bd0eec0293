"""Import of PyText's configurations, and configuration files with a declaration.

The configurations have the forms of PyText's demo/configs (facebookresearch/pytext, HEAD and 0.1.0)
and of figure 1 of its paper, Aly et al. 2018, arXiv:1812.08729.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import t2t_torch as t2t
from t2t_torch import registry
from t2t_torch.bin.commands import datagen, exporter, import_run, trainer
from t2t_torch.errors import DataError, HParamsError, UsageError
from t2t_torch.interop import pytext
from t2t_torch.interop.pytext import TASKS, import_config
from t2t_torch.readers.pytext import read_pytext
from t2t_torch.readers.text_file import BadRecords

pytestmark = pytest.mark.usefixtures("own_registry")

GOLDEN = Path(__file__).parents[1] / "golden"
LABELLED = [
    (
        "alarm/modify_alarm",
        "16:24:datetime,39:57:datetime",
        "Change my alarm tomorrow to wake me up 30 minutes earlier",
    ),
    ("alarm/set_alarm", "", "Turn on all my alarms"),
    ("alarm/set_alarm", "12:27:datetime", "sound alarm every 8 minutes"),
    ("alarm/time_left", "", "how long until the alarm"),
]
TREES = [("x", "Take me home", "[IN:GET_DIRECTIONS Take me [SL:DESTINATION home ] ]")]
PAIRS = [("a man sleeps", "a man is asleep", "yes"), ("a dog", "the cat runs", "no")]
RANKED = [("the alarm clock", "a red car", "what wakes me")]
TURNS = [
    ("cu:other", '["hello", "how are you?"]'),
    ("cu:discuss", '["do you want to talk", "yes"]'),
]
REFUSED = {
    "features": (
        {"DocumentClassificationTask": {"features": {"dense_feat": {"dim": 3}}}},
        "dense_feat",
    ),
    "representation": (
        {"DocumentClassificationTask": {"model": {"representation": {"PureMagic": {}}}}},
        "PureMagic",
    ),
    "embedding": (
        {"DocumentClassificationTask": {"model": {"embedding": {"ContextualTokenEmbedding": {}}}}},
        "ContextualTokenEmbedding",
    ),
    "ablation": (
        {"SemanticParsingTask": {"model": {"ablation": {"use_stack": False}}}},
        "use_stack",
    ),
    "direction": (
        {"IntentSlotTask": {"model": {"representation": {"lstm": {"bidirectional": False}}}}},
        "bidirectional",
    ),
    "task": ({"MaskedLMTask": {}}, "MaskedLMTask"),
    "depth": ({"LMTask": json.loads('{"a":' * 60 + "{}" + "}" * 60)}, "nested"),
}


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a configuration and its data; returns its path."""
    monkeypatch.chdir(tmp_path)

    def write(task, columns=(), rows=(), name="config", **rest):
        lines = ["\t".join(row) for row in rows for _ in range(8)]
        for split in ("train", "eval"):
            (tmp_path / f"{name}_{split}.tsv").write_text("\n".join(lines) + "\n")
        files = {f"{split}_filename": f"{name}_{split}.tsv" for split in ("train", "eval")}
        source = {"TSVDataSource": {"field_names": list(columns), **files}}
        for inner in task.values():
            inner.setdefault("data", {"source": source})
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"version": 7, "task": task, **rest}))
        return path

    return write


def run_of(folder, name="run.json"):
    return json.loads((folder / name).read_text())


def test_slots_become_tags_of_words(tmp_path):
    file = tmp_path / "rows.tsv"
    extra = "\t[1.0]"  # a column that has no name
    file.write_text("\n".join("\t".join(row) + extra for row in LABELLED) + "\n")
    records = list(read_pytext(file, BadRecords(), columns=("label", "slots", "text")))
    first = records[0].values
    assert first["words"][:4] == ["change", "my", "alarm", "tomorrow"]
    assert first["tags"] == [
        *("O", "O", "O", "B-datetime", "O", "O", "O", "O"),
        *("B-datetime", "I-datetime", "I-datetime"),
    ]
    assert records[2].values["tags"] == ["O", "O", "B-datetime", "I-datetime", "I-datetime"]
    cased = next(
        iter(read_pytext(file, BadRecords(), columns=("a", "slots", "text"), lower_case=False))
    )
    assert cased.values["words"][0] == "Change"


def test_a_malformed_slot_is_reported_with_its_line(tmp_path):
    file = tmp_path / "rows.tsv"
    file.write_text("a\t1:2\thello there\n")
    with pytest.raises(DataError, match=r"rows.tsv, line 1.*'1:2'"):
        list(read_pytext(file, BadRecords(), columns=("label", "slots", "text")))
    with pytest.raises(DataError, match="columns"):
        list(read_pytext(file, BadRecords()))


@pytest.mark.parametrize(
    ("task", "columns", "rows", "model"),
    [
        ("DocumentClassificationTask", "label slots text", LABELLED, "bilstm_attention_classifier"),
        ("WordTaggingTask", "label slots text", LABELLED, "bilstm_tagger"),
        ("IntentSlotTask", "label slots text", LABELLED, "joint_bilstm"),
        ("SeqNNTask", "label text_seq", TURNS, "seqnn"),
        ("PairwiseClassificationTask", "text1 text2 label", PAIRS, "pair_classifier"),
        (
            "QueryDocumentPairwiseRankingTask",
            "pos_response neg_response query",
            RANKED,
            "pairwise_ranker",
        ),
        ("SemanticParsingTask", "text tokenized_text seqlogical", TREES, "rnng"),
        ("LMTask", "text", [(row[2],) for row in LABELLED], "lstm_lm"),
    ],
)
def test_every_task_trains_from_its_import(task, columns, rows, model, write, tmp_path):
    source = write({task: {}}, columns.split(), rows, name=f"of_{task.lower()}")
    report = t2t.import_run(source, tmp_path / "imported")
    assert task in report.lines[0]
    config = run_of(report.path)
    assert config["model"] == model
    flags = [f"--config={report.path}/run.json", f"--data_dir={tmp_path}/data"]
    assert datagen.main(flags) == 0
    assert trainer.main([*flags, f"--output_dir={tmp_path}/run", "--train_steps=2"]) == 0


@pytest.mark.parametrize(
    ("representation_name", "output"),
    [("BiLSTMPooling", "output_config"), ("BiLSTMDocAttention", "output_layer")],
    ids=["as printed", "with present names"],
)
def test_figure_1_is_imported_with_every_value(representation_name, output, write, tmp_path):
    representation = {
        "dropout": 0.4,
        "lstm": {"lstm_dim": 200, "num_layers": 2},
        "pooling": {"SelfAttention": {"attn_dimension": 128}},
    }
    task = {
        "model": {
            "representation": {representation_name: representation},
            "decoder": {"hidden_dims": [128]},
            output: {"loss": {"CrossEntropyLoss": {}}},
        },
        "features": {"word_feat": {"embed_dim": 200}},
        "trainer": {"epochs": 15, "max_clip_norm": 5},
        "optimizer": {"type": "adam", "lr": "0.001", "weight_decay": 0.00001},
        "data_handler": {
            "columns_to_read": ["doc_label", "text"],
            "train_path": "config_train.tsv",
        },
        "data": {},
    }
    source = write({"DocClassificationTask": task}, rows=[(r[0], r[2]) for r in LABELLED])
    import_config(source, tmp_path / "imported")
    config = run_of(tmp_path / "imported")
    assert config["trainer"] == {"train_epochs": 15}
    assert config["problem"]["options"] == {"columns": ["label", "text"]}
    assert 0.1 < config["problem"]["files"]["eval"] < 0.5
    hparams = registry.hparams(config["hparams_set"]).replace(**config["hparams"])
    assert (hparams.embedding_size, hparams.lstm_size, hparams.num_hidden_layers) == (200, 200, 2)
    assert (hparams.attention_size, hparams.hidden_size, hparams.attention_hops) == (128, 128, 1)
    assert (hparams.optimizer, hparams.weight_decay, hparams.clip_grad_norm) == ("adam", 1e-5, 5)
    assert hparams.learning_rate_schedule == "constant"
    assert hparams.learning_rate_constant == 0.001


def test_a_crf_attention_and_an_optimizer_are_mapped(write, tmp_path):
    task = {
        "model": {
            "representation": {
                "BiLSTMSlotAttention": {"slot_attention": {"attention_type": "concat"}}
            },
            "output_layer": {"CRFOutputLayer": {}},
        },
        "trainer": {
            "optimizer": {"SGD": {"lr": 0.1, "momentum": 0.5}},
            "scheduler": {"CosineAnnealingLR": {}},
            "early_stop_after": 3,
        },
    }
    source = write({"WordTaggingTask": task}, ("label", "slots", "text"), LABELLED)
    import_config(source, tmp_path / "imported")
    config = run_of(tmp_path / "imported")
    assert config["model"] == "bilstm_slot_attention_tagger"
    assert config["trainer"]["eval_patience"] == 3
    expected = {
        "tag_decoder": "crf",
        "slot_attention": "concat",
        "optimizer": "momentum",
        "optimizer_momentum_momentum": 0.5,
        "learning_rate_schedule": "constant*cosine_annealing",
    }
    assert expected.items() <= config["hparams"].items()


def test_an_ensemble_has_a_file_for_each_model(write, tmp_path, capsys):
    task = {"model": {"BaggingDocEnsembleModel": {"num_models": 2, "models": [{}]}}}
    source = write({"EnsembleTask": task}, ("label", "slots", "text"), LABELLED)
    flags = [f"--source={source}", f"--output_dir={tmp_path}/imported"]
    assert import_run.main(flags) == 0
    out = capsys.readouterr().out
    assert out.count("t2t-datagen") == 1
    assert out.count("t2t-trainer") == 2
    seeds = [
        run_of(tmp_path / "imported", f"run{number}.json")["hparams"]["bagging_seed"]
        for number in (1, 2)
    ]
    assert seeds == [0, 1]


def test_disjoint_tasks_become_a_mixture_declared_within(write, tmp_path):
    source = write({"DocumentClassificationTask": {}}, ("label", "slots", "text"), LABELLED)
    task = json.loads(source.read_text())["task"]
    both = {"NewDisjointMultitask": {"tasks": {"A": task, "B": task}, "trainer": {"epochs": 1}}}
    path = write(both, name="both")
    import_config(path, tmp_path / "imported")
    flags = [f"--config={tmp_path}/imported/run.json", f"--data_dir={tmp_path}/data"]
    assert datagen.main(flags) == 0
    assert {file.stem for file in (tmp_path / "data/declarations").iterdir()} == {
        *("both", "both_a", "both_b")
    }
    assert trainer.main([*flags, f"--output_dir={tmp_path}/run", "--train_steps=2"]) == 0


def test_disjoint_tasks_of_unlike_models_are_trained_together(write, tmp_path, capsys):
    """PyText's demo/configs/multitask_sst_lm.json, with the rows of the other tests."""
    source = write({"DocumentClassificationTask": {}}, ("label", "slots", "text"), LABELLED)
    classes = json.loads(source.read_text())["task"]
    lstm = {"BiLSTMDocAttention": {"lstm": {"shared_module_key": "LSTM"}}}
    classes["DocumentClassificationTask"]["model"] = {"DocModel": {"representation": lstm}}
    source = write({"LMTask": {}}, ("text",), [(text,) for _, _, text in LABELLED], name="lm")
    language = json.loads(source.read_text())["task"]
    language["LMTask"]["model"] = {"representation": {"shared_module_key": "LSTM"}}
    several = {
        "trainer": {"epochs": 5},
        "task_weights": {"SST2": 1, "LM": 0.5},
        "tasks": {"SST2": classes, "LM": language},
    }
    path = write({"NewDisjointMultitask": several}, name="both")
    assert import_run.main([f"--source={path}", f"--output_dir={tmp_path}/imported"]) == 0
    assert "shared_module_key" in capsys.readouterr().out
    run = run_of(tmp_path / "imported")
    assert run["problem"]["models"]["both_lm"].startswith("lstm_lm/lstm_lm_base/batch_size=16/")
    assert run["hparams"]["multiproblem_weights"] == "[both_sst2:1.0,both_lm:0.5]"
    assert run["trainer"]["train_epochs"] == 5
    flags = [f"--config={tmp_path}/imported/run.json", f"--data_dir={tmp_path}/data"]
    assert datagen.main(flags) == 0
    assert trainer.main([*flags, f"--output_dir={tmp_path}/run", "--train_steps=4"]) == 0
    err = capsys.readouterr().err
    assert "both_lm" in err


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_equivalent_is_refused_by_name(name, write, tmp_path):
    task, named = REFUSED[name]
    source = write(json.loads(json.dumps(task)), ("label", "text"), [("a", "b c")])
    with pytest.raises((HParamsError, UsageError), match=named):
        import_config(source, tmp_path / "imported")
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("{", "not valid JSON|JSON"),
        ("[1]", "JSON|run of a library"),
        ('{"task": {}}', "task"),
        ('{"task": {"LMTask": {}, "SeqNNTask": {}}}', "task"),
        ('{"task": {"LMTask": {}}}', "training file"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(content, named, tmp_path, capsys):
    file = tmp_path / "config.json"
    file.write_text(content)
    flags = [f"--source={file}", f"--output_dir={tmp_path}/imported", "--from=pytext"]
    assert import_run.main(flags) > 0
    assert re.search(named, capsys.readouterr().err)
    assert not (tmp_path / "imported").exists()


def test_every_model_of_the_table_is_registered():
    for task in TASKS.values():
        for model in task.models.values():
            made = registry.hparams(f"{model}_base")
            assert issubclass(type(made), registry.model(model).HParams)


OF_SEVERAL = """
    BaggingDocEnsembleModel BaggingIntentSlotEnsembleModel DisjointMultitaskData
    DisjointMultitaskModel NewDisjointMultitaskModel RoundRobinBatchSampler
""".split()
"""Components of tasks of several models or problems alone."""


def components():
    """The names of PyText's components that are imported; all others are refused."""
    chosen = (name for task in TASKS.values() for name in task.models if name != "RNNG")
    tables = (TASKS, pytext._SEVERAL, pytext._TRANSPARENT, pytext._CHOICES, pytext._OPTIMIZERS)
    return {*chosen, *OF_SEVERAL, *(name for table in tables for name in table)}


def pytext_components():
    """Kind and names of the components of PyText 0.3.3."""
    lines = (GOLDEN / "pytext_components.txt").read_text().splitlines()
    return {kind: names.split() for kind, _, names in (line.partition(": ") for line in lines[1:])}


def test_every_component_of_pytext_is_in_the_table_as_imported_or_refused():
    page = (GOLDEN.parents[1] / "docs" / "how_to" / "from_pytext.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| ([A-Z][a-z ]+) \| (.* \| .*) \|$", page, re.MULTILINE))
    for kind, names in pytext_components().items():
        imported, refused = (re.findall(r"`(\w+)`", cell) for cell in rows[kind].split(" | "))
        assert [name for name in names if name in components()] == imported, kind
        assert [name for name in names if name not in components()] == refused, kind


def test_every_component_is_imported_by_a_task_or_refused_by_its_name(own_registry):
    several = {"EnsembleTask", "NewDisjointMultitask", "DisjointMultitask", *OF_SEVERAL}
    data = {"source": {"TSVDataSource": {"train_filename": "a.tsv"}}}
    for kind, names in pytext_components().items():
        for name in set(names) - several:
            if kind == "Tasks" and name not in components():
                with pytest.raises(UsageError, match=f"PyText's {name} has no equivalent"):
                    pytext._converted(name, {}, "mine", {}, Path())
            if kind == "Tasks":
                continue
            faults = []
            for task in dict.fromkeys(TASKS):
                config = {"data": data, "model": {"representation": {name: {}}}}
                config = config if kind == "Representations" else {"data": data, "part": {name: {}}}
                try:
                    pytext._converted(task, config, "mine", {}, Path())
                except HParamsError as error:
                    faults.append(str(error))
            assert all(f"PyText's {name}" in fault for fault in faults), faults
            assert (len(faults) < len(TASKS)) == (name in components()), (name, faults)


def test_one_file_declares_trains_and_exports(write, tmp_path):
    rows = [f"good thing {n},yes\nbad thing {n},no\n" for n in range(20)]
    (tmp_path / "rows.csv").write_text("".join(["text,label\n", *rows]))
    problem = {
        "problem": "one_file",
        "kind": "text2class",
        "files": {"train": "rows.csv", "eval": 0.2},
        "fields": {"inputs": "text", "targets": "label"},
    }
    config = {
        "problem": problem,
        "model": "fasttext",
        "hparams_set": "fasttext_base",
        "trainer": {"train_steps": 3},
        "data_dir": str(tmp_path / "data"),
        "output_dir": str(tmp_path / "run"),
        "datagen": {"max_cases": 30},
        "exporter": {"export_dir": str(tmp_path / "artifact")},
    }
    path = tmp_path / "all.json"
    path.write_text(json.dumps(config))
    for command in (datagen, trainer, exporter):
        assert command.main([f"--config={path}"]) == 0
    (found,) = t2t.load(tmp_path / "artifact").predict(["good thing"])
    assert set(found.scores["targets"]) == {"yes", "no"}
    assert t2t.evaluate(tmp_path / "run")
    problem["files"] = {"train": "rows.csv", "eval": 0.3}
    path.write_text(json.dumps(config))
    assert datagen.main([f"--config={path}"]) > 0  # the data is of another declaration
    assert datagen.main([f"--config={path}", "--overwrite"]) == 0


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"problem": {"problem": "x", "kind": "text2clas"}}, "text2clas"),
        ({"datagen": {"max_case": 3}}, "max_case"),
        ({"exporters": {}}, "exporters"),
        ({"problem": {"kind": "text2class"}}, "problem"),
    ],
)
def test_mistakes_in_a_file_for_all_commands_are_named(change, named, tmp_path, capsys):
    path = tmp_path / "all.json"
    path.write_text(
        json.dumps({"problem": "reverse", "data_dir": str(tmp_path / "data"), **change})
    )
    assert datagen.main([f"--config={path}"]) > 0
    assert named in capsys.readouterr().err
    assert not (tmp_path / "data").exists()
