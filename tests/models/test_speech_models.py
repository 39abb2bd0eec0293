"""Models of sounds: padding, batch mates, steps, decoding, and the graph of CTC."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from t2t_torch import registry
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.loading import Loaded
from t2t_torch.decode.speech_predictor import SpeechPredictor
from t2t_torch.errors import DataError, HParamsError
from t2t_torch.export.exporter import target_of
from t2t_torch.export.network import export_network
from t2t_torch.export.targets import CtcExportTarget
from t2t_torch.features import Audio, Features, Text, Transcript
from t2t_torch.features.audio import NO_SAMPLE
from t2t_torch.mode import Split
from t2t_torch.model import Hidden, check_features
from t2t_torch.problem_types.speech import Speech2TextProblem
from t2t_torch.testing import small
from t2t_torch.text.encoder import ByteEncoder, TokenEncoder

FEATURES = Features({"inputs": Audio()}, {"targets": Transcript(ByteEncoder())})
LENGTHS = (6000, 4001, 9000)


class Spoken(Speech2TextProblem):
    name = "spoken"

    def generate_samples(self, tmp_dir: Any, split: Split) -> Any:
        yield {}


def model_of(name: str, set_name: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    hparams = small(registry.hparams(set_name)).replace(**changes)
    return registry.model(name)(hparams, FEATURES).eval()


def sounds() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(0, 0.1, length) for length in LENGTHS]


def predictor_of(model: Any, **settings: Any) -> SpeechPredictor:
    return SpeechPredictor(model, Spoken(), FEATURES, DecodeHParams().replace(**settings))


MODELS = [
    ("transformer", "transformer_speech_tiny"),
    ("transformer_ctc", "transformer_ctc_tiny"),
    ("transformer_ctc", "transformer_ctc_joint_tiny"),
]


@pytest.mark.parametrize(("name", "set_name"), MODELS)
def test_outputs_do_not_depend_on_batch_mates(name: str, set_name: str) -> None:
    model = model_of(name, set_name)
    for beam_size in (1, 3):
        settings = {"extra_length": 2} if model.searches else {}
        predictor = predictor_of(model, beam_size=beam_size, **settings)
        together = predictor.predict(sounds())
        alone = [predictor.predict([one])[0] for one in sounds()]
        for one, other in zip(together, alone, strict=True):
            assert one.text == other.text
            assert one.score == pytest.approx(other.score, abs=1e-4)


@pytest.mark.parametrize(("name", "set_name"), [MODELS[0], MODELS[2]])
def test_steps_equal_a_teacher_forced_pass(name: str, set_name: str) -> None:
    model = model_of(name, set_name)
    feature = FEATURES.inputs["inputs"]
    rows = [np.asarray(feature.encode(one)) for one in sounds()]
    batch = np.full((3, max(map(len, rows))), NO_SAMPLE, np.int16)
    for number, row in enumerate(rows):
        batch[number, : len(row)] = row
    inputs = torch.from_numpy(batch).view(3, -1, 160)
    targets = torch.tensor([[40, 41, 1], [42, 43, 44], [40, 1, 0]])
    with torch.no_grad():
        expected = model({"inputs": inputs, "targets": targets}).logits["targets"]
        state, ids = model.encode({"inputs": inputs}), torch.zeros(3, dtype=torch.long)
        for place in range(3):
            logits, state = model.step(ids, state)
            there = targets[:, place] != 0
            torch.testing.assert_close(logits[there], expected[there, place], atol=1e-4, rtol=0)
            ids = targets[:, place]


def test_the_joint_loss_weighs_both() -> None:
    batch = {
        "inputs": torch.randint(-999, 999, (2, 60, 160), dtype=torch.int16),
        "targets": torch.tensor([[40, 41, 1], [42, 1, 0]]),
    }
    losses = {}
    for weight in (0.25, 0.75):
        model = model_of("transformer_ctc", "transformer_ctc_joint_tiny", ctc_weight=weight)
        with torch.no_grad():
            losses[weight] = model(batch).losses["targets"].sum
            hidden = model.body(model.bottom(batch))["targets"]
            ctc = model.ctc.loss(model.ctc.logits(hidden.frames), batch["targets"]).sum
    attention = (losses[0.25] - 0.25 * ctc) / 0.75
    torch.testing.assert_close(losses[0.75], 0.25 * attention + 0.75 * ctc)


def test_a_graph_of_ctc_reads_sounds_of_any_length() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = model_of("transformer_ctc", "transformer_ctc_tiny")
    predictor = predictor_of(model, beam_size=1)
    example = {"inputs": predictor._padded(predictor.encode(sounds()[:2]))}
    graph = export_network(model, example)
    session = onnxruntime.InferenceSession(graph.SerializeToString())
    for one in sounds():
        waves = predictor._padded(predictor.encode([one]))
        numbers, scores = session.run(
            ["targets.numbers", "targets.scores"], {"inputs": waves.numpy()}
        )
        (expected,) = predictor.predict([one])
        assert tuple(i for i in numbers[0] if i) == expected.hypotheses[0].ids
        assert scores[0] == pytest.approx(expected.score, abs=1e-3)


def test_texts_are_refused_by_a_model_of_sounds() -> None:
    model_class = registry.model("transformer_ctc")
    text = Text(ByteEncoder())
    with pytest.raises(HParamsError, match="reads Audio"):
        check_features(model_class, Features({"inputs": text}, {"targets": text}))
    with pytest.raises(HParamsError, match="no inputs"):
        check_features(model_class, Features({}, {"targets": text}))


@pytest.mark.parametrize(
    "name",
    [
        "label_smoothing",
        "confidence_penalty",
        "r_drop_alpha",
        "r3f_weight",
        "scheduled_sampling_prob",
    ],
)
def test_ctc_alone_refuses_losses_of_a_decoder(name: str) -> None:
    with pytest.raises(HParamsError, match=f"{name}=0.1 .*Set it to 0"):
        model_of("transformer_ctc", "transformer_ctc_tiny", **{name: 0.1})


def test_ctc_alone_refuses_settings_that_its_search_does_not_read() -> None:
    model = model_of("transformer_ctc", "transformer_ctc_tiny")
    with pytest.raises(HParamsError, match="no_repeat_ngram_size"):
        predictor_of(model, no_repeat_ngram_size=2)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"inputs": [0.1] * 500, "constraints": ["x"]}, "no constraints"),
        ({"input": [0.1] * 500}, "has no 'inputs'"),
    ],
)
def test_inputs_that_are_no_sound_alone_are_refused(value: Any, why: str) -> None:
    predictor = predictor_of(model_of("transformer_ctc", "transformer_ctc_tiny"))
    with pytest.raises(DataError, match=why):
        predictor.encode([value])


def test_a_line_of_a_list_is_a_path(tmp_path: Path) -> None:
    predictor = predictor_of(model_of("transformer_ctc", "transformer_ctc_tiny"))
    (tmp_path / "a.wav").touch()
    assert predictor.value_of("a.wav", tmp_path) == tmp_path / "a.wav"
    with pytest.raises(DataError, match="5 is no path"):
        predictor.value_of({"inputs": 5}, tmp_path)


@pytest.mark.slow
def test_words_of_a_graph_are_those_of_the_model() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    words = TokenEncoder(["one", "two", "three"])
    features = Features({"inputs": Audio()}, {"targets": Transcript(words)})
    torch.manual_seed(0)
    hparams = small(registry.hparams("transformer_ctc_tiny"))
    model = registry.model("transformer_ctc")(hparams, features).eval()
    problem = Spoken()
    loaded = SimpleNamespace(model=model, problem=problem, features=features, info=None)
    target = CtcExportTarget(loaded, DecodeHParams())  # type: ignore[arg-type]
    predictor = SpeechPredictor(model, problem, features, DecodeHParams(beam_size=1))
    example = {"inputs": predictor._padded(predictor.encode(sounds()[:2]))}
    graph = target.graph(export_network(model, example)).model()
    session = onnxruntime.InferenceSession(graph.SerializeToString())
    for one in sounds():
        (expected,) = predictor.predict([one])
        samples = Audio().samples_of(one)[None]
        (texts,) = session.run(["targets"], {"inputs": samples})
        assert texts[0, 0] == expected.text


def test_the_graph_of_a_model_with_a_decoder_is_its_ctc_output() -> None:
    joint = model_of("transformer_ctc", "transformer_ctc_joint_tiny")
    alone = joint.for_graph()
    assert alone.is_alone and not alone.searches and alone.for_graph() is alone
    assert not alone.training and not hasattr(alone, "decoder")
    batch = {"inputs": predictor_of(alone)._padded(predictor_of(alone).encode(sounds()[:2]))}
    with torch.no_grad():
        memory, mask = joint._encode(joint.bottom(batch))
        expected = joint.ctc.logits(Hidden(memory, mask))
        torch.testing.assert_close(alone.logits(batch)["targets"], expected)
    loaded = Loaded(alone, Spoken(), joint.features, None)  # type: ignore[arg-type]
    assert isinstance(target_of(loaded, DecodeHParams()), CtcExportTarget)
