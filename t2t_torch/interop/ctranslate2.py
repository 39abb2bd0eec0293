"""Export of transformers to CTranslate2, an inference engine for CPUs and GPUs.

https://github.com/OpenNMT/CTranslate2, through its `ctranslate2.specs`.  Options that its
Transformer lacks raise an error that names them; none is ignored.  Others are converted:

- the padding row of an embedding is set to zero, as in the model; the softmax thus has its own
  table;
- rows that only pad the vocabulary to `vocab_divisor` are removed, as a search never uses them;
- positions are stored as a table, because CTranslate2 counts its own sinusoids from 1; the vector
  of the target space is added to the encoder's table, or with relative attention, which has none,
  to the embeddings of the inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from t2t_torch import registry
from t2t_torch.data.shards import Shards
from t2t_torch.decode.hparam import DecodeHParams
from t2t_torch.decode.loading import Loaded
from t2t_torch.decode.predictor import Predictor
from t2t_torch.errors import DataError, ExportError, UsageError, require
from t2t_torch.export.exporter import RunExporter
from t2t_torch.export.folder import FEWEST_ROWS, copy_explanations
from t2t_torch.export.settings import ExportSettings
from t2t_torch.export.verification import TOLERANCE, stored
from t2t_torch.features import Feature
from t2t_torch.features.feature import select_generated
from t2t_torch.layers.transformer_layer import sinusoids
from t2t_torch.metrics.text_scores import score
from t2t_torch.modalities.text import Embedding
from t2t_torch.mode import Split
from t2t_torch.params import value_text
from t2t_torch.runtime.prediction import sorted_hypotheses
from t2t_torch.runtime.signature import CTRANSLATE2, Signature
from t2t_torch.text.encoder import EOS, NUM_RESERVED, PAD
from t2t_torch.text.subword import SubwordEncoder

_Weights: TypeAlias = dict[str, npt.NDArray[np.float32]]
"""Weights by name that are still to be read."""

QUANTIZATIONS = tuple("int8 int8_float32 int8_float16 int8_bfloat16 int16 float16 bfloat16".split())
"""Quantizations of weights that CTranslate2 supports, besides float32."""

POSITIONS = 2048
"""Maximum number of tokens of an input and of an output."""

_MODEL = "transformer"
_PRE_NORM = {("n", "a"): True, ("", "an"): False}  # by steps before and after a sublayer


def convert(loaded: Loaded, folder: Path, quantization: str | None = None) -> None:
    """Writes a model in CTranslate2's format: model.bin, config.json and its vocabularies.

    Args:
      loaded: an encoder-decoder model from text to text.
      folder: an existing folder.
      quantization: one of `QUANTIZATIONS`; None stores float32.

    Raises:
      ExportError: CTranslate2 is not installed, or its Transformer does not support the model.
      UsageError: there is no such quantization.
    """
    if quantization is not None and quantization not in QUANTIZATIONS:
        raise UsageError(
            f"CTranslate2 has no quantization {quantization!r}; expected one of "
            f"{', '.join(QUANTIZATIONS)}."
        )
    ctranslate2_module()
    check_convertible(loaded)
    spec = _spec(loaded)
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))


def ctranslate2_module() -> Any:
    """Returns the module ctranslate2; raises ExportError if it is not installed."""
    return require("ctranslate2", "ct2", "--format=ctranslate2 needs CTranslate2", ExportError)


def check_convertible(loaded: Loaded) -> None:
    """Checks that CTranslate2's Transformer supports a model.

    Raises:
      ExportError: an option is not supported; names it.
    """
    if reason := _misfit(loaded):
        raise ExportError(
            f"the model of {loaded.problem.full_name!r} does not fit CTranslate2: {reason}. It "
            "answers with  t2t-decoder"
        )


def _misfit(loaded: Loaded) -> str | None:
    """Returns the reason why a model cannot be converted; None if it can."""
    model: Any = loaded.model
    features, hparams = loaded.features, model.hparams
    if type(loaded.model) is not registry.model(_MODEL):
        return f"it is no {_MODEL!r} but a {type(model).__name__}"
    if not features.has_inputs:
        return "it is a language model, without an encoder"
    if len(features.inputs) != 1 or len(features.targets) != 1:
        return f"it has {', '.join(features.all)}, where one input and one target are read"
    for name, feature in features.all.items():
        if feature.output_spec(name, features).kind != "text":
            return f"{name!r} is a {type(feature).__name__}, not a text"
        if not isinstance(model.modalities[name].bottom, Embedding):
            return f"the vectors of {name!r} are not of a table alone"
    if not select_generated(features.targets):
        return "its outputs have no end symbol"
    fields = type(hparams).model_fields
    expected = {name: (fields[name].default,) for name in _DEFAULT} | {"pos": ("timing", "none")}
    for name, known in expected.items():
        if (value := getattr(hparams, name)) not in known:
            listed = " or ".join(map(value_text, known))
            return f"{name}={value_text(value)}, where {listed} is read"
    if hparams.furthest and hparams.pos != "none":
        return f"pos={hparams.pos} and relative attention, of which it has one at a time"
    if not (len(model.encoder) and len(model.decoder)):
        return "it has no layers"
    if _around(hparams) not in _PRE_NORM:
        return (
            f"layer_preprocess_sequence={hparams.layer_preprocess_sequence} and "
            f"layer_postprocess_sequence={hparams.layer_postprocess_sequence}, where n and da "
            "(pre-norm) or none and dan (post-norm) are read"
        )
    return None


_DEFAULT = (
    *("decoder_hparams", "output_norm"),
    *("attention_bias", "ffn_bias", "ffn_activation", "ffn_gated", "position_offset"),
    *("max_source_positions", "max_target_positions", "embedding_norm", "decoder_start_id"),
    *("output_bias", "norm_type", "num_key_value_heads", "qk_norm", "prepend_mode"),
)
"""Hyperparameters that only have their defaults in a converted model."""


def _around(hparams: Any) -> tuple[str, str]:
    """Returns the steps before and after a sublayer, without dropout."""
    before, after = hparams.layer_preprocess_sequence, hparams.layer_postprocess_sequence
    return before.replace("none", "").replace("d", ""), after.replace("none", "").replace("d", "")


def tokens_of(source: Feature, target: Feature) -> tuple[list[str], list[str]]:
    """Returns CTranslate2's tokens of the ids of both sides: subwords, or else numbers."""
    encoders = [getattr(feature, "encoder", None) for feature in (source, target)]
    first, second = (one.pieces if isinstance(one, SubwordEncoder) else [] for one in encoders)
    are_unique = all(side and len(set(side)) == len(side) for side in (first, second))
    if are_unique and first[:NUM_RESERVED] == second[:NUM_RESERVED]:
        return first, second
    read, written = ([str(number) for number in range(f.vocab_size)] for f in (source, target))
    return read, written


