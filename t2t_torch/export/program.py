"""A model's network as a program of torch.export: numbers of features in, guesses out.

torch.export writes the length of its example into an `nn.LSTM`.  So each is traced as an operation
of any length, in whose place torch's own is put: whoever loads the program needs torch alone.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from t2t_torch.ensemble import Ensemble
from t2t_torch.errors import ExportError
from t2t_torch.export.network import Network, axes_of, frozen, quiet
from t2t_torch.model import T2TModel

_FORWARD = (True, 1, 0.0, False, False, True)
"""With biases, one layer, no dropout, not in training, one direction, batch first."""


@torch.library.custom_op("t2t_torch::lstm_of_any_length", mutates_args=())
def lstm_of_any_length(
    x: Tensor,
    start: Tensor,
    weight: Tensor,
    recurrent_weight: Tensor,
    bias: Tensor,
    recurrent_bias: Tensor,
) -> Tensor:
    """Returns what one layer and direction of `nn.LSTM` gives.

    Args:
      x: [B, S, E].
      start: output and cell before the first position, [1, B, H].
      weight: [4 H, E].
      recurrent_weight: [4 H, H].
      bias: [4 H].
      recurrent_bias: [4 H].

    Returns:
      [B, S, H].
    """
    weights = [weight, recurrent_weight, bias, recurrent_bias]
    return torch.lstm(x, (start, start), weights, *_FORWARD)[0].clone()


@lstm_of_any_length.register_fake
def _(
    x: Tensor,
    start: Tensor,
    weight: Tensor,
    recurrent_weight: Tensor,
    bias: Tensor,
    recurrent_bias: Tensor,
) -> Tensor:
    return x.new_empty(x.size(0), x.size(1), recurrent_weight.size(1))


class _AnyLength(nn.Module):
    """What stands for an `nn.LSTM` while it is traced.

    Args:
      lstm: of one layer and direction, batch first.
    """

    def __init__(self, lstm: nn.LSTM) -> None:
        super().__init__()
        assert lstm.num_layers == 1 and lstm.batch_first and not lstm.bidirectional
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        self.weights = nn.ParameterList(getattr(lstm, name) for name in names)
        self.hidden_size = lstm.hidden_size

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        """See `nn.LSTM.forward`; what it remembers is not returned."""
        start = x.new_zeros(1, x.size(0), self.hidden_size)
        return lstm_of_any_length(x, start, *self.weights), None


class _OfBatch(nn.Module):
    """A network that takes a batch.

    Args:
      network: takes the features' values.
      names: of the features, in this order.
    """

    def __init__(self, network: Network, names: list[str]) -> None:
        super().__init__()
        self.network = network
        self._names = names

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns what `Network` does."""
        found: dict[str, Tensor] = self.network(*(batch[name] for name in self._names))
        return found


def program_of(
    model: T2TModel | Ensemble, example: Mapping[str, Tensor]
) -> torch.export.ExportedProgram:
    """Returns a model's network, for batches of any size and any lengths, in float32.

    It is called with a batch, features by name, and returns what `network.export_network` says.

    Args:
      model: that answers with labels, numbers, spans or tags; it stays as it is.
      example: a batch as the pipeline gives it, without targets, on the CPU.  At least two rows,
        of several words.

    Raises:
      ExportError: it holds operations that depend on the batch.
    """
    still = frozen(model)
    _replace_lstms(still)
    network = _OfBatch(Network(still, list(example)), list(example)).eval()
    varying = {
        name: dict.fromkeys(axes, torch.export.Dim.AUTO)
        for name, axes in axes_of(model.features, example).items()
    }
    try:
        with torch.no_grad(), quiet():
            program = torch.export.export(
                network, (dict(example),), dynamic_shapes=(varying,), strict=False
            )
    except (RuntimeError, TypeError, ValueError) as error:
        why, *_ = (str(error).strip() or type(error).__name__).splitlines()
        raise ExportError(
            f"{type(model).__name__} cannot be a program of torch.export: {why} Export the weights "
            "alone: --format=safetensors"
        ) from error
    _check_varies(program, type(model).__name__, varying)
    _put_lstms(program)
    # From which length on the example was traced: torch has no public call to forget it.  Rows of
    # one word, or none, are among those that are verified.
    ranges = program._range_constraints
    program._range_constraints = dict.fromkeys(ranges, ValueRanges(1, int_oo))
    program._guards_code = []
    return program


def _check_varies(
    program: torch.export.ExportedProgram, model: str, varying: Mapping[str, Mapping[int, Any]]
) -> None:
    """Raises ExportError if some size of the example has become part of the program."""
    values = {node.name: node.meta["val"] for node in program.graph.find_nodes(op="placeholder")}
    given = [values[name] for name in program.graph_signature.user_inputs]
    for (name, axes), value in zip(varying.items(), given, strict=True):
        for axis in axes:
            size = value.shape[axis]
            size = size if isinstance(size, int) else size.node.maybe_as_int()
            if size is not None:
                raise ExportError(
                    f"{model} cannot be a program of torch.export: axis {axis} of {name!r} would "
                    f"always be {size}, as in the example. Export the weights alone: "
                    "--format=safetensors"
                )


def _replace_lstms(module: nn.Module) -> None:
    for name, child in list(module.named_children()):
        if isinstance(child, nn.LSTM):
            setattr(module, name, _AnyLength(child))
        else:
            _replace_lstms(child)


def _put_lstms(program: torch.export.ExportedProgram) -> None:
    """Puts torch's own LSTM in the place of each operation that has stood for one."""
    graph = program.graph
    for node in list(graph.nodes):
        if node.target is not torch.ops.t2t_torch.lstm_of_any_length.default:
            continue
        x, start, *weights = node.args
        outputs = node.meta["val"]
        with graph.inserting_before(node), outputs.fake_mode:
            given: Any = (x, [start, start], weights, *_FORWARD)
            own = graph.call_function(torch.ops.aten.lstm.input, given)
            after = outputs.new_empty(1, outputs.size(0), outputs.size(2))
            own.meta["val"] = (outputs, after, after.clone())
            first = graph.call_function(operator.getitem, (own, 0))
            first.meta["val"] = outputs
        node.replace_all_uses_with(first)
        graph.erase_node(node)
    program.graph_module.recompile()
