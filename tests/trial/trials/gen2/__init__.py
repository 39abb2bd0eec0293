# ruff: noqa
from data import make_data_loaders
from model_def import TwoMoonsTrial
