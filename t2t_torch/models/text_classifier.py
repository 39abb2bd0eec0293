"""Classifiers of a text: convolutions, LSTMs, means of embeddings; and of conversations."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.features import ClassLabel, Features, MultiLabel, Real, SoftLabel, Text, Turns
from t2t_torch.features.feature import find_alignments
from t2t_torch.features.word import OfWords
from t2t_torch.hparams.bilstm_attention_classifier import BilstmAttentionClassifierHParams
from t2t_torch.hparams.fasttext import FasttextHParams
from t2t_torch.hparams.lstm_encoder import LSTMEncoderHParams
from t2t_torch.hparams.seqnn import SeqnnHParams
from t2t_torch.hparams.text_cnn import TextCnnHParams
from t2t_torch.layers import pooling, tokens
from t2t_torch.layers.convolution import TextConvolution
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.initialization import initialize, initialize_lstm
from t2t_torch.layers.pooling import AttentionPooling, hop_penalty
from t2t_torch.layers.recurrent import LSTM
from t2t_torch.layers.tokens import Tokens, beside_dense, dense_of, dense_width, texts_of
from t2t_torch.model import Hidden, ModelInputs, T2TModel
from t2t_torch.registry import register_model
from t2t_torch.text.encoder import EOS

_SLACK = 1e-5  # relative tolerance: avoids rescaling because of rounding


class _TextClassifier(T2TModel):
    """Base class of models that classify one text, with what describes its words or itself."""

    produces = (ClassLabel, MultiLabel, SoftLabel, Real)
    reads: ClassVar[tuple[type, ...]] = (Text, OfWords, Real)
    texts = (1, 1)

    def __init__(self, hparams: Any, features: Features) -> None:
        super().__init__(hparams, features)
        (self._text,) = texts_of(features)
        self._dense = dense_of(features)
        self.tokens = Tokens(features, hparams, self._text)
        self.dropout = Dropout(hparams.layer_prepostprocess_dropout)


@register_model
class TextCnn(_TextClassifier):
    """Max-pooled convolutions, dropout, and a softmax with bounded weight norms.

    Kim 2014, "Convolutional Neural Networks for Sentence Classification", arXiv:1408.5882.
    """

    HParams = TextCnnHParams
    hparams: TextCnnHParams

    def __init__(self, hparams: TextCnnHParams, features: Features) -> None:
        super().__init__(hparams, features)
        self.convolution = TextConvolution(
            self.tokens.size, hparams.kernel_sizes, hparams.num_filters, padded=hparams.pad_windows
        )
        initialize(self, hparams)

    @classmethod
    def target_width(cls, hparams: Any, features: Features, target: str) -> int:
        """Returns the number of filters plus the width of dense inputs."""
        filters = len(hparams.kernel_sizes) * int(hparams.num_filters)
        return filters + dense_width(features, hparams)

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the same vector for each target, [B, H]."""
        found = self.convolution(self.tokens(features), features[self._text].mask)
        found = self.dropout(beside_dense(found, self._dense, features))
        return dict.fromkeys(self.features.targets, Hidden(found))

    @torch.no_grad()
    def after_step(self) -> None:
        """Scales down the softmax weights of each class whose norm is above `max_norm`."""
        limit = self.hparams.max_norm
        for name in self.features.targets if limit else ():
            weight = self.modality(name).top.get_parameter("weight")  # [C, H]
            norm = weight.norm(dim=1, keepdim=True)
            weight.mul_(torch.where(norm > limit * (1 + _SLACK), limit / norm, 1.0))


@register_model
class BilstmAttentionClassifier(_TextClassifier):
    """Bidirectional LSTMs, self-attention hops and a ReLU layer.

    Lin et al. 2017, "A Structured Self-attentive Sentence Embedding", arXiv:1703.03130.

    Attributes:
      attention: self-attention; `--hooks=attention_maps` plots its `weights`.
    """

    HParams = BilstmAttentionClassifierHParams
    hparams: BilstmAttentionClassifierHParams

    def __init__(self, hparams: BilstmAttentionClassifierHParams, features: Features) -> None:
        super().__init__(hparams, features)
        self.lstm = LSTM.both_ways(self.tokens.size, hparams.lstm_size, hparams)
        self.attention = AttentionPooling(
            self.lstm.size, hparams.attention_size, hparams.attention_hops
        )
        width = hparams.attention_hops * self.lstm.size + dense_width(features, hparams)
        self.inner = nn.Linear(width, hparams.hidden_size)
        initialize(self, hparams)

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the same vector for each target, [B, H], and in TRAIN the penalty of hops."""
        mask = features[self._text].mask
        hidden = self.lstm(self.dropout(self.tokens(features)), mask)  # [B, S, 2 lstm_size]
        means, weights = self.attention(hidden, mask)
        summary = beside_dense(self.dropout(means), self._dense, features)
        summary = self.dropout(F.relu(self.inner(summary)))
        penalty = None
        if self.training and self.hparams.attention_penalty:
            penalty = self.hparams.attention_penalty * hop_penalty(weights)  # [B]
        return dict.fromkeys(self.features.targets, Hidden(summary, penalty=penalty))


@register_model
class LSTMEncoder(T2TModel):
    """The mean of the outputs of the last layer, for each target.

    Layers of LSTM that read from the end: tensor2tensor's models/lstm.py.  Unlike there, padding is
    not part of the mean.
    """

    HParams = LSTMEncoderHParams
    hparams: LSTMEncoderHParams
    produces = (ClassLabel, MultiLabel, SoftLabel, Real)
    reads = (Text, OfWords)
    texts = (1, 1)

    def __init__(self, hparams: LSTMEncoderHParams, features: Features) -> None:
        super().__init__(hparams, features)
        self.encoder = tokens.SequenceLSTMEncoder(features, hparams, hparams.dropout)
        initialize(self, hparams)
        initialize_lstm(self, hparams)

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the same vector for each target, [B, H]."""
        encoded = self.encoder(features)
        summary = pooling.mean(encoded.outputs, encoded.mask)
        return dict.fromkeys(self.features.targets, Hidden(summary))


