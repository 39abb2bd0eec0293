"""What stands before and after each sublayer: norms, dropout, the residual connection."""

from __future__ import annotations

from torch import Tensor, nn

from t2t_torch.errors import HParamsError
from t2t_torch.hparam import HParams
from t2t_torch.layers.dropout import Dropout


class Preprocess(nn.Module):
    """What `layer_preprocess_sequence` says: n is a layer norm, d dropout, in the order written.

    Pre-norm is "n" before and "da" after; post-norm is "none" before and "dan" after.

    Args:
      hparams: hidden_size, norm_epsilon, layer_preprocess_sequence, layer_prepostprocess_dropout.

    Raises:
      HParamsError: the sequence holds another letter.
    """

    def __init__(self, hparams: HParams) -> None:
        super().__init__()
        self.sequence = _parse(hparams, "layer_preprocess_sequence", "nd")
        if "n" in self.sequence:
            self.norm = nn.LayerNorm(hparams.hidden_size, eps=hparams.norm_epsilon)
        self.dropout = Dropout(hparams.layer_prepostprocess_dropout)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, H] -> [B, T, H]."""
        for letter in self.sequence:
            x = self.norm(x) if letter == "n" else self.dropout(x)
        return x


class Postprocess(nn.Module):
    """What `layer_postprocess_sequence` says: as `Preprocess`, and a adds the sublayer's input.

    Args:
      hparams: hidden_size, norm_epsilon, layer_postprocess_sequence, layer_prepostprocess_dropout.

    Raises:
      HParamsError: the sequence holds another letter.
    """

    def __init__(self, hparams: HParams) -> None:
        super().__init__()
        self.sequence = _parse(hparams, "layer_postprocess_sequence", "dan")
        if "n" in self.sequence:
            self.norm = nn.LayerNorm(hparams.hidden_size, eps=hparams.norm_epsilon)
        self.dropout = Dropout(hparams.layer_prepostprocess_dropout)

    def forward(self, residual: Tensor, x: Tensor) -> Tensor:
        """Returns the sublayer's result `x` joined with its input `residual`.  [B, T, H] each."""
        for letter in self.sequence:
            if letter == "a":
                x = residual + x
            else:
                x = self.norm(x) if letter == "n" else self.dropout(x)
        return x


def _parse(hparams: HParams, field: str, letters: str) -> str:
    sequence: str = getattr(hparams, field)
    if sequence == "none":
        return ""
    unknown = sorted(set(sequence) - set(letters))
    if unknown or len(set(sequence)) != len(sequence):
        raise HParamsError(
            f"{field}={sequence!r}: expected 'none' or letters of {letters!r}, each at most once "
            "(n layer norm, d dropout, a add the residual)."
        )
    return sequence
