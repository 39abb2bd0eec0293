"""Hyperparameters of the Transformer, with tensor2tensor's sets of models/transformer.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from t2t_torch.errors import HParamsError
from t2t_torch.features import Feature, Features, Text
from t2t_torch.hparam import hp
from t2t_torch.hparam_groups import TransformerLayerHParams, one_cycle, with_noam
from t2t_torch.registry import register_hparams, register_ranged_hparams
from t2t_torch.search_space import RangedHParams

if TYPE_CHECKING:
    from typing import Self


class TransformerHParams(TransformerLayerHParams):
    """Transformer: encoder and decoder."""

    computes: ClassVar[bool] = True

    num_encoder_layers: int = hp(
        0, "Layers of the encoder.  0: num_hidden_layers.", low=0, high=10_000, computes=False
    )
    num_decoder_layers: int = hp(
        0, "Layers of the decoder.  0: num_hidden_layers.", low=0, high=10_000, computes=False
    )
    decoder_hparams: tuple[str, ...] = hp(
        (),
        "Hyperparameters of layers that the decoder has otherwise than the encoder: "
        "[num_heads=4,filter_size=512,pos=learned].  Empty: none.",
    )
    max_target_positions: int = hp(0, "max_source_positions of the decoder.", low=0)
    decoder_start_id: int = hp(
        -1,
        "Id whose embedding is the first input of the decoder.  -1: a vector of zeros, as in "
        "tensor2tensor.",
        low=-1,
    )
    use_target_space_embedding: bool = hp(
        True, "Adds an embedding of the problem's target space to the encoder's input."
    )
    self_attention_type: Literal[
        "dot_product",
        "dot_product_relative",
        "dot_product_relative_v2",
        "local_mask_right",
        "local_unmasked",
    ] = hp(
        "dot_product",
        "dot_product_relative: self-attention knows how far apart two positions are; "
        "dot_product_relative_v2: each head, of earlier positions.  local_mask_right: it sees its "
        "own and the previous block of positions, none later; local_unmasked: in the encoder its "
        "own block and some positions around.",
    )
    max_relative_position: int = hp(
        0,
        "Positions; dot_product_relative: what is further apart counts as so far; "
        "dot_product_relative_v2: has no vector.",
        low=0,
    )
    attention_loc_block_length: int = hp(128, "Positions of a block of local attention.", low=1)
    attention_loc_block_width: int = hp(
        100, "local_unmasked: positions that are seen on each side of a block.", low=0
    )
    prepend_mode: Literal[
        "none", "prepend_inputs_masked_attention", "prepend_inputs_full_attention"
    ] = hp(
        "none",
        "The decoder reads the inputs before the targets.  prepend_inputs_masked_attention: it "
        "foretells them too, in training; prepend_inputs_full_attention: they see each other.",
    )
    encode_inputs: bool = hp(
        True, "An encoder reads the inputs; False: the decoder alone does, see prepend_mode."
    )

    def of_decoder(self) -> Self:
        """Returns the hyperparameters of the decoder.

        Raises:
          HParamsError: decoder_hparams has a name that layers do not read.
        """
        if not self.decoder_hparams:
            return self
        names = {one.partition("=")[0].strip() for one in self.decoder_hparams}
        if unknown := sorted(names - _OF_LAYERS):
            raise HParamsError(
                f"decoder_hparams: {', '.join(unknown)}: no hyperparameter of a decoder's layers. "
                f"These are: {', '.join(sorted(_OF_LAYERS))}."
            )
        decoder = self.replace(decoder_hparams=())
        return decoder.parse(",".join(self.decoder_hparams), "decoder_hparams")

    def target_input_width(self, feature: Feature) -> int:
        """Returns the width of the decoder's embeddings."""
        return self.of_decoder().hidden_size

    def relative(self, distance: int) -> Self:
        """Returns a copy with relative positions up to a distance in place of absolute ones."""
        kind = "dot_product_relative"
        return self.replace(pos="none", self_attention_type=kind, max_relative_position=distance)

    @property
    def furthest(self) -> int:
        """The maximum relative distance of attention; 0 without relative attention.

        Raises:
          HParamsError: attention is relative, and max_relative_position is 0 or pos is alibi.
        """
        kind = self.self_attention_type
        if not kind.startswith("dot_product_relative"):
            return 0
        if self.pos == "alibi":
            raise HParamsError(
                f"pos=alibi and self_attention_type={kind} both change the scores of attention by "
                "distances. Set --hparams=pos=none or self_attention_type=dot_product."
            )
        if not self.max_relative_position:
            raise HParamsError(
                f"self_attention_type={kind} needs a distance up to which positions know of each "
                "other. Give it: --hparams=max_relative_position=20."
            )
        return self.max_relative_position if kind == "dot_product_relative" else 0

    @property
    def is_local(self) -> bool:
        """True if self-attention sees a part of the positions."""
        return self.self_attention_type.startswith("local_")

    def check_prepending(self, features: Features) -> None:
        """Checks that `prepend_mode` and `encode_inputs` fit a problem.

        Raises:
          HParamsError: they do not; the message names the valid settings.
        """
        if self.is_local and (self.prepend_mode != "none" or len(features.inputs) > 1):
            raise HParamsError(
                f"self_attention_type={self.self_attention_type}: blocks are of one text. Set "
                "self_attention_type=dot_product for several inputs or prepend_mode."
            )
        mode, without = self.prepend_mode, "--hparams=prepend_mode=none,encode_inputs=True"
        if mode != "none" and self.decoder_start_id >= 0:
            raise HParamsError(
                f"prepend_mode={mode}: a vector of zeros is between inputs and targets. Set "
                "--hparams=decoder_start_id=-1."
            )
        if mode == "none":
            if features.has_inputs and not self.encode_inputs:
                raise HParamsError(
                    "encode_inputs=False and prepend_mode=none: nothing would read the inputs. Set "
                    "prepend_mode=prepend_inputs_masked_attention, or encode_inputs=True."
                )
            return
        given, asked = list(features.inputs.values()), list(features.targets.values())
        kinds = ", ".join(f"{name} ({type(f).__name__})" for name, f in features.all.items())
        if not given:
            raise HParamsError(
                f"prepend_mode={mode}: this problem has no inputs to prepend. Set {without}."
            )
        if self.pack_dataset:
            raise HParamsError(
                f"prepend_mode={mode}: in a packed row inputs do not stand beside their targets. "
                "Set --hparams=pack_dataset=False."
            )
        if [type(feature) for feature in given + asked] != [Text, Text]:
            raise HParamsError(
                f"prepend_mode={mode} puts one text before another, and this problem has {kinds}. "
                f"Set {without}."
            )
        sizes = [feature.vocab_size for feature in given + asked]
        if len(set(sizes)) > 1:
            raise HParamsError(
                f"prepend_mode={mode}: to the decoder inputs and targets are one text, but their "
                f"vocabularies have {sizes[0]} and {sizes[1]} ids. Use a problem with a joint "
                f"vocabulary, or set {without}."
            )
        if self.contextual_embeddings and not self.encode_inputs:
            raise HParamsError(
                "contextual_embeddings are read by an encoder, and encode_inputs=False has none. "
                "Set --hparams=encode_inputs=True."
            )


