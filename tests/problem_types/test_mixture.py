"""What a mixture has of the problems that it mixes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from t2t_torch.errors import RegistryError
from t2t_torch.problem import metric_names
from t2t_torch.problem_types.classification import Text2ClassProblem
from t2t_torch.problem_types.mixture import MixtureProblem
from t2t_torch.registry import register_problem


@pytest.fixture
def classes(own_registry: None) -> type[Text2ClassProblem]:
    """A registered problem of classes."""

    @register_problem
    class KindsOfLines(Text2ClassProblem):
        """Lines of two kinds."""

        metrics = ("accuracy",)
        batch_size_multiplier = 3
        suggested_flags = "--model=transformer_encoder --hparams_set=its_own"

        def generate_samples(self, tmp_dir: Path, split: Any) -> Iterator[dict[str, Any]]:
            yield from ()

    return KindsOfLines


def mixture(*names: str, **attributes: Any) -> MixtureProblem:
    body = {"name": "mixed", "problem_names": names, "mixing_schedule": "step @0 1", **attributes}
    return type("Mixed", (MixtureProblem,), body)()


def test_metrics_flags_and_batches_are_those_of_the_first_problem(classes) -> None:
    mixed = mixture("kinds_of_lines", "kinds_of_lines")
    assert metric_names(mixed, "targets") == ("accuracy",)
    assert mixed.suggested_flags == classes.suggested_flags
    assert mixed.batch_size_means_tokens is classes.batch_size_means_tokens
    assert mixed.batch_size_multiplier == 3
    assert mixture("algorithmic_identity_binary40").batch_size_multiplier == 1
    cut = mixture("topic_ag_news_words").inputs_of({"inputs": "So<br>GOOD"})
    assert cut == [{"inputs": "so good"}]


def test_what_a_mixture_says_of_itself_holds(classes) -> None:
    mixed = mixture("kinds_of_lines", metrics=("neg_log_perplexity",), batch_size_multiplier=1)
    assert metric_names(mixed, "targets") == ("neg_log_perplexity",)
    assert mixed.batch_size_multiplier == 1


def test_a_mixture_of_itself_or_of_another_mixture_is_refused(own_registry) -> None:
    for name, other in (("first_mix", "second_mix"), ("second_mix", "first_mix")):
        body = {"problem_names": (other,), "mixing_schedule": "step @0 1", "__doc__": "."}
        register_problem(name)(type(name, (MixtureProblem,), body))
    with pytest.raises(RegistryError, match="'mixed' mixes 'first_mix', which is a mixture"):
        mixture("first_mix")
    itself = type("Own", (MixtureProblem,), {**body, "problem_names": ("own_mix",)})
    register_problem("own_mix")(itself)
    with pytest.raises(RegistryError, match="'own_mix' mixes 'own_mix'"):
        itself()
    assert mixture("algorithmic_identity_binary40").components, "a refusal leaves nothing behind"
