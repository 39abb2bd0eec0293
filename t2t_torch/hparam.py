"""Hyperparameters, with tensor2tensor's names and the defaults of `basic_params1`.

`HParams` is read by the pipeline, every model and the training loop; models add fields in a
subclass, in the file of their named sets in `hparams/`.  A set is a function that changes only some
fields, and `--help_hparams` prints the source of every field:

    @register_hparams
    def transformer_big() -> TransformerHParams:
        return transformer_base().replace(hidden_size=1024, num_heads=16)

Mode never enters hparams: `module.training` turns dropout off.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from t2t_torch.errors import HParamsError
from t2t_torch.files import read_json
from t2t_torch.params import Params as Params
from t2t_torch.params import Unread, probability, share
from t2t_torch.params import hp as hp

if TYPE_CHECKING:
    from typing import Self

    from t2t_torch.features import Feature


class LossHParams(Params):
    """Loss: training losses, class weights, distillation; see docs/reference/losses.md."""

    loss: str = hp(
        "",
        "Registered loss of every target, or of each, as in [intent:focal,slots:cross_entropy].  "
        "Empty: the problem's, else that of the target's kind.",
    )
    class_weights: str = hp(
        "",
        "Weight of each class in the training loss: [0.5,2] in the order of the ids, or balanced "
        "or sqrt_balanced from the training data's counts; [intent:balanced] for one of several "
        "targets.  Empty: equal weights.",
    )
    target_weights: str = hp(
        "", "Factor on the training loss of each target: [intent:0.2,slots:0.5].  Other targets: 1."
    )
    focal_gamma: float = hp(
        2.0, "Loss focal: exponent that reduces the weight of easy examples.", low=0
    )
    focal_alpha: float = share(
        0.25, "Loss focal of several labels: weight of positive labels; 1 - alpha of negative ones."
    )
    loss_margin: float = hp(
        1.0, "Losses hinge and margin_ranking: required margin of the correct score.", above=0
    )
    gce_q: float = share(
        0.7,
        "Loss generalized_cross_entropy: 0 is cross entropy; the nearer to 1, the less the labels "
        "count that the model finds improbable, as wrong ones are.",
    )
    distill_from: str = hp(
        "",
        "Run directory or checkpoint of a teacher for distillation; several in [] with commas form "
        "an ensemble, or teach different problems.  Empty: none.",
    )
    distill_weight: float = share(
        0.5, "Weight of the teacher in the training loss; the data has the rest."
    )
    distill_temperature: float = hp(
        1.0, "Divisor of the teacher's and the student's logits in distillation.", above=0
    )


class MultiProblemHParams(Params):
    """Several problems: shared weights and loss weights; see docs/how_to/several_problems.md."""

    multiproblem_shared: tuple[str, ...] = hp(
        (),
        "Regular expressions: weights with a matching name are shared; expression=>name also "
        "shares those under another name, such as ^decoder=>encoder.  Empty: all weights except "
        "those of targets.",
    )
    multiproblem_models: str = hp(
        "",
        "Problems with a model of their own, as [problem:model/hparams_set/name=value,...].  "
        "Others have --model and --hparams_set.",
    )
    multiproblem_architecture: str = hp(
        "",
        "Model and hyperparameters of the problems of multiproblem_models, as JSON; written by the "
        "trainer.",
    )
    multiproblem_weights: str = hp(
        "", "Factor on the training loss of each problem: [name:0.5,other:2].  Other problems: 1."
    )

    multiproblem_mixing_schedule: Literal["constant", "exponential", "pretrain"] = hp(
        "constant",
        "Mixing of the first problem with the others.  constant: in fixed proportions; "
        "exponential: the others grow exponentially; pretrain: first the first one alone, then "
        "the others alone.  Read if it or one of the three below is not at its default.",
    )
    multiproblem_schedule_threshold: float = share(
        0.5, "Share of all problems but the first, at the end of an exponential schedule."
    )
    multiproblem_schedule_max_examples: float = hp(
        1e7, "Steps of an exponential schedule, or on the first problem alone.", low=1
    )
    multiproblem_label_weight: float = share(
        0.5,
        "Loss task_cross_entropy: weight of what follows a task's id; the text before it has the "
        "rest.",
    )
    multiproblem_per_task_threshold: str = hp(
        "", "Share of each problem, in [] with commas; overrides the three settings above."
    )


class TagHParams(Params):
    """Tags: prediction of a label for each word."""

    tag_decoder: Literal["softmax", "crf"] = hp(
        "softmax",
        "softmax: each word's tag has a probability by itself; crf: a sentence's tags have one "
        "together, by a linear-chain conditional random field.",
    )
    tag_constraints: Literal["none", "decode", "train"] = hp(
        "none",
        "For tags of spans in any scheme but IOB1.  decode: only valid sequences are predicted, in "
        "which I-X follows B-X or I-X; train: the loss of a CRF excludes invalid ones, too.",
        computes=True,
    )


EVERY_ROW = "all"
"""Value of `fold` by which the dev split is trained on, too."""


class SamplingHParams(Params):
    """Sampling: rows and problems of the training batches."""

    mixing_schedule: str = hp(
        "",
        "Problem of each batch: round_robin, by_size, proportions such as 0.7 0.3, or by step, "
        "such as linear @0 1 0 @1000 0 1.  Empty: that of the problem.",
    )
    bagging_share: float = hp(
        0.0,
        "Mean number of times that a training row is in an epoch, a Poisson draw for each row; 1: "
        "a bootstrap, for a model of an ensemble.  0: every row once.",
        low=0,
        high=10,
    )
    bagging_seed: int = hp(
        0, "Seed of that draw; use another one for each model of an ensemble.", low=0
    )
    fold: str = hp(
        "",
        "Fold of a cross-validation, such as 2/5: the training rows of this fold, by a hash of "
        "their inputs, are evaluated in place of the dev split, and are not trained on.  all: the "
        "dev split is trained on, too, and a training evaluates nothing.",
    )


class ScheduledSamplingHParams(Params):
    """Scheduled sampling: training inputs that are the model's own predictions."""

    scheduled_sampling_prob: float = share(
        0.0, "Factor on the share of targets that are replaced; 1 is all of it."
    )
    scheduled_sampling_method: Literal["parallel"] = hp(
        "parallel", "All positions of a pass are sampled at once."
    )
    scheduled_sampling_warmup_steps: int = hp(
        50000, "Steps until the share is reached.  0: at once.", low=0
    )
    scheduled_sampling_gold_mixin_prob: float = share(
        0.5, "Share of the targets that stay as they are, after the warm-up."
    )
    scheduled_sampling_num_passes: int = hp(
        1, "Passes that sample, each from what the one before it made.", low=1
    )
    scheduled_sampling_warmup_schedule: Literal["exp", "linear", "sigmoid"] = hp(
        "exp", "How the share grows from 0.001 of it."
    )


