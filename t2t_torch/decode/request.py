"""What may be asked of the output of one input, beside the input itself."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from t2t_torch.decode.phrases import Phrase
from t2t_torch.decode.search_hparam import SearchHParams
from t2t_torch.errors import DataError
from t2t_torch.features import Text
from t2t_torch.text.encoder import EOS

PREFIX, CONSTRAINTS, FORBIDDEN = "targets_prefix", "constraints", "forbidden"
"""The keys of an input that is a mapping; of the first a text, of the others lists of texts."""


class Request(list[int]):
    """The ids of an input, with what is asked of its output.

    Attributes:
      prefix: ids that it begins with.
      constraints: phrases that stand in it.
      forbidden: phrases that do not.
    """

    def __init__(
        self,
        ids: Iterable[int],
        prefix: Sequence[int] = (),
        constraints: Sequence[Phrase] = (),
        forbidden: Sequence[Phrase] = (),
    ) -> None:
        super().__init__(ids)
        self.prefix = tuple(prefix)
        self.constraints = tuple(constraints)
        self.forbidden = tuple(forbidden)


class Wishes(NamedTuple):
    """What is asked of an output, as texts."""

    prefix: str = ""
    constraints: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()


def asks(given: Any, field: str) -> bool:
    """Whether an input is a mapping that asks something of its output.

    Args:
      given: a text or a mapping.
      field: the name of the text in it.
    """
    keys = {PREFIX, CONSTRAINTS, FORBIDDEN} - {field}
    return isinstance(given, Mapping) and not keys.isdisjoint(given)


def read_wishes(given: Any, field: str) -> tuple[str, Wishes | None]:
    """Returns the text of an input and what is asked of its output, if anything.

    Args:
      given: a text, or a mapping with the text and, as far as something is asked, `targets_prefix`
        (a text), `constraints` and `forbidden` (lists of texts).  Other keys are left alone.
      field: the name of the text in it.

    Raises:
      DataError: it has no text, or something else where texts are expected.
    """
    if not isinstance(given, Mapping):
        return given, None
    text = given.get(field)
    if not isinstance(text, str):
        raise DataError(f'expected a mapping with a text, {{"{field}": "..."}}, but it is {given}')
    if not asks(given, field):
        return text, None
    prefix = given.get(PREFIX, "")
    if not isinstance(prefix, str):
        raise DataError(f"{PREFIX!r} is {prefix!r}, where a text was expected.")
    wishes = Wishes(prefix.strip(), _texts(given, CONSTRAINTS), _texts(given, FORBIDDEN))
    return text, wishes if any(wishes) else None


def _texts(given: Mapping[str, Any], key: str) -> tuple[str, ...]:
    found = given.get(key, [])
    if not isinstance(found, list | tuple) or not all(isinstance(one, str) for one in found):
        raise DataError(f'{key!r} is {found!r}, where a list of texts was expected: ["..."].')
    if any(not one.strip() for one in found):
        raise DataError(f"{key!r} has an empty text. Expected words or phrases.")
    return tuple(dict.fromkeys(one.strip() for one in found))


class RequestMaker:
    """Makes requests of inputs that ask something of their outputs.

    Args:
      feature: of the outputs.
      hparams: how they are searched for.
      cut: cuts a text into words as the problem cuts its targets; None: texts stay as they are.
      goes_on: the name of the text that a language model goes on with; None if there are inputs.
    """

    def __init__(
        self,
        feature: Text,
        hparams: SearchHParams,
        *,
        cut: Callable[[str], str] | None = None,
        goes_on: str | None = None,
    ) -> None:
        self._feature = feature
        self._hparams = hparams
        self._cut = cut or str
        self._goes_on = goes_on

    def request(self, ids: Sequence[int], wishes: Wishes) -> Request:
        """Returns the ids of an input with what is asked of its output.

        Args:
          ids: of the input.
          wishes: as texts.

        Raises:
          DataError: a text has no ids in the vocabulary, what has to be written is forbidden or
            too long, or a search of this kind cannot find it.
        """
        if wishes.prefix and self._goes_on is not None:
            raise DataError(
                f"{PREFIX!r} is {wishes.prefix!r}, but a language model's input is itself how its "
                f"output begins. Put it at the end of {self._goes_on!r}."
            )
        constraints = {text: self._phrase(text) for text in wishes.constraints}
        forbidden = {text: self._phrase(text) for text in wishes.forbidden}
        prefix = list(self._ids(wishes.prefix)) if wishes.prefix else []
        for out, never in forbidden.items():
            if _stands_in(never.inside, prefix) or _begins(never.first, prefix):
                raise DataError(f"{wishes.prefix!r} is given, but {out!r} in it is forbidden.")
            for text, phrase in constraints.items():
                if _stands_in(never.inside, phrase.inside) or _begins(never.first, phrase.first):
                    raise DataError(f"{text!r} has to be written, but {out!r} in it is forbidden.")
        request = Request(ids, prefix, list(constraints.values()), list(forbidden.values()))
        self._check(request)
        return request

    def _check(self, request: Request) -> None:
        hparams = self._hparams
        if request.constraints and (hparams.draws or hparams.beam_size == 1):
            asked = "sampling_method=random" if hparams.draws else "beam_size=1"
            raise DataError(
                f"{CONSTRAINTS!r} needs a beam of hypotheses to find where they stand, but here is "
                f"{asked}. Expected a beam_size of at least 2, better more than they have tokens."
            )
        has_inputs = self._goes_on is None
        longest = [max(map(len, phrase)) for phrase in request.constraints]
        needed = len(request.prefix) + sum(longest) + 1
        limit = hparams.limit(len(request), has_inputs=has_inputs)
        limit -= 0 if has_inputs else len(request)
        if needed > limit:
            raise DataError(
                f"what is asked of the output has {needed} tokens, its end counted, and the output "
                f"at most {limit}. Ask for less, or raise extra_length or max_length_ratio."
            )

    def _phrase(self, text: str) -> Phrase:
        """The ids of a word or phrase, after other words and where a text begins."""
        first = self._ids(text)
        words = self._cut(text).split()
        after = self._feature.encoder.encode_words([words[0], *words])[1:]
        inside = tuple(itertools.chain.from_iterable(after))
        return Phrase(inside, () if inside == first else first)

    def _ids(self, text: str) -> tuple[int, ...]:
        """The ids of a text, without the end symbol."""
        text, feature = self._cut(text), self._feature
        (ids,) = feature.encode_batch([text])
        ids = [identity for identity in ids if identity != EOS]
        unknown = feature.encoder.unknown_ids.intersection(ids)
        if not ids or (unknown and feature.decode(ids) != text):
            raise DataError(
                f"{text!r} cannot be written with the vocabulary of the outputs: read back it is "
                f"{feature.decode(ids)!r}. Leave it out, or write it as the training data does."
            )
        return tuple(ids)


def _begins(part: Sequence[int], whole: Sequence[int]) -> bool:
    return bool(part) and list(whole[: len(part)]) == list(part)


def _stands_in(part: Sequence[int], whole: Sequence[int]) -> bool:
    size = len(part)
    return any(list(whole[at : at + size]) == list(part) for at in range(len(whole) - size + 1))
