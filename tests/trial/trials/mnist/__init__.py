# ruff: noqa
from .model_def import MNistTrial
from .data import download_data, make_data_loaders