class NoiseHParams(Params):
    """Corruption of texts, of problems whose names end in _masked, _spans or _noised."""

    noise_density: float = hp(
        0.0,
        "Fraction of tokens that are hidden.  0: 0.15; 0.3 of a problem that ends in _noised.",
        low=0,
        high=0.5,
    )
    mean_span_length: float = hp(3.0, "Mean number of tokens of a hidden span.", low=1, high=1000)
    mask_whole_words: bool = hp(True, "Hide all tokens of a word or none; _masked alone.")
    mask_random_share: float = share(
        0.1, "Fraction of hidden tokens that are read as random ones; _masked alone."
    )
    mask_kept_share: float = share(
        0.1, "Fraction of hidden tokens that are read as they are; _masked alone."
    )
    permute_sentences: bool = hp(True, "Read the sentences in a random order; _noised alone.")


class InputHParams(Params):
    """Inputs: vectors of words and characters; see docs/reference/tokens.md."""

    pretrained_embeddings: str = hp(
        "",
        "File of word vectors that a new run's tables begin with: GloVe or word2vec text, word2vec "
        "binary, fastText .vec or .bin; packed with gzip or not.  Empty: none.",
    )
    word_dropout: float = probability(
        0.0,
        "Probability of reading a word as the unknown word, or as nothing where the vocabulary has "
        "none; training only.",
    )
    singleton_dropout: float = share(
        0.0,
        "Probability of reading a word that the training data has once as the unknown word; "
        "training only.",
    )
    character_embedding_size: int = hp(32, "Width of the vector of a character or byte.", low=1)
    character_kernels: tuple[int, ...] = hp(
        (3,), "Characters or bytes that the filters over a word see: one number for each kind."
    )
    character_filters: tuple[int, ...] = hp(
        (), "Filters of each kind.  Empty: as many of each as fill the width of the result."
    )
    character_activation: Literal["none", "relu", "tanh"] = hp(
        "none", "Activation function of the maximum of each filter."
    )
    character_highway_layers: int = hp(
        0, "Highway layers over the filters of a word.", low=0, high=10_000
    )
    contextual_embeddings: str = hp(
        "",
        "Run directory of a trained language model of the same vocabulary, whose states, frozen, "
        "are a part of the vector of each token that is given.  Empty: none.",
    )
    contextual_size: int = hp(64, "Width of that part, a linear map of the states.", low=1)
    contextual_architecture: str = hp(
        "",
        "What that language model is, as JSON: t2t-trainer reads it once from its run directory, "
        "and the run keeps it.",
    )


