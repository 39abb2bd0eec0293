"""Several problems of a few words, of which models learn nothing in particular."""

from __future__ import annotations

from pathlib import Path

from t2t_torch import registry
from t2t_torch.data.generate import generate_data

PROBLEMS = """
from t2t_torch.problem_types.multi import MultiProblem
from t2t_torch.problem_types.classification import Text2ClassProblem
from t2t_torch.problem_types.words import Text2TagsProblem
from t2t_torch.mode import Split
from t2t_torch.registry import register_problem
from t2t_torch.text_problem import Text2SelfProblem, Text2TextProblem, VocabType

WORDS = ("red", "blue", "dog", "cat", "runs")

def texts(split):
    for i in range(24 if split is Split.TRAIN else 6):
        yield [WORDS[(i * (k + 3) + k) % 5] for k in range(2 + i % 4)]

@register_problem
class TinyKind(Text2ClassProblem):
    vocab_type = VocabType.WORD
    shards = {Split.TRAIN: 1, Split.EVAL: 1}
    def generate_samples(self, tmp_dir, split):
        for words in texts(split):
            yield {"inputs": " ".join(words), "targets": "pet" if "dog" in words else "none"}

@register_problem
class TinyTags(Text2TagsProblem):
    use_vocab_from_other_problem = "tiny_kind"
    metrics = ("accuracy",)
    shards = {Split.TRAIN: 1, Split.EVAL: 1}
    def generate_samples(self, tmp_dir, split):
        for words in texts(split):
            tags = ["A" if word in ("red", "blue") else "N" for word in words]
            yield {"inputs": words, "targets": tags}

@register_problem
class OtherKind(TinyKind):
    def generate_samples(self, tmp_dir, split):
        for sample in super().generate_samples(tmp_dir, split):
            # As many words, in another order: their ids mean other things.
            yield {**sample, "inputs": sample["inputs"].replace("dog", "emu").replace("red", "dun")}

@register_problem
class TinyBoth(MultiProblem):
    problem_names = ("tiny_kind", "tiny_tags")
    selected = {"tiny_tags": "targets/accuracy"}

@register_problem
class TinyEcho(Text2TextProblem):
    vocab_type = VocabType.WORD
    shards = {Split.TRAIN: 1, Split.EVAL: 1}
    def generate_samples(self, tmp_dir, split):
        for words in texts(split):
            yield {"inputs": " ".join(words), "targets": " ".join(words)}

@register_problem
class TinyTurn(TinyEcho):
    use_vocab_from_other_problem = "tiny_echo"
    def generate_samples(self, tmp_dir, split):
        for words in texts(split):
            yield {"inputs": " ".join(words), "targets": " ".join(words[::-1])}

@register_problem
class TinyTexts(MultiProblem):
    problem_names = ("tiny_echo", "tiny_turn")

@register_problem
class TinyText(Text2SelfProblem):
    use_vocab_from_other_problem = "tiny_kind"
    shards = {Split.TRAIN: 1, Split.EVAL: 1}
    def generate_samples(self, tmp_dir, split):
        for words in texts(split):
            yield {"targets": " ".join(words)}

@register_problem
class TinyUnlike(MultiProblem):
    problem_names = ("tiny_kind", "tiny_text")
    models = {"tiny_text": "transformer/transformer_tiny/hidden_size=16/filter_size=16"
        "/num_hidden_layers=1/batch_size=32"}

@register_problem
class TinyStrangers(MultiProblem):
    problem_names = ("tiny_kind", "other_kind")
"""
SMALL = (
    "hidden_size=16,filter_size=16,num_hidden_layers=1,batch_size=32,learning_rate_warmup_steps=2"
)


def register_and_generate(folder: Path) -> Path:
    """Registers the problems, from `folder/tiny_problems`; returns where their data is."""
    code = folder / "tiny_problems"
    code.mkdir()
    (code / "tiny.py").write_text(PROBLEMS, encoding="utf-8")
    registry.import_usr_dir(code)
    data = folder / "data"
    data.mkdir()
    for name in ("tiny_kind", "tiny_tags", "other_kind", "tiny_echo", "tiny_turn", "tiny_text"):
        generate_data(registry.problem(name), data, data, num_processes=1, progress=False)
    return data
