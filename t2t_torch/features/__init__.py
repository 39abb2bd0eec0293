"""What data is: the kinds of value that an example consists of."""

from t2t_torch.features.feature import IGNORED, UNKNOWN, Feature, Features
from t2t_torch.features.image import Image
from t2t_torch.features.label import Choice, ClassLabel, MultiLabel, SoftLabel
from t2t_torch.features.place import Place
from t2t_torch.features.real import Real, RowWeight
from t2t_torch.features.span import NO_SPAN, Span
from t2t_torch.features.tags import Tags
from t2t_torch.features.text import Text, Turns, Words
from t2t_torch.features.tree import TreeFeature
from t2t_torch.features.word import (
    Gazetteer,
    GazetteerWeights,
    OriginalWords,
    WordCharacters,
    WordLabel,
    WordReal,
    WordShape,
    WordStarts,
)

__all__ = [
    "IGNORED",
    "NO_SPAN",
    "UNKNOWN",
    "Choice",
    "ClassLabel",
    "Feature",
    "Features",
    "Gazetteer",
    "GazetteerWeights",
    "Image",
    "MultiLabel",
    "OriginalWords",
    "Place",
    "Real",
    "RowWeight",
    "SoftLabel",
    "Span",
    "Tags",
    "Text",
    "TreeFeature",
    "Turns",
    "WordCharacters",
    "WordLabel",
    "WordReal",
    "WordShape",
    "WordStarts",
    "Words",
]