class AudioHParams(Params):
    """Sounds: spectrograms and their augmentation; see docs/how_to/speech.md."""

    audio_frame_length: float = hp(
        25.0,
        "Milliseconds of a frame of the spectrogram; a frame begins every 10.",
        low=10,
        computes=True,
    )
    audio_preemphasis: float = share(
        0.97, "Factor of the last sample, which is subtracted from each.  0: none.", computes=True
    )
    audio_dither: float = hp(
        1.0 / 32767, "Deviation of the noise that is added to samples; training only.", low=0
    )
    audio_lower_edge_hertz: float = hp(
        20.0, "Lower end of the lowest mel filter.", low=0, computes=True
    )
    audio_upper_edge_hertz: float = hp(
        8000.0,
        "Upper end of the highest mel filter; at most half of the sampling rate is used.",
        above=0,
        computes=True,
    )
    audio_num_mel_bins: int = hp(80, "Mel filters.", low=15, computes=True)
    audio_add_delta_deltas: bool = hp(
        True, "The first and second difference over time are added as channels."
    )
    audio_normalization: Literal["bin", "sound"] = hp(
        "bin",
        "bin: each mel filter of a sound has mean 0 and variance 1; sound: all filters together, "
        "which keeps their relative levels.",
        computes=True,
    )
    audio_num_filters: int = hp(
        128, "Filters of the two strided convolutions, each of which halves the frames.", low=1
    )
    num_zeropad_frames: int = hp(
        250, "Frames of zeros after the last one of a sound.", low=0, computes=True
    )
    audio_time_masks: int = hp(
        0, "SpecAugment: masks over time that are drawn for a sound; training only.", low=0
    )
    audio_time_mask_frames: int = hp(40, "SpecAugment: frames of the longest mask.", low=1)
    audio_frequency_masks: int = hp(
        0, "SpecAugment: masks over frequency that are drawn for a sound; training only.", low=0
    )
    audio_frequency_mask_bins: int = hp(15, "SpecAugment: mel filters of the widest mask.", low=1)


