"""How outputs are searched for, or drawn: the part of `DecodeHParams` that finds them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from t2t_torch.errors import HParamsError
from t2t_torch.params import Params, hp

_ROUNDING = 1e-9  # 0.7 * 10 is a little more than 7

OF_SEARCH = ("beam_size", "alpha", "coverage_penalty", "num_beam_groups", "diversity_strength")
"""What only a search reads, not what is drawn."""

OF_DRAWS = (
    "sampling_temp",
    "sampling_keep_top_k",
    "top_p",
    "typical_p",
    "num_decodes",
    "random_seed",
)
"""What only drawing reads."""

OF_RULES = (
    "min_length",
    "min_length_ratio",
    "no_repeat_ngram_size",
    "coverage_penalty",
    "num_beam_groups",
)
"""What a search asks beyond the likeliest; see `rules.py`."""


class SearchHParams(Params):
    """Search: what is found."""

    beam_size: int = hp(
        4,
        "Hypotheses kept per input, at most half the vocabulary.  1: greedy search.",
        low=1,
        high=1000,
    )
    alpha: float = hp(0.6, "Exponent of the length penalty; larger favours longer outputs.", low=0)
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
        """Whether a field is not what it is by default."""
        return bool(getattr(self, name) != type(self).model_fields[name].default)

    @property
    def draws(self) -> bool:
        """Whether outputs are drawn, not searched for."""
        return self.sampling_method == "random"

    def least_length(self, length: int) -> int:
        """Returns how many tokens an output has at least, of an input of so many."""
        return max(self.min_length, math.ceil(self.min_length_ratio * length - _ROUNDING))

    def limit(self, length: int, *, has_inputs: bool = True) -> int:
        """Returns the most tokens of an output, its beginning included.

        Args:
          length: of the input.
          has_inputs: False of a language model, whose input is the beginning.
        """
        if not has_inputs:
            return length + self.extra_length
        most = self.extra_length + (0 if self.force_decode_length else length)
        if not self.max_length_ratio:
            return most
        return min(most, max(1, math.floor(self.max_length_ratio * length + _ROUNDING)))

    def check_beam(self, vocab_size: int) -> None:
        """Checks that the beam is not wider than a vocabulary can fill.

        The default width is allowed with any vocabulary.

        Raises:
          HParamsError: it is wider than half the vocabulary.
        """
        most = max(SearchHParams.model_fields["beam_size"].default, vocab_size // 2)
        if self.beam_size > most:
            raise HParamsError(
                f"beam_size={self.beam_size} is too wide for a vocabulary of {vocab_size:,} ids: "
                f"expected at most {most}."
            )

    def check_search(self, source: str = "--decode_hparams") -> None:
        """Checks that what is asked of search and of draws goes together.

        Raises:
          HParamsError: something would not be read, or cannot be.
        """
        unread = ("return_beams", *OF_SEARCH) if self.draws else OF_DRAWS
        other = "argmax" if self.draws else "random"
        self._refuse(
            unread,
            f"{source}: sampling_method={self.sampling_method} does not read",
            f"Leave it out, or say sampling_method={other}.",
        )
        if self.num_beam_groups == 1:
            self._refuse(
                ("diversity_strength",),
                f"{source}: a beam of one group does not read",
                "Leave it out, or set num_beam_groups of at least 2.",
            )
        if self.beam_size % self.num_beam_groups:
            raise HParamsError(
                f"{source}: beam_size={self.beam_size} cannot be divided into "
                f"num_beam_groups={self.num_beam_groups} groups of the same size. Expected a "
                "multiple of it."
            )
        if self.beam_size == 1:
            # alpha=0 is what scores of one hypothesis are: log-probabilities.
            of_beams = ("coverage_penalty", "alpha") if self.alpha else ("coverage_penalty",)
            self._refuse(
                of_beams,
                f"{source}: beam_size=1 compares no hypotheses, so it does not read",
                "Leave it out, or set a wider beam.",
            )
        if self.force_decode_length:
            self._check_least(f"{source}: force_decode_length=true")
        if 0 < self.max_length_ratio < self.min_length_ratio:
            raise HParamsError(
                f"{source}: min_length_ratio={self.min_length_ratio} is more than "
                f"max_length_ratio={self.max_length_ratio}. Expected at most that."
            )

    def check_of_language_model(self, source: str = "--decode_hparams") -> None:
        """Checks that nothing is set that only models with inputs read.

        Raises:
          HParamsError: something is, or outputs have to be longer than they may be.
        """
        self._refuse(
            ("min_length_ratio", "max_length_ratio", "coverage_penalty"),
            f"{source}: a language model has no inputs, so it does not read",
            "Leave it out; min_length and extra_length count tokens.",
        )
        self._check_least(f"{source}: a language model")

    def check_of_trees(self, source: str = "--decode_hparams") -> None:
        """Checks that nothing is set that trees are not found with.

        Raises:
          HParamsError: something is.
        """
        self._refuse(
            ("sampling_method", "max_length_ratio", "diversity_strength", *OF_RULES),
            f"{source}: trees are searched for by the rules of trees, which do not read",
            "Leave it out; for several trees of a sentence:  return_beams=true",
        )

    def _check_least(self, because: str) -> None:
        """Checks that no output has to be longer than `extra_length`, where that alone is a limit.

        Raises:
          HParamsError: one has to be.
        """
        if self.min_length > self.extra_length:
            raise HParamsError(
                f"{because} has extra_length={self.extra_length} as the limit of all outputs, and "
                f"min_length={self.min_length} is more. Expected at most that."
            )

    def _refuse(self, names: Sequence[str], because: str, instead: str) -> None:
        if asked := [name for name in names if self.is_changed(name)]:
            raise HParamsError(f"{because} {', '.join(asked)}. {instead}")
