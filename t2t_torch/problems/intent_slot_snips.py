"""SNIPS: 14,484 requests to a voice assistant, with intents and slots.

Source: Coucke et al. 2018, "Snips Voice Platform", arXiv:1805.10190, in the split of Goo et al.
2018, "Slot-Gated Modeling for Joint Slot Filling and Intent Prediction", NAACL.  Licence: CC0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.raw_file import RawFile
from t2t_torch.mode import Split
from t2t_torch.problem_types.words import IntentSlotProblem
from t2t_torch.readers.formats import open_records
from t2t_torch.registry import register_problem

# Mirrors of the same files: the split's authors, and a copy.  No checksums are published.
_MIRRORS = (
    "https://raw.githubusercontent.com/MiuLab/SlotGated-SLU/master/data/snips/",
    "https://raw.githubusercontent.com/monologg/JointBERT/master/data/snips/",
)
_PARTS = {Split.TRAIN: "train", Split.EVAL: "valid", Split.TEST: "test"}
_NAMES = {"words": "seq.in", "tags": "seq.out", "label": "label"}
_FILES = {
    split: {
        role: RawFile(name, (f"snips/{part}",), [f"{mirror}{part}/{name}" for mirror in _MIRRORS])
        for role, name in _NAMES.items()
    }
    for split, part in _PARTS.items()
}


@register_problem("intent_slot_snips")
class IntentSlotSnips(IntentSlotProblem):
    """Predicts the intent of a request, one of seven, and its slots.

    The raw files are `snips/{train,valid,test}/{seq.in,seq.out,label}`: line n of the three files
    is one request.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1, Split.TEST: 1}
    sources = tuple(file for files in _FILES.values() for file in files.values())
    approx_vocab_size = 2**14
    min_word_count = 2  # words seen once train the unknown word

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the requests."""
        paths = {role: str(file.get(tmp_dir).absolute()) for role, file in _FILES[split].items()}
        bad, options = self.bad_records, {"files": paths}
        for record in open_records(tmp_dir, format="bio", bad=bad, options=options):
            values = record.values
            yield {"inputs": values["words"], "intent": values["label"], "slots": values["tags"]}
