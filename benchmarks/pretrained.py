"""Fine-tuning of a pretrained encoder beside Hugging Face's Trainer: the same weights and batches.

Ours is the trainer's step (our_training.py); theirs is `Trainer.training_step`, clipping and AdamW
of `AutoModelForSequenceClassification`.  Speed is examples in a second; `MiB` is the most memory
that the process had (VmHWM).  The data is that of `t2t-datagen --problem=... --pretrained=FOLDER`.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
from pathlib import Path
from typing import Any

from our_training import OurTraining
from pairing import Side, Stopwatch, Turn, Work, alternate, print_comparison
from report import print_header

SEED = 1
CLIP = 1.0
_OTHERS = {
    "LoRA of rank 8": {"lora_rank": 8},
    "a new head alone": {"freeze": ["^network"]},
    "recomputed layers": {"activation_checkpointing": True},
}

Settings = tuple[argparse.Namespace, dict[str, Any]]


def _training(settings: Settings) -> OurTraining:
    from t2t_torch import registry
    from t2t_torch.distributed.process_group import ONE_PROCESS
    from t2t_torch.train.problem_task import ProblemTask

    given, changes = settings
    hparams: Any = registry.hparams("pretrained_encoder_base")
    hparams = hparams.replace(pretrained=given.pretrained, batch_size=given.batch_size, **changes)
    task = ProblemTask(
        registry.problem(given.problem),
        registry.model("pretrained_encoder"),
        hparams.completed(None),
        data_dir=given.data_dir,
        vocab_dir=given.data_dir,
    )
    training = OurTraining(task, given.steps, SEED, ONE_PROCESS.device)
    model: Any = training.run.model
    getattr(model, "module", model).load_pretrained(given.pretrained)
    return training


def _work(training: OurTraining, watch: Stopwatch, trained: int) -> Work:
    rows = sum(len(batch["targets"]) for _, batch in training.batches)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Work(rows, *watch.read(), {"weights trained": trained, "MiB": peak})


def ours(settings: Settings) -> Turn:
    """Prepares our side."""
    from t2t_torch.train.memory import keep_freed_memory

    keep_freed_memory()
    training = _training(settings)
    weights = training.run.model.parameters()
    trained = sum(one.numel() for one in weights if one.requires_grad)

    def turn(number: int) -> Work:
        del number
        watch = Stopwatch()
        for batch in training.batches:
            float(training.step(batch))
        return _work(training, watch, trained)

    return turn


def theirs(settings: Settings) -> Turn:
    """Prepares the side of transformers."""
    import torch
    from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

    from t2t_torch.layers.pretrained import join_texts

    given, _ = settings
    training = _training(settings)
    wrapped: Any = training.run.model
    made = getattr(wrapped, "module", wrapped)
    names = list(made.features.inputs)
    classes = len(next(iter(made.features.targets.values())).labels)
    batches = []
    for _, batch in training.batches:
        joined = join_texts(made.network, [batch[name] for name in names])
        mask = joined.mask.long()
        labels = batch["targets"].reshape(-1)
        batches.append({"input_ids": joined.ids, "attention_mask": mask, "labels": labels})
    training.run.model = training.run.optimizer = None  # only the batches are needed
    model = AutoModelForSequenceClassification.from_pretrained(given.pretrained, num_labels=classes)
    arguments = TrainingArguments(tempfile.mkdtemp(), use_cpu=True, report_to=[])
    trainer = Trainer(model=model.train(), args=arguments)
    trainer.current_gradient_accumulation_steps = 1
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5)
    trained = sum(one.numel() for one in model.parameters())

    def turn(number: int) -> Work:
        del number
        watch = Stopwatch()
        for batch in batches:
            trainer.training_step(model, dict(batch))
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            optimizer.zero_grad()
        return _work(training, watch, trained)

    return turn


def main() -> None:
    """Compares the sides."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pretrained", required=True, help="folder of the encoder")
    parser.add_argument("--data_dir", type=Path, required=True)
    parser.add_argument("--problem", default="topic_ag_news_pretrained")
    parser.add_argument("--batch_size", type=int, default=1024, help="tokens")
    parser.add_argument("--steps", type=int, default=8, help="of a turn")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    print_header(SEED)
    sides = [Side("t2t_torch", ours, (given, {})), Side("Trainer", theirs, (given, {}))]
    sides += [Side(name, ours, (given, changes)) for name, changes in _OTHERS.items()]
    print_comparison(alternate(sides, given.rounds), "t2t_torch", "examples")


if __name__ == "__main__":
    main()
