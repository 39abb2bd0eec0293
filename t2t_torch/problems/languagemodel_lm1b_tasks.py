"""A language model of news that also classifies: sentiment of reviews, entailment.

Source: tensor2tensor's lm1b_imdb.py and lm1b_mnli.py; the data is that of the problems.
"""

from __future__ import annotations

from t2t_torch.problem_types.task_mixture import TaskMixtureProblem
from t2t_torch.registry import register_problem


@register_problem("languagemodel_lm1b_sentiment_imdb")
class LanguagemodelLm1bSentimentImdb(TaskMixtureProblem):
    """Language model of news and sentiment of film reviews, on bytes."""

    problem_names = ("languagemodel_lm1b_characters", "sentiment_imdb_characters")


@register_problem("languagemodel_lm1b_multi_nli")
class LanguagemodelLm1bMultiNli(TaskMixtureProblem):
    """Language model of news and entailment, on bytes."""

    problem_names = ("languagemodel_lm1b_characters", "multi_nli_characters")


@register_problem("languagemodel_lm1b_multi_nli_subwords")
class LanguagemodelLm1bMultiNliSubwords(TaskMixtureProblem):
    """Language model of news and entailment, on the subwords of the news."""

    problem_names = ("languagemodel_lm1b32k", "multi_nli")