def _spec(loaded: Loaded) -> Any:
    """Returns CTranslate2's specification of the model with its weights."""
    from ctranslate2.specs import TransformerSpec

    model: Any = loaded.model
    hparams = model.hparams
    spec: Any = TransformerSpec.from_config(
        (len(model.encoder), len(model.decoder)),
        hparams.num_heads,
        pre_norm=_PRE_NORM[_around(hparams)],
        with_relative_position=bool(hparams.furthest),
    )
    # Copies, each to be read once: the quantization works in place.
    tensors = loaded.model.state_dict().items()
    weights = {name: tensor.float().cpu().numpy().copy() for name, tensor in tensors}
    (source,), (target,) = loaded.features.inputs, loaded.features.targets
    _embed(spec.encoder, spec.encoder.embeddings[0], source, loaded, weights)
    _embed(spec.decoder, spec.decoder.embeddings, target, loaded, weights)
    if hparams.use_target_space_embedding:
        _add_space(
            spec.encoder, weights.pop("target_space")[model.features.target_space_id], model, source
        )
    for side in ("encoder", "decoder"):
        stack = getattr(spec, side)
        for number, layer in enumerate(stack.layer):
            _fill_layer(layer, f"{side}.{number}.", weights, pre_norm=bool(stack.pre_norm))
        if stack.pre_norm:
            _fill_norm(stack.layer_norm, f"{side}_output.norm", weights)
    size = loaded.features.targets[target].vocab_size
    spec.decoder.projection.weight = weights.pop(f"modalities.{target}.top.weight")[:size]
    if weights:
        raise ExportError(
            f"the model has weights that CTranslate2's Transformer has not: "
            f"{', '.join(sorted(weights))}."
        )
    _register_tokens(spec, loaded, hparams)
    return spec


