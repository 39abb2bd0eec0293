"""Modules that `import tensor2tensor`, `tensorflow` and `six` give to users' code.

They are there only for files of a `--t2t_usr_dir`, and only where the real ones are not installed.
What is not here can be imported, and is refused by name where it is used.
"""

from __future__ import annotations

import functools
import glob
import gzip
import importlib.abc
import importlib.machinery
import itertools
import os
import pickle
import shutil
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import IO, Any, NoReturn

from absl import app, flags, logging

from t2t_torch import registry
from t2t_torch.data.raw_file import fetch
from t2t_torch.errors import RegistryError
from t2t_torch.files import check_regular, copy_regular
from t2t_torch.interop import tensor2tensor_problems as problems
from t2t_torch.interop import tensor2tensor_registry as hparams
from t2t_torch.search_space import RangedHParams
from t2t_torch.text.encoder import EOS, PAD, RESERVED_TOKENS


class _Missing:
    """Something that is not here: its use raises an error that names it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise RegistryError(
            f"{self._name} is not in t2t_torch, which needs no TensorFlow. {problems.PAGE} lists "
            "what of tensor2tensor runs as it is, and shows how to write the rest."
        )

    __call__ = __getitem__ = __iter__ = __len__ = _refuse

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        """Returns a base class that is refused where the class is to be used."""
        return (type(self._name.rpartition(".")[2], (problems.Missing,), {"missing": self._name}),)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _missing(f"{self._name}.{name}")


def _missing(full: str) -> Any:
    """Returns a base class with the data of a problem that is here; or what is not here."""
    name = full.rpartition(".")[2]
    is_class = full.startswith("tensor2tensor.data_generators.") and name[:1].isupper()
    return (is_class and hparams.of_catalogue(name)) or _Missing(full)


class _Module(ModuleType):
    """A module with the given contents; other names are `_Missing`."""

    def __init__(self, name: str, contents: Mapping[str, Any]) -> None:
        super().__init__(name, f"`{name}` for code that was written for it.")
        vars(self).update(contents)
        self.__path__: list[str] = []
        self.__t2t_torch__ = True

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":  # for star imports; a module of tensor2tensor shows what it imports
            own = [key for key in vars(self) if not key.startswith("_")]
            is_model = self.__name__.startswith("tensor2tensor.models")
            return [*own, *_IMPORTED, *(registry.list_names("hparams") if is_model else ())]
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"
        if full in _CONTENTS:
            return _made(full)
        if self.__name__.startswith("tensor2tensor.") and name in _IMPORTED:
            return _made(_IMPORTED[name])
        if self.__name__.startswith("tensor2tensor.models"):
            if name in registry.list_names("hparams"):
                return hparams.set_named(name)
            if name[:1].isupper():
                return TensorFlowModel
            if name in _MODELS:
                return _made(full)
        return _missing(full)


_MODELS = ("lstm", "research", "transformer", "universal_transformer", "evolved_transformer")
"""Modules of `tensor2tensor.models`; their sets of hyperparameters are those that are here."""


_IMPORTED = {
    "tf": "tensorflow",
    "registry": "tensor2tensor.utils.registry",
    "metrics": "tensor2tensor.utils.metrics",
    "modalities": "tensor2tensor.layers.modalities",
    **{
        name: f"tensor2tensor.data_generators.{name}"
        for name in ("generator_utils", "problem", "text_encoder", "text_problems", "translate")
    },
}
"""Modules that those of tensor2tensor import, which users reach through them."""


class TensorFlowModel:
    """Base class of a user's model of TensorFlow, which can be defined and not be used."""


def maybe_download(directory: str, filename: str, uri: str) -> str:
    """Downloads a file that is not in a folder yet; returns its path."""
    path = Path(directory, filename)
    return str(path if path.exists() else fetch(uri, directory, filename=filename))


def gunzip_file(gz_path: str, new_path: str) -> None:
    """Unpacks a gzip file, if the result is not there yet."""
    if not Path(new_path).exists():
        with gzip.open(check_regular(gz_path), "rb") as packed, Path(new_path).open("wb") as file:
            shutil.copyfileobj(packed, file)


def native_to_unicode(text: str | bytes, ignore_errors: bool = False) -> str:
    """Returns text; bytes are UTF-8."""
    errors = "ignore" if ignore_errors else "strict"
    return text.decode("utf-8", errors) if isinstance(text, bytes) else text


class _Names:
    """A class of constants, each of which is its own value in lower case."""

    def __getattr__(self, name: str) -> str:
        if not name.isupper():
            raise AttributeError(name)
        return _METRICS.get(name, name.lower())


_METRICS = {
    "ACC": "accuracy",
    "ACC_TOP5": "accuracy_top5",
    "ACC_PER_SEQ": "accuracy_per_sequence",
    "APPROX_BLEU": "approx_bleu_score",
    "ROUGE_2_F": "rouge_2_fscore",
    "ROUGE_L_F": "rouge_L_fscore",
}