_OF_LAYERS = frozenset(
    {
        *TransformerLayerHParams.own_fields(),
        *("hidden_size", "norm_epsilon", "layer_preprocess_sequence", "layer_postprocess_sequence"),
        "layer_prepostprocess_dropout",
    }
    - {"max_source_positions"}
)
"""What `decoder_hparams` may name."""


@register_hparams
def transformer_base_v1() -> TransformerHParams:
    """Base model with post-norm.  Vaswani et al. 2017, table 3, row "base"."""
    return with_noam(TransformerHParams()).replace(
        hidden_size=512,
        max_length=256,
        num_hidden_layers=6,
        shared_embedding_and_softmax_weights=True,
    )


@register_hparams
def transformer_base_v2() -> TransformerHParams:
    """Pre-norm, more dropout and a longer warm-up, for more stable training."""
    return transformer_base_v1().replace(
        layer_preprocess_sequence="n",
        layer_postprocess_sequence="da",
        attention_dropout=0.1,
        relu_dropout=0.1,
        learning_rate_warmup_steps=8000,
        learning_rate=0.2,
    )


@register_hparams
def transformer_base_v3() -> TransformerHParams:
    """The schedule of v2 as a product of factors, and a slower second moment."""
    return transformer_base_v2().replace(
        optimizer_adam_beta2=0.997,
        learning_rate_schedule="constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size",
        learning_rate_constant=2.0,
    )


