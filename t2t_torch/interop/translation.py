"""Parts of an import that the sources of Transformers have in common.

Weights by our names show the sizes, biases, gates, tables of positions and norms of a stack of
layers.  A `Side` has what they do not show; `hparams_of` joins both to hyperparameters.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from t2t_torch import registry
from t2t_torch.errors import CheckpointError, DataError, HParamsError, UsageError, listed
from t2t_torch.files import MAX_VOCABULARY, read_bytes
from t2t_torch.hparam import HParams
from t2t_torch.interop.importer import ImportedRun, declaration_of
from t2t_torch.interop.settings import ImportSettings
from t2t_torch.params import value_text
from t2t_torch.text.pieces import kind_of_subwords, vocabulary_file

_SHOWN = 10  # names in an error

Subwords = tuple[Literal["sentencepiece", "bpe", "tokenizer"], bytes]
"""Kind and content of a subword model."""


@dataclass(frozen=True)
class Vocabulary:
    """Dictionary of one side of a model.

    Attributes:
      tokens: the tokens by the library's ids.
      pad: id of padding.
      eos: id of the end symbol.
      unknown: id of unknown tokens; None: there are none.
      silent: ids of other symbols that have no text, such as the start symbol.
      subwords: the subword model; None: texts are tokens separated by spaces.
      add_eos: False if texts have no end symbol.
      strip: True if the library removes spaces around an output.
    """

    tokens: Sequence[str]
    pad: int
    eos: int
    unknown: int | None
    silent: tuple[int, ...] = ()
    subwords: Subwords | None = None
    add_eos: bool = True
    strip: bool = False

    @property
    def order(self) -> list[int]:
        """The library's ids in the order of ours: padding, the end symbol, and the others."""
        first = [self.pad, self.eos]
        return [*first, *(i for i in range(len(self.tokens)) if i not in first)]

    def our_id(self, number: int) -> int:
        """Returns our id for one of the library."""
        return self.order.index(number)

    def rows(self, table: Tensor) -> Tensor:
        """Returns the rows of a table in our order.

        Raises:
          CheckpointError: the table has not a row for each token.
        """
        if len(table) != len(self.tokens):
            raise CheckpointError(
                f"the vocabulary has {len(self.tokens):,} tokens, and the table of the checkpoint "
                f"{len(table):,} rows. Give the vocabulary that the model was trained with."
            )
        return table[torch.tensor(self.order)]

    def file(self) -> bytes:
        """Returns the content of the vocabulary file in a run directory."""
        return vocabulary_file(
            self.subwords,
            tokens=[self.tokens[number] for number in self.order],
            unknown=None if self.unknown is None else self.our_id(self.unknown),
            silent=sorted(map(self.our_id, self.silent)),
            add_eos=self.add_eos,
            strip=self.strip,
        )


def check_tokens(tokens: Sequence[str]) -> None:
    """Checks that a dictionary is a list of a few texts.

    Raises:
      DataError: it is not.
    """
    if not 4 <= len(tokens) <= 10_000_000 or not all(isinstance(token, str) for token in tokens):
        raise DataError(
            f"a dictionary of {len(tokens):,} entries is none of tokens. Copy the old files again."
        )


INPUTS, TARGETS, TOP = (
    f"modalities.{table}" for table in ("inputs.bottom", "targets.bottom", "targets.top")
)
"""Our names of the embeddings of both sides, and of the softmax."""
BOTTOMS = {"encoder": INPUTS, "decoder": TARGETS}
PLACES = {"encoder": "join.positions", "decoder": "positions"}
"""Our names of the embeddings and of the vectors of positions, by side."""


def layer_names(theirs: str, ours: str, parts: Mapping[str, str]) -> dict[str, str]:
    """Returns the names of a stack of layers, for `by_our_names`.

    Args:
      theirs: pattern of the library's name of the stack.
      ours: our name.
      parts: our names of the parts of a layer by patterns of theirs.
    """
    return {rf"{theirs}\.(\d+)\.(?:{old})": rf"{ours}.\1.{new}" for old, new in parts.items()}


