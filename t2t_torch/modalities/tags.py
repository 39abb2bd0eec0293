"""Modalities of tags: a label for each word."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from t2t_torch.errors import HParamsError
from t2t_torch.features import IGNORED, Tags
from t2t_torch.hparam import HParams
from t2t_torch.layers import crf
from t2t_torch.layers.crf import CRF, NEVER, Chain, TagConstraints
from t2t_torch.layers.cross_entropy import kl_divergence
from t2t_torch.loss import TargetOutputs
from t2t_torch.modalities.label import TargetModality
from t2t_torch.modality import BatchPrediction, Hidden, Loss, Modality
from t2t_torch.text.tags import scheme_of

_CERTAIN = 30.0  # a logit whose probability is about 1 if the others are 0


class TagsModality(TargetModality):
    """Modality of tags: hidden [B, W, H] -> logits [B, W, C]; unknown tags have no loss.

    With `tag_constraints` the prediction is the most likely sequence that the tag scheme allows.

    Args:
      hparams: hidden_size, tag_constraints.
      feature: feature of the tags.
    """

    serves = Tags

    def __init__(self, hparams: HParams, feature: Tags) -> None:
        self.check(hparams)
        super().__init__(hparams, feature)
        asked = hparams.tag_constraints != "none"
        labels = feature.encoder.labels
        self.rules = TagConstraints(scheme_of(labels).rules(labels)) if asked else None

    @classmethod
    def chosen(cls, hparams: HParams) -> type[Modality]:
        """Returns the modality selected by `tag_decoder`."""
        return CrfTagsModality if hparams.tag_decoder == "crf" else TagsModality

    @classmethod
    def check(cls, hparams: HParams) -> None:
        """Raises HParamsError if settings are incompatible."""
        if hparams.tag_constraints == "train":
            raise HParamsError(
                "tag_constraints=train: a softmax scores each word by itself, so nothing can be "
                "left out of its sum. Set tag_constraints=decode, or tag_decoder=crf."
            )

    def mask(self, values: Tensor) -> Tensor:
        """Returns the mask of labels.  [B, W] -> [B, W] bool."""
        return values != IGNORED

    def logits(self, hidden: Hidden) -> Tensor:
        """Returns the output of `top` for each word.

        Padding has no weight in a loss.  If sequences are compared, its logits are `NEVER`, by
        which `predict` recognizes it.
        """
        logits: Tensor = self.top(hidden.states)
        if self.rules is None or hidden.mask is None:
            return logits
        return logits.float().masked_fill(~hidden.mask[..., None], NEVER)

    def counted(self, targets: Tensor) -> Tensor:
        """Returns 1 if the label is known, else 0.  [B, W] -> [B, W]."""
        return (targets >= 0).float()

    def mean(self, logits: Sequence[Tensor]) -> Tensor:
        """Returns the logits of the mean probabilities, with padding; see `Modality.mean`."""
        return super().mean(logits).masked_fill(~_is_there(logits[0])[..., None], NEVER)

    def readable(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns logits in which the tag of `predict` has the maximum."""
        return logits if self.rules is None else _promoted(logits, self._best(logits))

    def answer_logits(
        self, feature: Any, values: Sequence[Any], scores: Sequence[Any], targets: Tensor
    ) -> Tensor:
        """Returns a high logit for each predicted tag, since other scores are unknown.

        Shape: [B, W, C].
        """
        logits = torch.zeros(*targets.shape, feature.vocab_size)
        for row, tags in enumerate(values):
            for place, tag in enumerate(tags[: targets.size(1)]):
                logits[row, place, feature.encoder.encode(tag)] = _CERTAIN
        return logits

    def predict(self, logits: Tensor) -> BatchPrediction:
        """Returns the most likely tags of each sentence."""
        tags = logits.argmax(-1) if self.rules is None else self._best(logits)
        return BatchPrediction(tags, None, _of(tags, logits.float().softmax(-1)))

    def _best(self, logits: Tensor) -> Tensor:
        assert self.rules is not None
        return crf.best_tags(logits.float().log_softmax(-1), _is_there(logits), self.rules())


