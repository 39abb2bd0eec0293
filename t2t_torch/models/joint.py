"""Joint sentence classifiers and taggers: one shared LSTM, or convolutions only."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from t2t_torch.errors import HParamsError
from t2t_torch.features import ClassLabel, Features, MultiLabel, Real, SoftLabel, Tags, Text
from t2t_torch.features.feature import select_classes, select_sequences
from t2t_torch.features.word import OfWords
from t2t_torch.hparams.joint_bilstm import JointBilstmHParams
from t2t_torch.hparams.joint_cnn import JointCnnHParams
from t2t_torch.layers import pooling, tokens
from t2t_torch.layers.convolution import ContextConvolution, TextConvolution
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.initialization import initialize
from t2t_torch.layers.pooling import AttentionPooling, SlotAttention
from t2t_torch.model import Hidden, ModelInputs, T2TModel
from t2t_torch.registry import register_model

_POOLINGS = {"mean": pooling.mean, "max": pooling.maximum, "last": pooling.last}


def _check_classes(hparams: JointBilstmHParams, features: Features) -> None:
    """Checks that there are class probabilities to append to words, if requested."""
    classes, words = select_classes(features.targets), select_sequences(features.targets)
    if hparams.use_doc_probs_in_word and not (classes and words):
        kinds = ", ".join(f"{name} ({type(x).__name__})" for name, x in features.targets.items())
        raise HParamsError(
            "use_doc_probs_in_word=True gives tags the probabilities of a sentence's classes, and "
            f"needs a target of each: a ClassLabel and Tags. Here are {kinds}. Set "
            "use_doc_probs_in_word=False."
        )


class _Joint(T2TModel):
    """Base class: targets of a whole text, `_of_all`, and of its words, `_of_words`."""

    produces = (ClassLabel, MultiLabel, SoftLabel, Real, Tags)
    reads = (Text, OfWords, Real)
    texts = (1, 1)

    def __init__(self, hparams: Any, features: Features) -> None:
        super().__init__(hparams, features)
        (self._text,) = tokens.texts_of(features)
        self._dense = tokens.dense_of(features)
        self._of_words = list(select_sequences(features.targets))
        self._of_all = [name for name in features.targets if name not in self._of_words]


@register_model
class JointBilstm(_Joint):
    """Shared LSTM; classes are predicted from a pooled vector, tags from the state of a word.

    The JointBLSTM of PyText, Aly et al. 2018, arXiv:1812.08729, figure 3; after Liu and Lane 2016,
    arXiv:1609.01454.  Attention pooling is that of Lin et al. 2017, arXiv:1703.03130, with one hop.
    """

    HParams = JointBilstmHParams
    hparams: JointBilstmHParams

    def __init__(self, hparams: JointBilstmHParams, features: Features) -> None:
        super().__init__(hparams, features)
        _check_classes(hparams, features)
        self.lstm = tokens.TokenLSTM(features, hparams, self._text)
        self.outputs = tokens.WordOutputs(features, self._text, self._of_words)
        size = self.lstm.size
        if self._of_all:
            if hparams.pooling == "attention":
                self.pooled = AttentionPooling(size, hparams.attention_size)
            self.of_all = nn.Linear(size, size)
            self.dropout_of_all = Dropout(hparams.layer_prepostprocess_dropout)
        self.attention: SlotAttention | None = None
        if self._of_words and hparams.slot_attention != "none":
            self.attention = SlotAttention(size, hparams.slot_attention, hparams.attention_size)
            self.of_words = nn.Linear(2 * size, size)
        initialize(self, hparams)

    @classmethod
    def target_width(cls, hparams: Any, features: Features, target: str) -> int:
        """Returns the width of both directions and of dense inputs."""
        width = 2 * int(hparams.hidden_size) + tokens.dense_width(features, hparams)
        if hparams.use_doc_probs_in_word and target in select_sequences(features.targets):
            width += sum(its.vocab_size for its in select_classes(features.targets).values())
        return width

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns a vector of the sentence, [B, H'], and of each word, [B, W, H']."""
        mask = features[self._text].mask
        hidden = self.lstm(features)  # [B, S, 2 H]
        found: dict[str, Hidden] = {}
        if self._of_all:
            whole = self._pool(hidden, mask)
            whole = self.dropout_of_all(F.relu(self.of_all(whole)))
            whole = tokens.beside_dense(whole, self._dense, features)
            found |= dict.fromkeys(self._of_all, Hidden(whole))
        if self._of_words:
            words = self.outputs.at_words(hidden, features)
            if self.attention is not None:
                answered = F.relu(self.of_words(self.attention(words, hidden, mask)))
                words = self.lstm.dropout(answered)
            found |= self.outputs(self._beside_classes(words, found), features)
        return found

    def _pool(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Returns a pooled vector of each sentence.  [B, S, 2 H], [B, S] -> [B, 2 H]."""
        if self.hparams.pooling == "attention":
            means: Tensor = self.pooled(hidden, mask).means
            return means
        return _POOLINGS[self.hparams.pooling](hidden, mask)

    def _beside_classes(self, words: Tensor, found: dict[str, Hidden]) -> Tensor:
        """Appends the class probabilities of the sentence to each word, if enabled."""
        if not self.hparams.use_doc_probs_in_word:
            return words
        parts = [words]
        for name in self._of_all:
            if name in select_classes(self.features.targets):
                classes = self.top(found[name], name).float().softmax(-1).to(words.dtype)
                parts.append(classes[:, None].expand(-1, words.size(1), -1))
        return torch.cat(parts, -1)


@register_model
class JointCnn(_Joint):
    """Predicts classes from max-pooled filters, tags from the filters around a word.

    Of PyText, Aly et al. 2018, arXiv:1812.08729: the filters of Kim 2014, arXiv:1408.5882, for the
    sentence, and those of Vu 2016, arXiv:1606.07783, for each word.  Max pooling excludes padding.
    """

    HParams = JointCnnHParams
    hparams: JointCnnHParams

    def __init__(self, hparams: JointCnnHParams, features: Features) -> None:
        super().__init__(hparams, features)
        self.tokens = tokens.Tokens(features, hparams, self._text)
        self.dropout = Dropout(hparams.layer_prepostprocess_dropout)
        if self._of_all:
            self.of_all = TextConvolution(
                self.tokens.size, hparams.sentence_kernel_sizes, hparams.num_filters
            )
        self.outputs = tokens.WordOutputs(features, self._text, self._of_words)
        if self._of_words:
            self.of_words = ContextConvolution(self.tokens.size, hparams)
        initialize(self, hparams)

    @classmethod
    def target_width(cls, hparams: Any, features: Features, target: str) -> int:
        """Returns the width of the convolutions and of dense inputs."""
        if target in select_sequences(features.targets):
            width = 3 * int(hparams.hidden_size)
        else:
            width = len(hparams.sentence_kernel_sizes) * int(hparams.num_filters)
        return width + tokens.dense_width(features, hparams)

    def body(self, features: ModelInputs) -> dict[str, Hidden]:
        """Returns a vector of the sentence, [B, H'], and of each word, [B, W, H']."""
        x = self.dropout(self.tokens(features))  # [B, S, E]
        found: dict[str, Hidden] = {}
        if self._of_all:
            whole = self.dropout(self.of_all(x, features[self._text].mask))
            whole = tokens.beside_dense(whole, self._dense, features)
            found |= dict.fromkeys(self._of_all, Hidden(whole))
        if self._of_words:
            hidden = self.dropout(self.of_words(x))
            found |= self.outputs(self.outputs.at_words(hidden, features), features)
        return found
