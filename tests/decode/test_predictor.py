"""The predictor: texts in, texts out."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import t2t_torch
from t2t_torch import registry
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.loading import load
from t2t_torch.decode.predictor import Predictor
from t2t_torch.errors import CheckpointError, DataError, DecodeError, HParamsError
from t2t_torch.features import Features, Text
from t2t_torch.mode import Split
from t2t_torch.models.transformer import Transformer
from t2t_torch.run.checkpoint import Checkpoint
from t2t_torch.text.encoder import IntegerEncoder
from t2t_torch.text_problem import Text2TextProblem

GOLDEN = Path(__file__).parents[1] / "golden" / "transformer"
SHORT = DecodeHParams(extra_length=5)


def golden_texts(variant: str, tag: str) -> list[str]:
    """The inputs of a golden decode as texts: numbers, without the end symbol."""
    rows = np.load(GOLDEN / variant / "decode.npz")[f"{tag}/in_inputs"].tolist()
    return [" ".join(str(i - 2) for i in row if i > 1) for row in rows]


def test_an_input_alone_decodes_as_in_tensor2tensor(predictor: Predictor) -> None:
    golden = np.load(GOLDEN / "v3" / "decode.npz")
    texts = golden_texts("v3", "beam4_a06_top1_batch1")
    found = predictor.predict(texts, SHORT)[0]
    expected = golden["beam4_a06_top1_batch1/ids"][0].tolist()
    assert list(found.hypotheses[0].ids) == expected[: expected.index(1)]
    assert found.score == pytest.approx(golden["beam4_a06_top1_batch1/scores"][0], abs=2e-5)
    assert found.text == " ".join(str(i - 2) for i in found.hypotheses[0].ids)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_an_output_does_not_depend_on_what_else_is_decoded(
    predictor: Predictor, beam_size: int
) -> None:
    texts = [*golden_texts("v3", "greedy"), "", "7", "1 2 3 4 5 6 7 8 9 10 11 12", "7"]
    hparams = SHORT.replace(beam_size=beam_size, return_beams=True)
    together = predictor.predict(texts, hparams)
    for text, found in zip(texts, together, strict=True):
        alone = predictor.predict([text], hparams)[0]
        assert [h.ids for h in found.hypotheses] == [h.ids for h in alone.hypotheses]
        for one, other in zip(found.hypotheses, alone.hypotheses, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-5)
    assert together[-1] == together[-3]


@pytest.mark.parametrize("batch", [{"batch_size": 1}, {"batch_size": 2}, {"batch_tokens": 12}])
def test_outputs_stand_in_the_order_of_the_inputs(
    predictor: Predictor, batch: dict[str, int]
) -> None:
    texts = [" ".join(map(str, range(3, 3 + n))) for n in (4, 9, 1, 6, 2, 8, 3)]
    expected = [predictor.predict([text], SHORT)[0].text for text in texts]
    assert [p.text for p in predictor.predict(texts, SHORT.replace(**batch))] == expected


def test_no_inputs_give_no_outputs(predictor: Predictor) -> None:
    assert predictor([]) == []


def test_beams_are_returned_best_first_and_without_empty_places(predictor: Predictor) -> None:
    hparams = SHORT.replace(return_beams=True, beam_size=6)
    for prediction in predictor.predict(golden_texts("v3", "greedy"), hparams):
        scores = [hypothesis.score for hypothesis in prediction.hypotheses]
        assert 1 < len(scores) <= 6
        assert scores == sorted(scores, reverse=True)
        assert scores[-1] > -1e6
        assert len({hypothesis.ids for hypothesis in prediction.hypotheses}) == len(scores)


def test_an_output_is_at_most_extra_length_longer_than_its_input(predictor: Predictor) -> None:
    texts = ["5 6 7 8", "5"]
    for hparams, limits in (
        (DecodeHParams(extra_length=0, beam_size=1), (5, 2)),
        (DecodeHParams(extra_length=1, beam_size=1, force_decode_length=True), (1, 1)),
    ):
        found = predictor.predict(texts, hparams)
        for prediction, limit in zip(found, limits, strict=True):
            assert len(prediction.hypotheses[0].ids) <= limit


def test_max_input_size_cuts_inputs_and_keeps_the_end_symbol(predictor: Predictor) -> None:
    hparams = DecodeHParams(max_input_size=3)
    assert predictor.encode(["5 6 7 8", "5", "5 6"], hparams) == [[7, 8, 1], [7, 1], [7, 8, 1]]


def test_a_language_model_goes_on_where_the_prompt_ends(language_model: Predictor) -> None:
    golden = np.load(GOLDEN / "lm" / "decode.npz")
    texts = golden_texts("lm", "greedy")
    found = language_model.predict(texts, DecodeHParams(extra_length=10, beam_size=1))
    for row, prediction in enumerate(found):
        expected = golden["greedy/ids"][row].tolist()
        expected = expected[: expected.index(1)] if 1 in expected else expected
        assert list(prediction.hypotheses[0].ids) == expected


def test_prompts_of_unequal_length_do_not_disturb_each_other(language_model: Predictor) -> None:
    texts = ["", "4 5 6 7 8", "9", *golden_texts("lm", "greedy")[:2]]
    together = language_model.predict(texts, SHORT)
    for text, found in zip(texts, together, strict=True):
        assert found.text == language_model.predict([text], SHORT)[0].text


def test_ids_that_only_fill_the_vocabulary_up_are_never_made() -> None:
    text = Text(IntegerEncoder(5))
    features = Features({"inputs": text}, {"targets": text})
    hparams = registry.hparams("transformer_test").replace(vocab_divisor=64)
    torch.manual_seed(0)
    model = Transformer(hparams, features)
    for parameter in model.modalities.parameters():
        parameter.data[text.vocab_size :] = parameter.data[2] * 9  # what `2` is, and more so
    predictor = Predictor(model, registry.problem("tiny_algo"), features)
    for prediction in predictor.predict(["1 2", "0", "4 4"], SHORT.replace(return_beams=True)):
        assert all(i < text.vocab_size for h in prediction.hypotheses for i in h.ids)


def test_a_string_in_place_of_a_list_is_refused(predictor: Predictor) -> None:
    with pytest.raises(DecodeError, match=r"predict\(\[text\]\)"):
        predictor("5 6")


def test_an_input_outside_the_vocabulary_is_refused(predictor: Predictor) -> None:
    with pytest.raises(DataError, match="house"):
        predictor(["5", "house"])


def test_a_problem_that_writes_no_single_text_is_refused(predictor: Predictor) -> None:
    text = predictor.features.targets["targets"]
    features = Features({"inputs": text, "context": text}, {"targets": text})
    with pytest.raises(DecodeError, match=r"context \(Text\)"):
        Predictor(predictor.model, predictor.problem, features)


def test_load_takes_the_newest_checkpoint_or_the_one_asked_for(run_dir: Path) -> None:
    steps = [3, "7", run_dir / "ckpt-3", None]
    loaded = [load(run_dir, step) for step in steps]
    assert [one.run.step for one in loaded if one.run] == [3, 7, 3, 7]
    first, second, third, newest = (
        dict(one.model.named_parameters())["decoder.0.attention.output.weight"] for one in loaded
    )
    assert torch.equal(first, third)
    assert torch.equal(second, newest)
    assert not torch.equal(first, second)


def test_load_is_a_public_name_and_needs_the_run_directory_alone(run_dir: Path) -> None:
    predictor = t2t_torch.load(str(run_dir), hparams=DecodeHParams(extra_length=3))
    outputs = predictor(["May 3rd, 2009", ""])
    assert len(outputs) == 2
    assert not predictor.model.training


def test_load_falls_back_to_the_newest_whole_checkpoint(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = run_dir / "ckpt-7" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    predictor = load(run_dir)
    assert predictor.run is not None
    assert predictor.run.step == 3
    assert "ckpt-7" in capsys.readouterr().err
    with pytest.raises(CheckpointError, match="bytes"):
        load(run_dir, 7)


@pytest.mark.parametrize(
    ("checkpoint", "message"), [(5, r"\[3, 7\]"), ("model.ckpt-7", "Expected a step")]
)
def test_a_checkpoint_that_is_not_there_is_refused(
    run_dir: Path, checkpoint: int | str, message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        load(run_dir, checkpoint)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="t2t-trainer"):
        load(tmp_path)


def rewrite(run_dir: Path, record: dict[str, Any]) -> None:
    """Writes another `task.json` and accepts it, as docs/reference/run_directory.md says."""
    (run_dir / "task.json").write_text(json.dumps(record))
    subprocess.run("sha256sum task.json >> SHA256SUMS", shell=True, cwd=run_dir, check=True)


def test_a_run_whose_user_folder_is_gone_says_which(run_dir: Path) -> None:
    record = json.loads((run_dir / "task.json").read_text())
    rewrite(run_dir, {**record, "problem": "my_own_problem", "usr_dirs": [str(run_dir / "gone")]})
    with pytest.raises(CheckpointError, match=r"--t2t_usr_dir=.*gone"):
        load(run_dir)


@pytest.mark.parametrize("beam_size", [51, 1000])
def test_a_beam_wider_than_half_the_vocabulary_is_refused(
    predictor: Predictor, beam_size: int
) -> None:
    assert predictor.vocab_size < 102
    with pytest.raises(HParamsError, match=f"beam_size={beam_size}.*at most"):
        predictor.predict(["5"], SHORT.replace(beam_size=beam_size))


def test_a_beam_that_no_machine_can_hold_is_refused(run_dir: Path) -> None:
    with pytest.raises(HParamsError, match="beam_size"):
        DecodeHParams().replace(beam_size=100_000_000)
    with pytest.raises(HParamsError, match="at most 129"):  # 258 bytes and reserved ids
        load(run_dir, hparams=DecodeHParams(beam_size=130))


def test_a_checkpoint_may_be_named_relative_to_its_run(run_dir: Path) -> None:
    predictor = load(run_dir, "ckpt-3")
    assert predictor.run is not None
    assert predictor.run.step == 3


def test_a_checkpoint_in_place_of_a_run_is_told(run_dir: Path) -> None:
    with pytest.raises(CheckpointError, match=r"is a checkpoint.*--checkpoint_path=3"):
        load(run_dir / "ckpt-3")


def test_a_checkpoint_that_goes_while_it_is_read_gives_way_to_the_next(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Checkpoint.load_model

    def too_late(checkpoint: Checkpoint, model: torch.nn.Module, *, averaged: bool) -> None:
        if checkpoint.step == 7:
            checkpoint.path.rename(run_dir / "ckpt-7.removed")
        read(checkpoint, model, averaged=averaged)

    monkeypatch.setattr(Checkpoint, "load_model", too_late)
    predictor = load(run_dir)
    assert predictor.run is not None
    assert predictor.run.step == 3
    (run_dir / "ckpt-7.removed").rename(run_dir / "ckpt-7")
    with pytest.raises(CheckpointError, match=r"deleted while it was read.*\[3\]"):
        load(run_dir, 7)


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize(
    ("content", "message"), [(None, "is missing: vocab.w"), (b"x", "is damaged: .*vocab.w")]
)
def test_a_run_without_its_vocabulary_asks_for_it_back(
    run_dir: Path, content: bytes | None, message: str
) -> None:
    @registry.register_problem("words_for_test")
    class _(Text2TextProblem):
        vocab_filename = "vocab.words"

        def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, str]]:
            yield {"inputs": "a", "targets": "b"}

    record = json.loads((run_dir / "task.json").read_text()) | {"problem": "words_for_test"}
    rewrite(run_dir, record)
    if content is not None:
        (run_dir / "vocab.words").write_bytes(content)
    with pytest.raises(CheckpointError, match=message) as caught:
        load(run_dir)
    assert "data_dir this run was trained on" in str(caught.value)
    assert "t2t-datagen" not in str(caught.value)


@pytest.mark.parametrize(
    ("together", "told"), [(1, r"line 2 of a file.*max_input_size"), (2, r"batch_size=1")]
)
def test_an_input_for_which_memory_does_not_suffice_is_named(
    predictor, monkeypatch, together, told
):
    def fail(*arguments):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8")

    monkeypatch.setattr(predictor, "_predict_batch", fail)
    hparams = DecodeHParams(batch_size=together)
    with pytest.raises(DecodeError, match=told):
        list(predictor.predict_ids([[4, 1], [4, 4, 4, 1]], hparams))
