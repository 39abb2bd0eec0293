"""Models that begin with the weights of others: encoders, language models, encoder-decoders.

Devlin et al. 2019, arXiv:1810.04805; Radford et al. 2019, "Language Models are Unsupervised
Multitask Learners"; Raffel et al. 2020, arXiv:1910.10683.  The networks are modules of the package
transformers (`layers/pretrained.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from t2t_torch.errors import HParamsError
from t2t_torch.features import (
    Choice,
    ClassLabel,
    Features,
    MultiLabel,
    Real,
    SoftLabel,
    Span,
    Tags,
    Text,
)
from t2t_torch.features.feature import select_texts
from t2t_torch.hparam import HParams, InputHParams, ModelHParams
from t2t_torch.hparams.pretrained import (
    PretrainedEncoderHParams,
    PretrainedHParams,
    PretrainedLmHParams,
    PretrainedSeq2seqHParams,
)
from t2t_torch.layers import pooling
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.pretrained import (
    HEADS,
    JoinedTexts,
    LmState,
    PretrainedNetwork,
    Seq2seqState,
    join_texts,
)
from t2t_torch.layers.tokens import WordPlaces
from t2t_torch.model import Hidden, ModelInputs, T2TModel
from t2t_torch.registry import register_model
from t2t_torch.text.encoder import NUM_RESERVED, PAD
from t2t_torch.text.pretrained import PretrainedFolder

_READ = {
    "word_dropout",
    "hidden_size",
    "initializer",
    "initializer_gain",
    "multiply_embedding_mode",
}


def _check_read(name: str, hparams: HParams) -> None:
    """Raises HParamsError if settings of embeddings and layers are set that nothing reads here."""
    fields = type(hparams).model_fields
    own = InputHParams.model_fields.keys() | ModelHParams.model_fields.keys() | {"symbol_dropout"}
    values = {one: getattr(hparams, one) for one in sorted(own - _READ)}
    wrong = [f"{one}={its}" for one, its in values.items() if its != fields[one].default]
    if wrong:
        raise HParamsError(
            f"{', '.join(wrong)}: {name} does not read it: embeddings and layers are those of the "
            "pretrained model. Leave it out."
        )


class _Pretrained(T2TModel):
    """Base class of the models of this file.

    Attributes:
      kind: class of transformers that builds the network.
    """

    HParams = PretrainedHParams
    hparams: Any
    reads = (Text,)
    kind = ""

    def __init__(self, hparams: Any, features: Features) -> None:
        _check_read(self.name, hparams)
        super().__init__(hparams, features)
        texts = select_texts(features.all)
        self._unknown = {name: text.encoder.unknown_ids for name, text in texts.items()}
        if hparams.word_dropout and any(len(ids) != 1 for ids in self._unknown.values()):
            raise HParamsError(
                f"word_dropout={hparams.word_dropout}: the tokenizer of the pretrained model has "
                "no token for unknown words, as one of bytes. Set it to 0."
            )
        self._inputs = list(select_texts(features.inputs))
        self.network = PretrainedNetwork(hparams.architecture(), self.auto_class())
        self.network.check_reads(features)
        for name in features.targets:
            modality: Any = self.modality(name)
            if hasattr(modality, "share"):  # of hidden tokens
                table = self.network.inner.get_input_embeddings().weight
                modality.share(table, self.network.order)
                # The table's first name, by which it is stored, is that in the network.
                self._modules["modalities"] = self._modules.pop("modalities")

    def auto_class(self) -> str:
        """Returns the name of the class of transformers that builds the network."""
        return self.kind

    def _read(self, name: str, features: ModelInputs) -> Tensor:
        """Returns the ids of a text, in TRAIN some replaced by the unknown token.  [B, S]."""
        ids = features[name].values
        if not self.training or not self.hparams.word_dropout:
            return ids
        drawn = torch.rand(ids.shape, device=ids.device) < self.hparams.word_dropout
        (unknown,) = self._unknown[name]
        return torch.where(drawn & (ids >= NUM_RESERVED), unknown, ids)

    def load_pretrained(self, folder: str = "") -> list[str]:
        """Loads the weights of the folder; see `T2TModel.load_pretrained`."""
        return [self.network.load(PretrainedFolder(folder or self.hparams.pretrained))]


@register_model
class PretrainedEncoder(_Pretrained):
    """Encodes all texts as one sequence; each target reads its part of the output."""

    HParams = PretrainedEncoderHParams
    hparams: PretrainedEncoderHParams
    produces = (ClassLabel, MultiLabel, SoftLabel, Real, Tags, Span, Choice)
    needs_inputs = True
    kind = "AutoModel"

    def __init__(self, hparams: PretrainedEncoderHParams, features: Features) -> None:
        super().__init__(hparams, features)
        config = self.network.inner.config
        self._places = WordPlaces(features)
        if hparams.pretrained_head:
            self._take_head(config)
            return
        if config.is_encoder_decoder:
            raise HParamsError(
                f"a {config.model_type} has an encoder and a decoder: take --model="
                "pretrained_seq2seq and a problem of texts to texts."
            )
        targets = features.targets.items()
        specs = {name: target.output_spec(name, features) for name, target in targets}
        self._spans = [name for name, spec in specs.items() if spec.kind == "span"]
        self._choices = [name for name, spec in specs.items() if spec.kind == "choice"]
        self.dropout = Dropout(hparams.layer_prepostprocess_dropout)
        size = hparams.hidden_size
        self._summed = {name for name, one in targets if one.refers_to is None}
        self._summed.update(self._spans, self._choices)
        if hparams.summary_activation != "none" and self._summed:
            self.pooler = nn.Linear(size, size)
            nn.init.normal_(self.pooler.weight, std=0.02)
            nn.init.zeros_(self.pooler.bias)

    @classmethod
    def target_width(cls, hparams: Any, features: Features, target: str) -> int:
        """Returns the number of labels if the network gives their logits; see `T2TModel`."""
        if hparams.pretrained_head:
            return len(features.targets[target].labels)
        return super().target_width(hparams, features, target)

    def auto_class(self) -> str:
        """Returns the class with the head for the target, if the folder's is taken.

        Raises:
          HParamsError: there is no such head for the targets.
        """
        if not self.hparams.pretrained_head:
            return self.kind
        kinds = [HEADS.get(type(target)) for target in self.features.targets.values()]
        if len(kinds) != 1 or kinds[0] is None:
            raise HParamsError(
                "pretrained_head=True: heads are read of one target, which is a class, several "
                "labels or tags. Set it to False."
            )
        return kinds[0]

    def _take_head(self, config: Any) -> None:
        """Lets the network give the logits; HParamsError if its labels are not the target's."""
        ((name, target),) = self.features.targets.items()
        ours = target.labels
        theirs = [str(config.id2label.get(number)) for number in range(config.num_labels)]
        is_named = theirs != [f"LABEL_{number}" for number in range(len(theirs))]
        named = theirs if is_named else list(ours)
        if len(theirs) != len(ours) or sorted(named) != sorted(ours):
            raise HParamsError(
                f"pretrained_head=True: the model's labels are {', '.join(theirs[:20])}, and those "
                f"of {name!r} {', '.join(ours[:20])}. Set it to False to train a new head."
            )
        self._order = [named.index(label) for label in ours]
        self._label_lines = (
            []
            if is_named
            else [f"labels by number: {', '.join(map(' = '.join, zip(theirs, ours, strict=True)))}"]
        )
        modality: Any = self.modality(name)
        modality.top = nn.Identity()

    def load_pretrained(self, folder: str = "") -> list[str]:
        """Loads the weights of the folder; see `T2TModel.load_pretrained`.

        Raises:
          HParamsError: the first state, which is the summary, does not depend on later ids.
        """
        lines = super().load_pretrained(folder)
        if self.hparams.pretrained_head:
            return [*lines, *self._label_lines]
        if self.hparams.summary == "first" and self.network.is_causal():
            raise HParamsError(
                f"a {self.network.inner.config.model_type} reads from left to right, and its first "
                "state has seen one token only. Set --hparams=summary=last or mean."
            )
        return lines

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the hidden states of each target; see `T2TModel.body`."""
        targets: Any = self.features.targets
        results: dict[str, Hidden] = {}
        if self.hparams.pretrained_head:
            return self._with_head(features)
        if len(self._choices) < len(targets):
            joined, states = self._encode(features, self._inputs)
            if self._summed:
                summary = self._summary(joined, states)  # [B, H]
        for name, target in targets.items():
            of = target.refers_to
            if name in self._choices:
                candidates = target.candidates
                common = [one for one in self._inputs if one not in candidates]
                each = [self._encode(features, [*common, one]) for one in candidates]
                results[name] = Hidden(torch.stack([self._summary(*one) for one in each], 1))
            elif of is not None:
                length = features[of].values.size(1)
                own = joined.part(self._inputs.index(of), states, length)
                words = self.dropout(self._places.at_words(of, own, features))  # [B, W, H]
                mask = self._places.mask(of, features)
                if name in self._spans:  # position 0 is "no answer"
                    words = torch.cat([summary[:, None], words], 1)
                    mask = nn.functional.pad(mask, (1, 0), value=True)
                results[name] = Hidden(words, mask)
            else:
                results[name] = Hidden(summary)
        return results

    def _with_head(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the logits of the network's own head."""
        ((name, target),) = self.features.targets.items()
        joined = join_texts(self.network, [self._read(one, features) for one in self._inputs])
        logits = self.network.head_logits(joined)[..., self._order]
        if (of := target.refers_to) is None:
            return {name: Hidden(logits)}
        own = joined.part(self._inputs.index(of), logits, features[of].values.size(1))
        words = self._places.at_words(of, own, features)
        return {name: Hidden(words, self._places.mask(of, features))}

    def _encode(self, features: ModelInputs, names: Sequence[str]) -> tuple[JoinedTexts, Tensor]:
        joined = join_texts(self.network, [self._read(name, features) for name in names])
        return joined, self.network.states(joined)

    def _summary(self, joined: JoinedTexts, states: Tensor) -> Tensor:
        """Returns one vector of each row.  [B, H]."""
        kind = self.hparams.summary
        if kind == "mean":
            summary = pooling.mean(states, joined.mask)
        else:
            place = (joined.total - 1).clamp(min=0) * (kind == "last")
            summary = states.gather(1, place[:, None, None].expand(-1, 1, states.size(-1)))[:, 0]
        summary = self.dropout(summary)
        assert isinstance(summary, Tensor)
        if self.hparams.summary_activation != "none":
            summary = self.pooler(summary)
            is_tanh = self.hparams.summary_activation == "tanh"
            summary = self.dropout(summary.tanh() if is_tanh else summary.relu())
        return summary


