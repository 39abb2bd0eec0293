"""The hyperparameters of what a model reads; `hparam.py` has the others."""

from __future__ import annotations

from typing import Literal

from t2t_torch.params import Params, hp


class InputHParams(Params):
    """Inputs: the vectors of words and of their characters; see docs/tokens.md."""

    pretrained_embeddings: str = hp(
        "",
        "File of word vectors that a new run's tables begin with: GloVe or word2vec text, word2vec "
        "binary, fastText .vec or .bin; packed with gzip or not.  Empty: none.",
    )
    word_dropout: float = hp(
        0.0,
        "Probability of reading a word as the unknown word, or as nothing where the vocabulary has "
        "none; training only.",
        low=0,
        below=1,
    )
    singleton_dropout: float = hp(
        0.0,
        "Probability of reading a word that the training data has once as the unknown word; "
        "training only.",
        low=0,
        high=1,
    )
    character_embedding_size: int = hp(32, "Width of the vector of a character or byte.", low=1)
    character_kernels: tuple[int, ...] = hp(
        (3,), "Characters or bytes that the filters over a word see: one number for each kind."
    )
    character_filters: tuple[int, ...] = hp(
        (), "Filters of each kind.  Empty: as many of each as fill the width of the result."
    )
    character_activation: Literal["none", "relu", "tanh"] = hp(
        "none", "What is taken of each filter's greatest value."
    )
    character_highway_layers: int = hp(
        0, "Highway layers over the filters of a word.", low=0, high=10_000
    )
    contextual_embeddings: str = hp(
        "",
        "Run directory of a trained language model of the same vocabulary, whose states, frozen, "
        "are a part of the vector of each token that is given.  Empty: none.",
    )
    contextual_size: int = hp(64, "Width of that part, a linear map of the states.", low=1)
    contextual_architecture: str = hp(
        "",
        "What that language model is, as JSON: t2t-trainer reads it once from its run directory, "
        "and the run keeps it.",
    )
