"""ATIS: 5,871 requests for flights, with intents and slots.

Source: Hemphill et al. 1990, "The ATIS Spoken Language Systems Pilot Corpus", in the split of Goo
et al. 2018, "Slot-Gated Modeling for Joint Slot Filling and Intent Prediction", NAACL.
Licence: none stated with the files; ATIS belongs to the Linguistic Data Consortium.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.raw_file import RawFile
from t2t_torch.mode import Split
from t2t_torch.problem_types.classification import Text2ClassProblem
from t2t_torch.problem_types.words import IntentSlotProblem, Text2TagsProblem
from t2t_torch.readers.formats import open_records
from t2t_torch.readers.text_file import BadRecords
from t2t_torch.registry import register_problem
from t2t_torch.text_problem import VocabType

# Mirrors of the same files: the paper's authors, and a copy.
_MIRRORS = (
    "https://raw.githubusercontent.com/MiuLab/SlotGated-SLU/master/data/atis/",
    "https://raw.githubusercontent.com/monologg/JointBERT/master/data/atis/",
)
_PARTS = {Split.TRAIN: "train", Split.EVAL: "valid", Split.TEST: "test"}
_NAMES = {"words": "seq.in", "tags": "seq.out", "label": "label"}
_SHA256 = {
    "train/seq.in": "3a670980841b21ab39088b2595efc17d487cdc45769c075a3e5f9458bba28c7f",
    "train/seq.out": "14c7131bd66562f797dbd7189bc7358f0cf354c6afb0785a9ab973c35b58f34c",
    "train/label": "d0a771547665eecbdf9f96ea015ef07d1f6ee9f063e861020dafabb3c2a04377",
    "valid/seq.in": "c7435b96e7948393608c34819628e863c5338f11ca68e8f896d2cc041d8e17f8",
    "valid/seq.out": "83ccff3e36f83a993f8e5b5b82adf3256076f234abda4d784051381d7ac76922",
    "valid/label": "06957cfe6fdffac84f8280bc3a1f8ca85c85631b363817aa4543aac611f8addf",
    "test/seq.in": "4b2119fc59c37f9398c6605db435d4f467505009e6ee3e5af04fed09f39dc397",
    "test/seq.out": "a4690d6bceadc06876d1ff99bc401744aa981cb321e598ae12a3859d7be53254",
    "test/label": "ce4bfe6590d9498e1078f30b4137d3e8b3e94277b444b26360c0bf2e9e282761",
}
_ENCODER_FLAGS = (
    "--model=transformer_encoder --hparams_set=transformer_encoder_small --train_steps=1500"
)
_FILES = {
    split: {
        role: RawFile(
            name,
            (f"atis/{part}", part),
            [f"{mirror}{part}/{name}" for mirror in _MIRRORS],
            _SHA256[f"{part}/{name}"],
        )
        for role, name in _NAMES.items()
    }
    for split, part in _PARTS.items()
}


@register_problem("intent_slot_atis")
class IntentSlotAtis(IntentSlotProblem):
    """Predicts the intent of a flight request and its slots, such as origin, destination and time.

    The raw files are `{train,valid,test}/{seq.in,seq.out,label}`: line n of the three files is one
    request.  A few labels occur only in the evaluation splits.
    """

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1, Split.TEST: 1}
    sources = tuple(file for files in _FILES.values() for file in files.values())
    approx_vocab_size = 2**10
    min_word_count = 2  # words seen once train the unknown word
    word_characters = 16
    word_shape = True
    suggested_flags = "--model=joint_bilstm --hparams_set=joint_bilstm_atis --train_steps=1700"

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the requests."""
        for values in _requests(tmp_dir, split, self.bad_records):
            yield {"inputs": values["words"], "intent": values["label"], "slots": values["tags"]}


@register_problem("intent_atis")
class IntentAtis(Text2ClassProblem):
    """Predicts only the intent; raw files, splits and words are the same."""

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1, Split.TEST: 1}
    sources = IntentSlotAtis.sources
    vocab_type = VocabType.WORD
    use_vocab_from_other_problem = "intent_slot_atis"
    suggested_flags = _ENCODER_FLAGS

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the requests."""
        for values in _requests(tmp_dir, split, self.bad_records):
            yield {"inputs": " ".join(values["words"]), "targets": values["label"]}


@register_problem("slots_atis")
class SlotsAtis(Text2TagsProblem):
    """Predicts only the slots; raw files, splits and words are the same."""

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1, Split.TEST: 1}
    sources = IntentSlotAtis.sources
    use_vocab_from_other_problem = "intent_slot_atis"
    suggested_flags = _ENCODER_FLAGS

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the requests."""
        for values in _requests(tmp_dir, split, self.bad_records):
            yield {"inputs": values["words"], "targets": values["tags"]}


def _requests(tmp_dir: Path, split: Split, bad: BadRecords) -> Iterator[Mapping[str, Any]]:
    """Yields the words, tags and label of each request of a split."""
    paths = {role: str(file.get(tmp_dir).absolute()) for role, file in _FILES[split].items()}
    for record in open_records(tmp_dir, format="bio", bad=bad, options={"files": paths}):
        yield record.values
