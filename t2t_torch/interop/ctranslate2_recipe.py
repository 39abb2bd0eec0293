"""What a folder for CTranslate2 says of itself: how it is asked."""

from __future__ import annotations

from t2t_torch.decode.loading import Loaded
from t2t_torch.interop.ctranslate2 import POSITIONS, tokens_of

_SUBWORDS = """\
import ctranslate2
import sentencepiece

pieces = sentencepiece.SentencePieceProcessor(model_file="{vocabulary}")
translator = ctranslate2.Translator(".")
found = translator.translate_batch([pieces.encode("{example}", out_type=str)], beam_size=4)
print(pieces.decode(found[0].hypotheses[0]))
"""

_NUMBERS = """\
import ctranslate2
from t2t_torch import registry

problem = registry.problem("{problem}")
features = problem.features(".")
translator = ctranslate2.Translator(".")
ids = features.inputs["{source}"].encode("{example}"){without_end}
found = translator.translate_batch([[str(i) for i in ids]], beam_size=4)
print(features.targets["{target}"].decode(int(i) for i in found[0].hypotheses[0]))
"""

_TEXT = """\
# {model} of {problem}

A model for CTranslate2, made by `t2t-exporter --format=ctranslate2`. In this folder:

```python
{code}```

Inputs and outputs have at most {positions} tokens. An empty input is answered with an empty output;
the model is not asked. `length_penalty` divides by length^x, where t2t-decoder's `alpha` divides by
((5 + length) / 6)^x: they are not the same number.{note}
"""

_SPACES = """
The characters U+2581 and U+001A are written to sentencepiece as U+001A and a digit (1 and 0)."""


def recipe(loaded: Loaded) -> str:
    """Returns the README of a converted model."""
    (source,), (target,) = loaded.features.inputs, loaded.features.targets
    given = loaded.features.inputs[source]
    of_subwords = tokens_of(given, loaded.features.targets[target])[0][-1:] != [
        str(given.vocab_size - 1)
    ]
    vocabularies = loaded.problem.vocab_files
    code = (_SUBWORDS if of_subwords and len(vocabularies) == 1 else _NUMBERS).format(
        vocabulary=next(iter(vocabularies), ""),
        example="A text.",
        problem=loaded.problem.full_name,
        source=source,
        target=target,
        without_end="[:-1]" if getattr(given, "add_eos", False) else "",
    )
    return _TEXT.format(
        model=loaded.info.task.model,
        problem=loaded.problem.full_name,
        code=code,
        positions=f"{POSITIONS:,}",
        note=_SPACES if of_subwords else "",
    )