_MODULUS = 2**31 - 1  # a prime; products of two numbers below it fit in 64 bits
_FACTOR = 116_049_371  # fastText's


@register_model
class Fasttext(_TextClassifier):
    """Mean of word embeddings and hashed n-gram embeddings.

    Joulin et al. 2017, "Bag of Tricks for Efficient Text Classification", arXiv:1607.01759.
    """

    HParams = FasttextHParams
    hparams: FasttextHParams

    def __init__(self, hparams: FasttextHParams, features: Features) -> None:
        super().__init__(hparams, features)
        self.ngrams: NGrams | None = None
        if hparams.ngram_order > 1:
            self.ngrams = NGrams(self.tokens.size, hparams.ngram_order, hparams.ngram_buckets)
        initialize(self, hparams)

    @classmethod
    def target_width(cls, hparams: Any, features: Features, target: str) -> int:
        """Returns the width of a token embedding and of dense inputs."""
        (text,) = texts_of(features)
        of = {**find_alignments(features.inputs), text: text}
        parts = [its for name, its in features.inputs.items() if of.get(name) == text]
        return int(sum(map(hparams.input_width, parts)) + dense_width(features, hparams))

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the mean for each target, [B, H]."""
        ids, mask = features[self._text].values, features[self._text].mask
        words = self.tokens(features)  # [B, S, E]
        kept = self._kept(mask, ids)
        total = (words * kept[..., None].to(words.dtype)).sum(1)  # [B, E]
        count = kept.sum(1, keepdim=True)
        if self.ngrams is not None:
            rows = self.ngrams.rows(ids, mask)  # [B, N]
            rows = rows * self._kept(rows > 0, rows)
            total = total + self.ngrams(rows).to(total.dtype)
            count = count + (rows > 0).sum(1, keepdim=True)
        mean = self.dropout(total / count.clamp(min=1).to(total.dtype))
        found = beside_dense(mean, self._dense, features)
        return dict.fromkeys(self.features.targets, Hidden(found))

    def _kept(self, mask: Tensor, ids: Tensor) -> Tensor:
        """Returns the mask of ids in the mean.  [B, N] bool, [B, N] -> [B, N] bool."""
        if self.hparams.count_once:
            mask = mask & _is_first(ids)
        if self.training and self.hparams.bag_dropout:
            mask = mask & (torch.rand(mask.shape, device=mask.device) >= self.hparams.bag_dropout)
        return mask


class NGrams(nn.Module):
    """Hashed embedding table of n-grams, initialized with zeros; row 0 is padding.

    Args:
      size: E, width of an embedding.
      order: maximum n; n-grams from n = 2 on are used.
      buckets: number of rows, shared by hashing.
    """

    def __init__(self, size: int, order: int, buckets: int) -> None:
        super().__init__()
        self.order = order
        self.weight = nn.Parameter(torch.zeros(buckets + 1, size))

    def rows(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Returns the row of each n-gram of the ids, 0 at padding.

        Args:
          ids: ids of words, [B, S].
          mask: mask of data, [B, S] bool; padding is on the right.

        Returns:
          [B, N], first the bigrams, then the trigrams ...
        """
        if torch.compiler.is_exporting():  # a graph takes sizes such as S - 2 as they are
            ids, mask = (F.pad(one, (0, self.order - 1)) for one in (ids, mask))
        buckets = len(self.weight) - 1
        found = []
        hashes = ids
        for length in range(2, self.order + 1):
            last = ids[:, length - 1 :]
            hashes = (hashes[:, : last.size(1)] * _FACTOR + last + length) % _MODULUS
            rows = hashes % buckets + 1
            found.append(torch.where(mask[:, length - 1 :], rows, 0))
        return torch.cat(found, 1)

    def forward(self, rows: Tensor) -> Tensor:
        """Returns the sum of the embeddings of rows.  [B, N] -> [B, E]."""
        rows = F.pad(rows, (0, 1))  # a text of one word has no n-grams; a bag needs one entry
        return F.embedding_bag(rows, self.weight, mode="sum", padding_idx=0)


