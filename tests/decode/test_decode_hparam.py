"""tensor2tensor's decode hyperparameters mean what they meant, or are refused with a reason."""

from __future__ import annotations

import pytest

from t2t_torch.decode.hparam import REFUSED, DecodeHParams, parse_decode_hparams
from t2t_torch.decode.predictor import Predictor
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
        ("write_beam_scores=true,return_beams=true,output_format=tsv", "tsv contains every score"),
        ("write_beam_scores=true,return_beams=true,output_format=jsonl", "jsonl contains every"),
        ("beam_size=1,alpha=0.9", "beam_size=1 compares no hypotheses, so it does not read alpha"),
        ("batch_size=2,batch_tokens=9", "takes the place of batch_tokens"),
        ("min_length=9,extra_length=8,force_decode_length=true", "min_length=9 is more"),
    ],
)
def test_a_wrong_setting_is_refused(text: str, message: str) -> None:
    with pytest.raises(HParamsError, match=message):
        parse_decode_hparams(text)


@pytest.mark.parametrize(
    "settings", ["valid_trees=false", "max_open_constituents=9", "num_labels=2"]
)
def test_texts_are_found_without_what_trees_and_labels_read(
    predictor: Predictor, settings: str
) -> None:
    told = f"a model that generates texts has no .* does not read {settings.partition('=')[0]}"
    with pytest.raises(HParamsError, match=told):
        predictor.predict(["5"], parse_decode_hparams(settings))


def test_a_language_model_writes_no_more_than_extra_length(language_model: Predictor) -> None:
    with pytest.raises(HParamsError, match=r"extra_length=3 as the limit .* min_length=4 is more"):
        language_model.predict(["5"], parse_decode_hparams("min_length=4,extra_length=3"))


def test_what_is_as_by_default_is_not_refused(predictor: Predictor) -> None:
    for alpha in ("0.6", "0"):  # of one hypothesis the score has no length penalty in any case
        said = f"extra_length=3,valid_trees=true,num_labels=5,beam_size=1,alpha={alpha}"
        assert len(predictor.predict(["5"], parse_decode_hparams(said))) == 1