def _register_tokens(spec: Any, loaded: Loaded, hparams: Any) -> None:
    """Registers tokens, special tokens, and whether inputs have an end symbol."""
    (source,), (target,) = loaded.features.inputs.values(), loaded.features.targets.values()
    read, written = tokens_of(source, target)
    spec.register_source_vocabulary(read)
    spec.register_target_vocabulary(written)
    config = spec.config
    config.eos_token, config.bos_token = written[EOS], written[PAD]
    config.decoder_start_token = written[PAD]  # its embedding is zero
    # An unknown token is treated like padding.
    config.unk_token = written[PAD]
    config.add_source_eos = bool(getattr(source, "add_eos", False))
    config.layer_norm_epsilon = hparams.norm_epsilon


def _embed(stack: Any, spec: Any, name: str, loaded: Loaded, weights: _Weights) -> None:
    """Fills in the embeddings, their scale and the positions."""
    model: Any = loaded.model
    table = weights.pop(f"modalities.{name}.bottom.weight")[: loaded.features.all[name].vocab_size]
    table[PAD] = 0.0
    spec.weight = table
    stack.scale_embeddings = model.modalities[name].bottom.scale != 1.0
    if model.hparams.furthest:
        return
    width = table.shape[1]
    positions = np.zeros((POSITIONS, width), np.float32)
    if model.hparams.pos == "timing":
        positions = sinusoids(torch.arange(POSITIONS), width).numpy()
    stack.position_encodings.encodings = positions


def _add_space(stack: Any, space: npt.NDArray[np.float32], model: Any, source: str) -> None:
    """Adds the vector of the target space to every input position."""
    if model.hparams.furthest:
        spec = stack.embeddings[0]
        spec.weight = spec.weight + space / np.float32(model.modalities[source].bottom.scale)
    else:
        spec = stack.position_encodings
        spec.encodings = spec.encodings + space


def _fill_layer(spec: Any, prefix: str, weights: _Weights, *, pre_norm: bool) -> None:
    """Fills in a layer, with the norms before or after its sublayers."""
    place = "before" if pre_norm else "after"

    def attention(spec: Any, name: str, projections: list[str]) -> None:
        for linear, projection in zip(spec.linear, [*projections, "output"], strict=True):
            linear.weight = weights.pop(f"{prefix}{name}.{projection}.weight")
        _fill_norm(spec.layer_norm, f"{prefix}{name}_{place}.norm", weights)

    attention(spec.self_attention, "attention", ["query_key_value"])
    if hasattr(spec.self_attention, "relative_position_keys"):
        name = f"{prefix}attention.relative"
        spec.self_attention.relative_position_keys = weights.pop(f"{name}.keys.weight")
        spec.self_attention.relative_position_values = weights.pop(f"{name}.values.weight").T.copy()
    if hasattr(spec, "attention"):
        attention(spec.attention, "memory_attention", ["query", "key_value"])
    for linear, name in ((spec.ffn.linear_0, "inner"), (spec.ffn.linear_1, "outer")):
        linear.weight = weights.pop(f"{prefix}feed_forward.{name}.weight")
        linear.bias = weights.pop(f"{prefix}feed_forward.{name}.bias")
    _fill_norm(spec.ffn.layer_norm, f"{prefix}feed_forward_{place}.norm", weights)


