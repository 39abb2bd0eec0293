"""Proposals to learn from pictures and sounds."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from t2t_torch.declaration.columns import FileColumns, Inspected
from t2t_torch.declaration.proposal import Proposal, count
from t2t_torch.declaration.proposers.classes import targets
from t2t_torch.errors import DataError
from t2t_torch.features.audio import open_sound
from t2t_torch.features.picture import decoded
from t2t_torch.problem_types.speech import Speech2TextProblem
from t2t_torch.readers.idx import MAX_PIXELS
from t2t_torch.registry import register_proposer

_SPOKEN_NAMES = "text sentence transcript transcription"
_NAMED = 0.5  # least score of a text of few words whose column is named so
_INSPECTED = 50  # pictures or sounds


@register_proposer("image2class")
def propose_pictures(table: FileColumns) -> Iterator[Proposal]:
    """Proposes a class for each picture."""
    for pictures in table:
        if not pictures.is_picture:
            continue
        labels = [one for one, _ in targets(table, "label")]
        for label in labels or [one for one in table if one.name == "label"]:
            kinds = sorted(label.counts)
            doubts = []
            if label.is_number:
                kinds = sorted(label.counts, key=float)
                doubts = [f"the labels are the numbers that are there, {kinds[0]} to {kinds[-1]}."]
            more = {"labels": kinds, "settings": _size(pictures.values)}
            fields = {"inputs": pictures.name, "targets": label.name}
            yield Proposal("image2class", fields, 1.0, "the class of a picture", (), doubts, more)


def _size(pictures: Sequence[bytes | np.ndarray]) -> dict[str, int]:
    """Returns height, width and channels at which pictures are read."""
    picture = pictures[0]
    if not isinstance(picture, bytes):
        return dict(zip(("height", "width", "channels"), (*picture.shape, 1)[:3], strict=True))
    # Files of any size.  Classes take turns, so a regular choice could be of one class.
    chosen = random.Random(0).sample(pictures, min(len(pictures), _INSPECTED))
    inspected = [decoded(one, 3) for one in (picture, *chosen) if isinstance(one, bytes)]
    side = min(MAX_PIXELS, max(inspected[0].shape))
    is_grey = all((one == one[..., :1]).all() for one in inspected)
    return {"height": side, "width": side, "channels": 1 if is_grey else 3}


@register_proposer("speech2text")
def propose_speech(table: FileColumns) -> Iterator[Proposal]:
    """Proposes the text of each sound of a list."""
    sounds = [one for one in table if one.is_sound]
    texts = table.best("text")
    named = [one for one in table if one.is_plain and one.is_named(_SPOKEN_NAMES)]
    texts += [one for one in named if one not in [*texts, *sounds]]  # also of few words
    if len(sounds) != 1 or not texts:
        return
    more, resampled = _sampling(table, sounds[0])
    for text in texts:
        others = [repr(one.name) for one in texts if one is not text]
        doubts = [resampled]
        if others:
            doubts.append(f"{text.name!r} is what is said; it could also be {', '.join(others)}.")
        score = 0.9 * text.text
        if text.is_named(_SPOKEN_NAMES):
            score = min(1.0, max(score + 0.1, _NAMED))
        fields = {"inputs": sounds[0].name, "targets": text.name}
        yield Proposal("speech2text", fields, score, "what is said in a sound", (), doubts, more)


@register_proposer("audio2class")
def propose_classes_of_sounds(table: FileColumns) -> Iterator[Proposal]:
    """Proposes a class for each sound, also one of few words that are said."""
    for sounds in table:
        if not sounds.is_sound:
            continue
        more, resampled = _sampling(table, sounds)
        for label, fit in targets(table, "label"):
            fields = {"inputs": sounds.name, "targets": label.name}
            reasons = [f"{label.name!r} has {count(label.distinct, 'label')}"]
            meaning = f"the class of a sound, {label.name!r}"
            score = 1.0 if isinstance(sounds.values[0], Path) else fit
            yield Proposal("audio2class", fields, score, meaning, reasons, [resampled], more)


def _sampling(table: FileColumns, sounds: Inspected) -> tuple[dict[str, Any], str]:
    """Returns the keys of a declaration of sounds, and a sentence about their sampling rate.

    It is the most frequent rate of the inspected files, or less.
    """
    rates: Counter[int] = Counter()
    for one in random.Random(0).sample(sounds.values, min(len(sounds.values), _INSPECTED)):
        with contextlib.suppress(DataError):  # reported when the data is generated
            rates[open_sound(table.path.parent / one if isinstance(one, str) else one).rate] += 1
    usual = Speech2TextProblem.sample_rate
    rate = min(usual, rates.most_common(1)[0][0]) if rates else usual
    said = f'sounds of any sampling rate are converted to {rate:,} Hz: "settings".'
    settings = {**({} if rate == usual else {"sample_rate": rate}), "resample": True}
    return {"settings": settings}, said