class OptimizationHParams(Params):
    """Optimization: the optimizer and its learning rate."""

    optimizer: str = hp("adam", "Registered optimizer.")
    optimizer_adam_epsilon: float = hp(1e-6, "Adam's epsilon, added to the root.", above=0)
    optimizer_adam_beta1: float = probability(0.85, "Decay of Adam's first moment, per step.")
    optimizer_adam_beta2: float = probability(0.997, "Decay of Adam's second moment, per step.")
    optimizer_multistep_accumulate_steps: int = hp(
        0, "Batches per process whose gradients make one step.  0: one.", low=0
    )
    optimizer_zero_grads: bool = hp(
        False, "A weight that a step did not use has a gradient of zero, not none: moments decay."
    )
    optimizer_adafactor_beta1: float = probability(
        0.0, "Decay of Adafactor's first moment, per step.  0: it has none."
    )
    optimizer_adafactor_beta2: float = probability(
        0.999, "Decay of its second moment where decay_type is adam."
    )
    optimizer_adafactor_factored: bool = hp(
        True, "The second moment of a matrix is kept as its rows' and its columns' means."
    )
    optimizer_adafactor_decay_type: Literal["pow", "adam"] = hp(
        "pow", "How the second moment's decay grows: pow by memory_exponent, adam up to beta2."
    )
    optimizer_adafactor_memory_exponent: float = hp(
        0.8, "Decay of the second moment at step t, from 1: 1 - t^-exponent.", low=0
    )
    optimizer_adafactor_clipping_threshold: float = hp(
        1.0, "Largest root mean square of a weight's update before its rate.", above=0
    )
    optimizer_adafactor_multiply_by_parameter_scale: bool = hp(
        True, "A weight's rate is multiplied by its root mean square, 0.001 at least."
    )
    optimizer_momentum_momentum: float = probability(
        0.9, "Part of the last update that momentum keeps."
    )
    optimizer_momentum_nesterov: bool = hp(False, "Momentum looks one step ahead.")
    optimizer_muon_momentum: float = probability(0.95, "Part of the sum that muon keeps.")
    optimizer_muon_excludes: tuple[str, ...] = hp(
        ("modalities", "embedding", "target_space"),
        "Patterns of the names of matrices that muon leaves to adam_w: tables and the softmax.",
    )
    grad_noise_scale: float = hp(
        0.0, "Deviation of the noise that is added to each gradient.  0: none.", low=0
    )
    weight_noise: float = hp(
        0.0,
        "Noise is added to the body's weights at each step, of a deviation of this times the "
        "learning rate / 1000.  0: none.",
        low=0,
    )
    freeze: tuple[str, ...] = hp(
        (),
        "Regular expressions; weights with a matching name are not trained, but those that match "
        "one after a !.  [!top]: only those are trained.",
    )
    unfreeze_schedule: tuple[str, ...] = hp(
        (),
        "pattern=step: weights with a matching name are not trained before that step; the first "
        "matching pattern counts.",
    )
    unfreeze_every: int = hp(
        0,
        "Steps after which one more layer is trained, the top one first, embeddings last; until "
        "then only what is in no layer.  0: all from the start.",
        low=0,
    )
    ema_decay: float = probability(
        0.0,
        "Decay per step of the moving average of the weights, which is evaluated and decoded.  "
        "0: no average.",
    )
    swa_start_step: int = hp(
        0,
        "First step of the mean of the weights, which is evaluated and decoded.  0: no mean.",
        low=0,
    )
    swa_patience: int = hp(
        0, "The mean begins when an evaluation is worse than the best of all but the last n.", low=0
    )
    swa_every: int = hp(1, "Steps between the weights that the mean is of.", low=1)
    learning_rate_schedule: str = hp(
        "legacy", "Registered schedules joined by *, as in constant*linear_warmup*rsqrt_decay."
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
    learning_rate: float = hp(0.1, "Factor of the schedule legacy.", low=0)
    learning_rate_boundaries: tuple[int, ...] = hp(
        (), "Steps at which the legacy decay piecewise changes."
    )
    learning_rate_multiples: tuple[float, ...] = hp(
        (), "Factor of the legacy decay piecewise from each boundary on."
    )
    learning_rate_end_factor: float = share(
        0.0,
        "Where polynomial_decay and cosine_annealing end, and the lowest of cyclic, as a part of "
        "the peak.",
    )
    learning_rate_decay_power: float = hp(1.0, "Exponent of polynomial_decay.", above=0)
    learning_rate_cut_fraction: float = hp(
        0.1, "Part of the run in which slanted_triangular rises.", above=0, below=1
    )
    learning_rate_ratio: float = hp(
        32.0, "Peak of slanted_triangular, as a multiple of its lowest.", low=1
    )
    learning_rate_scales: tuple[str, ...] = hp(
        (),
        "pattern=factor: factor on the learning rate of weights with a matching name; the first "
        "matching pattern counts.",
    )
    learning_rate_layer_decay: float = hp(
        1.0,
        "Each layer of a stack learns at the rate of the one above it times this, embeddings at "
        "that of the lowest times this.",
        above=0,
        high=1,
    )


class AdapterHParams(Params):
    """Adapters: low-rank changes of trained weights (LoRA)."""

    lora_rank: int = hp(
        0,
        "Rank of the adapters of linear maps.  All other weights are frozen, except those of "
        "targets that are no texts and those that a !pattern of freeze names.  0: no adapters.",
        low=0,
    )
    lora_alpha: float = hp(16.0, "The adapters are multiplied by this / lora_rank.", above=0)
    lora_dropout: float = probability(
        0.0, "Probability of zeroing an input of an adapter; training only."
    )
    lora_targets: tuple[str, ...] = hp(
        (),
        "Regular expressions; linear maps with a matching name have adapters.  Empty: all those in "
        "numbered layers, as encoder.0.",
    )


class DataHParams(NoiseHParams, SamplingHParams):
    """Data: batching of examples."""

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
    shuffle_block_size: int = hp(
        2**24,
        "Rows; larger training data is shuffled and batched in blocks of so many at most, each of "
        "consecutive whole shards, in a random order.  0: always all rows together, as with "
        "pack_dataset, split_to_length, bagging_share and fold.",
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
    stream_length: int = hp(
        0,
        "Tokens; a language model reads its examples as one text, cut in streams that lie side by "
        "side, so many tokens of each in a batch, whatever batch_size is.  0: no streams.",
        low=0,
    )
    stream_rows: int = hp(
        32, "Streams of training: those of all batches of a step, and of all processes.", low=1
    )
    eval_stream_rows: int = hp(
        1, "Streams of an evaluation.  1: the whole text in its order, as is published.", low=1
    )
    pack_dataset: bool = hp(
        False,
        "Training examples share rows of max_length tokens; attention does not cross from one to "
        "another.",
    )
    image_augmentation: tuple[str, ...] = hp(
        (),
        "Random changes of training pictures, in this order: crop:4 (pixels of padding), flip, "
        "shift:0.1 (part of a side), cutout:16 (side in pixels), rand_augment:2:9 (operations, "
        "strength), resized_crop:0.08 (least part of the area).  Empty: the problem's; none: none.",
    )
    text_augmentation: tuple[str, ...] = hp(
        (), "Random changes of training inputs, as in [typos:0.05,case]; docs/how_to/training.md."
    )
    pad_batch: bool = hp(
        False, "Pads every batch to its bucket's boundary: a compiled model sees few shapes."
    )

    @property
    def max_positions(self) -> int:
        """Positions of a text beyond which the model cannot read; 0: no limit."""
        return 0


class ModelHParams(Params):
    """Model: sizes, normalization and residual connections."""

    hidden_size: int = hp(64, "H, the width of every layer's output.", low=1)
    num_hidden_layers: int = hp(4, "Layers in a stack.", low=0, high=10_000)
    initializer: Literal[
        "orthogonal", "uniform", "normal_unit_scaling", "uniform_unit_scaling", "xavier"
    ] = hp("orthogonal", "How weight matrices start.")
    initializer_gain: float = hp(1.5, "Factor on the initial weights; xavier has none.", above=0)
    norm_epsilon: float = hp(
        1e-6, "Added to the variance inside layer norm.", above=0, computes=True
    )
    layer_preprocess_sequence: str = hp(
        "none",
        "Before a sublayer, in order: n norm, d dropout, or none.",
        pattern="^(none|[nd]*)$",
        computes=True,
    )
    layer_postprocess_sequence: str = hp(
        "dan",
        "After a sublayer, in order: d dropout, a add the sublayer's input, n norm, or none.",
        pattern="^(none|[dan]*)$",
        computes=True,
    )
    shared_embedding_and_softmax_weights: bool = hp(
        False, "Inputs, targets and softmax share one embedding table.", computes=True
    )
    shared_embedding: bool = hp(
        False, "Inputs and targets share one embedding table.", computes=True
    )
    shared_target_embedding_and_softmax_weights: bool = hp(
        False, "Targets and softmax share one embedding table.", computes=True
    )
    multiply_embedding_mode: Literal["sqrt_depth", "none"] = hp(
        "sqrt_depth", "sqrt_depth: embeddings are multiplied by sqrt(hidden_size).", computes=True
    )
    output_bias: bool = hp(False, "The softmax of a text has a bias.", computes=True)
    vocab_divisor: int = hp(1, "Vocabulary sizes are rounded up to a multiple of this.", low=1)


class RegularizationHParams(Params):
    """Regularization: dropout, label smoothing and other means against overfitting."""

    layer_prepostprocess_dropout: float = probability(
        0.1, "Probability of zeroing a sublayer's output, and an embedding."
    )
    symbol_dropout: float = probability(
        0.0, "Probability of replacing an input id by padding; training only."
    )
    label_smoothing: float = probability(
        0.1, "Probability spread over the wrong ids; training only."
    )
    confidence_penalty: float = hp(
        0.0, "Factor on the entropy of the predictions, subtracted from the training loss.", low=0
    )
    r_drop_alpha: float = hp(
        0.0,
        "Factor on the divergence of two passes with different dropout (R-Drop).  0: one pass.",
        low=0,
    )
    r3f_weight: float = hp(
        0.0,
        "Factor on the symmetric divergence of the predictions with and without noise on the "
        "embeddings of tokens (R3F).  0: no second pass.",
        low=0,
    )
    r3f_noise: Literal["normal", "uniform"] = hp("normal", "Distribution of that noise.")
    r3f_epsilon: float = hp(
        1e-5, "Its standard deviation; of uniform noise the largest absolute value.", above=0
    )
    adversarial_steps: int = hp(
        0,
        "Adversarial training: steps along the gradient of the loss by the embeddings of tokens, "
        "which are so changed in one more pass.  1: FGM; more: PGD; 0: none.",
        low=0,
        high=100,
    )
    adversarial_epsilon: float = hp(
        1.0, "Largest L2 norm of the change of an example's embeddings; that of FGM.", above=0
    )
    adversarial_step_size: float = hp(0.3, "L2 norm of a step of PGD.", above=0)
    adversarial_weight: float = hp(
        1.0, "Factor on the loss of the changed pass, which is added.", above=0
    )
    mixup_alpha: float = hp(
        0.0,
        "Training pictures, or the states of whole texts, are mixed in pairs, and their losses: "
        "with weights w and 1 - w, where w is drawn from Beta(alpha, alpha) for each batch.  0: "
        "none.",
        low=0,
    )
    clip_grad_norm: float = hp(
        2.0, "Gradients are scaled down to this global L2 norm.  0: never.", low=0
    )
    weight_decay: float = hp(1e-6, "Rate at which weights shrink; see the optimizer.", low=0)


class PrecisionHParams(Params):
    """Precision and speed: number types, compilation, memory and sharding."""

    activation_dtype: Literal["float32", "bfloat16", "float16", "auto"] = hp(
        "float32",
        "bfloat16 and float16: matrix products under autocast; weights stay float32.  auto: "
        "bfloat16 where a probe of the machine finds it much faster, else float32; the run keeps "
        "what was chosen.",
    )
    mixed_precision_optimizer_loss_scaler: Literal["exponential", "none"] = hp(
        "exponential",
        "float16: factor on the loss.  exponential: doubled after every 2000 finite steps, halved "
        "by one that is not finite, which is skipped.  none: 1.",
    )
    mixed_precision_optimizer_init_loss_scale: float = hp(
        2.0**15, "float16: initial factor on the mean loss of a batch.", low=1
    )
    float32_matmul_precision: Literal["highest", "high", "medium"] = hp(
        "highest",
        "How float32 products may be rounded inside (torch.set_float32_matmul_precision).  "
        "highest: not at all; high: TF32 on GPUs; medium: bfloat16.",
    )
    compile: bool = hp(
        False,
        "Layers are compiled by torch.compile, once for each shape of a batch, before the first "
        "step; needs pad_batch.",
    )
    activation_checkpointing: bool = hp(
        False,
        "A layer's activations are computed again in the backward pass instead of kept: less "
        "memory, about a third more work.",
    )
    shard_weights: bool = hp(
        False,
        "Weights, gradients and the optimizer are sharded over the processes (FSDP2), each layer "
        "gathered when it is used; a process alone has nothing to shard, and says so.",
    )


class ReportHParams(Params):
    """Reports: additional summaries of a run."""

    summarize_grads: bool = hp(
        False, "TensorBoard gets histograms of the gradients at each report; hook histograms."
    )
    summarize_vars: bool = hp(
        False, "TensorBoard gets histograms of the weights at each report; hook histograms."
    )


def _unread(
    reads: Literal["model", "others", "nothing"], instead: str = "", **defaults: Any
) -> dict[str, Unread]:
    """Returns hyperparameters that nothing here reads.

    tensor2tensor 1.15.7, layers/common_hparams.py and models/transformer.py.
    """
    return {name: Unread((value,), reads, instead) for name, value in defaults.items()}


_UNREAD: dict[str, Unread] = {
    **_unread("model", attention_key_channels=0, attention_value_channels=0),
    **_unread("model", attention_variables_3d=False, causal_decoder_self_attention=True),
    **_unread("model", area_key_mode="none", area_value_mode="none", num_area_layers=0),
    **_unread("model", max_area_height=1, max_area_width=1, memory_height=1),
    **_unread("model", bottom={}, name={}, top={}, weights_fn={}),
    # Those of tensor2tensor before 1.10, for the same.
    **_unread("model", input_modalities="default", target_modality="default"),
    **_unread("model", symbol_modality_skip_top=False),
    **_unread("model", add_relative_to_values=False, heads_share_relative_embedding=False),
    **_unread("model", factored_logits=False, hard_attention_k=0, nbr_decoder_problems=1),
    **_unread("model", position_features="", proximity_bias=False, unidirectional_encoder=False),
    **_unread("model", ffn_layer="dense_relu_dense", norm_type="layer"),
    **_unread("model", prepend_mode="none", self_attention_type="dot_product"),
    **_unread("model", max_relative_position=0, split_targets_chunk_length=0),
    **_unread("model", audio_frame_step=10.0, audio_preproc_in_bottom=False),
    **_unread("model", audio_sample_rate=16000),
    "audio_keep_example_waveforms": Unread((False, True), "nothing"),
    **_unread("others", split_targets_max_chunks=100, split_targets_strided_training=False),
    **_unread("others", kernel_height=3, kernel_width=1, compress_steps=0, conv_first_kernel=3),
    **_unread("others", dropout=0.2, gumbel_noise_weight=0.0, num_sampled_classes=0),
    **_unread("others", parameter_attention_key_channels=0, parameter_attention_value_channels=0),
    **_unread("others", moe_hidden_sizes="2048", moe_k=2, moe_overhead_eval=2.0),
    **_unread("others", moe_overhead_train=1.0),
    "moe_num_experts": Unread((64, 16)),  # the Transformer's sets have the second value
    "moe_loss_coef": Unread((1e-2, 1e-3)),
    **_unread("others", video_num_input_frames=1, video_num_target_frames=1),
    **_unread("others", multiproblem_fixed_train_length=-1, multiproblem_vocab_size=-1),
    **_unread("others", multiproblem_max_input_length=-1, multiproblem_max_target_length=-1),
    **_unread("others", multiproblem_target_eval_only=False),
    **_unread(
        "others", "Set --hparams=multiproblem_weights.", multiproblem_reweight_label_loss=False
    ),
    **_unread(
        "others",
        "It is a setting of decoding: --decode_hparams.",
        sampling_method="argmax",
        sampling_temp=1.0,
        sampling_keep_top_k=-1,
    ),
    **_unread("others", "Set --hparams=activation_dtype=bfloat16.", weight_dtype="float32"),
    **_unread(
        "others", "Set --hparams=activation_dtype=float16.", gpu_automatic_mixed_precision=False
    ),
    **_unread(
        "others", "Use --warm_start_from.", pretrained_model_dir="", warm_start_from_second=""
    ),
    **_unread("others", "t2t-eval --output=FOLDER decodes.", eval_run_autoregressive=False),
    **_unread("others", "Use --eval_metrics.", overload_eval_metric_name=""),
    **_unread("nothing", attention_dropout_broadcast_dims="", relu_dropout_broadcast_dims=""),
    **_unread("nothing", layer_prepostprocess_dropout_broadcast_dims="", mlperf_mode=False),
    **_unread("nothing", daisy_chain_variables=True, force_full_predict=False),
    **_unread("nothing", no_data_parallelism=False, tpu_enable_host_call=False),
    **_unread("nothing", use_custom_ops=True, use_pad_remover=True, symbol_modality_num_shards=1),
}


def values_by_target(field: str, text: str, targets: Collection[str]) -> dict[str, list[str]]:
    """Parses "[a,b]", or "[intent:a,slots:b,c]": the values of each target.

    Args:
      field: name of the hparam, for messages.
      text: value of the hparam; the brackets, which --hparams needs around a comma, are optional.
      targets: names of the targets of the problem.

    Returns:
      Values by target; the key "" holds those before any name, for all other targets.

    Raises:
      HParamsError: there is no such target, or it is repeated.
    """
    entries: dict[str, list[str]] = {}
    target = ""
    for part in text.strip().removeprefix("[").removesuffix("]").split(","):
        name, colon, value = (piece.strip() for piece in part.rpartition(":"))
        if colon:
            if name not in targets or name in entries:
                fault = "is named twice" if name in entries else "is no target"
                raise HParamsError(
                    f"{field}={text}: {name!r} {fault}. Targets: {', '.join(targets)}."
                )
            target = name
        if value:
            entries.setdefault(target, []).append(value)
    return entries


def recorded_beside(source: Path) -> dict[str, Any]:
    """Returns the hyperparameters of the run that a file of weights or a checkpoint is of.

    Args:
      source: a run directory, one of its `ckpt-<step>` folders, or a file in one.

    Returns:
      Values by name, as in `hparams.json`; empty if there is no such file, or it is no JSON object.
    """
    for folder in (source, *source.resolve().parents[:2]):
        try:
            values = read_json(folder / "hparams.json")
        except (OSError, ValueError):
            continue
        return values if isinstance(values, dict) else {}
    return {}


class HParams(
    ReportHParams,
    PrecisionHParams,
    AdapterHParams,
    OptimizationHParams,
    ScheduledSamplingHParams,
    RegularizationHParams,
    MultiProblemHParams,
    LossHParams,
    TagHParams,
    AudioHParams,
    InputHParams,
    ModelHParams,
    DataHParams,
):
    """Hyperparameters of every model.

    Attributes:
      fits: True if `T2TModel.fit` trains the model: a run has one step if no number is given.
      reads_pretrained: True if texts have the tokens of a pretrained model, whose body embeds their
        ids itself and returns their logits.
    """

    fits: ClassVar[bool] = False
    reads_pretrained: ClassVar[bool] = False

    def in_small(self, vocab_size: int) -> Self:
        """Returns a copy for checks of a second, of a vocabulary of so many ids."""
        return self

    def decode_defaults(self) -> str:
        """Returns the decoding settings of a new run, in the syntax of `--decode_hparams`."""
        return ""

    def completed(self, before: HParams | None) -> Self:
        """Returns a copy with what follows from files that the hyperparameters name.

        Args:
          before: hyperparameters of the run to resume, which is described already; None: a new run.
        """
        return self

    def input_width(self, feature: Feature) -> int:
        """Returns the width of the output of an input's bottom, for this model."""
        return self.hidden_size

    def target_input_width(self, feature: Feature) -> int:
        """Returns the width of the output of a target's bottom, which reads it one step later."""
        return self.input_width(feature)

    unsupported: ClassVar[Mapping[str, Unread]] = MappingProxyType(_UNREAD)
    # Names of PyTorch, Keras, Hugging Face and Lightning, and their short forms.
    aliases: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            **dict.fromkeys(("lr", "base_lr", "max_lr"), "learning_rate_constant"),
            **dict.fromkeys(("dropout", "dropout_rate", "p_drop"), "layer_prepostprocess_dropout"),
            **dict.fromkeys(("hidden", "hidden_dim", "d_model", "dim"), "hidden_size"),
            **dict.fromkeys(("layers", "num_layers", "n_layers", "depth"), "num_hidden_layers"),
            **dict.fromkeys(("heads", "n_heads", "nhead"), "num_heads"),
            **dict.fromkeys(("emb_dim", "embed_dim", "embedding_dim"), "embedding_size"),
            **dict.fromkeys(("ffn_dim", "d_ff", "dim_feedforward"), "filter_size"),
            **dict.fromkeys(("warmup", "warmup_steps"), "learning_rate_warmup_steps"),
            **dict.fromkeys(("scheduler", "schedule", "lr_schedule"), "learning_rate_schedule"),
            **dict.fromkeys(("clip", "grad_clip", "max_grad_norm"), "clip_grad_norm"),
            **dict.fromkeys(("wd", "l2"), "weight_decay"),
            **dict.fromkeys(("bs", "train_batch_size"), "batch_size"),
            **dict.fromkeys(("seq_length", "max_seq_length"), "max_length"),
            **dict.fromkeys(("ema",), "ema_decay"),
            **dict.fromkeys(("lora_r", "r"), "lora_rank"),
            **dict.fromkeys(("target_modules", "lora_target_modules"), "lora_targets"),
            **dict.fromkeys(("layer_decay", "llrd"), "learning_rate_layer_decay"),
            **dict.fromkeys(("epochs", "num_epochs", "max_epochs"), "--train_epochs"),
            **dict.fromkeys(("steps", "max_steps", "num_steps"), "--train_steps"),
            **dict.fromkeys(("seed",), "--random_seed"),
            # Flags that tensor2tensor writes into hparams.json.
            **{name: f"--{name}" for name in ("data_dir", "eval_steps", "train_steps")},
            "model_dir": "--output_dir",
            "eval_freq_in_steps": "--local_eval_frequency",
        }
    )
    listed_by: ClassVar[str] = "t2t-trainer --hparams_set=SET --help_hparams"