@register_hparams
def transformer_base() -> TransformerHParams:
    """The latest version of the base model."""
    return transformer_base_v3()


@register_hparams
def transformer_big() -> TransformerHParams:
    """The big model.  Vaswani et al. 2017, table 3, row "big"."""
    return transformer_base().replace(
        hidden_size=1024,
        filter_size=4096,
        batch_size=2048,  # fits a 12 GB GPU
        num_heads=16,
        layer_prepostprocess_dropout=0.3,
    )


@register_hparams
def transformer_base_single_gpu() -> TransformerHParams:
    """The base model on one GPU: smaller batches, a longer warm-up."""
    return transformer_base().replace(
        batch_size=1024,
        learning_rate_schedule="constant*linear_warmup*rsqrt_decay",
        learning_rate_constant=0.1,
        learning_rate_warmup_steps=16000,
    )


@register_hparams
def transformer_big_single_gpu() -> TransformerHParams:
    """The big model on one GPU."""
    return transformer_big().replace(
        layer_prepostprocess_dropout=0.1, learning_rate_warmup_steps=16000
    )


@register_hparams
def transformer_small() -> TransformerHParams:
    """Two layers of 256."""
    return transformer_base().replace(
        num_hidden_layers=2, hidden_size=256, filter_size=1024, num_heads=4
    )


@register_hparams
def transformer_tiny() -> TransformerHParams:
    """Two layers of 128."""
    return transformer_base().replace(
        num_hidden_layers=2, hidden_size=128, filter_size=512, num_heads=4
    )


@register_hparams
def transformer_test() -> TransformerHParams:
    """Two layers of 16, for tests."""
    return transformer_base().replace(
        num_hidden_layers=2, hidden_size=16, filter_size=8, num_heads=2
    )


@register_hparams
def transformer_multi30k() -> TransformerHParams:
    """Three layers of 256 for tens of thousands of sentence pairs: high dropout, cosine to zero.

    For 4,000 to 10,000 steps; set `--train_steps`, the length of the cosine schedule.
    """
    return one_cycle(transformer_small(), 0.002, 1000).replace(
        num_hidden_layers=3,
        layer_prepostprocess_dropout=0.3,
        optimizer_adam_beta2=0.98,
        clip_grad_norm=1.0,
        activation_dtype="auto",
    )


@register_hparams
def transformer_low_resource() -> TransformerHParams:
    """`transformer_multi30k` for any data of less than 500,000 pairs of texts."""
    return transformer_multi30k()


@register_hparams
def transformer_modern() -> TransformerHParams:
    """`transformer_multi30k` with what later models brought, and as many weights.

    Rotary positions, RMS norms, gated feed-forward sublayers (SwiGLU) of about two thirds of the
    width and without biases, a norm of queries and keys.
    """
    return transformer_multi30k().modernized().replace(filter_size=672)


@register_hparams
def transformer_dates() -> TransformerHParams:
    """Two layers of 128 that learn `dates_to_iso` in one or two minutes on two cores."""
    return one_cycle(transformer_tiny(), 0.002, 100).replace(
        batch_size=2048,
        layer_prepostprocess_dropout=0.0,
        attention_dropout=0.0,
        relu_dropout=0.0,
        label_smoothing=0.0,
        optimizer_adam_beta2=0.98,
        clip_grad_norm=1.0,
    )


@register_hparams
def transformer_librispeech_v1() -> TransformerHParams:
    """Speech: five and three layers of 256.

    tensor2tensor's lengths are frames times 80 mel filters; here they are frames, of 10 ms.
    """
    return transformer_base().replace(
        num_heads=4,
        filter_size=1024,
        hidden_size=256,
        num_encoder_layers=5,
        num_decoder_layers=3,
        learning_rate=0.15,
        batch_size=75_000,
        max_length=1650,
        max_input_seq_length=1650,
        max_target_seq_length=350,
    )


