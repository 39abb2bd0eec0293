"""The speech transformer computes what tensor2tensor 1.15.7 computes.

The golden vectors were made with 20 mel bins and 30 zero frames, in one batch whose padding frames
tensor2tensor takes for a part of each sound; here they are given as such.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensorflow_writer import write_checkpoint
from torch import Tensor, nn

from t2t_torch.errors import HParamsError
from t2t_torch.features import Audio, Features, Transcript
from t2t_torch.interop.settings import ImportSettings
from t2t_torch.interop.tensor2tensor import detect, read
from t2t_torch.interop.tensor2tensor_weights import convert_hparams, load_variables
from t2t_torch.models.transformer import Transformer
from t2t_torch.text.encoder import TokenEncoder

GOLDEN = Path(__file__).parents[1] / "golden" / "speech"
MODALITY = "transformer/speech_recognition_modality/speech_recognition_modality"
READ = json.loads((GOLDEN / "hparams.json").read_text())
VALUES = {name: value for name, value in READ.items() if name != "data_dir"}


class GivenSpectrograms(nn.Module):
    """In place of a bottom: reads spectrograms, all frames of which are valid."""

    def __init__(self, bottom: Any) -> None:
        super().__init__()
        self.convolutions = bottom.convolutions

    def forward(self, x: Tensor, seeds: Tensor | None = None) -> Tensor:
        embedded: Tensor = self.convolutions(x, torch.full((len(x),), x.size(1)))
        return embedded


def model_of(variables: dict[str, Any]) -> Transformer:
    words = [f"w{i}" for i in range(40 - 2)]
    targets = {"targets": Transcript(TokenEncoder(["<pad>", "<EOS>", *words]))}
    hparams = convert_hparams("transformer", VALUES, variables)
    model = Transformer(hparams, Features({"inputs": Audio()}, targets))  # type: ignore[arg-type]
    load_variables(model, variables)
    modality: Any = model.modalities["inputs"]
    modality.bottom = GivenSpectrograms(modality.bottom)
    modality.mask = lambda values: torch.ones(len(values), 16, dtype=torch.bool)
    return model.eval()


@pytest.fixture(scope="module")
def model() -> Transformer:
    with np.load(GOLDEN / "variables.npz") as file:
        # Weights of seven bits of mantissa: the upper halves of float32.
        return model_of(
            {
                "transformer/" + name.replace("|", "/"): (file[name].astype(np.uint32) << 16).view(
                    np.float32
                )
                for name in file
            }
        )


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    with np.load(GOLDEN / "eval.npz") as file:
        return {name: torch.from_numpy(np.asarray(file[name])) for name in file}


def test_encoder_logits_and_loss_are_those_of_tensor2tensor(
    model: Transformer, golden: dict[str, Any]
) -> None:
    batch = {"inputs": golden["in_inputs"], "targets": golden["in_targets"].long()}
    with torch.no_grad():
        output = model(batch)
        encoded, _ = model._encode(model.bottom(batch))
    torch.testing.assert_close(encoded, golden["encoder_output"], atol=2e-5, rtol=0)
    torch.testing.assert_close(output.logits["targets"], golden["logits"], atol=2e-5, rtol=0)


def test_greedy_ids_are_those_of_tensor2tensor(model: Transformer, golden: dict[str, Any]) -> None:
    expected = golden["decode_ids"][:, :20]
    with torch.no_grad():
        state: Any = model.encode({"inputs": golden["decode_in_inputs"]})
        ids, found = torch.zeros(3, dtype=torch.long), []
        for _ in range(20):
            logits, state = model.step(ids, state)
            ids = logits.argmax(-1)
            found.append(ids)
    ours = torch.stack(found, 1)
    ended = (expected == 1).cumsum(1) - (expected == 1).long() > 0
    assert torch.equal(ours[~ended], expected[~ended])


def test_normalization_by_batch_is_refused() -> None:
    with pytest.raises(HParamsError, match="audio_preproc_in_bottom"):
        convert_hparams("transformer", {**VALUES, "audio_preproc_in_bottom": True})


def test_a_checkpoint_of_tensor2tensor_is_read_with_its_hyperparameters(tmp_path: Path) -> None:
    with np.load(GOLDEN / "variables.npz") as file:
        variables = {
            "transformer/" + name.replace("|", "/"): (file[name].astype(np.uint32) << 16).view(
                np.float32
            )
            for name in file
        }
    write_checkpoint(tmp_path / "model.ckpt-7", {**variables, "global_step": np.int64(7)})
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-7"\n')
    (tmp_path / "hparams.json").write_text(json.dumps(READ))
    (tmp_path / "flags_t2t.txt").write_text("--problem=librispeech_clean\n--model=transformer\n")
    assert detect(tmp_path)
    run = read(tmp_path, ImportSettings())
    assert run.problem == "librispeech_clean" and run.model == "transformer" and run.step == 7
    assert run.hparams.audio_num_mel_bins == 20 and run.hparams.max_length == 1650
    kernel = variables[f"{MODALITY}/conv2d_1/kernel"]
    ours = run.weights["modalities.inputs.bottom.convolutions.second.weight"]
    np.testing.assert_array_equal(ours.numpy(), kernel.transpose(3, 2, 0, 1))