def _fill_norm(spec: Any, name: str, weights: _Weights) -> None:
    spec.gamma, spec.beta = weights.pop(f"{name}.weight"), weights.pop(f"{name}.bias")


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
the model is not called. `length_penalty` divides by length^x, where t2t-decoder's `alpha` divides
by ((5 + length) / 6)^x: they are not the same number.{note}
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


_BEAM = 4
_LOST = 0.5  # maximum loss of BLEU by quantization in points, as in export/quantization.py
_LONGER = 20  # ids by which outputs may exceed the longest row in comparisons


class CTranslate2Exporter(RunExporter):
    """Exports a transformer for CTranslate2; `quantize` is one of `QUANTIZATIONS` or ""."""

    form = CTRANSLATE2
    packages = ("t2t_torch", "torch", "ctranslate2")
    quantizations = QUANTIZATIONS
    needs_data = True

    def __init__(self, settings: ExportSettings, scratch: Path) -> None:
        ctranslate2_module()  # before the model is loaded
        super().__init__(settings, scratch)
        self.loaded.model.float()

    def write(self, folder: Path) -> Signature:
        """See `Exporter.write`."""
        convert(self.loaded, folder)
        settings, data_dir = self.settings, self.settings.data_folder
        assert data_dir is not None  # as `folder.check` requires
        self._rows = rows_of(self.loaded, data_dir, settings.verify_rows)
        copy_explanations(settings.runs, self.loaded, folder)
        return self.signature()

    def readme(self, signature: Signature) -> str:
        """See `Exporter.readme`."""
        return recipe(self.loaded)

    def verify(self, folder: Path) -> ModelComparison:
        """See `Exporter.verify`."""
        return verify(self.loaded, folder, self._rows)

    def quantize(self, folder: Path) -> None:
        """See `Exporter.quantize`."""
        convert(self.loaded, folder, self.settings.quantize)

    def compare(self, plain: Path, quantized: Path, verified: ModelComparison) -> ModelComparison:
        """See `Exporter.compare`."""
        loaded, rows = self.loaded, self._rows
        (target,) = loaded.features.targets.values()
        limit = _LONGER + max(max(len(row.inputs), len(row.targets)) for row in rows)
        references = [str(target.decode(row.targets)) for row in rows]
        values = []
        for folder in (plain, quantized):
            found = _Engine(loaded, folder).search([row.inputs for row in rows], _BEAM, limit)
            outputs = [str(target.decode(each.ids)) for each in found]
            values.append(score(outputs, references, ("bleu",))["bleu"].value)
        if values[1] < values[0] - _LOST:
            raise ExportError(
                f"quantized, BLEU of {len(rows)} rows of the dev split is {values[1]:.2f} and not "
                f"{values[0]:.2f}: more than {_LOST} lost. Nothing was written. Verify more rows "
                "(--verify_rows=2000); or leave --quantize out."
            )
        return verified._replace(quality=(values[0], values[1]))


class DevRow(NamedTuple):
    """A pair of the dev split.

    Attributes:
      number: index in the split.
      inputs: input ids.
      targets: target ids.
    """

    number: int
    inputs: list[int]
    targets: list[int]


def rows_of(loaded: Loaded, data_dir: Path, count: int) -> list[DevRow]:
    """Returns rows spread evenly over the dev split, without rows too long for the positions.

    Raises:
      DataError: there is no such data, or it has no rows.
    """
    shards = Shards.open(data_dir, loaded.problem.dataset_name, Split.EVAL)
    numbers = np.unique(
        np.linspace(0, shards.num_rows - 1, min(count, shards.num_rows)).astype(int)
    )
    columns = [
        stored(shards, loaded.features.columns[name], numbers.tolist())
        for name in (*loaded.features.inputs, *loaded.features.targets)
    ]
    rows = [
        DevRow(number, [int(i) for i in given], [int(i) for i in wanted])
        for number, given, wanted in zip(numbers.tolist(), *columns, strict=True)
        if len(given) > 1 and max(len(given), len(wanted)) + _LONGER <= POSITIONS
    ]
    if not rows:
        raise DataError(f"the dev split of {loaded.problem.full_name} has no rows to compare.")
    return rows


