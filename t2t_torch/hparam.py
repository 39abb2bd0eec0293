"""Contract: hyperparameters, with tensor2tensor's names and `basic_params1`'s defaults.

`HParams` is what the pipeline, every model and the training loop read; a model that needs more adds
fields in a subclass, beside its named sets in `hparams/`.  A set is a function that writes only its
delta, and `--help_hparams` says for every field who set it:

    @register_hparams
    def transformer_big() -> TransformerHParams:
        return transformer_base().replace(hidden_size=1024, num_heads=16)

Mode never enters hparams: `module.training` turns dropout off.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from t2t_torch.params import Params, hp

__all__ = [
    "DataHParams",
    "HParams",
    "ModelHParams",
    "OptimizationHParams",
    "Params",
    "PrecisionHParams",
    "RegularizationHParams",
    "hp",
]


class DataHParams(Params):
    """Data: how examples become batches."""

    batch_size: int = hp(
        4096,
        "Tokens per batch and process, padding counted, of the longer side; examples where the "
        "problem counts those.",
        low=1,
    )
    use_fixed_batch_size: bool = hp(
        False, "Every batch holds batch_size examples, whatever their length."
    )
    max_length: int = hp(
        0,
        "Tokens; longer training examples are left out.  0: as many as batch_size where that "
        "counts tokens, else no limit.",
        low=0,
    )
    min_length: int = hp(0, "Tokens; shorter training examples are left out.", low=0)
    min_length_bucket: int = hp(8, "Tokens; the upper end of the shortest bucket.", low=1)
    length_bucket_step: float = hp(
        1.1, "A bucket's boundary is about this many times the one before.", above=1
    )
    batch_shuffle_size: int = hp(
        512,
        "Batches; so many that follow each other are shuffled, all of an epoch if it has no more.  "
        "0: always all of an epoch.",
        low=0,
    )
    eval_drop_long_sequences: bool = hp(
        False,
        "Evaluation leaves out examples longer than max_length, as training does; else it cuts "
        "those longer than max_length and batch_size, or where batch_size counts examples, than "
        "the longest that is trained on.",
    )
    max_input_seq_length: int = hp(
        0,
        "Tokens; inputs are cut to this length, and what belongs to their words with them.  "
        "0: never.",
        low=0,
    )
    max_target_seq_length: int = hp(0, "Tokens; targets are cut to this length.  0: never.", low=0)
    split_to_length: int = hp(
        0,
        "Tokens; the texts of a language model are cut in pieces of this length, each an example. "
        " 0: never, but where the problem does.",
        low=0,
    )
    pack_dataset: bool = hp(
        False,
        "Training examples share rows of max_length tokens; attention does not cross from one to "
        "another.",
    )
    pad_batch: bool = hp(
        False, "Pads every batch to its bucket's boundary: a compiled model sees few shapes."
    )


class ModelHParams(Params):
    """Model: sizes, and what goes round every layer."""

    hidden_size: int = hp(64, "H, the width of every layer's output.", low=1)
    num_hidden_layers: int = hp(4, "Layers in a stack.", low=0)
    initializer: Literal[
        "orthogonal", "uniform", "normal_unit_scaling", "uniform_unit_scaling", "xavier"
    ] = hp("orthogonal", "How weight matrices start.")
    initializer_gain: float = hp(1.5, "Factor on the initial weights; xavier has none.", above=0)
    norm_epsilon: float = hp(1e-6, "Added to the variance inside layer norm.", above=0)
    layer_preprocess_sequence: str = hp(
        "none", "Before a sublayer, in order: n norm, d dropout, or none.", pattern="^(none|[nd]*)$"
    )
    layer_postprocess_sequence: str = hp(
        "dan",
        "After a sublayer, in order: d dropout, a add the sublayer's input, n norm, or none.",
        pattern="^(none|[dan]*)$",
    )
    shared_embedding_and_softmax_weights: bool = hp(
        False, "Inputs, targets and softmax share one embedding table."
    )
    shared_embedding: bool = hp(False, "Inputs and targets share one embedding table.")
    multiply_embedding_mode: Literal["sqrt_depth", "none"] = hp(
        "sqrt_depth", "sqrt_depth: embeddings are multiplied by sqrt(hidden_size)."
    )
    vocab_divisor: int = hp(1, "Vocabulary sizes are rounded up to a multiple of this.", low=1)


class RegularizationHParams(Params):
    """Regularization: what keeps a model from learning by heart."""

    layer_prepostprocess_dropout: float = hp(
        0.1, "Probability of zeroing a sublayer's output, and an embedding.", low=0, below=1
    )
    symbol_dropout: float = hp(
        0.0, "Probability of replacing an input id by padding; training only.", low=0, below=1
    )
    label_smoothing: float = hp(
        0.1, "Probability spread over the wrong ids; training only.", low=0, below=1
    )
    clip_grad_norm: float = hp(
        2.0, "Gradients are scaled down to this global L2 norm.  0: never.", low=0
    )
    weight_decay: float = hp(1e-6, "Rate at which weights shrink; see the optimizer.", low=0)


class OptimizationHParams(Params):
    """Optimization: the optimizer and its learning rate."""

    optimizer: str = hp("adam", "Registered optimizer.")
    optimizer_adam_epsilon: float = hp(1e-6, "Adam's epsilon, added to the root.", above=0)
    optimizer_adam_beta1: float = hp(
        0.85, "Decay of Adam's first moment, per step.", low=0, below=1
    )
    optimizer_adam_beta2: float = hp(
        0.997, "Decay of Adam's second moment, per step.", low=0, below=1
    )
    optimizer_multistep_accumulate_steps: int = hp(
        0, "Batches per process whose gradients make one step.  0: one.", low=0
    )
    learning_rate_schedule: str = hp(
        "legacy", "Factors joined by *, as in constant*linear_warmup*rsqrt_decay."
    )
    learning_rate_constant: float = hp(1.0, "The factor constant.", low=0)
    learning_rate_decay_scheme: Literal["none", "noam", "exp", "piecewise", "cosine", "sqrt"] = hp(
        "none", "Decay of the schedule legacy."
    )
    learning_rate_decay_steps: int = hp(5000, "Steps over which a factor decays.", low=1)
    learning_rate_decay_staircase: bool = hp(False, "Exponential decay goes in whole steps.")
    learning_rate_minimum: float | None = hp(None, "The learning rate never falls below it.", low=0)
    learning_rate_decay_rate: float = hp(1.0, "Exponential decay per decay_steps.", low=0)
    learning_rate_warmup_steps: int = hp(100, "Steps until the warm-up ends.", low=0)
    learning_rate_cosine_cycle_steps: int = hp(
        250000, "Steps of a cycle of the legacy decay cosine.", low=1
    )
    learning_rate: float = hp(0.1, "Factor of the schedule legacy; others ignore it.", low=0)
    learning_rate_boundaries: tuple[int, ...] = hp(
        (), "Steps at which the legacy decay piecewise changes."
    )
    learning_rate_multiples: tuple[float, ...] = hp(
        (), "Factor of the legacy decay piecewise from each boundary on."
    )


class PrecisionHParams(Params):
    """Precision: the type of number that the model computes with."""

    activation_dtype: Literal["float32", "bfloat16"] = hp(
        "float32", "bfloat16: matrix products under autocast; weights stay float32."
    )


class HParams(
    PrecisionHParams, OptimizationHParams, RegularizationHParams, ModelHParams, DataHParams
):
    """What every model has."""

    # tensor2tensor 1.15.7, layers/common_hparams.py and models/transformer.py.
    unsupported: ClassVar[frozenset[str]] = frozenset(
        """
        add_relative_to_values area_key_mode area_value_mode attention_dropout_broadcast_dims
        attention_key_channels attention_value_channels attention_variables_3d
        bottom causal_decoder_self_attention compress_steps conv_first_kernel daisy_chain_variables
        dropout eval_run_autoregressive factored_logits ffn_layer force_full_predict
        gpu_automatic_mixed_precision grad_noise_scale gumbel_noise_weight hard_attention_k
        heads_share_relative_embedding kernel_height kernel_width
        layer_prepostprocess_dropout_broadcast_dims loss max_area_height max_area_width
        max_relative_position memory_height mixed_precision_optimizer_init_loss_scale
        mixed_precision_optimizer_loss_scaler mlperf_mode moe_hidden_sizes moe_k moe_loss_coef
        moe_num_experts moe_overhead_eval moe_overhead_train
        multiproblem_fixed_train_length multiproblem_label_weight multiproblem_max_input_length
        multiproblem_max_target_length multiproblem_mixing_schedule
        multiproblem_per_task_threshold multiproblem_reweight_label_loss
        multiproblem_schedule_max_examples multiproblem_schedule_threshold
        multiproblem_target_eval_only multiproblem_vocab_size name nbr_decoder_problems
        no_data_parallelism norm_type num_area_layers num_sampled_classes
        optimizer_adafactor_beta1 optimizer_adafactor_beta2
        optimizer_adafactor_clipping_threshold optimizer_adafactor_decay_type
        optimizer_adafactor_factored optimizer_adafactor_memory_exponent
        optimizer_adafactor_multiply_by_parameter_scale optimizer_momentum_momentum
        optimizer_momentum_nesterov optimizer_zero_grads overload_eval_metric_name
        parameter_attention_key_channels parameter_attention_value_channels position_features
        prepend_mode pretrained_model_dir proximity_bias relu_dropout_broadcast_dims
        sampling_keep_top_k sampling_method sampling_temp scheduled_sampling_gold_mixin_prob
        scheduled_sampling_method scheduled_sampling_num_passes scheduled_sampling_prob
        scheduled_sampling_warmup_schedule scheduled_sampling_warmup_steps self_attention_type
        split_targets_chunk_length split_targets_max_chunks split_targets_strided_training
        summarize_grads summarize_vars symbol_modality_num_shards top
        tpu_enable_host_call unidirectional_encoder use_custom_ops use_pad_remover
        video_num_input_frames video_num_target_frames warm_start_from_second weight_dtype
        weight_noise weights_fn
        """.split()
    )
