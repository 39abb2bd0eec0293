"""The hyperparameters of what is trained on; `hparam.py` has the others."""

from __future__ import annotations

from typing import Literal

from t2t_torch.params import Params, hp


class LossHParams(Params):
    """Loss: what is trained on; see docs/losses.md."""

    loss: str = hp(
        "",
        "Registered loss of every target, or of each, as in [intent:focal,slots:cross_entropy].  "
        "Empty: the problem's, else that of the target's kind.",
    )
    class_weights: str = hp(
        "",
        "How much each class counts, training only: [0.5,2] in the order of the ids, or balanced "
        "or sqrt_balanced from the training data's counts; [intent:balanced] for one of several "
        "targets.  Empty: all the same.",
    )
    target_weights: str = hp(
        "",
        "What the loss of each target is multiplied by, training only: [intent:0.2,slots:0.5].  "
        "Those that are not named, and all if empty: 1.",
    )
    focal_gamma: float = hp(2.0, "Loss focal: what is known already counts less.", low=0)
    focal_alpha: float = hp(
        0.25,
        "Loss focal of several labels: weight of one that is there, 1 less it of one that is not.",
        low=0,
        high=1,
    )
    loss_margin: float = hp(
        1.0, "Losses hinge and margin_ranking: by how much the right score has to lead.", above=0
    )
    distill_from: str = hp(
        "",
        "Run directory, or a checkpoint's, of a teacher to imitate; several with commas in [] are "
        "one teacher, of several problems each of its own.  Empty: none.",
    )
    distill_weight: float = hp(
        0.5, "Share of the teacher in the training loss, the rest is the data's.", low=0, high=1
    )
    distill_temperature: float = hp(
        1.0, "Teacher's and student's scores are divided by this for each other.", above=0
    )


class MultiProblemHParams(Params):
    """Several problems: what they share, and how much each counts; see docs/several_problems.md."""

    multiproblem_shared: tuple[str, ...] = hp(
        (),
        "Regular expressions: problems share the weights in whose name one is found.  Empty: all "
        "but what belongs to a target.",
    )
    multiproblem_weights: str = hp(
        "",
        "What the loss of each problem is multiplied by, training only: [name:0.5,other:2].  Those "
        "that are not named, and all if empty: 1.",
    )


class TagHParams(Params):
    """Tags: how a label for each word is chosen."""

    tag_decoder: Literal["softmax", "crf"] = hp(
        "softmax",
        "softmax: each word's tag has a probability by itself; crf: a sentence's tags have one "
        "together, by a linear-chain conditional random field.",
    )
    tag_constraints: Literal["none", "decode", "train"] = hp(
        "none",
        "Of tags named as IOB2 or IOBES.  decode: guesses are sequences in which I-X follows B-X "
        "or I-X; train: a CRF's loss leaves out all others, too.",
    )


class SamplingHParams(Params):
    """Sampling: which rows, and of several problems which of them, training batches are of."""

    mixing_schedule: str = hp(
        "",
        "Which problem a batch is of: round_robin, by_size, shares as 0.7 0.3, or by step, as "
        "linear @0 1 0 @1000 0 1.  Empty: as the problem says.",
    )
    bagging_share: float = hp(
        0.0,
        "Mean number of times that a training row is in an epoch, a Poisson draw for each row; 1: "
        "a bootstrap, for a model of an ensemble.  0: every row once.",
        low=0,
        high=10,
    )
    bagging_seed: int = hp(0, "Seed of that draw: one of each model of an ensemble.", low=0)


class ScheduledSamplingHParams(Params):
    """Scheduled sampling: the model reads some of its own guesses while it is trained."""

    scheduled_sampling_prob: float = hp(
        0.0, "Factor on the share of targets that are replaced; 1 is all of it.", low=0, high=1
    )
    scheduled_sampling_method: Literal["parallel"] = hp(
        "parallel", "All positions of a pass are sampled at once."
    )
    scheduled_sampling_warmup_steps: int = hp(
        50000, "Steps until the share is reached.  0: at once.", low=0
    )
    scheduled_sampling_gold_mixin_prob: float = hp(
        0.5, "Share of the targets that stay as they are, after the warm-up.", low=0, high=1
    )
    scheduled_sampling_num_passes: int = hp(
        1, "Passes that sample, each from what the one before it made.", low=1
    )
    scheduled_sampling_warmup_schedule: Literal["exp", "linear", "sigmoid"] = hp(
        "exp", "How the share grows from 0.001 of it."
    )