def _open(name: str, mode: str = "r") -> IO[Any]:
    """Opens a file, as `tf.gfile.GFile`: it is text unless its mode says binary."""
    path = Path(check_regular(name) if "r" in mode else name)
    return path.open(mode, encoding=None if "b" in mode else "utf-8")


def _remove_tree(path: str) -> None:
    if Path(path).is_dir():
        shutil.rmtree(path)
    else:
        Path(path).unlink()


def _unless_exists(place: Callable[[str, str], Any]) -> Callable[..., None]:
    """Returns a function that copies or renames a file, as tf.gfile's."""

    def put(old: str, new: str, overwrite: bool = False) -> None:
        if Path(new).exists() and not overwrite:
            raise FileExistsError(new)
        place(old, new)

    return put


_OLD_FILES: dict[str, Callable[..., Any]] = {
    "GFile": _open,
    "FastGFile": _open,
    "Open": _open,
    "Exists": os.path.exists,
    "IsDirectory": os.path.isdir,
    "ListDirectory": os.listdir,
    "MkDir": os.mkdir,
    "MakeDirs": functools.partial(os.makedirs, exist_ok=True),
    "Glob": glob.glob,
    "Copy": _unless_exists(copy_regular),
    "Rename": _unless_exists(os.replace),
    "Remove": os.remove,
    "DeleteRecursively": _remove_tree,
    "Stat": os.stat,
    "Walk": os.walk,
}
_NEW_NAMES = {"GFile": "GFile", "IsDirectory": "isdir", "DeleteRecursively": "rmtree"}
_NEW_FILES = {_NEW_NAMES.get(name, name.lower()): one for name, one in _OLD_FILES.items()}
_LOGGED = "debug info warning error fatal log get_verbosity DEBUG INFO WARN WARNING ERROR FATAL"
_LOGGING: dict[str, Any] = {
    **{name: getattr(logging, name) for name in _LOGGED.split()},
    "warn": logging.warning,
    "set_verbosity": lambda level: None,  # --verbosity of the command
}


