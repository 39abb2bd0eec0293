"""The sample of the Penn Treebank that NLTK ships, with the parts of speech given.

Source and licence: see `parsing_treebank_sample`.  That parts of speech are given is usual where
parsers are compared without a tagger: Dyer et al. 2016, arXiv:1602.07776, section 7.
"""

from __future__ import annotations

from t2t_torch.problems.parsing_treebank_sample import ParsingTreebankSample
from t2t_torch.registry import register_problem


@register_problem("parsing_treebank_sample_tags")
class ParsingTreebankSampleTags(ParsingTreebankSample):
    """Words and their parts of speech to the phrase structure above them."""

    given_tags = True
