"""Query-document relevance, jointly trained with query and document classification.

The three problems of figure 4 of Aly et al. 2018, "PyText: A Seamless Path from NLP research to
Production", arXiv:1812.08729, on public data: WikiQA's questions and sentences, ATIS intents and
AG News topics.  Sources and licences: see `problems/answer_wikiqa`, `problems/intent_slot`
and `problems/topic_ag_news`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from t2t_torch.problem_types.multi import MultiProblem
from t2t_torch.problems.intent_slot import IntentAtis
from t2t_torch.problems.topic_ag_news import TopicAgNews
from t2t_torch.registry import register_problem
from t2t_torch.text_problem import VocabType

_OWNER = "answer_ranking_wikiqa"


@register_problem("query_intent_atis")
class QueryIntentAtis(IntentAtis):
    """ATIS intents, in WikiQA's subwords."""

    vocab_type = VocabType.SUBWORD
    use_vocab_from_other_problem = _OWNER


@register_problem("document_topic_ag_news")
class DocumentTopicAgNews(TopicAgNews):
    """AG News topics, in WikiQA's subwords."""

    use_vocab_from_other_problem = _OWNER


@register_problem("multi_query_document")
class MultiQueryDocument(MultiProblem):
    """Relevance, query classes and document classes, sampled in proportion to their batches."""

    problem_names = (_OWNER, "query_intent_atis", "document_topic_ag_news")
    mixing_schedule = "by_size"
    suggested_flags = (
        "--model=transformer_encoder --hparams_set=transformer_encoder_query_document "
        "--train_steps=3000"
    )
    selected: ClassVar[Mapping[str, str]] = {_OWNER: "targets/query_map"}
