"""Decoding settings: `DecodeHParams`, with tensor2tensor's names and defaults.

Every name of tensor2tensor's `decode_hparams` either has its meaning there, or is rejected with the
reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Literal

from t2t_torch.errors import HParamsError
from t2t_torch.params import Params, hp

ROUNDING = 1e-9
"""Added before a product is rounded down: 0.7 * 10 is slightly less or more than 7."""

OF_SEARCH = (
    "beam_size alpha coverage_penalty num_beam_groups diversity_strength length_offset "
    "length_scale early_stopping"
).split()
"""Settings for search, not read by sampling."""

OF_DRAWS = "sampling_temp sampling_keep_top_k top_p typical_p num_decodes random_seed".split()
"""Settings for sampling only."""

OF_RULES = (
    "min_length min_length_ratio no_repeat_ngram_size coverage_penalty num_beam_groups".split()
)
"""Settings for constraints of a search; see `search.py`."""

OF_INPUTS = (
    "min_length_ratio max_length_ratio coverage_penalty extra_length_ratio max_length".split()
)
"""Settings that only models with inputs read."""

UNREAD_BY_TREES = [
    *("sampling_method", "max_length_ratio", "diversity_strength", "search_rules"),
    *("extra_length_ratio", "max_length", *OF_RULES, "num_labels", "compile"),
]
"""Settings that trees and their search do not read."""


class SearchHParams(Params):
    """Search: settings for finding outputs."""

    beam_size: int = hp(
        4,
        "Hypotheses kept per input, at most half the vocabulary.  1: greedy search.",
        low=1,
        high=1000,
    )
    alpha: float = hp(0.6, "Exponent of the length penalty; larger favours longer outputs.", low=0)
    length_offset: float = hp(
        5.0,
        "A of the length penalty ((A + length) / B)^alpha, the divisor of log-probabilities.  5 in "
        "tensor2tensor, 0 in fairseq, Hugging Face and Sockeye, 1 in OpenNMT-py.",
        low=0,
    )
    length_scale: float = hp(
        6.0, "B of the length penalty.  6 in tensor2tensor, 1 in other libraries.", above=0
    )
    search_rules: Literal["tensor2tensor", "fairseq", "huggingface", "opennmt", "sockeye"] = hp(
        "tensor2tensor",
        "Library by whose rules a hypothesis ends and a search stops; see docs/how_to/decoding.md.",
    )
    early_stopping: Literal["true", "false", "never"] = hp(
        "false",
        "search_rules=huggingface: early_stopping of generate.  true: a search stops with "
        "beam_size ended hypotheses; false, never: when no other can be better, at its present "
        "length or at any.  search_rules=sockeye: true: with the first that ends.",
    )
    force_eos: bool = hp(
        True,
        "Only the end symbol may be chosen at the limit.  False: hypotheses end there without it.  "
        "Read by search_rules other than tensor2tensor.",
    )
    coverage_penalty: float = hp(
        0.0,
        "Beta of Wu et al. 2016, equation 14: what a hypothesis that ends loses for each word of "
        "the input that it has not attended to.  Of models with attention to their input.",
        low=0,
        high=100,
    )
    num_beam_groups: int = hp(
        1,
        "Groups that the beam is divided into, which keep away from each other: diverse beam "
        "search.  A divisor of beam_size.",
        low=1,
        high=1000,
    )
    diversity_strength: float = hp(
        0.5,
        "num_beam_groups: what each living hypothesis of the groups before takes off the "
        "log-probability (nats) of the token that it has taken in the same step.",
        low=0,
        high=1000,
    )
    return_beams: bool = hp(False, "Writes all beam_size hypotheses, separated by tabs.")
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
    typical_p: float = hp(
        1.0,
        "random: only the tokens whose surprise is closest to the mean, as many as reach this "
        "probability together, are drawn; of those that top_k and top_p leave.",
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
    extra_length_ratio: float = hp(
        0.0,
        "Tokens that an output may be longer, as a part of its input's length, with extra_length.",
        low=-1,
        high=1000,
    )
    max_length: int = hp(
        0, "Tokens that an output has at most, end symbol included.  0: no such limit.", low=0
    )
    force_decode_length: bool = hp(
        False, "extra_length alone is the limit, whatever the input's length."
    )
    min_length: int = hp(
        0,
        "Tokens that an output has at least, end symbol included.  A lower limit holds.",
        low=0,
        high=1_000_000,
    )
    min_length_ratio: float = hp(
        0.0,
        "Tokens that an output has at least, as a part of its input's; end symbols included.  A "
        "lower limit holds.",
        low=0,
        high=1000,
    )
    max_length_ratio: float = hp(
        0.0,
        "Tokens that an output has at most, as a part of its input's; end symbols included.  0: as "
        "extra_length says, which is a limit in any case.",
        low=0,
        high=1000,
    )
    no_repeat_ngram_size: int = hp(
        0,
        "So many tokens never follow each other twice in an output.  0: they may.",
        low=0,
        high=1000,
    )

    def is_changed(self, name: str) -> bool:
        """Returns True if a field does not have its default value."""
        return bool(getattr(self, name) != type(self).model_fields[name].default)

    @property
    def draws(self) -> bool:
        """True if outputs are sampled instead of searched for."""
        return self.sampling_method == "random"

    def least_length(self, length: int) -> int:
        """Returns the minimum number of tokens of an output, for an input of this length."""
        return max(self.min_length, math.ceil(self.min_length_ratio * length - ROUNDING))

    def limit(self, length: int, *, has_inputs: bool = True) -> int:
        """Returns the maximum number of tokens of an output, including its prefix.

        Args:
          length: length of the input.
          has_inputs: False for a language model, whose input is the prefix.
        """
        if not has_inputs:
            return length + self.extra_length
        most = math.floor(self.input_length_factor * length + self.extra_length + ROUNDING)
        most = min(most, self.max_length) if self.max_length else most
        if not self.max_length_ratio:
            return most
        return min(most, max(1, math.floor(self.max_length_ratio * length + ROUNDING)))

    @property
    def input_length_factor(self) -> float:
        """Factor of the input's length in the limit of outputs; `extra_length` is added."""
        return 0.0 if self.force_decode_length else 1.0 + self.extra_length_ratio

    def check_beam(self, vocab_size: int) -> None:
        """Checks that the vocabulary is large enough for the beam.

        The default beam size is allowed with any vocabulary.

        Raises:
          HParamsError: the beam is wider than half the vocabulary.
        """
        most = max(SearchHParams.model_fields["beam_size"].default, vocab_size // 2)
        if self.beam_size > most:
            raise HParamsError(
                f"beam_size={self.beam_size} is too wide for a vocabulary of {vocab_size:,} ids: "
                f"expected at most {most}."
            )

    def check_search(self, source: str = "--decode_hparams") -> None:
        """Checks that the settings for search and sampling are compatible.

        Raises:
          HParamsError: a setting would not be read, or is not possible.
        """
        unread = ("return_beams", *OF_SEARCH) if self.draws else OF_DRAWS
        advice = f"Leave it out, or say sampling_method={'argmax' if self.draws else 'random'}."
        self._refuse(
            unread, f"sampling_method={self.sampling_method} does not read", advice, source
        )
        if self.num_beam_groups == 1:
            advice = "Leave it out, or set num_beam_groups of at least 2."
            self._refuse(
                ["diversity_strength"], "a beam of one group does not read", advice, source
            )
        if self.beam_size % self.num_beam_groups:
            raise HParamsError(
                f"{source}: beam_size={self.beam_size} cannot be divided into "
                f"num_beam_groups={self.num_beam_groups} groups of the same size. Expected a "
                "multiple of it."
            )
        if self.beam_size == 1:
            # alpha=0 is the score of one hypothesis: its log-probability.
            of_beams = ["alpha", "length_offset", "length_scale"] if self.alpha else []
            because = "beam_size=1 compares no hypotheses, so it does not read"
            advice = "Leave it out, or set a wider beam."
            self._refuse(["coverage_penalty", *of_beams], because, advice, source)
        rules = f"search_rules={self.search_rules} does not read"
        if self.search_rules not in ("huggingface", "sockeye"):
            self._refuse(["early_stopping"], rules, source=source)
        if self.search_rules == "tensor2tensor":
            self._refuse(["force_eos"], rules, source=source)
        if self.force_decode_length:
            self._refuse(
                ["extra_length_ratio"], "force_decode_length=true does not read", source=source
            )
            self._check_least(f"{source}: force_decode_length=true")
        if 0 < self.max_length_ratio < self.min_length_ratio:
            raise HParamsError(
                f"{source}: min_length_ratio={self.min_length_ratio} is more than "
                f"max_length_ratio={self.max_length_ratio}. Expected at most that."
            )

    def check_of_language_model(self) -> None:
        """Checks that no settings are set that only models with inputs read.

        Raises:
          HParamsError: one is set, or the minimum length of outputs exceeds their maximum.
        """
        advice = "Leave it out; min_length and extra_length count tokens."
        self._refuse(OF_INPUTS, "a language model has no inputs, so it does not read", advice)
        self._check_least("--decode_hparams: a language model")

    def _check_least(self, because: str) -> None:
        """Checks that the minimum length is at most `extra_length`, where that is the only limit.

        Raises:
          HParamsError: it is larger.
        """
        if self.min_length > self.extra_length:
            raise HParamsError(
                f"{because} has extra_length={self.extra_length} as the limit of all outputs, and "
                f"min_length={self.min_length} is more. Expected at most that."
            )

    def _refuse(
        self,
        names: Sequence[str],
        because: str,
        instead: str = "Leave it out.",
        source: str = "--decode_hparams",
    ) -> None:
        """Checks that settings have their defaults, as nothing reads them."""
        if changed := [name for name in names if self.is_changed(name)]:
            raise HParamsError(f"{source}: {because} {', '.join(changed)}. {instead}")


REFUSED = {
    **dict.fromkeys(("eos_penalty", "insertion_parallel"), "tensor2tensor never read it"),
    **dict.fromkeys(
        "block_size guess_and_check_top_k guess_and_check_epsilon".split(),
        "it belongs to blockwise parallel decoding (transformer_block_parallel)",
    ),
    **dict.fromkeys(
        "save_images display_decoded_images frames_per_second border_percent max_display_outputs "
        "max_display_decodes vgg_ckpt_path".split(),
        "it is about decoded images and video",
    ),
    **dict.fromkeys(
        "mlperf_mode mlperf_threshold mlperf_success mlperf_decode_step".split(),
        "it belongs to the MLPerf benchmark",
    ),
    "decode_to_file": "give it as the flag --decode_to_file",
    "decode_reference": "give it as the flag --decode_reference",
    "decode_in_memory": "t2t_torch.load(run_dir) decodes in memory",
    "decode_timeout_mins": "it is for waiting for checkpoints; --schedule=continuous_eval waits",
    "summaries_log_dir": "decoding writes no summaries",
    "multiproblem_task_id": "--problem, or --decode_problem of t2t-trainer, selects the problem",
    "skip_eos_postprocess": "a hypothesis ends at its end symbol; nothing is decoded after it",
    "export_extra_infer_outputs": "a run has no other outputs",
}
"""tensor2tensor's names that are not supported, with the reason."""

OF_SHARDS = ("shards", "shard_id", "shards_start_offset", "shard_google_format")
"""Settings that divide inputs among several processes."""

OF_WRITING = (
    *("output_format", "num_labels", "write_beam_scores", "identity_output", "delimiter"),
    "log_results",
)
"""Settings for writing outputs; predictions do not depend on them."""

OF_TREES = ("valid_trees", "max_open_constituents")
"""Settings for the search for trees only."""

READ_BY_SCORES = ("batch_size", "batch_tokens", "activation_dtype", "max_input_size")
"""Settings for `--score_file`, which has no search and only one output format."""

UNREAD_BY_PROMPTS = (
    *("output_format", "identity_output", "write_beam_scores", "write_alignments", "delimiter"),
    *("alignment_step", "alignment_layer", "log_results", "num_samples"),
)
"""Settings that `--decode_interactive` and servers do not read: their answers have one form."""

READ_BY_LABELS = ("output_format", "num_labels", *OF_SHARDS)
"""Settings for models without text outputs; all others are about texts."""


class DecodeHParams(SearchHParams):
    """Decoding: settings for reading inputs and writing outputs."""

    aliases: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            **dict.fromkeys(("beam", "beams", "num_beams", "beam_width"), "beam_size"),
            **dict.fromkeys(("length_penalty", "lenpen"), "alpha"),
            **dict.fromkeys(("max_len_b",), "extra_length"),
            **dict.fromkeys(("max_new_tokens", "max_output_length"), "max_length"),
            **dict.fromkeys(("temperature", "temp"), "sampling_temp"),
            **dict.fromkeys(("top_k", "topk"), "sampling_keep_top_k"),
            **dict.fromkeys(("nbest", "num_return_sequences"), "return_beams"),
            **dict.fromkeys(("seed",), "random_seed"),
        }
    )
    listed_by: ClassVar[str] = "t2t-decoder --help_decode_hparams"

    batch_size: int = hp(0, "Inputs decoded at a time.  0: as batch_tokens says.", low=0)
    batch_tokens: int = hp(
        2048, "Input tokens decoded at a time, padding counted, where batch_size is 0.", low=1
    )
    activation_dtype: Literal["as_trained", "float32", "bfloat16"] = hp(
        "as_trained", "Type of the activations; bfloat16 is fast where the hardware multiplies it."
    )
    compile: bool = hp(
        False, "The model's step runs through torch.compile; on a GPU as CUDA graphs of few shapes."
    )
    max_input_size: int = hp(
        -1, "Tokens; longer inputs are cut, the end symbol kept.  -1 or 0: never.", low=-1
    )
    num_samples: int = hp(-1, "Examples decoded of a data set.  -1: all.", low=-1)
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
        5, "tsv and jsonl: number of best labels to write with their probabilities.", low=1
    )
    valid_trees: bool = hp(
        True,
        "Trees: only transitions that can still lead to one tree over all words.  False: "
        "all; an invalid tree is repaired.",
    )
    max_open_constituents: int = hp(
        100, "Trees, with valid_trees: the most constituents in each other.", low=1, high=10_000
    )
    log_results: bool = hp(False, "Logs every input and output.")
    write_alignments: bool = hp(
        False, "tsv and jsonl: the input word that each output word comes from, by the attention."
    )
    alignment_step: Literal["written", "read"] = hp(
        "written",
        "write_alignments: attention of the step that writes a word, or of the step that reads it.",
    )
    alignment_layer: int = hp(
        0,
        "write_alignments: layer of the decoder, from 1.  0: the last but one; the "
        "middle one with alignment_step=read.",
        low=0,
    )
    shards: int = hp(1, "Parts that inputs are cut into, one after another.", low=1, high=99_999)
    shard_id: int = hp(
        -1,
        "shards: the part that is decoded, from 0.  -1: those that are not there yet, one after "
        "another; then all are joined.",
        low=-1,
    )
    shards_start_offset: int = hp(
        0, "shards: added to shard_id, as processes are numbered from 0.", low=0
    )
    shard_google_format: bool = hp(
        False, "shards: a part's name ends in -00002-of-00004, not in 002."
    )

    def check_of_labels(self) -> None:
        """Checks that no settings are set that only models of texts read.

        Raises:
          HParamsError: one is set.
        """
        searches = "a model that gives labels, numbers or spans searches for nothing and"
        self.check_read(READ_BY_LABELS, searches)

    def check_read(self, read: Sequence[str], who: str) -> None:
        """Checks that only settings that are read are set.

        Args:
          read: names of the settings that are read.
          who: name of the reader, for the message.

        Raises:
          HParamsError: another one is set; the message names it.
        """
        provenance = self.provenance
        unread = [name for name in provenance if provenance[name] != "default" and name not in read]
        if unread:
            known = f"reads {', '.join(read)}. Leave the others" if read else "reads none. Leave it"
            message = f"--decode_hparams: {who} does not read {', '.join(unread)}. It {known} out."
            raise HParamsError(message)

    def check_of_texts(self) -> None:
        """Checks that no settings are set that only trees and labels read.

        Raises:
          HParamsError: one is set.
        """
        who = "a model that generates texts has no trees or labels, so it does not read"
        self._refuse((*OF_TREES, "num_labels"), who)

    def check_of_trees(self) -> None:
        """Checks that no settings are set that trees do not read.

        Raises:
          HParamsError: one is set.
        """
        who = "trees have no labels and a search of their own, and do not read"
        advice = "Leave it out; for several trees of a sentence:  return_beams=true"
        self._refuse(UNREAD_BY_TREES, who, advice)
        if not self.valid_trees:
            advice = "Leave one of them out."
            self._refuse(["max_open_constituents"], "valid_trees=false does not read", advice)

    def check_of_checkpoints(self, who: str) -> None:
        """Checks that no part of the inputs is selected, for checkpoints that decode all in turn.

        Args:
          who: name of the reader, for the message.

        Raises:
          HParamsError: a part is selected.
        """
        self._refuse(OF_SHARDS, f"{who} decodes in one part and does not read")

    def check_of_files(self, flag: str) -> None:
        """Checks that no settings are set that only decoding of data sets reads.

        Args:
          flag: flag that names the file, for the message.

        Raises:
          HParamsError: one is set.
        """
        advice = "Leave it out; of a data set so many examples are decoded."
        self._refuse(["num_samples"], f"{flag} is decoded whole and does not read", advice)

    def check_of_prompt(self) -> None:
        """Checks that no settings are set that the interactive prompt does not read.

        Raises:
          HParamsError: one is set.
        """
        self._refuse(UNREAD_BY_PROMPTS, "--decode_interactive does not read")

    def check_of_server(self) -> None:
        """Checks that no settings are set that the server does not read.

        Raises:
          HParamsError: one is set.
        """
        self._refuse((*UNREAD_BY_PROMPTS, *OF_SHARDS), "t2t-server does not read")

    def check_of_json(self, path: Path) -> None:
        """Checks that no delimiter is set for a JSON file, which has none.

        Args:
          path: file of inputs, one JSON object per line.

        Raises:
          HParamsError: a delimiter is set.
        """
        if self.output_format != "text":
            form = f"output_format={self.output_format}"
            who = f"{path.name} has JSON, a line each, and {form} its own form, so nothing reads"
            self._refuse(["delimiter"], who)

    def check_of_scores(self) -> None:
        """Checks that only settings are set that scoring of lines reads.

        Raises:
          HParamsError: another one is set.
        """
        others = [name for name in type(self).model_fields if name not in READ_BY_SCORES]
        advice = f"Leave it out; {', '.join(READ_BY_SCORES)} are read."
        self._refuse(others, "--score_file searches for nothing and does not read", advice)

    @property
    def writes_several(self) -> bool:
        """True if an input may have several outputs."""
        return self.num_decodes > 1 if self.draws else self.return_beams

    @property
    def separator(self) -> str:
        """The delimiter character."""
        return self.delimiter.replace(r"\n", "\n").replace(r"\t", "\t")