def _is_first(ids: Tensor) -> Tensor:
    """Returns the mask of first occurrences of ids in a row.  [B, N] -> [B, N] bool."""
    order = ids.argsort(dim=1, stable=True)
    ranked = ids.gather(1, order)
    new = F.pad(ranked[:, 1:] != ranked[:, :-1], (1, 0), value=True)
    return torch.zeros_like(new).scatter(1, order, new)


@register_model
class Seqnn(_TextClassifier):
    """Convolutions or LSTMs over each utterance, then LSTMs and attention over utterances.

    The SeqNN of PyText, Aly et al. 2018, arXiv:1812.08729: utterances are encoded by Kim 2014,
    arXiv:1408.5882, or by the self-attention of Lin et al. 2017, arXiv:1703.03130, which is also
    used over utterances.
    """

    HParams = SeqnnHParams
    hparams: SeqnnHParams
    reads = (Turns, Real)

    def __init__(self, hparams: SeqnnHParams, features: Features) -> None:
        super().__init__(hparams, features)
        self.utterance: TextConvolution | AttentiveLSTM
        if hparams.utterance_encoder == "cnn":
            kernels = hparams.kernel_sizes
            self.utterance = TextConvolution(self.tokens.size, kernels, hparams.num_filters)
        else:
            self.utterance = AttentiveLSTM(self.tokens.size, hparams)
        self.conversation = AttentiveLSTM(self.utterance.size, hparams)
        initialize(self, hparams)

    @classmethod
    def target_width(cls, hparams: Any, features: Features, target: str) -> int:
        """Returns the width of both directions and of dense inputs."""
        return 2 * int(hparams.lstm_size) + dense_width(features, hparams)

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns the same vector of a conversation for each target, [B, H]."""
        words = self.dropout(self.tokens(features))
        words, mask = _turns(words, features[self._text].values)  # [B, U, W, E], [B, U, W]
        there = mask.any(-1)  # [B, U]
        # Utterances of all conversations are one batch, without padding.
        found = self.utterance(words[there], mask[there])  # [utterances, F]
        utterances = found.new_zeros(*there.shape, found.size(-1))
        utterances = utterances.masked_scatter(there[..., None], found)
        whole = self.dropout(self.conversation(self.dropout(utterances), there))
        whole = beside_dense(whole, self._dense, features)
        return dict.fromkeys(self.features.targets, Hidden(whole))


class AttentiveLSTM(nn.Module):
    """Bidirectional LSTMs with attention pooling.

    Args:
      input_size: E, input width.
      hparams: lstm_size, num_hidden_layers, attention_size, dropout between layers.

    Attributes:
      size: output width.
    """

    def __init__(self, input_size: int, hparams: SeqnnHParams) -> None:
        super().__init__()
        self.lstm = LSTM.both_ways(input_size, hparams.lstm_size, hparams)
        self.attention = AttentionPooling(self.lstm.size, hparams.attention_size)
        self.size = self.lstm.size

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """[B, S, E], [B, S] bool -> [B, size]."""
        means: Tensor = self.attention(self.lstm(x, mask), mask).means
        return means


def _turns(words: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Splits conversations into utterances, each of which ends with `EOS`.

    The last one may lack it: a conversation may be truncated.

    Args:
      words: embeddings of words, [B, S, E].
      ids: ids of words, [B, S], 0 at padding.

    Returns:
      Embeddings, [B, U, W, E], and their mask, [B, U, W] bool: at most U utterances of W words.
    """
    present = ids != 0
    ends = (ids == EOS).long()
    turn = ends.cumsum(1) - ends  # [B, S], index of the utterance of each position
    place = torch.arange(ids.size(1), device=ids.device).expand_as(ids)
    begins = F.pad(ends, (1, 0))[:, :-1] * place  # start of an utterance, else 0
    place = place - begins.cummax(1).values
    number = int(torch.where(present, turn, 0).max()) + 1
    longest = int(torch.where(present, place, 0).max()) + 1
    # Padding is written to an extra last index, which is removed.
    index = torch.where(present, turn * longest + place, number * longest)
    flat = words.new_zeros(len(words), number * longest + 1, words.size(-1))
    flat = flat.scatter(1, index[..., None].expand_as(words), words)
    mask = torch.zeros(flat.shape[:2], dtype=torch.bool, device=ids.device)
    mask = torch.unflatten(mask.scatter(1, index, True)[:, :-1], 1, (number, longest))
    return torch.unflatten(flat[:, :-1], 1, (number, longest)), mask
