"""Features: the types of values that an example consists of."""

from t2t_torch.features.audio import Audio, AugmentationSeed, Transcript
from t2t_torch.features.feature import IGNORED, UNKNOWN, Feature, Features, InputSpec, OutputSpec
from t2t_torch.features.image import Image, PixelSequence
from t2t_torch.features.label import (
    NO_SPAN,
    Choice,
    ClassLabel,
    MultiLabel,
    Place,
    SoftLabel,
    Span,
    Tags,
)
from t2t_torch.features.real import Real, RowWeight
from t2t_torch.features.text import Text, TreeFeature, Turns, Words
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
    "Audio",
    "AugmentationSeed",
    "Choice",
    "ClassLabel",
    "Feature",
    "Features",
    "Gazetteer",
    "GazetteerWeights",
    "Image",
    "InputSpec",
    "MultiLabel",
    "OriginalWords",
    "OutputSpec",
    "PixelSequence",
    "Place",
    "Real",
    "RowWeight",
    "SoftLabel",
    "Span",
    "Tags",
    "Text",
    "Transcript",
    "TreeFeature",
    "Turns",
    "WordCharacters",
    "WordLabel",
    "WordReal",
    "WordShape",
    "WordStarts",
    "Words",
]
