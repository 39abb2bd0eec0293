"""Hyperparameters of models that begin with the weights of others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self, TypeVar

from t2t_torch.errors import HParamsError
from t2t_torch.hparam import HParams, hp
from t2t_torch.registry import register_hparams
from t2t_torch.text.pretrained import Architecture, PretrainedFolder

_P = TypeVar("_P", bound="PretrainedHParams")


class PretrainedHParams(HParams):
    """Pretrained models: where the model is, and what it is."""

    reads_pretrained: ClassVar[bool] = True
    small_config: ClassVar[Mapping[str, Any]] = {}

    pretrained: str = hp(
        "",
        "Folder of a model that save_pretrained of transformers wrote, with its tokenizer; or a "
        "repository, org/name or org/name@revision, which huggingface_hub downloads.",
    )
    pretrained_architecture: str = hp(
        "",
        "What that model is, as JSON: t2t-trainer reads it once from the folder, and the run "
        "keeps it.",
    )

    def architecture(self) -> Architecture:
        """Returns the description of the model.

        Raises:
          HParamsError: there is none.
        """
        if not self.pretrained_architecture:
            raise HParamsError(
                "this model begins with the weights of another one: --hparams=pretrained=FOLDER "
                "names its folder."
            )
        return Architecture.parse(self.pretrained_architecture)

    def in_small(self, vocab_size: int) -> Self:
        """Returns a copy that describes a random model of `small_config`."""
        its = Architecture(
            config={**self.small_config, "vocab_size": vocab_size},
            special=(0, 1, True),
            rows=vocab_size,
            width=16,
            before=(2,),
            between=(),
            after=(),
            types=(0, 0),
            longest=0,
            start=(2,),
            tokenizer={},
            vocabulary="",
            weights={},
            revision="",
            transformers="",
        )
        unread = {name: field.default for name, field in type(self).model_fields.items()}
        layers = {"num_hidden_layers": unread["num_hidden_layers"], "hidden_size": its.width}
        return self.replace(pretrained_architecture=its.text, **layers)

    @property
    def max_positions(self) -> int:
        """Positions of a text beyond which the model cannot read; 0: no limit."""
        return self.architecture().longest_text if self.pretrained_architecture else 0

    def completed(self, before: HParams | None) -> Self:
        """Returns a copy with the model's description, and its sizes; see `HParams.completed`."""
        known = getattr(before, "pretrained_architecture", "") or self.pretrained_architecture
        if not known and not self.pretrained:
            self.architecture()  # raises
        its = (
            Architecture.parse(known) if known else PretrainedFolder(self.pretrained).architecture()
        )
        values = {"pretrained_architecture": its.text, "hidden_size": its.width}
        if not self.max_length:
            values["max_length"] = its.longest_text
        return self.replace(**values).signed(f"the folder {self.pretrained}")


class PretrainedEncoderHParams(PretrainedHParams):
    """Pretrained encoder: what classes and numbers are predicted from."""

    small_config: ClassVar[Mapping[str, Any]] = {
        "model_type": "bert",
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }

    pretrained_head: bool = hp(
        False,
        "Begin with the folder's own classifier or tagger, whose labels are those of the target, "
        "in their order; False: a new one.  summary is not read.",
        computes=True,
    )
    summary: Literal["first", "mean", "last"] = hp(
        "first",
        "State that classes and numbers are predicted from: that of the first position, as [CLS]; "
        "the mean of all; or the last, of models that read from left to right.",
        computes=True,
    )
    summary_activation: Literal["none", "relu", "tanh"] = hp(
        "tanh",
        "A new linear map of the summary with this activation function; none: no map.",
        computes=True,
    )


def _fine_tuning(hparams: _P, rate: float) -> _P:
    """Returns a copy with AdamW and a linear schedule, as Devlin et al. 2019, section A.3."""
    return hparams.replace(
        multiply_embedding_mode="none",
        label_smoothing=0.0,
        optimizer="adam_w",
        optimizer_adam_beta1=0.9,
        optimizer_adam_beta2=0.999,
        optimizer_adam_epsilon=1e-8,
        weight_decay=0.01,
        clip_grad_norm=1.0,
        learning_rate_schedule="constant*linear_warmup*polynomial_decay",
        learning_rate_constant=rate,
        batch_size=2048,
        initializer="uniform_unit_scaling",
    )


@register_hparams
def pretrained_encoder_base() -> PretrainedEncoderHParams:
    """Fine-tuning of an encoder: Devlin et al. 2019, arXiv:1810.04805, section A.3."""
    return _fine_tuning(PretrainedEncoderHParams(), 3e-5)


class PretrainedLmHParams(PretrainedHParams):
    """Pretrained language model."""

    small_config: ClassVar[Mapping[str, Any]] = {
        "model_type": "gpt2",
        "n_embd": 16,
        "n_layer": 2,
        "n_head": 2,
        "bos_token_id": 2,
        "eos_token_id": 1,
    }


@register_hparams
def pretrained_lm_base() -> PretrainedLmHParams:
    """Fine-tuning of a language model."""
    return _fine_tuning(PretrainedLmHParams(), 5e-5)


class PretrainedSeq2seqHParams(PretrainedHParams):
    """Pretrained encoder and decoder."""

    small_config: ClassVar[Mapping[str, Any]] = {
        "model_type": "bart",
        "d_model": 16,
        **dict.fromkeys(("encoder_layers", "decoder_layers"), 2),
        **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2),
        **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 32),
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 1,
        "decoder_start_token_id": 2,
    }

    def decode_defaults(self) -> str:
        """Returns the limit of an output: the model has no positions beyond it."""
        return f"max_length={self.max_positions}" if self.max_positions else ""


@register_hparams
def pretrained_seq2seq_base() -> PretrainedSeq2seqHParams:
    """Fine-tuning of a model of texts to texts."""
    return _fine_tuning(PretrainedSeq2seqHParams(), 5e-5)