@register_hparams
def transformer_librispeech_v2() -> TransformerHParams:
    """Speech: six and four layers of 384, in batches of 16 sounds.

    Feed-forward networks see one position; those of tensor2tensor are convolutions over nine.
    """
    return transformer_base().replace(
        max_length=15_500,
        max_input_seq_length=1550,
        max_target_seq_length=350,
        use_fixed_batch_size=True,
        batch_size=16,
        num_decoder_layers=4,
        num_encoder_layers=6,
        hidden_size=384,
        learning_rate=0.15,
        filter_size=1536,
        num_heads=2,
        layer_prepostprocess_dropout=0.2,
        relu_dropout=0.2,
    )


@register_hparams
def transformer_librispeech() -> TransformerHParams:
    """The latest version of `transformer_librispeech_v2`."""
    return transformer_librispeech_v2()


@register_hparams
def transformer_librispeech_tpu_v1() -> TransformerHParams:
    """`transformer_librispeech_v1` with Adafactor, in batches of 16 sounds."""
    return _of_tpu(transformer_librispeech_v1())


@register_hparams
def transformer_librispeech_tpu_v2() -> TransformerHParams:
    """`transformer_librispeech_v2` with Adafactor."""
    return _of_tpu(transformer_librispeech_v2())


@register_hparams
def transformer_librispeech_tpu() -> TransformerHParams:
    """The latest version of `transformer_librispeech_tpu_v2`."""
    return transformer_librispeech_tpu_v2()


def _of_tpu(hparams: TransformerHParams) -> TransformerHParams:
    """tensor2tensor's `update_hparams_for_tpu`, with the lengths of speech."""
    return hparams.replace(
        optimizer="adafactor",
        learning_rate_schedule="rsqrt_decay",
        learning_rate_warmup_steps=10_000,
        use_fixed_batch_size=True,
        batch_size=16,
        max_length=1650,
        max_input_seq_length=1650,
    )


@register_hparams
def transformer_common_voice() -> TransformerHParams:
    """`transformer_librispeech`."""
    return transformer_librispeech()


@register_hparams
def transformer_common_voice_tpu() -> TransformerHParams:
    """`transformer_librispeech_tpu` in batches of 8 sounds."""
    return transformer_librispeech_tpu().replace(batch_size=8)


@register_hparams
def transformer_speech_tiny() -> TransformerHParams:
    """Speech: two layers of 128, for an hour of speech on a CPU."""
    return one_cycle(transformer_tiny(), 0.002, 200).replace(
        batch_size=8000,
        max_length=2000,
        min_length_bucket=100,
        audio_num_mel_bins=40,
        audio_num_filters=32,
        num_zeropad_frames=0,
        audio_time_masks=2,
        audio_time_mask_frames=20,
        audio_frequency_masks=2,
        audio_frequency_mask_bins=6,
        optimizer_adam_beta2=0.98,
        clip_grad_norm=1.0,
    )


@register_hparams
def transformer_relative() -> TransformerHParams:
    """Base model with relative positions.  Shaw et al. 2018, arXiv:1803.02155."""
    return transformer_base().relative(20)


@register_hparams
def transformer_relative_tiny() -> TransformerHParams:
    """Two layers of 128 with relative positions."""
    return transformer_tiny().relative(20)


@register_hparams
def transformer_relative_big() -> TransformerHParams:
    """Big model with relative positions.  Shaw et al. 2018, table 1."""
    return transformer_big().relative(20)


@register_hparams
def transformer_tiny_moe() -> TransformerHParams:
    """Two layers of 128 with mixtures of eight experts."""
    return transformer_tiny().replace(ffn_layer="moe", moe_num_experts=8, moe_loss_coef=1e-2)


@register_hparams
def transformer_tiny_local_moe() -> TransformerHParams:
    """Two layers of 128 with mixtures of eight experts and tensor2tensor's noisy gates."""
    return transformer_tiny().replace(ffn_layer="local_moe", moe_num_experts=8, moe_loss_coef=1e-2)