class _PretrainedWriter(_Pretrained):
    """Base class of the models of texts, whose states are logits, and whose network decodes."""

    @classmethod
    def target_width(cls, hparams: Any, features: Features, target: str) -> int:
        """Returns the number of ids: the body returns logits."""
        return features.targets[target].vocab_size

    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Runs a decoding step; see `T2TModel.step`."""
        return self.network.step(ids, state)


@register_model
class PretrainedLm(_PretrainedWriter):
    """Language model, or text from a text that it reads first."""

    HParams = PretrainedLmHParams
    hparams: PretrainedLmHParams
    texts = (0, 1)
    kind = "AutoModelForCausalLM"

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the logits of the targets; see `T2TModel.body`."""
        targets = features["targets"].values
        given = [self._read(name, features) for name in self._inputs]
        start = self.network.architecture.start
        texts = [*given, self._read("targets", features)]
        joined = join_texts(self.network, texts, around=(start, (), ()), keeps_end=True)
        logits = self.network.logits(joined.ids, joined.mask)
        starts = joined.starts[-1]
        before = dataclasses.replace(joined, starts=[(starts - 1).clamp(min=0)])
        own = before.part(0, logits, targets.size(1))
        if not start:  # the first id has none before it
            at_first = torch.arange(targets.size(1), device=targets.device) == 0
            shifted = torch.cat([own[:, :1], own[:, :-1]], 1)
            is_empty = (starts == 0)[:, None]
            own = torch.where(is_empty[..., None], shifted, own)
            own = own.masked_fill((is_empty & at_first)[..., None], 0.0)
        return {"targets": Hidden(self.network.written(own))}

    def encode(self, batch: dict[str, Tensor]) -> LmState:
        """Returns the state before the first step; see `T2TModel.encode`."""
        first = next(iter(batch.values()))
        nothing = torch.full((first.size(0), 1), PAD, device=first.device)
        given = [batch[name] for name in self._inputs if name in batch] or [nothing]
        start = self.network.architecture.start
        joined = join_texts(self.network, given, around=(start, (), ()))
        return self.network.begin(joined)


@register_model
class PretrainedSeq2seq(_PretrainedWriter):
    """Encoder and decoder for texts from texts."""

    HParams = PretrainedSeq2seqHParams
    hparams: PretrainedSeq2seqHParams
    texts = (1, 1)
    kind = "AutoModelForSeq2SeqLM"

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the logits of the targets; see `T2TModel.body`."""
        joined = join_texts(self.network, [self._read(name, features) for name in self._inputs])
        targets = self._read("targets", features)
        start = self.network.architecture.start
        before = torch.tensor([start], device=targets.device).expand(targets.size(0), -1)
        read = torch.cat([before, self.network.order[targets[:, :-1]]], 1)
        logits = self.network.logits(read, joined.mask, input_ids=joined.ids)
        return {"targets": Hidden(self.network.written(logits[:, len(start) - 1 :]))}

    def encode(self, batch: dict[str, Tensor]) -> Seq2seqState:
        """Returns the state before the first step; see `T2TModel.encode`."""
        joined = join_texts(self.network, [batch[name] for name in self._inputs])
        start = self.network.architecture.start
        return self.network.begin_from(joined.ids, joined.mask, start)
