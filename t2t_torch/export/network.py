"""A model's network as an ONNX graph: numbers of features in, guesses out."""

from __future__ import annotations

import contextlib
import copy
import linecache
import logging
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import onnx
import torch
from torch import Tensor, nn
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from t2t_torch.ensemble import Ensemble
from t2t_torch.errors import ExportError
from t2t_torch.export import lstm, sort
from t2t_torch.export.graph import OPSETS
from t2t_torch.export.lstm import replace_lstms
from t2t_torch.features import Features
from t2t_torch.model import T2TModel

_OURS = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]), contextlib.__file__)
"""Where frames are of torch or of this package."""


class Network(nn.Module):
    """What is exported: `model.hidden_states`, and of each target `Modality.guess`.

    Args:
      model: of which.
      names: of the features, in the order in which they are given.
    """

    def __init__(self, model: T2TModel | Ensemble, names: list[str]) -> None:
        super().__init__()
        self.model = model
        self._names = names

    def forward(self, *values: Tensor) -> dict[str, Tensor]:
        """Returns, of each target t, "t.numbers", and "t.probability", "t.scores", "t.mask" where
        there are some.
        """
        found: dict[str, Tensor] = {}
        batch = dict(zip(self._names, values, strict=True))
        for name, hidden in self.model.hidden_states(batch).items():
            modality = self.model.modalities[name]
            guesses = modality.guess(modality.logits(hidden))  # type: ignore[operator]
            given = {**guesses._asdict(), "mask": hidden.mask}
            found |= {f"{name}.{part}": its for part, its in given.items() if its is not None}
        return found


class NamedNetwork(nn.Module):
    """A network whose inputs have names.  Subclasses define `found`.

    Args:
      names: of the inputs, in the order in which they are given.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self.names = list(names)

    def forward(self, *values: Tensor) -> dict[str, Tensor]:
        """Returns what `found` does."""
        return self.found(dict(zip(self.names, values, strict=True)))

    def found(self, given: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns the outputs by name, of the inputs by name."""
        raise NotImplementedError


def export_network(model: T2TModel | Ensemble, example: Mapping[str, Tensor]) -> onnx.ModelProto:
    """Returns a model's network, for batches of any size and any lengths, in float32.

    Args:
      model: that answers with labels, numbers or tags; it stays as it is.
      example: a batch as the pipeline gives it, without targets, on the CPU.  At least two rows,
        of several words.

    Returns:
      Its inputs have the names of the features.  Its outputs are those of `Modality.guess`, of each
      target t: "t.numbers" [B, n], "t.probability" [B], "t.scores" [B, ...]; and for a target of
      words "t.mask", where the words are, [B, W].

    Raises:
      ExportError: it holds operations that depend on the batch, or that ONNX does not have.
    """
    still = frozen(model)
    replace_lstms(still)
    varying = axes_of(model.features, example)
    return exported(type(model).__name__, Network(still, list(example)), example, varying)


def axes_of(features: Features, example: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """Returns which axes of a batch's features vary: rows, and positions of a sequence."""
    return {
        name: tuple(range(min(value.dim(), 2))) if features.all[name].is_sequence else (0,)
        for name, value in example.items()
    }


def frozen(model: Any) -> Any:
    """Returns a copy of a model that computes in float32, on the CPU, and is not trained."""
    return copy.deepcopy(model).cpu().float().eval().requires_grad_(False)


def exported(
    name: str,
    network: nn.Module,
    example: Mapping[str, Tensor],
    varying: Mapping[str, Sequence[int]],
    *,
    otherwise: str = "Serve the run itself, with PyTorch.",
) -> onnx.ModelProto:
    """Returns a network as a graph of ONNX.

    Args:
      name: of the model, for errors.
      network: takes the values of `example`, in this order, and returns outputs by name.
      example: inputs by name; no size that varies is 0 or 1.
      varying: by input, the axes whose sizes vary.
      otherwise: what errors tell to do instead.

    Raises:
      ExportError: it holds operations that depend on the sizes, or that ONNX does not have.
    """
    network = network.eval()
    axes = tuple(dict.fromkeys(varying.get(one, ()), torch.export.Dim.AUTO) for one in example)
    try:
        with torch.no_grad(), quiet(), _fixed_sizes() as fixed:
            program = torch.export.export(
                network, tuple(example.values()), dynamic_shapes=(axes,), strict=False
            )
            outputs = list(network(*example.values()))
            graph = torch.onnx.export(
                program,
                dynamo=True,
                opset_version=OPSETS[""],
                custom_translation_table={**lstm.TRANSLATIONS, **sort.TRANSLATIONS},
                input_names=list(example),
                output_names=outputs,
                verbose=False,
            )
            assert graph is not None
            graph.optimize()
            found: onnx.ModelProto = graph.model_proto
    except (torch.onnx.OnnxExporterError, RuntimeError, TypeError, ValueError) as error:
        why, *_ = (str(error).strip() or type(error).__name__).splitlines()
        raise ExportError(f"{name} cannot be exported: {why} {otherwise}") from error
    _check_varies(found, name, varying, fixed)
    return found


@contextlib.contextmanager
def _fixed_sizes() -> Iterator[list[tuple[str, int]]]:
    """Notes at which lines, outside torch and this package, a trace fixes a size that varies."""
    found: list[tuple[str, int]] = []
    original = getattr(ShapeEnv, "_set_replacement", None)
    if original is None:  # torch keeps no promise of it
        yield found
        return

    def noting(env: ShapeEnv, symbol: Any, value: Any, *more: Any, **named: Any) -> Any:
        if getattr(value, "is_number", False):
            frame = sys._getframe(1)
            while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
                frame = frame.f_back
            found.append((frame.f_code.co_filename, frame.f_lineno))
        return original(env, symbol, value, *more, **named)

    with mock.patch.object(ShapeEnv, "_set_replacement", noting):
        yield found


def _check_varies(
    network: onnx.ModelProto,
    name: str,
    varying: Mapping[str, Sequence[int]],
    fixed: Sequence[tuple[str, int]],
) -> None:
    """Raises ExportError if some size of the example has become part of the graph."""
    why = "The model reads this size as a number, as int(), range() or a comparison do."
    lines = {(Path(file).name, line): linecache.getline(file, line).strip() for file, line in fixed}
    if lines:
        told = ", ".join(f"{file}, line {line} ({text})" for (file, line), text in lines.items())
        why = f"It is read as a number at {told}."
    if any("range(" in text for text in lines.values()):
        why += " A graph has no loop over a size: compute the whole batch at once."
    elif any("len(" in text for text in lines.values()):
        why += " Take tensor.size() in place of len()."
    for given in network.graph.input:
        for axis in varying.get(given.name, ()):
            dim = given.type.tensor_type.shape.dim[axis]
            size = dim.dim_param or str(dim.dim_value)
            if size.isdecimal():
                raise ExportError(
                    f"{name} cannot be exported: axis {axis} of {given.name!r} is "
                    f"{size} in the graph, as in the example, and should vary. {why}"
                )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps what torch tells its own developers from users."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
