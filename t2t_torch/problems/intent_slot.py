"""Requests with intents and slots: ATIS, 5,871 about flights, and SNIPS, 14,484 to an assistant.

Both in the split of Goo et al. 2018, "Slot-Gated Modeling for Joint Slot Filling and Intent
Prediction", NAACL.  ATIS: Hemphill et al. 1990, "The ATIS Spoken Language Systems Pilot Corpus"; no
licence is stated with the files, ATIS belongs to the Linguistic Data Consortium.  SNIPS: Coucke et
al. 2018, "Snips Voice Platform", arXiv:1805.10190, CC0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from t2t_torch.data.raw_file import RawFile, sources_of
from t2t_torch.mode import Split
from t2t_torch.problem import Problem
from t2t_torch.problem_types.classification import Text2ClassProblem
from t2t_torch.problem_types.multi import MultiProblem
from t2t_torch.problem_types.words import IntentSlotProblem, Text2TagsProblem
from t2t_torch.readers.formats import open_records
from t2t_torch.registry import register_problem
from t2t_torch.text_problem import VocabType

# Mirrors of the same files: the paper's authors, and a copy.
_MIRRORS = (
    "https://raw.githubusercontent.com/MiuLab/SlotGated-SLU/master/data/",
    "https://raw.githubusercontent.com/monologg/JointBERT/master/data/",
)
_PARTS = {Split.TRAIN: "train", Split.EVAL: "valid", Split.TEST: "test"}
_NAMES = {"words": "seq.in", "tags": "seq.out", "label": "label"}
_SHA256 = {
    "atis/train/seq.in": "3a670980841b21ab39088b2595efc17d487cdc45769c075a3e5f9458bba28c7f",
    "atis/train/seq.out": "14c7131bd66562f797dbd7189bc7358f0cf354c6afb0785a9ab973c35b58f34c",
    "atis/train/label": "d0a771547665eecbdf9f96ea015ef07d1f6ee9f063e861020dafabb3c2a04377",
    "atis/valid/seq.in": "c7435b96e7948393608c34819628e863c5338f11ca68e8f896d2cc041d8e17f8",
    "atis/valid/seq.out": "83ccff3e36f83a993f8e5b5b82adf3256076f234abda4d784051381d7ac76922",
    "atis/valid/label": "06957cfe6fdffac84f8280bc3a1f8ca85c85631b363817aa4543aac611f8addf",
    "atis/test/seq.in": "4b2119fc59c37f9398c6605db435d4f467505009e6ee3e5af04fed09f39dc397",
    "atis/test/seq.out": "a4690d6bceadc06876d1ff99bc401744aa981cb321e598ae12a3859d7be53254",
    "atis/test/label": "ce4bfe6590d9498e1078f30b4137d3e8b3e94277b444b26360c0bf2e9e282761",
}  # none is published of SNIPS
_ENCODER_FLAGS = (
    "--model=transformer_encoder --hparams_set=transformer_encoder_small --train_steps=1500"
)


def _files(folders: Sequence[str]) -> dict[Split, tuple[RawFile, ...]]:
    """Returns the three files of each split, in `folders` of a part {}."""
    return {
        split: tuple(
            RawFile(
                name,
                [folder.format(part) for folder in folders],
                [f"{mirror}{folders[0].format(part)}/{name}" for mirror in _MIRRORS],
                _SHA256.get(f"{folders[0].format(part)}/{name}"),
            )
            for name in _NAMES.values()
        )
        for split, part in _PARTS.items()
    }


def _requests(problem: Problem, tmp_dir: Path, split: Split) -> Iterator[Mapping[str, Any]]:
    """Yields the words, tags and label of each request of a split."""
    paths = [str(file.get(tmp_dir).absolute()) for file in sources_of(problem, split)]
    options = {"files": dict(zip(_NAMES, paths, strict=True))}
    for record in open_records(tmp_dir, format="bio", bad=problem.bad_records, options=options):
        yield record.values


class _IntentSlotProblem(IntentSlotProblem):
    """Base class: requests of line n of `{train,valid,test}/{seq.in,seq.out,label}` each."""

    shards: ClassVar[Mapping[Split, int]] = {Split.TRAIN: 1, Split.EVAL: 1, Split.TEST: 1}
    min_word_count = 2  # words seen once train the unknown word

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the requests."""
        for values in _requests(self, tmp_dir, split):
            yield {"inputs": values["words"], "intent": values["label"], "slots": values["tags"]}


@register_problem("intent_slot_atis")
class IntentSlotAtis(_IntentSlotProblem):
    """Predicts the intent of a flight request and its slots, such as origin, destination and time.

    The raw files are `{train,valid,test}/{seq.in,seq.out,label}`: line n of the three files is one
    request.  A few labels occur only in the evaluation splits.
    """

    sources = _files(("atis/{}", "{}"))
    approx_vocab_size = 2**10
    word_characters = 16
    word_shape = True
    suggested_flags = "--model=joint_bilstm --hparams_set=joint_bilstm_atis --train_steps=1700"


@register_problem("intent_atis")
class IntentAtis(Text2ClassProblem):
    """Predicts only the intent; raw files, splits and words are the same."""

    shards = IntentSlotAtis.shards
    sources = IntentSlotAtis.sources
    vocab_type = VocabType.WORD
    use_vocab_from_other_problem = "intent_slot_atis"
    suggested_flags = _ENCODER_FLAGS

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the requests."""
        for values in _requests(self, tmp_dir, split):
            yield {"inputs": " ".join(values["words"]), "targets": values["label"]}


@register_problem("slots_atis")
class SlotsAtis(Text2TagsProblem):
    """Predicts only the slots; raw files, splits and words are the same."""

    shards = IntentSlotAtis.shards
    sources = IntentSlotAtis.sources
    use_vocab_from_other_problem = "intent_slot_atis"
    suggested_flags = _ENCODER_FLAGS

    def generate_samples(self, tmp_dir: Path, split: Split) -> Iterator[dict[str, Any]]:
        """Yields the requests."""
        for values in _requests(self, tmp_dir, split):
            yield {"inputs": values["words"], "targets": values["tags"]}


@register_problem("multi_intent_slot_atis")
class MultiIntentSlotAtis(MultiProblem):
    """Request classification and word tagging in turn, with the summed metric for selection.

    Joint document classification and word tagging of figure 3 of Aly et al. 2018, "PyText: A
    Seamless Path from NLP research to Production", arXiv:1812.08729.
    """

    problem_names = ("intent_atis", "slots_atis")
    suggested_flags = (
        "--model=joint_bilstm --hparams_set=joint_bilstm_multi_atis --train_steps=3400"
    )
    selected: ClassVar[Mapping[str, str]] = {
        "intent_atis": "targets/accuracy",
        "slots_atis": "targets/span_f1",
    }


@register_problem("intent_slot_snips")
class IntentSlotSnips(_IntentSlotProblem):
    """Predicts the intent of a request, one of seven, and its slots.

    The raw files are `snips/{train,valid,test}/{seq.in,seq.out,label}`: line n of the three files
    is one request.
    """

    sources = _files(("snips/{}",))
    approx_vocab_size = 2**14