def by_our_names(
    library: str, tensors: Mapping[str, Any], names: Mapping[str, str]
) -> dict[str, Tensor]:
    """Returns the weights of a checkpoint by our names, in float32.

    Args:
      library: name of the library, for messages.
      tensors: tensors by the library's names.
      names: our names by patterns of theirs, without an ending `.weight` or `.bias`, which stays.
        `""` leaves a weight out; `a.b#1` is the second part of `a.b`.

    Raises:
      CheckpointError: a weight is unknown or no tensor, a layer lacks what others have, or the
        model is quantized.
    """
    parts: dict[str, dict[str, Tensor]] = {}
    read, unknown = set(), []
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor) or not isinstance(name, str):
            raise CheckpointError(f"{name} of the checkpoint is no tensor. Copy it again.")
        ours = _our_name(name, names)
        weight = re.sub(r"#\d", "", ours or "")
        if ours is None or ours in parts.get(weight, {}):
            unknown.append(name)
        elif ours:
            if tensor.dtype in (torch.int8, torch.uint8):
                raise CheckpointError(
                    f"{name} has integers of 8 bits: a quantized model. Import the checkpoint that "
                    "it was made from."
                )
            parts.setdefault(weight, {})[ours] = tensor.float()
            read.add(name)
    if unknown:
        raise CheckpointError(
            f"the checkpoint of {library} has weights that no model here has: "
            f"{listed(sorted(unknown), _SHOWN)}."
        )
    _check_layers(library, read)
    for name, of in parts.items():
        weights = parts.get(f"{name.removesuffix('.bias')}.weight", of)
        if name.endswith(".bias") and len(of) != len(weights):
            raise CheckpointError(f"{name}: only some of the linear maps of attention have biases.")
    ordered = {name: [of[part] for part in sorted(of)] for name, of in parts.items()}
    return {name: torch.cat(of) if len(of) > 1 else of[0] for name, of in ordered.items()}


def _check_layers(library: str, names: Collection[str]) -> None:
    """Raises CheckpointError if a layer lacks a weight that others of its stack have."""
    stacks: dict[str, tuple[set[str], set[str]]] = {}
    for match in filter(None, map(_IN_LAYER.match, names)):
        numbers, rests = stacks.setdefault(match[1], (set(), set()))
        numbers.add(match[2])
        rests.add(match[3])
    for stack, both in stacks.items():
        for number, rest in itertools.product(*both):
            if (name := f"{stack}{number}{rest}") not in names:
                raise CheckpointError(f"the checkpoint of {library} has no {name}. Copy it again.")


_IN_LAYER = re.compile(r"(.*?\.)(\d+)(\..*)")


def _our_name(name: str, names: Mapping[str, str]) -> str | None:
    for pattern, ours in names.items():
        if match := re.fullmatch(rf"(?:{pattern})(\.weight|\.bias)?", name):
            return ours and match.expand(ours) + (match[match.re.groups] or "")
    return None


def order_tables(
    library: str, weights: dict[str, Tensor], vocabularies: Sequence[Vocabulary]
) -> None:
    """Puts the rows of embeddings and softmax in our order; the softmax may be the embedding.

    Raises:
      CheckpointError: a table is missing, or has not a row for each token.
    """
    read, written = vocabularies
    tables = {f"{INPUTS}.weight": read, f"{TARGETS}.weight": written, f"{TOP}.weight": written}
    if f"{TARGETS}.weight" in weights:
        weights.setdefault(f"{TOP}.weight", weights[f"{TARGETS}.weight"])
    for name, vocabulary in tables.items():
        weights[name] = vocabulary.rows(weight_of(library, weights, name))
    if f"{TOP}.bias" in weights:
        weights[f"{TOP}.bias"] = written.rows(weights[f"{TOP}.bias"])


def weight_of(library: str, weights: Mapping[str, Tensor], name: str) -> Tensor:
    """Returns a weight; CheckpointError if there is none."""
    if name not in weights:
        raise CheckpointError(
            f"the checkpoint of {library} has no variable for {name}. Its hyperparameters are of "
            "another model; copy both from one training."
        )
    return weights[name]


