"""What is known of each word: one vector for each."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from t2t_torch.errors import HParamsError
from t2t_torch.features import Gazetteer, WordCharacters, WordLabel, WordReal, WordShape
from t2t_torch.hparam import HParams
from t2t_torch.layers.character_cnn import CharacterCNN
from t2t_torch.modality import Modality


class WordModality(Modality):
    """What is known of each word: one vector for each, [B, W, H].  An input only.

    Args:
      bottom: makes it.
    """

    def __init__(self, bottom: nn.Module) -> None:
        super().__init__()
        self.bottom = bottom

    @classmethod
    def build(cls, feature: Any, hparams: HParams, *, is_target: bool) -> Modality:
        """Makes it for an input."""
        if is_target:
            raise HParamsError(f"a {type(feature).__name__} can be an input, but no target.")
        return cls(cls.bottom_of(feature, hparams))

    @classmethod
    def bottom_of(cls, feature: Any, hparams: HParams) -> nn.Module:
        """Returns what makes the vectors: a table of them."""
        return WordTable(feature.vocab_size, hparams.hidden_size)

    def mask(self, values: Tensor) -> Tensor:
        """Returns where there is something.  [B, W] or [B, W, width] -> [B, W] bool."""
        return values != 0 if values.dim() == 2 else (values != 0).any(-1)


class WordTable(nn.Embedding):
    """A vector for each id; that of 0 is zero.

    Args:
      vocab_size: ids.
      hidden_size: H.
    """

    def __init__(self, vocab_size: int, hidden_size: int) -> None:
        super().__init__(vocab_size, hidden_size, padding_idx=0)


class WordShapeModality(WordModality):
    """The shape of each word."""

    serves = WordShape


class WordLabelModality(WordModality):
    """A label of each word that is given."""

    serves = WordLabel


class WordRealModality(WordModality):
    """Numbers of each word: a linear map without a bias, so that padding stays zero."""

    serves = WordReal

    @classmethod
    def bottom_of(cls, feature: Any, hparams: HParams) -> nn.Module:
        """Returns the linear map."""
        return nn.Linear(feature.size, hparams.hidden_size, bias=False)


class WordCharactersModality(WordModality):
    """The characters, or bytes, of each word."""

    serves = WordCharacters

    @classmethod
    def bottom_of(cls, feature: Any, hparams: HParams) -> nn.Module:
        """Returns the filters and the highway over them."""
        return CharacterCNN(feature.vocab_size, hparams.hidden_size, hparams)


class GazetteerModality(WordModality):
    """The word lists that each word is on: the mean of their vectors, each times its weight."""

    serves = Gazetteer

    def embed(self, name: str, batch: dict[str, Tensor]) -> Tensor:
        """Returns the means, zeros of a word on no list; `<name>_weights` is in the batch.

        As PyText's DictEmbedding has it: sum(weight * vector) / entries.  [B, W, H].
        """
        ids = batch[name]
        entries = self.bottom(ids)  # type: ignore[misc]  # [B, W, width, H]
        total = (entries * batch[f"{name}_weights"][..., None]).sum(2)
        return total / (ids != 0).sum(2, keepdim=True).clamp(min=1)
