"""Training objectives: the losses of a model, and what hyperparameters add to them.

`objective.Objective(model)(batch)` returns the training losses of a batch.  It

1. changes the batch (`batches.py`): mixed examples (`mixup_alpha`), samples in place of targets
   (`scheduled_sampling_prob`),
2. runs the body of the model, twice for R-Drop (`r_drop_alpha`), and that of a teacher
   (`distill_from`), once more with noise on the embeddings (`r3f_weight`), and where the loss is
   greater (`adversarial_steps`, `perturbations.py`),
3. takes from the modality of each target its loss with the terms that apply to each item: R-Drop, a
   confidence penalty, distillation; a model's own `loss` comes before that of the modality,
4. adds the penalties of the model's layers, and weighs the targets (`target_weights`).

An objective knows models, modalities and losses; none of them knows an objective.
"""