@register_hparams
def transformer_multi30k_moe() -> TransformerHParams:
    """`transformer_multi30k` with mixtures of four experts, two for each token."""
    return transformer_multi30k().replace(
        ffn_layer="moe",
        ffn_activation="silu",
        ffn_gated=True,
        filter_size=512,
        moe_num_experts=4,
        moe_loss_coef=1e-2,
        moe_overhead_train=1.5,
    )


@register_hparams
def transformer_tiny_local() -> TransformerHParams:
    """Two layers of 128 with attention to blocks of four positions, for tests."""
    return transformer_tiny().replace(
        self_attention_type="local_unmasked",
        attention_loc_block_length=4,
        attention_loc_block_width=2,
    )


@register_hparams
def transformer_prepend_v1() -> TransformerHParams:
    """Base model with post-norm; the decoder also reads the inputs before the targets."""
    return _prepend(transformer_base_v1())


@register_hparams
def transformer_prepend_v2() -> TransformerHParams:
    """Base model; the decoder also reads the inputs before the targets."""
    return _prepend(transformer_base_v2())


@register_hparams
def transformer_prepend() -> TransformerHParams:
    """The latest version of `transformer_prepend_v2`."""
    return transformer_prepend_v2()


def _prepend(hparams: TransformerHParams) -> TransformerHParams:
    return hparams.replace(prepend_mode="prepend_inputs_masked_attention", max_length=0)


@register_hparams
def transformer_decoder_only() -> TransformerHParams:
    """Decoder of the base model only: a language model of inputs, separator and targets.

    "T-D" of Liu et al. 2018, arXiv:1801.10198, section 4.2.2, with the size of `transformer_base`.
    """
    return _prepend(transformer_base()).replace(encode_inputs=False)


@register_hparams
def transformer_decoder_only_tiny() -> TransformerHParams:
    """Two decoder-only layers of 128, for tests and quick trials."""
    return _prepend(transformer_tiny()).replace(encode_inputs=False)


@register_hparams
def transformer_prefix_lm() -> TransformerHParams:
    """Decoder-only base model with bidirectional attention over the inputs, trained on the targets.

    "Prefix LM" of Raffel et al. 2020, arXiv:1910.10683, section 3.2.1.
    """
    return transformer_decoder_only().replace(prepend_mode="prepend_inputs_full_attention")


@register_hparams
def transformer_prefix_lm_tiny() -> TransformerHParams:
    """Two layers of 128 of `transformer_prefix_lm`, for tests and quick trials."""
    return transformer_decoder_only_tiny().replace(prepend_mode="prepend_inputs_full_attention")


@register_ranged_hparams
def transformer_base_range(rhp: RangedHParams) -> None:
    """tensor2tensor's ranges, models/transformer.py.

    `learning_rate` applies to the schedule legacy: search around `transformer_base_v1` or `_v2`.
    Later sets, whose schedule is a product of factors, use `learning_rate_constant`.
    """
    rhp.set_float("learning_rate", 0.3, 3.0, scale=rhp.LOG_SCALE)
    rhp.set_discrete("learning_rate_warmup_steps", [1000, 2000, 4000, 8000, 16000])
    rhp.set_float("initializer_gain", 0.5, 2.0)
    rhp.set_float("optimizer_adam_beta1", 0.85, 0.95)
    rhp.set_float("optimizer_adam_beta2", 0.97, 0.99)
    rhp.set_float("weight_decay", 0.0, 1e-4)


@register_ranged_hparams
def transformer_tiny_range(rhp: RangedHParams) -> None:
    """Training hyperparameters of `transformer_tiny` for hundreds or thousands of steps.

    Model and batch size are fixed: trials with the same number of steps see the same amount of
    data and take the same time.
    """
    rhp.set_float("learning_rate_constant", 0.1, 4.0, scale=rhp.LOG_SCALE)
    rhp.set_int("learning_rate_warmup_steps", 50, 8000, scale=rhp.LOG_SCALE)
    rhp.set_float("layer_prepostprocess_dropout", 0.0, 0.3)
    rhp.set_float("attention_dropout", 0.0, 0.2)
    rhp.set_float("relu_dropout", 0.0, 0.2)
    rhp.set_float("label_smoothing", 0.0, 0.2)
    rhp.set_discrete("optimizer_adam_beta2", [0.95, 0.98, 0.99, 0.997])