def sharing(inputs: Tensor, targets: Tensor, softmax: Tensor) -> dict[str, bool]:
    """Returns the hyperparameters of shared tables for three tables in our order."""
    tied = targets.shape == softmax.shape and torch.equal(targets, softmax)
    joint = inputs.shape == targets.shape and torch.equal(inputs, targets)
    return {
        "shared_embedding_and_softmax_weights": tied and joint,
        "shared_embedding": joint and not tied,
        "shared_target_embedding_and_softmax_weights": tied and not joint,
    }


def base_hparams(model: str, **values: Any) -> HParams:
    """Returns hyperparameters for a model of another library.

    Training continues at a small constant rate, unless `values` say otherwise.

    Args:
      model: our name of the model.
      values: hyperparameters by our names.
    """
    hparams = (
        registry.model(model)
        .HParams()
        .replace(
            learning_rate_schedule="constant",
            learning_rate_constant=1e-4,
            optimizer_adam_epsilon=1e-9,
            optimizer_adam_beta1=0.9,
            optimizer_adam_beta2=0.98,
            weight_decay=0.0,
            clip_grad_norm=0.0,
            label_smoothing=0.1,
            max_length=256,
            initializer="xavier",
        )
    )
    return hparams.replace(**values)


def forbidden(values: Mapping[str, Any], expected: Mapping[str, Sequence[Any]]) -> list[str]:
    """Returns the settings, as text, that have none of the values that are expected of them."""
    return [
        f"{name}={values[name]!r}"
        for name, possible in expected.items()
        if name in values and values[name] not in possible
    ]


def check_sizes(
    library: str, settings: Mapping[str, Any], hparams: Any, names: Mapping[str, str]
) -> None:
    """Checks that the sizes that a configuration names are those of the weights.

    Args:
      library: name of the library.
      settings: values by the library's names; missing ones and None are not compared.
      hparams: our hyperparameters, of the weights.
      names: our names by those of the library; those of the decoder begin with "dec".

    Raises:
      CheckpointError: one differs.
    """
    for theirs, ours in names.items():
        of_side = hparams.of_decoder() if theirs.startswith("dec") else hparams
        size = getattr(of_side, ours)
        if settings.get(theirs) not in (None, size):
            raise CheckpointError(
                f"{theirs}={settings[theirs]!r}, and the weights of {library} have {size}. Copy "
                "configuration and weights from one training."
            )


_PAGES = {
    "fairseq": "from_fairseq",
    "OpenNMT-py": "from_opennmt_py",
    "Sockeye": "from_sockeye",
    "Marian": "from_marian",
    **dict.fromkeys(("bert", "distilbert", "GPT-2"), "from_hugging_face"),
}
"""Page of each library in docs/how_to."""


def refuse(library: str, found: Sequence[str]) -> None:
    """Refuses settings of a library that no model here has.

    Raises:
      HParamsError: there are some; all are named.
    """
    if found:
        raise HParamsError(
            f"this model of {library} computes what no model here does: {', '.join(found)}. "
            f"docs/how_to/{_PAGES[library]}.md lists what is not imported, and why."
        )


def subword_models(settings: ImportSettings, found: Sequence[Path]) -> list[Subwords | None]:
    """Returns the subword models of the inputs and of the targets.

    Args:
      settings: settings of the import; `subwords` names files.
      found: files of the source, if the options name none: one for both sides, or one for each.

    Raises:
      DataError: a file is no subword model.
    """
    files = [Path(path).expanduser() for path in settings.subwords] or list(found)
    if len(files) > 2:
        names = ", ".join(path.name for path in files)
        raise UsageError(
            f"there are several subword models: {names}. Name that of the inputs and that of the "
            "targets: --subwords=INPUTS,TARGETS."
        )
    models: list[Subwords | None] = []
    for path in files:
        try:
            content = read_bytes(path, max_bytes=MAX_VOCABULARY)
        except OSError as error:
            raise DataError(f"--subwords={path}: {error.strerror}.") from None
        kind = kind_of_subwords(content)
        if kind is None:
            raise DataError(
                f"{path} is neither a sentencepiece model nor a file of BPE codes. Name another: "
                "--subwords=FILE."
            )
        models.append((kind, content))
    return [models[0], models[-1]] if models else [None, None]


