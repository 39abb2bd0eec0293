"""How to decode: `DecodeHParams`, with tensor2tensor's names and defaults.

Every name of tensor2tensor's `decode_hparams` either means here what it meant there, or is refused
with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from t2t_torch.errors import HParamsError
from t2t_torch.params import Params, hp

_DEAD = "tensor2tensor never read it"
_IMAGES = "it is about decoded images and video"
_BLOCKWISE = "it belongs to blockwise parallel decoding (transformer_block_parallel)"
_SHARDS = "cut the input file in parts and decode each with its own --decode_from_file"
_BENCHMARK = "it belongs to the MLPerf benchmark"

REFUSED = {
    "min_length_ratio": _DEAD,
    "eos_penalty": _DEAD,
    "insertion_parallel": _DEAD,
    "block_size": _BLOCKWISE,
    "guess_and_check_top_k": _BLOCKWISE,
    "guess_and_check_epsilon": _BLOCKWISE,
    "save_images": _IMAGES,
    "display_decoded_images": _IMAGES,
    "frames_per_second": _IMAGES,
    "border_percent": _IMAGES,
    "max_display_outputs": _IMAGES,
    "max_display_decodes": _IMAGES,
    "vgg_ckpt_path": _IMAGES,
    "shards": _SHARDS,
    "shard_id": _SHARDS,
    "shards_start_offset": _SHARDS,
    "shard_google_format": _SHARDS,
    "mlperf_mode": _BENCHMARK,
    "mlperf_threshold": _BENCHMARK,
    "mlperf_success": _BENCHMARK,
    "mlperf_decode_step": _BENCHMARK,
    "decode_to_file": "give it as the flag --decode_to_file",
    "decode_reference": "give it as the flag --decode_reference",
    "decode_in_memory": "t2t_torch.load(run_dir) decodes in memory",
    "decode_timeout_mins": "it is for waiting for checkpoints; --schedule=continuous_eval waits",
    "summaries_log_dir": "decoding writes no summaries",
    "multiproblem_task_id": "--problem, of t2t-trainer --decode_problem, says which one is asked",
    "skip_eos_postprocess": "a hypothesis ends at its end symbol; nothing is decoded after it",
    "export_extra_infer_outputs": "a run has no other outputs",
}
"""tensor2tensor's names that nothing here reads, and why."""

READ_BY_LABELS = ("output_format", "num_labels")
"""What models read that give no text; all else is about texts."""