class ModelComparison(NamedTuple):
    """Result of the comparison of a converted model with the original one.

    Attributes:
      rows: number of compared rows of the dev split, before quantization.
      difference: maximum difference of a log-probability.
      same: number of rows with the same output of a beam search of width four.
      quality: BLEU of these rows before and after quantization; None without quantization.
    """

    rows: int
    difference: float
    same: int
    quality: tuple[float, float] | None = None

    def lines(self, signature: Signature) -> list[str]:
        """Returns the lines that the command prints."""
        few = "" if self.rows >= FEWEST_ROWS else f" (of {FEWEST_ROWS}: the split has no more)"
        lines = [
            f"  verified  {self.rows} rows of the dev split{few}: the same greedy outputs, "
            f"log-probabilities within {self.difference:.1e}",
            f"  beam {_BEAM}    the same outputs for {self.same} of {self.rows}; the two searches "
            "stop by different rules",
        ]
        if self.quality is not None:
            lines.append(f"  quantized BLEU {self.quality[0]:.2f} -> {self.quality[1]:.2f}")
        return lines

    def examples(self) -> list[dict[str, Any]]:
        """See `Report.examples`."""
        return []


def verify(loaded: Loaded, folder: Path, rows: Sequence[DevRow]) -> ModelComparison:
    """Compares a converted model with the original one, both in float32.

    The log-probabilities of the rows' targets must agree within `TOLERANCE`, and the outputs of
    greedy searches must be equal, unless two ids tie within it.  Beam searches stop by different
    rules, so only the score of an output must equal the model's log-probability of it.

    Raises:
      ExportError: they differ; names the first such row.
    """
    model = _Model(loaded)
    engine = _Engine(loaded, folder)
    inputs = [row.inputs for row in rows]
    limit = _LONGER + max(max(len(row.inputs), len(row.targets)) for row in rows)
    greatest = 0.0
    scored = engine.score(inputs, [row.targets for row in rows])
    for row, log_probs in zip(rows, scored, strict=True):
        expected = model.log_probs(row.inputs, row.targets)
        greatest = max(greatest, _compared_scores(row, expected, log_probs))
    greedy = engine.search(inputs, 1, limit)
    for row, ours, theirs in zip(rows, model.search(inputs, 1, limit), greedy, strict=True):
        if ours != theirs.ids:
            _check_tied(model, row, ours, theirs.ids)
    beams = engine.search(inputs, _BEAM, limit)
    for row, found in zip(rows, beams, strict=True):
        expected = model.log_probs(row.inputs, found.ids_and_end)
        greatest = max(greatest, _compared_scores(row, [sum(expected)], [found.score]))
    outputs = model.search(inputs, _BEAM, limit)
    same = sum(a == b.ids for a, b in zip(outputs, beams, strict=True))
    return ModelComparison(len(rows), greatest, same)