def translation_run(
    library: str,
    settings: ImportSettings,
    *,
    languages: tuple[str, str],
    hparams: Any,
    weights: Mapping[str, Tensor],
    vocabularies: Sequence[Vocabulary],
    decode_hparams: Mapping[str, Any],
    subwords: Sequence[Path] = (),
    model: str = "transformer",
    step: int = 0,
    ignored: Sequence[str] = (),
) -> ImportedRun:
    """Returns the run of a translation model.

    Args:
      library: name of the library.
      settings: settings of the import.
      languages: those of inputs and targets, as in the names of files.
      hparams: hyperparameters by our names.
      weights: weights by our names.
      vocabularies: those of inputs and of targets.
      decode_hparams: decoding settings by our names.
      subwords: files of subword models of the source, if the options name none.
      model: registered name of the model.
      step: optimizer steps done.
      ignored: parts that are not imported.
    """
    source, target = languages
    name = settings.problem or free_name(f"{library}_{source}_{target}")
    models = subword_models(settings, subwords)
    pairs = zip(vocabularies, models, strict=True)
    both = [replace(vocabulary, subwords=model).file() for vocabulary, model in pairs]
    files = {
        field: f"vocab.{name}.{'joint' if both[0] == both[1] else field}.pieces"
        for field in ("inputs", "targets")
    }
    data = {
        split: {"inputs": f"{split}.{source}", "targets": f"{split}.{target}"}
        for split in ("train", "eval")
    }
    none = "a subword model: texts are tokens separated by spaces (--subwords=FILE)"
    return ImportedRun(
        library=library,
        problem=name,
        model=model,
        hparams=hparams.signed(library),
        weights=weights,
        declaration=declaration_of(name, "text2text", files, files=data),
        vocabularies=dict(zip(files.values(), both, strict=True)),
        step=step,
        decode_hparams=decode_hparams,
        ignored=[*ignored, *([none] if models[0] is None else [])],
    )


def free_name(name: str) -> str:
    """Returns a name of a problem, with a number if there is one of this name."""
    name = re.sub(r"[^a-z0-9_]", "_", name.lower())
    numbered = (f"{name}_{number}" for number in itertools.count(2))
    taken = registry.list_names("problem")
    return next(one for one in itertools.chain([name], numbered) if one not in taken)


ACTIVATIONS: Mapping[str, str] = {
    **{name: name for name in ("relu", "gelu", "silu", "quick_gelu", "tanh", "linear")},
    **dict.fromkeys(("gelu_python", "gelu_10"), "gelu"),
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_accurate"), "gelu_tanh"),
    **dict.fromkeys(("gelu_pytorch_tanh", "gelu_python_tanh"), "gelu_tanh"),
    **dict.fromkeys(("swish", "swish1"), "silu"),
    **dict.fromkeys(("relu2", "relu_squared"), "relu_squared"),
}
"""Our names of activation functions by those of all libraries, where each has one meaning."""

PRE_NORM, POST_NORM = ("n", "da"), ("none", "dan")
"""Operations before and after a sublayer."""


@dataclass(frozen=True)
class Side:
    """Properties of a stack of layers that its weights do not show.

    Attributes:
      num_heads: attention heads.
      activation: activation function of feed-forward sublayers, as the library calls it.
      norms: operations before and after a sublayer, in our letters.
      norm_epsilon: of all norms.
      pos: kind of the positions, if they are no table in the weights.
      position_offset: added to each of them.
      limit: number of them, if later ones have the last vector; 0: no limit.
    """

    num_heads: int
    activation: str
    norms: tuple[str, str]
    norm_epsilon: float
    pos: str = "none"
    position_offset: int = 0
    limit: int = 0


