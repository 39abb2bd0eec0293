"""A model's network as an ONNX graph: numbers of features in, guesses out."""

from __future__ import annotations

import contextlib
import copy
import logging
import warnings
from collections.abc import Iterator, Mapping

import onnx
import torch
from torch import Tensor, nn

from t2t_torch.errors import ExportError
from t2t_torch.export.graph import OPSETS
from t2t_torch.export.lstm import TRANSLATIONS, replace_lstms
from t2t_torch.model import T2TModel


class _Network(nn.Module):
    """What is exported: `model.hidden_states`, and of each target `Modality.guess`.

    Args:
      model: of which.
      names: of the features, in the order in which they are given.
    """

    def __init__(self, model: T2TModel, names: list[str]) -> None:
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


def export_network(model: T2TModel, example: Mapping[str, Tensor]) -> onnx.ModelProto:
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
    frozen = copy.deepcopy(model).cpu().float().eval().requires_grad_(False)
    replace_lstms(frozen)
    names = list(example)
    network = _Network(frozen, names).eval()
    varying = tuple(
        dict.fromkeys(range(min(value.dim(), 2)), torch.export.Dim.AUTO)
        if model.features.all[name].is_sequence
        else {0: torch.export.Dim.AUTO}
        for name, value in example.items()
    )
    try:
        with torch.no_grad(), _quiet():
            program = torch.export.export(
                network, tuple(example.values()), dynamic_shapes=(varying,), strict=False
            )
            outputs = list(network(*example.values()))
            exported = torch.onnx.export(
                program,
                dynamo=True,
                opset_version=OPSETS[""],
                custom_translation_table=TRANSLATIONS,
                input_names=names,
                output_names=outputs,
                verbose=False,
            )
            assert exported is not None
            exported.optimize()
            found: onnx.ModelProto = exported.model_proto
    except (torch.onnx.OnnxExporterError, RuntimeError, TypeError, ValueError) as error:
        why, *_ = (str(error).strip() or type(error).__name__).splitlines()
        raise ExportError(
            f"{type(model).__name__} cannot be exported: {why} Serve the run itself, with PyTorch."
        ) from error
    _check_varies(found, model, varying)
    return found


def _check_varies(
    network: onnx.ModelProto, model: T2TModel, varying: tuple[dict[int, object], ...]
) -> None:
    """Raises ExportError if some size of the example has become part of the graph."""
    for given, axes in zip(network.graph.input, varying, strict=True):
        for axis in axes:
            dim = given.type.tensor_type.shape.dim[axis]
            size = dim.dim_param or str(dim.dim_value)
            if size.isdecimal():
                raise ExportError(
                    f"{type(model).__name__} cannot be exported: axis {axis} of {given.name!r} is "
                    f"{size} in the graph, as in the example, and should vary. Some line "
                    "of the model reads a size as a number: take tensor.size() in place of len()."
                )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps what torch tells its own developers from users."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
