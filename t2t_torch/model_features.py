"""Whether a model can learn a problem: the kinds of its inputs and of its targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from t2t_torch.errors import HParamsError
from t2t_torch.features import Feature, Features, Text

if TYPE_CHECKING:
    from t2t_torch.model import T2TModel


def check_features(model: type[T2TModel], features: Features, problem: str = "") -> None:
    """Checks that a model can learn a problem's targets from its inputs.

    Args:
      model: the class.
      features: the problem's.
      problem: its name, for messages.

    Raises:
      HParamsError: it cannot; says what it can.
    """
    look = "Look for a model that does:  t2t-trainer --registry_help"
    of = f" of {problem}" if problem else ""
    for target, feature in features.targets.items():
        if not isinstance(feature, model.produces):
            raise HParamsError(
                f"model {model.name!r} produces {_named(model.produces)}; {target!r}{of} is a "
                f"{type(feature).__name__}. {look}"
            )
    for name, feature in features.inputs.items():
        if not isinstance(feature, model.reads):
            raise HParamsError(
                f"model {model.name!r} reads {_named(model.reads)}; {name!r}{of} is a "
                f"{type(feature).__name__}. {look}"
            )
    texts = [name for name, feature in features.inputs.items() if isinstance(feature, Text)]
    fewest, most = model.texts
    if not fewest <= len(texts) <= most:
        wanted = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        wanted = {"0": "no text", "1": "one text"}.get(wanted, f"{wanted} texts")
        raise HParamsError(
            f"model {model.name!r} reads {wanted}, and {problem or 'this problem'} has "
            f"{', '.join(texts) or 'none'}. {look}"
        )


def _named(kinds: tuple[type[Feature], ...]) -> str:
    return ", ".join(kind.__name__ for kind in kinds) or "no inputs"