class DecodeHParams(Params):
    """Decoding: the search, and what is written."""

    beam_size: int = hp(
        4,
        "Hypotheses kept per input, at most half the vocabulary.  1: greedy search.",
        low=1,
        high=1000,
    )
    alpha: float = hp(0.6, "Exponent of the length penalty; larger favours longer outputs.", low=0)
    sampling_method: Literal["argmax", "random"] = hp(
        "argmax", "argmax: the likeliest output is searched for.  random: outputs are drawn."
    )
    sampling_temp: float = hp(
        1.0, "random: logits are divided by it; below 1 the likely becomes likelier.", above=0
    )
    sampling_keep_top_k: int = hp(
        -1, "random: only so many of the likeliest tokens are drawn.  -1 or 0: all.", low=-1
    )
    top_p: float = hp(
        1.0,
        "random: only the likeliest tokens that reach this probability together are drawn.",
        above=0,
        high=1,
    )
    num_decodes: int = hp(
        1, "random: outputs drawn of each input, separated by tabs.", low=1, high=1000
    )
    random_seed: int = hp(
        0, "random: an output depends on it, on its input, and on its number alone.", low=0
    )
    extra_length: int = hp(
        100,
        "Tokens that an output may be longer than its input, end symbol included.",
        low=0,
        high=1_000_000,
    )
    force_decode_length: bool = hp(
        False, "extra_length alone is the limit, whatever the input's length."
    )
    batch_size: int = hp(0, "Inputs decoded at a time.  0: as batch_tokens says.", low=0)
    batch_tokens: int = hp(
        2048, "Input tokens decoded at a time, padding counted, where batch_size is 0.", low=1
    )
    activation_dtype: Literal["as_trained", "float32", "bfloat16"] = hp(
        "as_trained", "Type of the activations; bfloat16 is fast where the hardware multiplies it."
    )
    max_input_size: int = hp(
        -1, "Tokens; longer inputs are cut, the end symbol kept.  -1 or 0: never.", low=-1
    )
    num_samples: int = hp(-1, "Examples decoded of a data set.  -1: all.", low=-1)
    return_beams: bool = hp(False, "Writes all beam_size hypotheses, separated by tabs.")
    write_beam_scores: bool = hp(False, "With return_beams: a tab and the score after each.")
    identity_output: bool = hp(False, "Writes ids in place of text.")
    delimiter: str = hp(
        r"\n", r"What separates the inputs of a file, and the outputs; \n and \t are understood."
    )
    output_format: Literal["text", "tsv", "jsonl"] = hp(
        "text",
        "What is written of each input.  text: the output alone; tsv: a row with a header, inputs "
        "and probabilities; jsonl: a JSON object of all that was found.",
    )
    num_labels: int = hp(
        5, "tsv and jsonl: so many labels are told with their probabilities, the best ones.", low=1
    )
    valid_trees: bool = hp(
        True,
        "Trees: a search looks only at transitions that go on to one tree over all words.  False: "
        "at all, and what is no tree is mended.",
    )
    max_open_constituents: int = hp(
        100, "Trees, with valid_trees: the most constituents in each other.", low=1, high=10_000
    )
    log_results: bool = hp(False, "Logs every input and output.")

    def check_beam(self, vocab_size: int) -> None:
        """Checks that the beam is not wider than a vocabulary can fill.

        The default width is allowed with any vocabulary.

        Raises:
          HParamsError: it is wider than half the vocabulary.
        """
        most = max(DecodeHParams.model_fields["beam_size"].default, vocab_size // 2)
        if self.beam_size > most:
            raise HParamsError(
                f"beam_size={self.beam_size} is too wide for a vocabulary of {vocab_size:,} ids: "
                f"expected at most {most}."
            )

    def check_of_labels(self, source: str = "--decode_hparams") -> None:
        """Checks that nothing is set that only models of texts read.

        Raises:
          HParamsError: something is.
        """
        searches = "a model that gives labels, numbers or spans searches for nothing and"
        self.check_read(READ_BY_LABELS, searches, source)

    def check_read(self, read: Sequence[str], who: str, source: str = "--decode_hparams") -> None:
        """Checks that nothing is set but what is read.

        Args:
          read: the names of what is.
          who: reads it, for the message.
          source: of what is set, for the message.

        Raises:
          HParamsError: something else is set; names it.
        """
        told = self.provenance
        unread = [name for name in told if told[name] != "default" and name not in read]
        if unread:
            known = f"reads {', '.join(read)}. Leave the others" if read else "reads none. Leave it"
            raise HParamsError(
                f"{source}: {who} does not read {', '.join(unread)}. It {known} out."
            )

    @property
    def draws(self) -> bool:
        """Whether outputs are drawn, not searched for."""
        return self.sampling_method == "random"

    @property
    def writes_several(self) -> bool:
        """Whether there may be several outputs of an input."""
        return self.num_decodes > 1 if self.draws else self.return_beams

    @property
    def separator(self) -> str:
        """The delimiter itself."""
        return self.delimiter.replace(r"\n", "\n").replace(r"\t", "\t")


def parse_decode_hparams(text: str, source: str = "--decode_hparams") -> DecodeHParams:
    """Reads "beam_size=4,alpha=0.6".

    Raises:
      HParamsError: a name is unknown or refused, or a value cannot be.
    """
    for item in text.split(","):
        name = item.partition("=")[0].strip()
        if name in REFUSED:
            raise HParamsError(
                f"{source}: nothing here reads tensor2tensor's {name!r}: {REFUSED[name]}. "
                "Leave it out."
            )
    hparams = DecodeHParams().parse(text, source)
    if hparams.write_beam_scores and not hparams.writes_several:
        raise HParamsError(
            f"{source}: write_beam_scores=true does nothing alone (nor in tensor2tensor). Expected "
            "return_beams=true with it, or num_decodes of more than 1."
        )
    _check_draws(hparams, source)
    if not hparams.delimiter:
        raise HParamsError(f"{source}: delimiter is empty; expected at least one character.")
    return hparams


def _check_draws(hparams: DecodeHParams, source: str) -> None:
    """Checks that what is asked of draws and of search does not stand beside the other."""
    of_draws = ("sampling_temp", "sampling_keep_top_k", "top_p", "num_decodes", "random_seed")
    unread = [*of_draws] if not hparams.draws else ["beam_size", "alpha", "return_beams"]
    fields = DecodeHParams.model_fields
    asked = [name for name in unread if getattr(hparams, name) != fields[name].default]
    if asked:
        other = "argmax" if hparams.draws else "random"
        raise HParamsError(
            f"{source}: sampling_method={hparams.sampling_method} does not read "
            f"{', '.join(asked)}. Leave it out, or say sampling_method={other}."
        )
