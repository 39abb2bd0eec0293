"""What a checkpoint keeps of a trial's attributes, and how it is put back.

Only attributes that have changed since the trial's code made them are kept: what the code computes
from the configuration follows a configuration that changes.
"""

from __future__ import annotations

import collections
import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from absl import logging
from torch import Tensor, nn

from t2t_torch.compute.side_channel import SideChannel
from t2t_torch.errors import TrialError
from t2t_torch.trial.attribute_capture import (
    Capture,
    Node,
    Reader,
    generator_state,
    module_fields,
)
from t2t_torch.trial.plain_state import NOT_PLAIN, from_plain, to_plain

if TYPE_CHECKING:
    from t2t_torch.compute.distributed import World

_STRONG = {"optimizer", "generator", "state"}  # a resume needs the object itself
_MODEL = "build_model()"
_IN_TIME = "Make it in __init__, build_model or optimizer."


class _Value(NamedTuple):
    """An attribute's value in one process."""

    node: Node
    digest: str
    has_tensors: bool


class AttributeState:
    """The state of a trial's attributes, and of what its model keeps beside its weights.

    Args:
      trial: the instance of the user's class; its optimizer was made.
      model: of it.
      optimizer: that the loop steps.
      schedulers: returns those that are stored elsewhere.
      what: the trial, for errors.
    """

    def __init__(
        self,
        trial: Any,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        schedulers: Callable[[], list[Any]],
        what: str,
    ) -> None:
        self._trial = trial
        self._model = model
        self._known = [trial, optimizer]
        self._schedulers = schedulers
        self._what = what
        self._device = next(model.parameters()).device
        made = self._read()
        self._made, self._objects = made.digests(), set(made.objects)
        self._warned: set[str] = set()

    def _read(self) -> Capture:
        """Returns the values of all attributes.

        Raises:
          TrialError: one cannot be stored, and a resumed run would go on differently.
        """
        tensors = [
            tensor
            for module in self._model.modules()
            for name, tensor in (
                *vars(module)["_parameters"].items(),
                *vars(module)["_buffers"].items(),
            )
            if tensor is not None and name not in module._non_persistent_buffers_set
        ]
        storages = [t.untyped_storage().data_ptr() for t in tensors if t.numel()]
        reader = Reader([*self._known, *self._schedulers(), *tensors], storages)
        try:
            reader.read(_MODEL, self._model)
            for name, value in getattr(self._trial, "__dict__", {}).items():
                reader.read(f"self.{name}", value)
        except TrialError as error:
            raise TrialError(f"{self._what}: {error}") from None
        return reader.found

    def check(self) -> None:
        """Refuses objects that a resumed run would lack.

        Raises:
          TrialError: training or an evaluation has made an optimizer, a generator or the like.
        """
        self._check(self._read())

    def _check(self, found: Capture) -> None:
        late = sorted(found.needed - self._objects)
        if late:
            told = ", ".join(f"{path} ({found.objects[path]})" for path in late)
            raise TrialError(
                f"{self._what}: {told} was made during training. A run that resumes could not put "
                f"its state back, as it would not be there yet. {_IN_TIME}"
            )

    def state(self, world: World) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Returns what has changed, as JSON can say it, and the tensors; in all processes.

        Values that differ between processes are kept for each; where tensors differ, the leader's.

        Raises:
          TrialError: an optimizer or a scheduler has parted in the processes; or as `check`.
        """
        found = self._read()
        self._check(found)
        digests = found.digests()
        own = {
            name: _Value(found.nodes[name], digest, bool(found.below(name, found.tensors)))
            for name, digest in digests.items()
            if digest != self._made.get(name)
        }
        told: list[dict[str, _Value]] = [own]
        if world.size > 1:
            channel = SideChannel(world.rank, world.size, world.decisions)
            texts = channel.exchange(json.dumps(own))
            told = [{name: _Value(*v) for name, v in json.loads(t).items()} for t in texts]
        kept: dict[str, Any] = {}
        for name in {name: None for one in told for name in one}:
            values = [one.get(name) for one in told]
            leaders = values[0]
            if leaders and all(v and v.digest == leaders.digest for v in values):
                kept[name] = {"all": leaders.node}
                continue
            if name in found.trains:
                raise TrialError(self._parted(name))
            if not any(v and v.has_tensors for v in values):
                kept[name] = {"each": [v and v.node for v in values]}
                continue
            self._warn(name, "differs between processes, and the leader's is stored")
            if leaders:
                kept[name] = {"all": leaders.node}
        tensors = {p: t for name in kept for p, t in found.below(name, found.tensors).items()}
        return kept, tensors

    def restore(self, kept: Mapping[str, Any], tensors: Mapping[str, Tensor], rank: int) -> None:
        """Puts back what `state` returned.

        Raises:
          TrialError: an object is not there any more, or is another one.
        """
        writer = Writer(tensors, self._device)
        for name, value in kept.items():
            each = value.get("each")
            if each is not None and rank >= len(each):
                self._warn(name, f"was stored for {len(each)} processes, and the first's is taken")
            node = value["all"] if each is None else each[rank if rank < len(each) else 0]
            if name == _MODEL:
                writer.value(node, self._model, name)
                continue
            own = self._trial.__dict__
            attribute = name.removeprefix("self.")
            if node is not None and "object" in node and own.get(attribute) is None:
                self._warn(name, f"is not there, and begins anew. {_IN_TIME}")
                continue
            own[attribute] = writer.value(node, own.get(attribute), name)

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Gives all attributes, and what they hold, back as they were."""
        own = getattr(self._trial, "__dict__", {})
        attributes, before = dict(own), self._read()
        writer = Writer({p: t.clone() for p, t in before.tensors.items()}, self._device)
        try:
            yield
        finally:
            own.clear()
            own.update(attributes)
            writer.value(before.nodes.pop(_MODEL, None), self._model, _MODEL)
            for name, node in before.nodes.items():
                attribute = name.removeprefix("self.")
                own[attribute] = writer.value(node, own[attribute], name)

    def _parted(self, name: str) -> str:
        return (
            f"{self._what}: {name}, or the weights that it trains, has become another one in other "
            "processes: only gradients of the loss that the trial returns are averaged. Train it "
            "in one process, or average its gradients (torch.distributed) before its step."
        )

    def _warn(self, name: str, told: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            logging.warning("%s: %s %s", self._what, name, told)


def _set_generator(made: Any, known: Any) -> None:
    if isinstance(made, torch.Generator):
        made.set_state(torch.tensor(list(bytes.fromhex(known)), dtype=torch.uint8))
    elif isinstance(made, np.random.Generator):
        made.bit_generator.state = from_plain(made.bit_generator.state, known)
    elif isinstance(made, np.random.RandomState):
        made.set_state(from_plain(made.get_state(legacy=False), known))
    else:
        made.setstate(from_plain(made.getstate(), known))


class Writer:
    """Puts stored values back.

    Args:
      tensors: of the checkpoint, by their path.
      device: where new tensors go.
    """

    def __init__(self, tensors: Mapping[str, Tensor], device: torch.device) -> None:
        self._tensors = tensors
        self._device = device

    @torch.no_grad()
    def value(self, node: Node | None, made: Any, path: str) -> Any:
        """Returns the value of a node: the object that is there, filled, or a new one.

        Raises:
          TrialError: there is no such object, or a tensor of another shape.
        """
        if node is None:
            return made
        kind, content = next(iter(node.items()))
        writer: Callable[[Any, Any, str], Any] = getattr(self, f"_{kind}")
        if kind == "tensor":
            return self._tensor(content, made, path, on_cpu=node["scalar_on_cpu"])
        if kind in _STRONG and made is None:
            raise TrialError(
                f"the checkpoint holds the state of {path}, and the trial does not make it any "
                "more. Make it where it was made then."
            )
        return writer(content, made, path)

    def _plain(self, content: Any, made: Any, path: str) -> Any:
        del path
        return from_plain(made, content)

    def _tensor(self, content: str, made: Any, path: str, *, on_cpu: bool) -> Tensor:
        stored = self._tensors[content]
        if not isinstance(made, Tensor):
            return stored.clone() if on_cpu else stored.to(self._device, copy=True)
        if made.shape == stored.shape and made.dtype == stored.dtype:
            made.detach().copy_(stored)
            return made
        if isinstance(made, nn.Parameter):
            raise TrialError(
                f"{path} has the shape {list(made.shape)}, and {list(stored.shape)} in the "
                "checkpoint. Make it as it was made then."
            )
        return stored.to(made.device, copy=True)

    def _array(self, content: str, made: Any, path: str) -> Any:
        del path
        stored = self._tensors[content].numpy()
        if isinstance(made, np.ndarray) and made.shape == stored.shape and made.flags.writeable:
            made[...] = stored
            return made
        return stored.copy()

    def _generator(self, content: Any, made: Any, path: str) -> Any:
        if generator_state(made) is None:
            raise TrialError(f"{path} is no generator of random numbers any more, as it was.")
        _set_generator(made, content)
        return made

    def _list(self, content: list[Node | None], made: Any, path: str) -> Any:
        known = list(made) if isinstance(made, list | tuple | collections.deque) else []
        known += [None] * (len(content) - len(known))
        items = [self.value(n, known[i], f"{path}[{i}]") for i, n in enumerate(content)]
        if isinstance(made, tuple):
            return type(made)(*items) if hasattr(made, "_fields") else tuple(items)
        if not isinstance(made, list | collections.deque):
            return items
        made.clear()
        made.extend(items)
        return made

    def _map(self, content: list[list[Any]], made: Any, path: str) -> Any:
        kept = made if isinstance(made, collections.abc.MutableMapping) else {}
        found = {}
        for key, node in content:
            name = from_plain(None, key)
            name = tuple(name) if isinstance(name, list) else name
            if node is not None or name in kept:
                found[name] = self.value(node, kept.get(name), f"{path}[{name!r}]")
        for name in [n for n in kept if n not in found and to_plain(n) is not NOT_PLAIN]:
            del kept[name]
        kept.update(found)
        return kept

    def _state(self, content: Node, made: Any, path: str) -> Any:
        made.load_state_dict(self._map(content["map"], dict(made.state_dict()), path))
        return made

    def _object(self, content: Mapping[str, Node], made: Any, path: str) -> Any:
        if made is None:
            return None
        fields = module_fields(made) if isinstance(made, nn.Module) else vars(made)
        for name, node in content.items():
            before = fields.get(name)
            after = self.value(node, before, f"{path}.{name}")
            if after is not before:
                setattr(made, name, after)
        return made

    def _optimizer(self, content: Mapping[str, Any], made: Any, path: str) -> Any:
        held = [parameter for group in made.param_groups for parameter in group["params"]]
        groups = content["settings"]
        if len(held) != len(content["parameters"]) or len(groups) != len(made.param_groups):
            raise TrialError(
                f"{path} trains {len(held)} parameters in {len(made.param_groups)} groups, and "
                f"{len(content['parameters'])} in {len(groups)} when the checkpoint was written. "
                "Make it as it was made then."
            )
        for group, node in zip(made.param_groups, groups, strict=True):
            parameters = group.pop("params")
            self._map(node["map"], group, path)
            group["params"] = parameters
        for place, (parameter, node) in enumerate(zip(held, content["parameters"], strict=True)):
            self.value(node["weight"], parameter, f"{path}.{place}")
            parameter.grad = self._beside(parameter).value(node["grad"], None, path)
            slots = self._beside(parameter)._map(node["slots"]["map"], {}, path)
            if slots:
                made.state[parameter] = slots
            else:
                made.state.pop(parameter, None)
        return made

    def _beside(self, parameter: Tensor) -> Writer:
        return Writer(self._tensors, parameter.device)
