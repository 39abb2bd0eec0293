"""The Penn Treebank sample of NLTK, with parts of speech as inputs.

Source and licence: see `parsing_treebank_sample`.  Given parts of speech are usual when parsers
are compared without a tagger: Dyer et al. 2016, arXiv:1602.07776, section 7.
"""

from __future__ import annotations

from t2t_torch.problems.parsing_treebank_sample import ParsingTreebankSample
from t2t_torch.registry import register_problem


@register_problem("parsing_treebank_sample_tags")
class ParsingTreebankSampleTags(ParsingTreebankSample):
    """Parses words and their parts of speech into phrase structure."""

    given_tags = True
