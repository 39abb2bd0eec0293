"""What a checkpoint stores of a trial's attributes, and how a resumed run takes it back.

Only attributes that have changed since the trial's code made them are stored: those that the code
computes from the configuration follow a configuration that changes.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from absl import logging
from torch import Tensor, nn

from t2t_torch.compute.side_channel import SideChannel
from t2t_torch.errors import TrialError
from t2t_torch.trial.attribute_capture import MODEL, SCHEDULER, Capture, Made, Reader
from t2t_torch.trial.attribute_restore import ABSENT, Writer
from t2t_torch.trial.attribute_values import Node, drop_field, fields_of, is_of_user, set_field

if TYPE_CHECKING:
    import torch

    from t2t_torch.compute.distributed import World

_SELF = "self."
_DELETED = "deleted"
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

    Attributes:
      model: of the trial.
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
        self.model = model
        self._optimizer = optimizer
        self._schedulers = schedulers
        self._what = what
        self._device = next(model.parameters()).device
        self._warned: set[str] = set()
        self._made: Made | None = None
        made = self._read()
        self._made, self._digests = made.places, made.digests()

    def _owner(self, name: str) -> tuple[Any, str]:
        """Returns the object that has an attribute, and the attribute's own name."""
        owner, _, own = name.rpartition(".")
        if owner == "self":
            return self._trial, own
        return self._classes().get(owner), own

    def _classes(self) -> dict[str, type[Any]]:
        """Returns the trial's class and its own bases, each by a name that no other one has."""
        found: dict[str, type[Any]] = {}
        for kind in filter(is_of_user, type(self._trial).__mro__):
            taken = sum(other.__name__ == kind.__name__ for other in found.values())
            found[f"{kind.__name__}#{taken}" if taken else kind.__name__] = kind
        return found

    def _attributes(self) -> dict[str, Any]:
        """Returns the attributes of the trial and of its class, by their paths."""
        own = {f"{_SELF}{name}": value for name, value in fields_of(self._trial).items()}
        for label, kind in self._classes().items():
            own |= {
                f"{label}.{name}": value
                for name, value in vars(kind).items()
                if not name.startswith("__") and not hasattr(type(value), "__get__")
            }
        return dict(sorted(own.items(), key=lambda item: _order(item[0])))

    def _set(self, name: str, value: Any) -> None:
        owner, own = self._owner(name)
        if owner is None:
            raise TrialError(
                f"{self._what}: the checkpoint holds {name}, and the trial has no such class any "
                "more. Give the class its name again."
            )
        if owner is self._trial:
            set_field(owner, own, value)
        elif vars(owner).get(own, ABSENT) is not value:
            setattr(owner, own, value)

    def _drop(self, name: str) -> None:
        owner, own = self._owner(name)
        if owner is self._trial:
            drop_field(owner, own)
        elif own in vars(owner):
            delattr(owner, own)

    def _read(self, *, anew: bool = False) -> Capture:
        """Returns the values of all attributes.

        Args:
          anew: takes the objects that are there for those that were made at the start.

        Raises:
          TrialError: one cannot be stored, and a resumed run would go on differently.
        """
        known: dict[str, Any] = {"self": self._trial, "optimizer()": self._optimizer}
        known |= {f"{SCHEDULER}{n}": one for n, one in enumerate(self._schedulers())}
        for place, module in self.model.named_modules(prefix=MODEL):
            known |= {
                f"{place}.{name}": tensor
                for name, tensor in (
                    *vars(module)["_parameters"].items(),
                    *vars(module)["_buffers"].items(),
                )
                if tensor is not None and name not in module._non_persistent_buffers_set
            }
        reader = Reader(known, self._device, None if anew else self._made)
        try:
            reader.read(MODEL, self.model)
            for name, value in self._attributes().items():
                reader.read(name, value)
        except TrialError as error:
            raise TrialError(f"{self._what}: {error}") from None
        return reader.found

    def check(self) -> None:
        """Refuses values that a resumed run would lack.

        Raises:
          TrialError: training or an evaluation has made an optimizer, a generator or the like.
        """
        self._check(self._read())

    def _check(self, found: Capture) -> None:
        if found.late:
            raise TrialError(
                f"{self._what}: {_listed(found.late)} was made during training. A run that resumes "
                f"could not put its state back, as it would not be there yet. {_IN_TIME}"
            )
        if found.refused:
            raise TrialError(
                f"{self._what}: a checkpoint cannot store {_listed(found.refused)}, and a run that "
                "resumes could not leave it out. Keep numbers, strings, tensors, arrays, "
                "containers of these or objects of the trial's own classes there."
            )
        for path, kind in found.unstored.items():
            told = f"({kind}) is not stored in checkpoints: a run that resumes has what the trial's"
            self._warn(path, f"{told} code makes in its place")
        for path in found.graphs:
            told = "has a grad_fn: checkpoints store its numbers without the graph. Keep"
            self._warn(path, f"{told} tensor.detach()")

    def state(self, world: World) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Returns what has changed, as JSON, and the tensors; in all processes.

        Values that differ between processes are kept for each; where tensors differ, the leader's.

        Raises:
          TrialError: an optimizer or a scheduler differs between processes; or as `check`.
        """
        found = self._read()
        self._check(found)
        own = self._changed(found)
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
        tensors = {p: t for name in kept for p, t in found.tensors.get(name, {}).items()}
        return kept, tensors

    def _changed(self, found: Capture) -> dict[str, _Value]:
        """Returns the attributes that have changed, and those that refer to their objects."""
        digests = found.digests()
        names = {name for name, digest in digests.items() if digest != self._digests.get(name)}
        before = -1
        while len(names) != before:
            before = len(names)
            names |= {name for name, to in found.aliases.items() if to & names}
            names |= {root for name in names for root in found.moved.get(name, ())} & {*digests}
        changed = {
            name: _Value(found.nodes[name], digests[name], name in found.tensors)
            for name in digests
            if name in names
        }
        gone = self._digests.keys() - digests.keys()
        return changed | {name: _Value({_DELETED: True}, _DELETED, False) for name in sorted(gone)}

    def restore(self, kept: Mapping[str, Any], tensors: Mapping[str, Tensor], rank: int) -> None:
        """Puts back what `state` returned.

        Raises:
          TrialError: an object is not there any more, or is another one.
        """
        assert self._made is not None
        writer = Writer(tensors, self._device, self._made)
        for name, value in sorted(kept.items(), key=lambda item: _order(item[0])):
            each = value.get("each")
            if each is not None and rank >= len(each):
                self._warn(name, f"was stored for {len(each)} processes, and the first's is taken")
            node = value["all"] if each is None else each[rank if rank < len(each) else 0]
            if node is not None:
                self._write(writer, name, node)
        for path, kind in writer.unstored.items():
            self._warn(
                path, f"({kind}) is not in the checkpoint: it is as the trial's code made it"
            )

    def _write(self, writer: Writer, name: str, node: Node) -> None:
        if _DELETED in node:
            self._drop(name)
            return
        try:
            value = writer.value(node, name)
        except TrialError as error:
            raise TrialError(f"{self._what}: {error}") from None
        if name != MODEL and value is not ABSENT:
            self._set(name, value)

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Gives all attributes, and what they hold, back as they were."""
        undo = self.remember()
        try:
            yield
        finally:
            undo()

    def remember(self) -> Callable[[], None]:
        """Returns a function that restores all attributes as they are now."""
        before = self._read(anew=True)
        tensors = {p: t.clone() for own in before.tensors.values() for p, t in own.items()}

        def undo() -> None:
            for name in self._attributes().keys() - before.nodes.keys():
                self._drop(name)
            writer = Writer(tensors, self._device, before.places)
            for name, node in before.nodes.items():
                self._write(writer, name, node)

        return undo

    def _parted(self, name: str) -> str:
        return (
            f"{self._what}: {name}, or the weights that it trains, differs between the processes: "
            "only gradients of the loss that the trial returns are averaged. Train it in one "
            "process, or average its gradients (torch.distributed) before its step."
        )

    def _warn(self, name: str, told: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            logging.warning("%s: %s %s", self._what, name, told)


def _order(name: str) -> tuple[bool, bool, str]:
    """Orders attributes as they are read: what an alias names is there when it is reached."""
    return name != MODEL, not name.startswith(_SELF), name


def _listed(found: Mapping[str, str]) -> str:
    return ", ".join(f"{path} ({kind})" for path, kind in sorted(found.items()))
