"""tensor2tensor's decode hyperparameters mean what they meant, or are refused with a reason."""

from __future__ import annotations

import pytest

from t2t_torch.decode.hparam import REFUSED, DecodeHParams, parse_decode_hparams
from t2t_torch.errors import HParamsError

# tensor2tensor 1.15.7, utils/decoding.py, decode_hparams.
TENSOR2TENSOR = """
    save_images log_results extra_length min_length_ratio batch_size beam_size alpha eos_penalty
    block_size guess_and_check_top_k guess_and_check_epsilon insertion_parallel return_beams
    write_beam_scores max_input_size identity_output num_samples delimiter decode_to_file
    decode_reference decode_in_memory decode_timeout_mins summaries_log_dir shards shard_id
    shards_start_offset shard_google_format num_decodes force_decode_length display_decoded_images
    multiproblem_task_id frames_per_second skip_eos_postprocess border_percent max_display_outputs
    max_display_decodes vgg_ckpt_path mlperf_mode mlperf_threshold mlperf_success mlperf_decode_step
    export_extra_infer_outputs
""".split()


@pytest.mark.parametrize("name", TENSOR2TENSOR)
def test_every_name_of_tensor2tensor_is_read_or_refused_with_a_reason(name: str) -> None:
    if name in DecodeHParams.model_fields:
        assert name not in REFUSED
        return
    with pytest.raises(HParamsError, match=name) as error:
        parse_decode_hparams(f"beam_size=2,{name}=1")
    assert REFUSED[name] in str(error.value)


def test_a_string_of_settings_is_read() -> None:
    hparams = parse_decode_hparams("beam_size=8, alpha=1.0,return_beams=True")
    assert (hparams.beam_size, hparams.alpha, hparams.return_beams) == (8, 1.0, True)
    assert hparams.extra_length == 100
    assert parse_decode_hparams("") == DecodeHParams()


def test_the_delimiter_may_be_written_escaped() -> None:
    assert parse_decode_hparams(r"delimiter=\n\n").separator == "\n\n"
    assert DecodeHParams().separator == "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("beam_sise=4", "beam_size"),
        ("beam_size=0", "beam_size"),
        ("alpha=-1", "alpha"),
        ("write_beam_scores=true", "return_beams=true"),
        ("delimiter=", "delimiter"),
    ],
)
def test_a_wrong_setting_is_refused(text: str, message: str) -> None:
    with pytest.raises(HParamsError, match=message):
        parse_decode_hparams(text)
