"""One vector of a text, in three steps: its tokens, what stands around each, and their pooling."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from t2t_torch.layers import pooling
from t2t_torch.layers.dropout import Dropout
from t2t_torch.layers.masked_softmax import masked_softmax
from t2t_torch.layers.recurrent import LSTM
from t2t_torch.token_hparam import SentenceHParams


class Contexts(nn.Module):
    """What a token is where it stands: layers of LSTM or of convolution, or the token itself.

    Args:
      input_size: E.
      hparams: encoder, encoder_size, kernel_size, num_hidden_layers; dropout between layers.

    Attributes:
      size: of the outputs.
    """

    def __init__(self, input_size: int, hparams: SentenceHParams) -> None:
        super().__init__()
        rate, layers = hparams.layer_prepostprocess_dropout, hparams.num_hidden_layers
        self._kind = hparams.encoder
        self.dropout = Dropout(rate)
        if hparams.encoder == "lstm":
            self.lstm = LSTM(
                input_size, hparams.encoder_size, layers, bidirectional=True, dropout=rate
            )
            self.size = self.lstm.size if layers else input_size
        elif hparams.encoder == "cnn":
            sizes = [input_size, *[hparams.encoder_size] * layers]
            self.convolutions = nn.ModuleList(
                nn.Conv1d(before, after, hparams.kernel_size, padding="same")
                for before, after in itertools.pairwise(sizes)
            )
            self.size = sizes[-1]
        else:
            self.size = input_size

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Returns the outputs, zeros at padding.  [B, S, E], [B, S] -> [B, S, H]."""
        there = mask[..., None].to(x.dtype)
        x = x * there
        if self._kind == "lstm":
            return self.lstm(x, mask)
        if self._kind == "cnn":
            for number, convolution in enumerate(self.convolutions):
                x = self.dropout(x) if number else x
                x = convolution(x.transpose(1, 2)).relu().transpose(1, 2) * there
        return x


class Pool(nn.Module):
    """One vector of a text.  [B, S, H], [B, S] -> [B, H].

    Args:
      size: H.
      hparams: sentence_pooling.
    """

    def __init__(self, size: int, hparams: SentenceHParams) -> None:
        super().__init__()
        self._kind = hparams.sentence_pooling
        if self._kind == "attention":
            self.weights = SelfAttentive(size)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Returns the vectors; zeros of a text without tokens."""
        if self._kind == "attention":
            return self.weights(x, mask)
        return pooling.mean(x, mask) if self._kind == "mean" else pooling.maximum(x, mask)


class SelfAttentive(nn.Module):
    """The mean of a text's vectors by learnt weights: softmax of a linear map of each.

    Chen et al. 2017, arXiv:1704.00051, section 3.2, of questions.

    Args:
      size: H.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.score = nn.Linear(size, 1, bias=False)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Returns the means, zeros over nothing.  [B, S, H], [B, S] -> [B, H]."""
        weights = masked_softmax(self.score(x).squeeze(-1), mask).to(x.dtype)
        return (weights[..., None] * x).sum(1)


class Alignment(nn.Module):
    """For each token of a text the mean of another's vectors, by how alike they are.

    Parikh et al. 2016, arXiv:1606.01933, section 3.1, in which `project` makes vectors comparable;
    without it, Chen et al. 2017, arXiv:1609.06038.

    Args:
      size: H of what is compared.
      projected: width in which vectors are compared, after a linear map and a ReLU; 0 compares
        them as they are.
    """

    def __init__(self, size: int, projected: int = 0) -> None:
        super().__init__()
        self._scale = 1.0 if projected else size**-0.5
        if projected:
            self.project = nn.Linear(size, projected)

    def scores(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns how alike each pair of vectors is.  [B, S, H], [B, T, H] -> [B, S, T]."""
        if hasattr(self, "project"):
            x, y = self.project(x).relu(), self.project(y).relu()
        return torch.matmul(x, y.transpose(1, 2)) * self._scale

    def forward(self, scores: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        """Returns the means; zeros over nothing.

        Args:
          scores: [B, S, T].
          y: what is taken the mean of, [B, T, H].
          mask: where `y` holds something, [B, T] bool.

        Returns:
          [B, S, H].
        """
        return torch.matmul(masked_softmax(scores, mask[:, None]).to(y.dtype), y)