def _compared_scores(row: DevRow, ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Returns the maximum difference of log-probabilities; raises ExportError if too large."""
    greatest = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    for place, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        # NaN fails the comparison.
        if not abs(a - b) <= TOLERANCE * max(1.0, abs(a)):
            raise ExportError(
                f"row {row.number} of the dev split: the log-probability of id {place} of the "
                f"output is {b:.6f} in CTranslate2 and {a:.6f} here. Nothing was written."
            )
    return greatest


def _check_tied(model: _Model, row: DevRow, ours: list[int], theirs: list[int]) -> None:
    """Raises ExportError unless two ids are equally probable where the outputs first differ."""
    ends = [*ours, EOS], [*theirs, EOS]
    place = next(i for i, (a, b) in enumerate(zip(*ends, strict=False)) if a != b)
    likely = [model.log_probs(row.inputs, its[: place + 1])[-1] for its in ends]
    if abs(likely[0] - likely[1]) > TOLERANCE:
        raise ExportError(
            f"row {row.number} of the dev split: CTranslate2's greedy output is {theirs} and the "
            f"model's {ours}. Nothing was written."
        )


class _Model:
    """The run's model, in float32."""

    def __init__(self, loaded: Loaded) -> None:
        self._predictor = Predictor(loaded.model, loaded.problem, loaded.features)

    def search(self, inputs: Sequence[list[int]], beam_size: int, limit: int) -> list[list[int]]:
        """Returns the output of each input, without length penalty."""
        hparams = DecodeHParams(
            beam_size=beam_size,
            alpha=0.0,
            extra_length=limit,
            force_decode_length=True,
            activation_dtype="float32",
        )
        found = dict(self._predictor.predict_ids(inputs, hparams))
        return [list(found[index].hypotheses[0].ids) for index in range(len(inputs))]

    def log_probs(self, inputs: list[int], outputs: list[int]) -> list[float]:
        """Returns the log-probability of each id of an output."""
        given, asked = torch.tensor([inputs]), torch.tensor([outputs])
        predictor = self._predictor
        (source,), (target,) = predictor.features.inputs, predictor.features.targets
        with torch.inference_mode():
            logits = predictor.model({source: given, target: asked}).logits[target]
        log_probs = logits[0, :, : predictor.vocab_size].float().log_softmax(-1)  # [T, V]
        return list(log_probs.gather(-1, asked.T).flatten().tolist())


class _Translated(NamedTuple):
    """An output of CTranslate2's search: ids without the end symbol, and whether it is finished."""

    ids: list[int]
    score: float
    ids_and_end: list[int]


_BATCHES: dict[str, Any] = {"max_batch_size": 2048, "batch_type": "tokens", "max_input_length": 0}
"""Options of all calls of CTranslate2: no input is cut."""


class _Engine:
    """A converted model with ids as inputs."""

    def __init__(self, loaded: Loaded, folder: Path) -> None:
        package: Any = ctranslate2_module()
        (source,), (target,) = loaded.features.inputs.values(), loaded.features.targets.values()
        self._read, self._written = tokens_of(source, target)
        self._ids = {token: number for number, token in enumerate(self._written)}
        self._ends = bool(getattr(source, "add_eos", False))
        self._translator = package.Translator(str(folder), max_queued_batches=-1)

    def _tokens(self, inputs: Sequence[list[int]]) -> list[list[str]]:
        return [[self._read[i] for i in (ids[:-1] if self._ends else ids)] for ids in inputs]

    def score(self, inputs: Sequence[list[int]], targets: Sequence[list[int]]) -> list[list[float]]:
        """Returns the log-probability of each id of finished outputs."""
        asked = [[self._written[i] for i in ids[:-1]] for ids in targets]
        found = self._translator.score_batch(self._tokens(inputs), asked, **_BATCHES)
        return [list(each.log_probs) for each in found]

    def search(self, inputs: Sequence[list[int]], beam_size: int, limit: int) -> list[_Translated]:
        """Returns the output of each input, without length penalty."""
        found = self._translator.translate_batch(
            self._tokens(inputs),
            beam_size=beam_size,
            length_penalty=0.0,
            **_BATCHES,
            max_decoding_length=limit,
            min_decoding_length=0,
            return_end_token=True,
            return_scores=True,
        )
        results = []
        for each in found:
            ids = [self._ids[token] for token in each.hypotheses[0]]
            ((plain, score),) = sorted_hypotheses([ids], [each.scores[0]])
            results.append(_Translated(plain, score, ids))
        return results
