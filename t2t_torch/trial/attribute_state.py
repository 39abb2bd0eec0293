"""State of a trial's attributes: stored in checkpoints, restored when a run resumes.

Only attributes that changed after their creation are stored: attributes computed from the
configuration follow changes of the configuration.  A change that cannot be stored is an error,
unless the trial names the attribute in `transient`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from absl import logging
from torch import Tensor, nn

from t2t_torch.errors import TrialError
from t2t_torch.trial.attribute_values import MODEL, Capture, Node, Objects, Restore
from t2t_torch.trial.user_code import is_of_user

if TYPE_CHECKING:
    from t2t_torch.distributed.process_group import World

_SELF = "self."
_DELETED: Node = {"deleted": True}


class AttributeState:
    """State of the attributes of a trial and of its model, apart from the model's weights.

    Args:
      trial: instance of the trial class; its optimizer has been created.
      model: model of the trial.
      optimizer: optimizer that the loop steps.
      known: other objects that are stored elsewhere.
      what: name of the trial, for error messages.

    Attributes:
      model: model of the trial.

    Raises:
      TrialError: an attribute can never be stored, such as an iterator.
    """

    def __init__(
        self,
        trial: Any,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        known: Iterable[Any],
        what: str,
    ) -> None:
        self._trial = trial
        self.model = model
        self._known = {"self": trial, "optimizer()": optimizer}
        self._known |= {f"scheduler {number}": one for number, one in enumerate(known)}
        self._what = what
        self._device = next(model.parameters()).device
        transient = getattr(type(trial), "transient", ())
        self._transient = (transient,) if isinstance(transient, str) else tuple(transient)
        self._warned: set[str] = set()
        start = self._capture()
        self._refuse(start.refused)
        self._start, self._digests = start.objects, start.digests()

    def _capture(self, start: Objects | None = None) -> Capture:
        """Returns the values of all attributes of the model, the trial and the trial's class."""
        named = (*self.model.named_parameters(), *self.model.named_buffers())
        stored = self.model.state_dict()  # by the loop
        known = self._known | {f"{MODEL}.{name}": t for name, t in named if name in stored}
        attributes = {MODEL: self.model}
        attributes |= {f"{_SELF}{n}": v for n, v in sorted(vars(self._trial).items())}
        for kind in filter(is_of_user, reversed(type(self._trial).__mro__)):
            attributes |= {f"{kind.__name__}.{n}": v for n, v in _values_of(kind).items()}
        return Capture(attributes, known, self._device, self._transient, start)

    def check(self) -> None:
        """Checks that a checkpoint can store all changes.

        Raises:
          TrialError: it cannot.
        """
        self._changed()

    def _changed(self) -> tuple[Capture, dict[str, str]]:
        """Returns the values of all attributes, and the hashes of those that changed."""
        capture = self._capture(self._start)
        digests = capture.digests().items()
        changed = {name: digest for name, digest in digests if digest != self._digests.get(name)}
        of_class = {n: "class attribute" for n in changed if not n.startswith((_SELF, MODEL))}
        self._refuse(of_class | capture.refused)
        return capture, changed

    def _refuse(self, refused: Mapping[str, str]) -> None:
        outer = [path for path in sorted(refused) if not _is_within(path, refused)]
        if outer:
            listed = ", ".join(f"{path} ({refused[path]})" for path in outer)
            names = sorted({re.findall(r"\.(\w+)", path)[-1] for path in outer})
            raise TrialError(
                f"{self._what}: {listed} changed after build_model, and a checkpoint cannot store "
                "it. Keep numbers, strings, tensors, arrays, or lists, tuples, dicts and sets of "
                "these; or give its class state_dict and load_state_dict, and create it in "
                "__init__, build_model or optimizer; or list it in the trial's class, transient = "
                f"{(*names,)}: a resumed run then has what the trial's code creates."
            )

    def state(self, world: World) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Returns the changed values in JSON form, and their tensors; a collective call.

        Values that differ between processes are stored per process; for tensors, the leader's are
        stored.

        Raises:
          TrialError: an optimizer or a scheduler differs between processes; or see `check`.
        """
        capture, changed = self._changed()
        own = {n: (capture.nodes[n], digest, n in capture.tensors) for n, digest in changed.items()}
        gone = self._digests.keys() - capture.nodes.keys()
        own |= dict.fromkeys(sorted(gone), (_DELETED, "", False))
        processes = world.gather(own)
        stored: dict[str, Any] = {}
        for name in dict.fromkeys(itertools.chain(*processes)):
            values = [one.get(name) for one in processes]
            nodes = [value and value[0] for value in values]
            if all(v and values[0] and v[1] == values[0][1] for v in values):
                stored[name] = {"all": nodes[0]}
            elif name in capture.trains:
                raise TrialError(
                    f"{self._what}: {name}, or the weights that it trains, differs between the "
                    "processes: only gradients of the loss that the trial returns are averaged. "
                    "Train it in one process, or average its gradients (torch.distributed) before "
                    "its step."
                )
            elif not any(v and v[2] for v in values):
                stored[name] = {"each": nodes}
            else:
                self._warn(name, "differs between processes, and the leader's is stored")
                stored |= {name: {"all": nodes[0]}} if nodes[0] else {}
        tensors = {p: t for name in stored for p, t in capture.tensors.get(name, {}).items()}
        return stored, tensors

    def restore(self, stored: Mapping[str, Any], tensors: Mapping[str, Tensor], rank: int) -> None:
        """Restores the result of `state`.

        Raises:
          TrialError: an object no longer exists, or has another type.
        """
        restore = Restore(tensors, self._device, self._start)
        for name, value in sorted(stored.items(), key=lambda item: (item[0] != MODEL, item[0])):
            each = value.get("each", [value.get("all")])
            if len(each) > 1 and rank >= len(each):
                self._warn(name, f"was stored for {len(each)} processes, and the first's is taken")
            node = each[rank if rank < len(each) else 0]
            if name != MODEL and not name.startswith(_SELF):
                node = {"class attribute": node}  # earlier versions stored them
            if node is not None and name.removeprefix(_SELF) not in self._transient:
                self._write(restore, name, node)

    def _write(self, restore: Restore, name: str, node: Node) -> None:
        own = name.removeprefix(_SELF)
        if node == _DELETED:
            vars(self._trial).pop(own, None)
            return
        try:
            value = restore.value(node, name)
        except TrialError as error:
            raise TrialError(f"{self._what}: {error}") from None
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            raise TrialError(
                f"{self._what}: {name} cannot be restored from the checkpoint: {error}. Create it "
                "as when the checkpoint was written."
            ) from error
        if own != name:
            vars(self._trial)[own] = value

    def remember(self) -> Callable[[], None]:
        """Returns a function that restores the current values of all attributes."""
        before = self._capture()
        tensors = {p: t.clone() for own in before.tensors.values() for p, t in own.items()}
        names = {*vars(self._trial)}

        def undo() -> None:
            for name in vars(self._trial).keys() - names - {*self._transient}:
                del vars(self._trial)[name]
            restore = Restore(tensors, self._device, before.objects)
            for name, node in before.nodes.items():
                self._write(restore, name, node)

        return undo

    def _warn(self, name: str, message: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            logging.warning("%s: %s %s", self._what, name, message)


def _is_within(path: str, others: Iterable[str]) -> bool:
    return any(path.startswith((f"{other}.", f"{other}[")) for other in others)


def _values_of(kind: type[Any]) -> dict[str, Any]:
    """Returns the attributes of a class that are not methods or descriptors."""
    return {
        name: value
        for name, value in vars(kind).items()
        if not name.startswith("__") and not hasattr(type(value), "__get__")
    }