def with_defaults(text: str, defaults: str) -> str:
    """Returns settings, preceded by those defaults that they leave open.

    Settings of the beam do not precede other searches: greedy search and sampling.

    Args:
      text: names and values, "beam_size=1".
      defaults: names and values of a run, `TaskRecord.decode_hparams`.
    """
    given = dict(_items(text))
    unread = set(given)
    if given.get("sampling_method", "argmax") != "argmax" or given.get("beam_size") == "1":
        unread |= {"return_beams", *OF_SEARCH}
    kept = [f"{name}={value}" for name, value in _items(defaults) if name not in unread]
    return ",".join([*kept, *([text] if text else [])])


def _items(text: str) -> list[tuple[str, str]]:
    """Returns the names and values of "beam_size=4,alpha=0.6"."""
    parts = [item.partition("=") for item in text.split(",") if item.strip()]
    return [(name.strip(), value.strip()) for name, _, value in parts]


def parse_decode_hparams(
    text: str, source: str = "--decode_hparams", *, defaults: str = "", to_write: bool = True
) -> DecodeHParams:
    """Parses "beam_size=4,alpha=0.6".

    Args:
      text: names and values.
      source: source of the text, for messages.
      defaults: values of a run for names that `text` leaves open.
      to_write: True if outputs are written in the format `output_format`; False for a graph, which
        returns them itself.

    Raises:
      HParamsError: a name is unknown or rejected, or a value is not possible.
    """
    for name, _ in _items(text):
        if name in REFUSED:
            raise HParamsError(
                f"{source}: nothing here reads tensor2tensor's {name!r}: {REFUSED[name]}. "
                "Leave it out."
            )
    hparams = DecodeHParams().parse(with_defaults(text, defaults), source)
    if not hparams.writes_several:
        advice = "Expected return_beams=true with it, or num_decodes of more than 1."
        who = "an output of one hypothesis (as in tensor2tensor) does not read"
        hparams._refuse(["write_beam_scores"], who, advice, source)
    if hparams.output_format != "text":
        who = f"output_format={hparams.output_format} contains every score, so it does not read"
        hparams._refuse(["write_beam_scores"], who, source=source)
    elif to_write:
        advice = "Expected output_format=jsonl or tsv with it."
        hparams._refuse(["write_alignments"], "output_format=text does not read", advice, source)
    if not hparams.write_alignments:
        who = "write_alignments=false does not read"
        hparams._refuse(["alignment_step", "alignment_layer"], who, source=source)
    if hparams.batch_size:
        who = f"batch_size={hparams.batch_size} takes the place of"
        hparams._refuse(["batch_tokens"], who, "Give one of them.", source)
    if hparams.shards == 1:
        advice = "Expected shards (or --decode_shards) of more than 1 with it."
        hparams._refuse(OF_SHARDS[1:], "a single shard does not read", advice, source)
    elif hparams.shard_id < 0:
        advice = "Expected shard_id with it."
        hparams._refuse(["shards_start_offset"], "all shards in turn do not read", advice, source)
    elif (number := hparams.shard_id + hparams.shards_start_offset) >= hparams.shards:
        raise HParamsError(
            f"{source}: there is no shard {number} of {hparams.shards}: they are numbered from 0. "
            "Expected shard_id + shards_start_offset below shards."
        )
    hparams.check_search(source)
    if not hparams.delimiter:
        raise HParamsError(f"{source}: delimiter is empty; expected at least one character.")
    return hparams