def _defined(define: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that defines a flag of a user's file, unless a command has it."""

    def make(name: str, default: Any, help: str | None = None, **kwargs: Any) -> None:
        if name not in flags.FLAGS:
            define(name, default, help or "", **kwargs)
            if not flags.FLAGS.is_parsed():
                return
            flags.FLAGS[name].using_default_value = True

    return make


_DEFINES = ("string", "integer", "float", "boolean", "bool", "enum", "list", "multi_string")
_FLAGS = {
    "FLAGS": flags.FLAGS,
    **{f"DEFINE_{kind}": _defined(getattr(flags, f"DEFINE_{kind}")) for kind in _DEFINES},
}
_TYPES = ("int32", "int64", "float32", "float64", "string", "bool", "uint8")
_FEATURES = {  # what example_reading_spec returns; names alone count
    name: lambda *args, **kwargs: (args, kwargs) for name in ("VarLenFeature", "FixedLenFeature")
}
_TENSORFLOW = {**_FEATURES, **{name: name for name in _TYPES}, "__version__": "1.15.0"}

_SIX = {
    "PY2": False,
    "PY3": True,
    "text_type": str,
    "string_types": (str,),
    "integer_types": (int,),
    "iteritems": lambda mapping: iter(mapping.items()),
    "itervalues": lambda mapping: iter(mapping.values()),
    "iterkeys": iter,
    "ensure_str": native_to_unicode,
    "ensure_text": native_to_unicode,
}
_MOVES = {
    **{one.__name__: one for one in (range, zip, map, filter, input, itertools.zip_longest)},
    "xrange": range,
    "cPickle": pickle,
    "urllib": urllib,
}


def _own(names: str, module: Any = problems) -> dict[str, Any]:
    """Returns classes and functions of this package by tensor2tensor's names."""
    every = vars(module)
    return {name: every.get(f"T2T{name}") or every[name] for name in names.split()}


_MODULES: dict[str, Mapping[str, Any]] = {
    "six": _SIX,
    "six.moves": _MOVES,
    "six.moves.urllib": {"request": urllib.request, "parse": urllib.parse},
    "tensor2tensor.problems": {},
    "tensor2tensor.data_generators.all_problems": {},
    "tensor2tensor.data_generators.problem": {
        **_own("Problem DatasetSplit SpaceID"),
        # What it does to examples is done by the hyperparameters.
        "preprocess_example_common": lambda example, mode, hparams: example,
    },
    "tensor2tensor.data_generators.text_problems": _own(
        "VocabType Text2TextProblem Text2SelfProblem Text2ClassProblem Text2RealProblem "
        "QuestionAndContext2TextProblem TextConcat2ClassProblem Text2textTmpdir "
        "Text2TextRemotedir Text2textTmpdirTokens txt_line_iterator text2text_txt_iterator "
        "text2text_txt_tab_iterator text2class_txt_iterator"
    ),
    "tensor2tensor.data_generators.translate": _own("TranslateProblem"),
    "tensor2tensor.data_generators.text_encoder": {
        "PAD": RESERVED_TOKENS[PAD],
        "EOS": RESERVED_TOKENS[EOS],
        "PAD_ID": PAD,
        "EOS_ID": EOS,
        "RESERVED_TOKENS": list(RESERVED_TOKENS),
        "NUM_RESERVED_TOKENS": len(RESERVED_TOKENS),
        **_own("TextEncoder ByteTextEncoder TokenTextEncoder SubwordTextEncoder"),
        "ClassLabelEncoder": problems.ClassLabels,
        **dict.fromkeys(
            ("native_to_unicode", "unicode_to_native", "to_unicode", "to_unicode_utf8"),
            native_to_unicode,
        ),
        "to_unicode_ignore_errors": lambda text: native_to_unicode(text, ignore_errors=True),
        "is_unicode": lambda text: isinstance(text, str),
    },
    "tensor2tensor.data_generators.generator_utils": {
        "maybe_download": maybe_download,
        "maybe_download_from_drive": maybe_download,
        "gunzip_file": gunzip_file,
        "get_or_generate_vocab_inner": problems.get_or_generate_vocab_inner,
    },
    "tensor2tensor.layers.common_hparams": {
        "basic_params1": hparams.basic_params1,
        "RangedHParams": RangedHParams,
    },
    "tensor2tensor.layers.modalities": {
        "ModalityType": _Names(),
        "SymbolModality": "symbol",  # classes, before 1.12
        "ClassLabelModality": "class_label",
    },
    "tensor2tensor.models": {},
    "tensor2tensor.utils.hparam": {"HParams": hparams.T2THParams},
    "tensor2tensor.utils.hparams_lib": {
        "create_hparams": lambda name, text="", **_: hparams.hparams(name).parse(text or "")
    },
    "tensor2tensor.utils.metrics": {"Metrics": _Names()},
    "tensor2tensor.utils.registry": {
        "Modalities": _Names(),
        **_own("register_problem register_hparams register_ranged_hparams", hparams),
        **_own("register_model problem hparams", hparams),
    },
    "tensor2tensor.utils.t2t_model": {"T2TModel": TensorFlowModel},
    "tensorflow": _TENSORFLOW,
    "tensorflow.gfile": _OLD_FILES,
    "tensorflow.io": _FEATURES,
    "tensorflow.io.gfile": _NEW_FILES,
    "tensorflow.logging": _LOGGING,
    "tensorflow.flags": _FLAGS,
    "tensorflow.app": {"run": app.run},
    "tensorflow.app.flags": _FLAGS,
    "tensorflow.compat": {
        "as_text": native_to_unicode,
        "as_str": native_to_unicode,
        "as_bytes": lambda text: text.encode() if isinstance(text, str) else text,
    },
    "tensorflow.contrib.training": {"HParams": hparams.T2THParams},
    "tensorflow.estimator.ModeKeys": {"TRAIN": "train", "EVAL": "eval", "PREDICT": "infer"},
}
_CONTENTS = {name.rpartition(".")[0]: dict[str, Any]() for name in _MODULES} | _MODULES
_CONTENTS |= {
    f"tensorflow.compat.v1{name.removeprefix('tensorflow')}": contents
    for name, contents in _CONTENTS.items()
    if name.startswith("tensorflow")
}


@functools.cache
def _made(name: str) -> _Module:
    """Returns a module."""
    return _Module(name, _CONTENTS.get(name, {}))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and loads the modules for users' files.

    It is the last finder, so it shadows no installed package.

    Args:
      users: returns the directories of users' files.
    """

    def __init__(self, users: Callable[[], Iterable[Path]]) -> None:
        self._users = users

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns the specification of a module that a user's file imports."""
        if name.partition(".")[0] not in _PACKAGES or not self._is_for_user():
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Returns the module."""
        return _made(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Does nothing: the module is complete."""

    def _is_for_user(self) -> bool:
        """Returns True if the present import statement is in a user's file."""
        frame: Any = sys._getframe(2)
        while frame is not None:
            file = frame.f_code.co_filename
            if not (file.startswith("<frozen importlib") or file == importlib.__file__):
                path = Path(file).resolve()
                # Users' files import packages next to their folder, which import the same.
                if {"site-packages", "dist-packages"} & set(path.parts):
                    return False
                roots = [root.parent for root in self._users()]
                return any(path.is_relative_to(root) for root in roots if root.name)
            frame = frame.f_back
        return False


_PACKAGES = ("tensor2tensor", "tensorflow", "six")


def provide(users: Callable[[], Iterable[Path]]) -> None:
    """Lets users' files import the packages of this file.

    Args:
      users: returns the directories of users' files.
    """
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder(users))


def forget() -> None:
    """Removes the modules, so that libraries do not take them for real ones."""
    for name in [name for name in sys.modules if name.partition(".")[0] in _PACKAGES]:
        if isinstance(sys.modules[name], _Module):
            del sys.modules[name]