class CrfTagsModality(TagsModality):
    """Modality of tag sequences, scored by a linear-chain CRF.

    The loss is the negative log-likelihood of a sentence, divided among its words, so it has the
    scale and weights of the loss of single tags.  Unknown tags are summed over.
    """

    default_loss = ""
    loss_reads: ClassVar[tuple[str, ...] | None] = ()
    is_distribution = False
    learns_from_teacher = True

    def __init__(self, hparams: HParams, feature: Tags) -> None:
        super().__init__(hparams, feature)
        self._share, self._heat = hparams.distill_weight, hparams.distill_temperature
        self.crf = CRF(feature.vocab_size)
        self.constrains_loss = hparams.tag_constraints == "train"

    @classmethod
    def chosen(cls, hparams: HParams) -> type[Modality]:
        """Returns this class."""
        return cls

    @classmethod
    def check(cls, hparams: HParams) -> None:
        """Raises HParamsError if sentences are packed: the chain would cross their borders."""
        if hparams.pack_dataset:
            raise HParamsError(
                "tag_decoder=crf scores whole sentences, and pack_dataset puts several into a row. "
                "Set pack_dataset=False, or tag_decoder=softmax."
            )

    def logits(self, hidden: Hidden) -> Tensor:
        """Returns the score of each label at each word, `NEVER` at padding.  [B, W, C] float32."""
        logits: Tensor = self.top(hidden.states).float()
        if hidden.mask is None:
            return logits
        return logits.masked_fill(~hidden.mask[..., None], NEVER)

    def loss(self, logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Loss:
        """Returns the negative log-likelihood of the sentences; see `Modality.loss`."""
        chain = self._chain() if self.constrains_loss else self.crf()
        values, possible = crf.negative_log_likelihood(logits, targets, self.mask(targets), chain)
        counted = self.item_weights(targets, weights) * possible[:, None]
        return Loss((values if weights is None else values * weights).sum(), counted.sum())

    def training_loss(self, outputs: TargetOutputs) -> Loss:
        """Returns the training loss, with distillation of marginal probabilities of tags.

        Wang et al. 2020, "Structure-Level Knowledge Distillation For Multilingual Sequence
        Labeling", arXiv:2004.03846, section 3.2.
        """
        terms, targets, weights = outputs.terms, outputs.targets, outputs.weights
        logits = (outputs.top or self.logits)(outputs.passes[0])
        found = self.loss(logits, targets, weights)
        if terms is None or terms.teacher is None:
            return found
        if not terms.has_data:
            found = found._replace(sum=torch.zeros_like(found.sum))
        theirs = terms.teacher.logits(terms.teacher.hidden)
        values = kl_divergence(theirs / self._heat, self.teaching(logits) / self._heat)  # [B, W]
        imitated = (values * self.item_weights(targets, weights)).sum() * self._heat**2
        return Loss((1.0 - self._share) * found.sum + self._share * imitated, found.weight)

    def teaching(self, logits: Tensor) -> Tensor:
        """Returns the marginal log-probability of each tag at each word."""
        return crf.posterior(logits, _is_there(logits), self._chain()).marginals

    def averaged(self, members: Sequence[CrfTagsModality]) -> CrfTagsModality:
        """Returns a copy with the mean transition scores; emissions are averaged, too."""
        made = copy.deepcopy(self)
        with torch.no_grad():
            for name, scores in made.crf.named_parameters():
                scores.copy_(torch.stack([m.crf.get_parameter(name) for m in members]).mean(0))
        return made

    def readable(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns log-probabilities of the tags of each word, for metrics."""
        there, chain = _is_there(logits), self._chain()
        marginals = crf.posterior(logits, there, chain).marginals
        return _promoted(marginals, crf.best_tags(logits, there, chain))

    def predict(self, logits: Tensor) -> BatchPrediction:
        """Returns the most likely tag sequence of each sentence, and its probability."""
        there, chain = _is_there(logits), self._chain()
        tags = crf.best_tags(logits, there, chain)
        posterior = crf.posterior(logits, there, chain)
        unlikely = posterior.log_sum - crf.score(logits, tags, there, chain)
        # Clamp rounding errors below 0; a sentence without words has probability 1.
        unlikely = torch.where(there.any(1), unlikely, 0.0).clamp(min=0.0)
        return BatchPrediction(tags, (-unlikely).exp(), _of(tags, posterior.marginals.exp()))

    def _chain(self) -> Chain:
        learnt: Chain = self.crf()
        return learnt if self.rules is None else learnt.plus(self.rules())


def _of(tags: Tensor, scores: Tensor) -> Tensor:
    """Returns the scores of tags.  [B, W], [B, W, C] -> [B, W]."""
    return scores.gather(-1, tags[..., None]).squeeze(-1)


def _is_there(logits: Tensor) -> Tensor:
    """Returns the mask of words, given the output of `logits`.  [B, W, C] -> [B, W] bool."""
    return logits.amax(-1) > NEVER / 2


def _promoted(logits: Tensor, tags: Tensor) -> Tensor:
    """Returns logits in which those of the chosen tag and of the maximum are exchanged.

    Args:
      logits: logits, [B, W, C].
      tags: chosen tags, [B, W].
    """
    highest, place = logits.max(-1, keepdim=True)
    chosen = tags[..., None]
    swapped = logits.scatter(-1, place, logits.gather(-1, chosen))
    above = torch.nextafter(highest, torch.full_like(highest, torch.inf))  # to break ties
    return swapped.scatter(-1, chosen, above)
