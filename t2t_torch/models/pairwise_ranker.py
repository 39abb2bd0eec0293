"""Ranker of documents for a query: both are encoded separately, then scored.

Huang et al. 2013, "Learning Deep Structured Semantic Models for Web Search using Clickthrough
Data", CIKM; with the documents of the other queries of a batch as negatives Karpukhin et al. 2020,
"Dense Passage Retrieval for Open-Domain Question Answering", arXiv:2004.04906, section 3.2.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.errors import HParamsError
from t2t_torch.features import Choice, ClassLabel, Feature, Features, Text
from t2t_torch.hparams.pairwise_ranker import PairwiseRankerHParams
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.initialization import initialize
from t2t_torch.layers.sentence_encoder import Contexts, Matches, Pool
from t2t_torch.layers.tokens import texts_of
from t2t_torch.model import Hidden, ModelInputs, T2TModel
from t2t_torch.registry import register_model


@register_model
class PairwiseRanker(T2TModel):
    """Encodes query and documents, and scores each pair by cosine, product or perceptron.

    For a choice among documents, each has a score; for a class, such as relevant or not, the score
    is the log-odds.
    """

    HParams = PairwiseRankerHParams
    hparams: PairwiseRankerHParams
    produces = (Choice, ClassLabel)
    reads = (Text,)
    texts = (2, 1000)

    def __init__(self, hparams: PairwiseRankerHParams, features: Features) -> None:
        super().__init__(hparams, features)
        self._query, self._documents = _roles(features, hparams)
        texts = texts_of(features)
        query = Sentence(hparams)
        document = query if hparams.tied_encoders else Sentence(hparams)
        self.encoders = nn.ModuleDict({"query": query, "document": document})
        self.matches = Matches(features, texts) if hparams.match_feature else None
        self.score = PairScoring(hparams, self.matches)
        initialize(self, hparams)
        if hparams.score != "mlp":
            for name, target in features.targets.items():
                _start_at(self.modalities[name], target, hparams)

    @classmethod
    def target_width(cls, hparams: Any, features: Features, target: str) -> int:
        """Returns the width of the scoring vector of a pair."""
        width = int(hparams.hidden_size) if hparams.score == "mlp" else 1
        return width + (Matches.summary_size if hparams.match_feature else 0)

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the scoring vectors of each pair.

        For a choice [B, K, H]; in TRAIN, with `in_batch_negatives`, [B, K', H]: the documents of
        other queries follow the K own ones, and a mask excludes those that answer the query as
        well.  For a class [B, H].
        """
        query = self._encoded("query", self._query, features)
        vectors = [self._encoded("document", name, features) for name in self._documents]
        query_ids = features[self._query].values
        rows = [features[name].values for name in self._documents]
        width = max(row.size(1) for row in rows)
        ids = torch.stack([F.pad(row, (0, width - row.size(1))) for row in rows], 1)
        documents = torch.stack(vectors, 1)  # [B, K, H]
        ((name, target),) = self.features.targets.items()
        if not _chooses(target):
            return {name: Hidden(self.score(query[:, None], documents, query_ids, ids)[:, 0])}
        if not (self.training and self.hparams.in_batch_negatives):
            return {name: Hidden(self.score(query[:, None], documents, query_ids, ids))}
        flat, flat_ids = documents.flatten(0, 1), ids.flatten(0, 1)  # [B K, ...]
        places = torch.arange(len(flat_ids), device=query.device).view(len(query), -1)
        # All documents of the batch for each row, its own first: [B, B K].
        order = torch.stack([places.roll(-row, 0).flatten() for row in range(len(query))])
        right = ids[torch.arange(len(ids), device=ids.device), features[name].values.clamp(min=0)]
        # Documents of an equal query, and those equal to its correct one, may answer it.
        same_query = (query_ids[:, None] == query_ids[None]).all(-1)  # [B, B]
        same_text = (right[:, None] == flat_ids[None]).all(-1)  # [B, B K]
        left_out = same_query.repeat_interleave(len(self._documents), 1) | same_text
        mask = ~left_out.gather(1, order)
        mask[:, : len(self._documents)] = True
        scores = self.score(query[:, None], flat[order], query_ids, flat_ids[order])
        return {name: Hidden(scores, mask)}

    def _encoded(self, role: str, name: str, features: ModelInputs) -> Tensor:
        found: Tensor = self.encoders[role](features[name].embedded, features[name].mask)
        return found