def hparams_of(
    library: str,
    model: str,
    weights: Mapping[str, Tensor],
    sides: Mapping[str, Side],
    **values: Any,
) -> HParams:
    """Returns the hyperparameters of a Transformer.

    Args:
      library: name of the library, for messages.
      model: our name of the model.
      weights: weights by our names, with the tables of both vocabularies if there are two sides.
      sides: by "encoder" and "decoder"; one or both.
      values: further hyperparameters.

    Raises:
      CheckpointError: a stack has no layers.
      HParamsError: no model here has the activation function.
    """
    names = [side.activation for side in sides.values() if side.activation not in ACTIVATIONS]
    refuse(library, [f"the activation function {name}" for name in sorted(set(names))])
    counts = {side: count_layers(weights, side) for side in sides}
    found = {side: _measured(library, weights, side, of) for side, of in sides.items()}
    base = next(iter(found.values()))
    limits = {"encoder": "max_source_positions", "decoder": "max_target_positions"}
    for side, of in sides.items():
        table = weights.get(f"{PLACES[side]}.table")
        values[limits[side]] = of.limit if table is None else len(table)
    if len(sides) == 1:
        values["num_hidden_layers"] = next(iter(counts.values()))
    else:
        values |= {f"num_{side}_layers": count for side, count in counts.items()}
        decoder = found["decoder"]
        values["decoder_hparams"] = tuple(
            f"{name}={value_text(value)}" for name, value in decoder.items() if value != base[name]
        )
        values |= sharing(*(weights[f"{table}.weight"] for table in (INPUTS, TARGETS, TOP)))
        values["output_bias"] = f"{TOP}.bias" in weights
    known = registry.model(model).HParams.model_fields
    base = {name: value for name, value in base.items() if name in known}
    return base_hparams(model, use_target_space_embedding=False, **base, **values)


def count_layers(weights: Mapping[str, Tensor], side: str) -> int:
    """Returns the number of layers; CheckpointError if there are none."""
    numbers = {name.split(".")[1] for name in weights if name.startswith(f"{side}.")}
    if not numbers:
        raise CheckpointError(f"the {side} of the checkpoint has no layers. Copy it again.")
    return len(numbers)


def _measured(
    library: str, weights: Mapping[str, Tensor], side: str, given: Side
) -> dict[str, Any]:
    """Returns the hyperparameters of the layers of a side."""
    layer, places = f"{side}.0", PLACES[side]
    # [H + 2 K, H]
    joint = weight_of(library, weights, f"{layer}.attention.query_key_value.weight")
    inner = f"{layer}.feed_forward.inner"
    size = joint.size(1)
    heads = (len(joint) - size) // 2 // max(1, size // given.num_heads)
    before, after = given.norms
    norms = {name.rpartition(".")[0] for name in weights if name.startswith(f"{layer}.")}
    is_rms = any(one.endswith(".norm") and f"{one}.bias" not in weights for one in norms)
    distances = weights.get(f"{layer}.attention.relative.keys.weight")
    return {
        "hidden_size": size,
        "num_heads": given.num_heads,
        "num_key_value_heads": 0 if heads == given.num_heads else heads,
        "filter_size": len(weight_of(library, weights, f"{inner}.weight")),
        "ffn_activation": ACTIVATIONS[given.activation],
        "ffn_gated": f"{layer}.feed_forward.gate.weight" in weights,
        "ffn_bias": f"{inner}.bias" in weights,
        "attention_bias": f"{layer}.attention.query_key_value.bias" in weights,
        "layer_preprocess_sequence": before,
        "layer_postprocess_sequence": after,
        "norm_type": "rms" if is_rms else "layer",
        "norm_epsilon": given.norm_epsilon,
        "output_norm": "n" not in before.replace("none", "")
        or f"{side}_output.norm.weight" in weights,
        "embedding_norm": f"{places}.norm.weight" in weights,
        "pos": "learned" if f"{places}.table" in weights else given.pos,
        "position_offset": 0 if f"{places}.table" in weights else given.position_offset,
        "self_attention_type": "dot_product" if distances is None else "dot_product_relative",
        "max_relative_position": 0 if distances is None else len(distances) // 2,
    }
