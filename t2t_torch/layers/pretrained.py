"""Networks of pretrained models: modules of the package transformers, read by our ids.

A network is built from its configuration alone and has its weights in float32.  Exported graphs
hold what it computes, and need neither the package nor torch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from t2t_torch.errors import CheckpointError, HParamsError, listed, require
from t2t_torch.features import ClassLabel, Feature, Features, MultiLabel, Tags
from t2t_torch.features.feature import select_texts
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.recurrent import RowState
from t2t_torch.text.encoder import EOS, PAD
from t2t_torch.text.pretrained import PURPOSE, Architecture, PretrainedFolder

HEADS: Mapping[type[Feature], str] = {
    ClassLabel: "AutoModelForSequenceClassification",
    MultiLabel: "AutoModelForSequenceClassification",
    Tags: "AutoModelForTokenClassification",
}
"""Classes of transformers with a head, by type of target."""


class PretrainedNetwork(nn.Module):
    """A module of transformers, whose weights have the names that they have there.

    Attributes:
      architecture: its description.
      order: the model's id of each of our ids, [V].
      inner: the module.
      kind: name of the class that built it.
      longest: tokens of the longest text that it reads; 0: no limit.

    Args:
      architecture: the description.
      kind: the class that builds it: AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM or one
        of `HEADS`.

    Raises:
      HParamsError: the package has no such model.
      UsageError: the package is missing.
    """

    order: Tensor

    def __init__(self, architecture: Architecture, kind: str) -> None:
        super().__init__()
        transformers = require("transformers", "hf", PURPOSE)
        self.architecture = architecture
        self.kind, self._auto = kind, getattr(transformers, kind)
        values = dict(architecture.config)
        try:
            config = transformers.AutoConfig.for_model(values.pop("model_type"), **values)
            self.inner = self._auto.from_config(config, dtype=torch.float32)
        except Exception as error:  # of many classes
            raise HParamsError(
                f"transformers {transformers.__version__} cannot build this "
                f"{architecture.config.get('model_type')} as {kind}: {str(error).splitlines()[0]}"
            ) from None
        if kind == "AutoModel" and getattr(self.inner, "pooler", None) is not None:
            self.inner.pooler = None  # nothing reads it, and distributed runs need all gradients
        _replace_dropout(self.inner)
        self._arguments = frozenset(inspect.signature(self.inner.forward).parameters)
        self._cache = "cache" if "cache" in self._arguments else "past_key_values"
        self.longest = self._longest()
        self.register_buffer("order", torch.tensor(architecture.order), persistent=False)

    @property
    def rows_by_id(self) -> tuple[str, ...]:
        """Names of the tensors with a row for each id of the model: embeddings, logits."""
        ids: set[int] = set()
        for part in self.inner.modules():
            for getter in ("get_input_embeddings", "get_output_embeddings"):
                with contextlib.suppress(AttributeError, NotImplementedError):
                    table = getattr(part, getter)()
                    ids |= {id(its) for its in table.parameters(recurse=False)}
        tensors = self.inner.state_dict(prefix="inner.", keep_vars=True)
        added = "final_logits_bias"  # by the model, not by its output map
        return tuple(name for name, its in tensors.items() if id(its) in ids or added in name)

    @property
    def body(self) -> nn.Module:
        """The module without a head of labels; all of a language model."""
        body: nn.Module = self.inner.base_model if self.kind in HEADS.values() else self.inner
        return body

    def _longest(self) -> int:
        """Returns the number of positions; of RoBERTa's table those after that of padding."""
        longest = self.architecture.longest
        size = getattr(self.inner.config, "max_position_embeddings", None)
        for table in self.inner.modules():
            if isinstance(table, nn.Embedding) and table.num_embeddings == size:
                used = 0 if table.padding_idx is None else table.padding_idx + 1
                longest = min(longest, table.num_embeddings - used)
        return longest

    def load(self, folder: PretrainedFolder) -> str:
        """Loads the weights of the folder that the architecture was read from.

        Returns:
          A line for the user.

        Raises:
          CheckpointError: weights are missing, or of other shapes.
        """
        folder.check_is(self.architecture)
        try:
            loaded, report = self._auto.from_pretrained(
                str(folder.path),
                dtype=torch.float32,
                use_safetensors=True,
                local_files_only=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
        except Exception as error:  # of many classes
            raise CheckpointError(
                f"the weights of {folder.path} cannot be loaded: {str(error).splitlines()[0]}"
            ) from None
        wanted = dict(self.inner.named_parameters())
        missing = sorted(name for name in report["missing_keys"] if name in wanted)
        if missing:
            raise CheckpointError(
                f"{folder.path} lacks {len(missing)} of {len(wanted)} weights of a "
                f"{type(self.inner).__name__}, such as {missing[0]}: it is of another model."
            )
        for name, theirs, ours in report["mismatched_keys"]:
            raise CheckpointError(
                f"{name} in {folder.path} is {list(theirs)}, and config.json says {list(ours)}: "
                "they are of different models. Copy the whole folder again."
            )
        state = loaded.state_dict()
        damaged = [name for name in wanted if name in state and not state[name].isfinite().all()]
        if damaged:
            raise CheckpointError(
                f"{listed(damaged)} in {folder.path}: not all numbers are finite. Copy the folder "
                "again, or save the model again."
            )
        self.inner.load_state_dict(state, strict=False)  # a pooler; adapters
        unused = sorted(map(str, report["unexpected_keys"]))
        without = f", without {listed(unused)}" if unused else ""
        count = sum(weight.numel() for weight in wanted.values())
        return (
            f"pretrained: {type(self.inner).__name__} of {folder.path}, {count:,} weights{without}"
        )

    def check_reads(self, features: Features) -> None:
        """Raises HParamsError if a text has other ids than the model's tokenizer gives."""
        for name, text in select_texts(features.all).items():
            encoder: Any = text.encoder
            if text.num_marks:
                raise HParamsError(
                    "the tokenizer of the pretrained model has no tokens that stand for hidden "
                    "text: _masked and _noised need [MASK] or <mask>, _spans <extra_id_0> and so "
                    "on. Take another corruption, or another model."
                )
            known = getattr(encoder, "sha256", "")
            if self.architecture.vocabulary not in ("", known):
                raise HParamsError(
                    f"{name!r} has not the tokens of the pretrained model: the data was made with "
                    "another vocabulary. Make it with the model's, in another folder:  t2t-datagen "
                    "--problem=PROBLEM --pretrained=FOLDER --data_dir=NEW"
                )

    def output(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Returns the logits, or the states of an encoder, of ids of the model.  [B, L, ...]."""
        if self.kind == "AutoModel":
            return self.states(JoinedTexts(ids, mask, torch.zeros_like(ids), [], mask.sum(1)))
        more = {"input_ids": ids} if self.inner.config.is_encoder_decoder else {}
        return self.logits(ids, mask, **more)

    @torch.no_grad()
    def is_causal(self) -> bool:
        """Returns True if the state of an id does not depend on the ids after it."""
        ids = torch.tensor([[0, 1], [0, 2]], device=self.order.device)
        mask = torch.ones_like(ids, dtype=torch.bool)
        was_training = self.training
        first = self.eval().output(ids, mask)[:, 0]
        self.train(was_training)
        return bool((first[0] == first[1]).all())

    def states(self, joined: JoinedTexts) -> Tensor:
        """Returns the states of the last layer at each position.  [B, L, H]."""
        states: Tensor = self.inner(**self._given(joined)).last_hidden_state
        return states

    def _given(self, joined: JoinedTexts) -> dict[str, Any]:
        """Returns the arguments of the module."""
        given: dict[str, Any] = {"input_ids": joined.ids, "attention_mask": joined.mask.long()}
        if "token_type_ids" in self._arguments and self.inner.config.to_dict().get(
            "type_vocab_size"
        ):
            given["token_type_ids"] = joined.types
        if "use_cache" in self._arguments:
            given["use_cache"] = False
        return given

    def head_logits(self, joined: JoinedTexts) -> Tensor:
        """Returns the logits of the labels of each row, [B, C], or of each position, [B, L, C]."""
        config = self.inner.config
        if config.pad_token_id is None:  # heads may look for the last id before it
            config.pad_token_id = self.architecture.special[0]
        ids = joined.ids.masked_fill(~joined.mask, config.pad_token_id)
        inner = self.inner
        logits: Tensor = inner(**self._given(dataclasses.replace(joined, ids=ids))).logits
        return logits

    def logits(self, ids: Tensor, mask: Tensor, **inputs: Any) -> Tensor:
        """Returns the logits of the model's ids at each position.  [B, L] -> [B, L, V'].

        Args:
          ids: ids of the model that a decoder reads.
          mask: positions with an id, [B, L] bool; of an encoder's inputs [B, S], if it has one.
          inputs: further arguments, such as those of an encoder.
        """
        name = "decoder_input_ids" if self.inner.config.is_encoder_decoder else "input_ids"
        given = {name: ids, "attention_mask": mask.long(), "use_cache": False, **inputs}
        logits: Tensor = self.inner(**given).logits
        return logits

    def begin(self, joined: JoinedTexts) -> LmState:
        """Returns the state of a language model that has read texts.

        The last id of each row is read again by the first step, so that rows of different lengths
        have equally many positions; its first place is masked.  In rows without an id all ids are
        as probable in the first step.
        """
        ids, mask = joined.ids, joined.mask
        cache = _caches()  # of all positions, also where a layer attends to a window of them
        given = {"input_ids": ids, "attention_mask": mask.long(), self._cache: cache}
        self.inner(**given, use_cache=True)
        total = joined.total[:, None]
        last = (total - 1).clamp(min=0)
        mask = mask.scatter(1, last, torch.zeros_like(last, dtype=torch.bool))
        return LmState(ids.gather(1, last)[:, 0], total[:, 0] == 0, mask, *_tensors(cache))

    def begin_from(self, ids: Tensor, mask: Tensor, start: Sequence[int]) -> Seq2seqState:
        """Returns the state of an encoder-decoder before its first step.

        Args:
          ids: ids of the encoder's inputs, [R, S].
          mask: positions with an id, [R, S] bool.
          start: ids that the decoder reads first.
        """
        memory = self.inner.get_encoder()(input_ids=ids, attention_mask=mask.long())[0]
        given = torch.tensor([list(start)], device=ids.device).expand(ids.size(0), -1)
        cache = _caches([], [])
        self.inner(
            encoder_outputs=(memory,),
            attention_mask=mask.long(),
            decoder_input_ids=given,
            use_cache=True,
            **{self._cache: cache},
        )
        keys, values = (
            [part[:, :, :-1] for part in parts] for parts in _tensors(cache.self_attention_cache)
        )
        over = _tensors(cache.cross_attention_cache)
        return Seq2seqState(given[:, -1], memory, mask, keys, values, *over)

    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Reads one id of ours in each row.

        Args:
          ids: last id of each row, [R]; `PAD` before the first.
          state: state of `begin`, `begin_from` or the last step.

        Returns:
          The logits of our ids, [R, V], and the next state.
        """
        read = torch.where(ids == PAD, state.last, self.order[ids])[:, None]
        own = list(zip(state.keys, state.values, strict=True))
        given: dict[str, Any] = {"use_cache": True}
        if isinstance(state, LmState):
            given_first = state.is_empty & (ids == PAD)
            mask = torch.cat([state.mask, torch.ones_like(state.mask[:, :1])], 1)
            given |= {"input_ids": read, "attention_mask": mask.long()}
            mask = torch.cat([state.mask, ~given_first[:, None]], 1)
            if "position_ids" in self._arguments:
                positions = state.mask.sum(1, keepdim=True)
                if self.longest:
                    positions = positions.clamp(max=self.longest - 1)  # later ones are as the last
                given["position_ids"] = positions
            state, cache = dataclasses.replace(state, mask=mask), _caches(own)
        else:
            cache = _caches(own, list(zip(state.memory_keys, state.memory_values, strict=True)))
            given |= {"decoder_input_ids": read, "attention_mask": state.memory_mask.long()}
            given["encoder_outputs"] = (state.memory,)
        result = self.inner(**{self._cache: cache}, **given)
        keys, values = _tensors(getattr(cache, "self_attention_cache", cache))
        logits = self.written(result.logits[:, -1])
        if isinstance(state, LmState):
            logits = torch.where(given_first[:, None], 0.0, logits)
        return logits, dataclasses.replace(state, keys=keys, values=values)

    def written(self, logits: Tensor) -> Tensor:
        """Returns logits of the model's ids as those of ours.  [..., V'] -> [..., V] float32."""
        ours = logits.index_select(-1, self.order).float()
        if self.architecture.special[2]:
            return ours
        never = torch.arange(ours.size(-1), device=ours.device) == PAD
        return ours.masked_fill(never, torch.finfo(torch.float32).min)


class _Dropout(Dropout):
    """`Dropout` with the attribute of torch's, which modules of transformers read."""

    @property
    def p(self) -> float:
        """The rate."""
        return self.rate


def _caches(
    own: list[tuple[Tensor, Tensor]] | None = None,
    memory: list[tuple[Tensor, Tensor]] | None = None,
) -> Any:
    """Returns a cache of transformers.

    Args:
      own: keys and values of each layer's self-attention.
      memory: keys and values of each layer's attention to an encoder; None without one.
    """
    from transformers import DynamicCache, EncoderDecoderCache

    cache = DynamicCache(own or None)
    return cache if memory is None else EncoderDecoderCache(cache, DynamicCache(memory or None))


def _tensors(cache: Any) -> tuple[list[Tensor], list[Tensor]]:
    """Returns the keys and the values of each layer of a cache of transformers."""
    return [layer.keys for layer in cache.layers], [layer.values for layer in cache.layers]


def _replace_dropout(module: nn.Module) -> None:
    """Replaces torch's dropout by ours, which draws a quarter of the random numbers on a CPU."""
    for name, child in module.named_children():
        if type(child) is nn.Dropout:
            setattr(module, name, _Dropout(child.p))
        else:
            _replace_dropout(child)


@dataclasses.dataclass
class JoinedTexts:
    """Texts of each row in one sequence, with the ids that the model has around them.

    Attributes:
      ids: ids of the model, [B, L].
      mask: positions with an id, at least one, [B, L] bool.
      types: token types, [B, L].
      starts: position of the first id of each text, [B] each.
      total: number of ids of each row, [B].
    """

    ids: Tensor
    mask: Tensor
    types: Tensor
    starts: list[Tensor]
    total: Tensor

    def part(self, number: int, states: Tensor, length: int) -> Tensor:
        """Returns the states at the positions of a text.  [B, L, H] -> [B, length, H].

        Args:
          number: index of the text.
          states: states of the sequence.
          length: number of positions; those after the text's end repeat others.
        """
        places = torch.arange(length, device=states.device) + self.starts[number][:, None]
        places = places.clamp(max=states.size(1) - 1)
        return states.gather(1, places[..., None].expand(-1, -1, states.size(-1)))


def join_texts(
    network: PretrainedNetwork,
    texts: Sequence[Tensor],
    *,
    around: tuple[Sequence[int], Sequence[int], Sequence[int]] | None = None,
    keeps_end: bool = False,
) -> JoinedTexts:
    """Joins the texts of each row, without gaps; the last ones are cut to the model's length.

    Args:
      network: the network that reads them.
      texts: our ids of each text, [B, S] each; `PAD` after the end.
      around: ids of the model before the first text, between two, and after the last one; None:
        those of its tokenizer.
      keeps_end: True if the `EOS` of the last text is a part of it.
    """
    its = network.architecture
    before, between, after = around or (its.before, its.between, its.after)
    fixed = len(before) + len(after) + len(between) * (len(texts) - 1)
    rows, device = texts[0].size(0), texts[0].device
    length = fixed + sum(text.size(1) for text in texts)
    if network.longest:
        length = torch.sym_min(length, network.longest)  # type: ignore[no-untyped-call]
    left = torch.full((rows,), length - fixed, device=device)
    ids = torch.zeros(rows, length + 1, dtype=torch.int64, device=device)
    types = torch.full_like(ids, its.types[0])
    place = torch.zeros_like(left)
    starts = []

    def put(values: Tensor, count: Tensor | int, kind: int) -> None:
        nonlocal ids, types, place
        offsets = torch.arange(values.size(1), device=device)
        count = torch.as_tensor(count, device=device).expand(rows)
        index = torch.where(offsets < count[:, None], place[:, None] + offsets, length)
        ids = ids.scatter(1, index, values)
        if kind != its.types[0]:
            types = types.scatter(1, index, torch.full_like(values, kind))
        place = place + count

    def put_fixed(numbers: Sequence[int], kind: int) -> None:
        if numbers:
            given = torch.tensor([list(numbers)], device=device).expand(rows, -1)
            put(given, len(numbers), kind)

    put_fixed(before, its.types[0])
    for number, text in enumerate(texts):
        kind = its.types[min(number, 1)]
        is_last = number == len(texts) - 1
        count = (text != PAD).sum(1)
        if not (keeps_end and is_last):
            last = text.gather(1, (count - 1).clamp(min=0)[:, None])[:, 0]
            count = count - (last == EOS).long()
        count = torch.minimum(count, left)
        left = left - count
        starts.append(place)
        put(network.order[text], count, kind)
        put_fixed(after if is_last else between, kind)
    mask = torch.arange(length, device=device) < place[:, None].clamp(min=1)
    return JoinedTexts(ids[:, :length], mask, types[:, :length], starts, place)


@dataclasses.dataclass
class LmState(RowState):
    """State of a decoding with a language model, of R rows.

    Attributes:
      last: id of the model that the first step reads, [R].
      is_empty: rows without an id before the first one that is written, [R] bool.
      mask: positions of the caches that are attended to, [R, T] bool.
      keys: keys of each layer's self-attention, [R, N, T, D] each.
      values: values, in the same shapes.
    """

    last: Tensor
    is_empty: Tensor
    mask: Tensor
    keys: list[Tensor]
    values: list[Tensor]


@dataclasses.dataclass
class Seq2seqState(RowState):
    """State of a decoding with an encoder and a decoder, of R rows.

    Attributes:
      last: id of the model that the first step reads, [R].
      memory: states of the encoder, [R, S, H].
      memory_mask: its positions with an id, [R, S] bool.
      keys: keys of each layer's self-attention, [R, N, T, D] each.
      values: values, in the same shapes.
      memory_keys: keys of each layer's attention to the encoder, [R, N, S, D] each.
      memory_values: values, in the same shapes.
    """

    last: Tensor
    memory: Tensor
    memory_mask: Tensor
    keys: list[Tensor]
    values: list[Tensor]
    memory_keys: list[Tensor]
    memory_values: list[Tensor]