class Sentence(nn.Module):
    """Text encoder.  [B, S, E], [B, S] -> [B, H].

    Args:
      hparams: those of `Contexts` and `Pool`; hidden_size if there is an output layer.
    """

    def __init__(self, hparams: PairwiseRankerHParams) -> None:
        super().__init__()
        self.contexts = Contexts(hparams.text_size, hparams)
        self.pool = Pool(self.contexts.size, hparams)
        self.dropout = Dropout(hparams.layer_prepostprocess_dropout)
        self.output = nn.Linear(self.contexts.size, hparams.hidden_size)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Returns the vectors of texts."""
        contexts = self.contexts(self.dropout(x), mask)
        vectors: Tensor = self.output(self.dropout(self.pool(contexts, mask)))
        return vectors


class PairScoring(nn.Module):
    """Scoring vectors of queries and documents.

    Args:
      hparams: score, hidden_size, dropout.
      matches: module that compares their ids; None for no comparison.
    """

    def __init__(self, hparams: PairwiseRankerHParams, matches: Matches | None) -> None:
        super().__init__()
        self._kind = hparams.score
        self._matches = (matches,)  # a tuple hides it from nn.Module
        if hparams.score == "mlp":
            self.hidden = nn.Linear(4 * hparams.hidden_size, hparams.hidden_size)
            self.dropout = Dropout(hparams.layer_prepostprocess_dropout)

    def forward(self, queries: Tensor, documents: Tensor, query_ids: Tensor, ids: Tensor) -> Tensor:
        """Returns the scoring vector of each pair, [B, K, width].

        Args:
          queries: vectors of queries, [B, 1, H].
          documents: vectors of documents, [B, K, H].
          query_ids: ids of queries, [B, S].
          ids: ids of documents, [B, K, T].
        """
        if self._kind == "mlp":
            u, v = queries.expand_as(documents), documents
            pair = torch.cat([u, v, (u - v).abs(), u * v], -1)
            found: Tensor = self.dropout(self.hidden(self.dropout(pair)).relu())
        elif self._kind == "cosine":
            found = F.cosine_similarity(queries, documents, dim=-1)[..., None]
        else:
            found = (queries * documents).sum(-1, keepdim=True) * documents.size(-1) ** -0.5
        (matches,) = self._matches
        if matches is None:
            return found
        rows = query_ids[:, None].expand(*ids.shape[:2], -1).flatten(0, 1)  # [B K, S]
        shares = torch.unflatten(matches.summary(rows, ids.flatten(0, 1)), 0, ids.shape[:2])
        return torch.cat([found, shares.to(found.dtype)], -1)


def _chooses(target: Feature) -> TypeGuard[Choice]:
    return isinstance(target, Choice)


def _roles(features: Features, hparams: PairwiseRankerHParams) -> tuple[str, list[str]]:
    """Returns the names of query and documents: candidates of a choice, else the second text."""
    if len(features.targets) != 1:
        raise HParamsError(
            f"pairwise_ranker learns one target, and this problem has "
            f"{', '.join(features.targets)}. Take --model=pair_classifier."
        )
    (target,) = features.targets.values()
    documents = list(target.candidates) if _chooses(target) else texts_of(features)[1:]
    queries = [name for name in texts_of(features) if name not in documents]
    if len(queries) != 1 or (len(documents) != 1 and not _chooses(target)):
        raise HParamsError(
            "pairwise_ranker compares one query with documents, and this problem's texts are "
            f"{', '.join(texts_of(features))}. Look for another model:  t2t-trainer --registry_help"
        )
    if hparams.in_batch_negatives and not _chooses(target):
        raise HParamsError(
            "in_batch_negatives=True takes the documents of other queries for wrong ones in a "
            "choice; a class says nothing about them. Set --hparams=in_batch_negatives=False."
        )
    if hparams.in_batch_negatives and hparams.distill_from:
        raise HParamsError(
            "distill_from: a teacher scores each query's own documents alone, and "
            "in_batch_negatives=True those of others, too. Leave one of them out."
        )
    return queries[0], documents


@torch.no_grad()
def _start_at(modality: Any, target: Any, hparams: PairwiseRankerHParams) -> None:
    """Initializes the weights of the top to return the score times `score_scale`."""
    top = modality.top
    top.bias.zero_()
    if _chooses(target):
        top.weight[:, 0] = hparams.score_scale
    else:  # of two classes the difference is the score
        places = torch.linspace(-0.5, 0.5, len(top.weight), device=top.weight.device)
        top.weight[:, 0] = places * hparams.score_scale
