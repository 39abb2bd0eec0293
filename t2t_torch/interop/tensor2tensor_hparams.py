"""Hyperparameters as tensor2tensor's users wrote them, and tensor2tensor's registry."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from absl import logging

from t2t_torch import registry
from t2t_torch.errors import HParamsError, RegistryError
from t2t_torch.hparam import HParams as OurHParams
from t2t_torch.interop.tensor2tensor_problems import PAGE, converted


class HParams:
    """Hyperparameters that can be set by attribute, `tensor2tensor.utils.hparam.HParams`.

    Args:
      base: hyperparameters of this library that are changed; None: those of every model.
      values: values by name.
    """

    def __init__(self, base: OurHParams | None = None, **values: Any) -> None:
        object.__setattr__(self, "_base", base or OurHParams())
        object.__setattr__(self, "_values", dict(values))
        object.__setattr__(self, "_added", set(values))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        values, base = self.__dict__["_values"], self.__dict__["_base"]
        if name in values:
            return values[name]
        if name in type(base).model_fields:
            return getattr(base, name)
        if name in type(base).unsupported:
            return type(base).unsupported[name].values[0]
        raise AttributeError(
            f"hparams have no {name!r}. Add it:  hparams.add_hparam({name!r}, ...)"
        )

    def __setattr__(self, name: str, value: Any) -> None:
        self._values[name] = value

    def __contains__(self, name: str) -> bool:
        kind = type(self._base)
        return name in self._values or name in kind.model_fields or name in kind.unsupported

    def add_hparam(self, name: str, value: Any) -> None:
        """Sets a hyperparameter, new or not."""
        self._values[name] = value
        self._added.add(name)

    set_hparam = add_hparam

    def del_hparam(self, name: str) -> None:
        """Removes a hyperparameter that was set."""
        self._values.pop(name, None)

    def get(self, name: str, default: Any = None) -> Any:
        """Returns a value, or the default if there is none."""
        return getattr(self, name) if name in self else default

    def values(self) -> dict[str, Any]:
        """Returns all values by name."""
        fields = type(self._base).model_fields
        return {**{name: getattr(self._base, name) for name in fields}, **self._values}

    def override_from_dict(self, values: dict[str, Any]) -> HParams:
        """Sets several values."""
        self._values.update(values)
        return self

    def parse(self, text: str) -> HParams:
        """Sets the values of "name=value,name=value"."""
        changed = self.ours().parse(text)
        for item in filter(None, text.split(",")):
            name = item.partition("=")[0].strip()
            self._values[name] = getattr(changed, name)
        return self

    def ours(self) -> OurHParams:
        """Returns hyperparameters of this library.

        Raises:
          HParamsError: a value changes the model to something that is not here.
        """
        base: OurHParams = self._base
        if type(base) is OurHParams and not self._values.keys() <= type(base).model_fields.keys():
            base = registry.model("transformer").HParams()  # that of most sets from nothing
        fields, changes, other = type(base).model_fields, {}, []
        for name, value in self._values.items():
            known = type(base).unsupported.get(name)
            if name in fields:
                value = value.lower() if name == "optimizer" else value
                changes[name] = tuple(value) if isinstance(value, list) else value
            elif known is not None and known.accepts(value):
                continue
            elif known.reads == "model" if known else name not in self._added:
                other.append(f"{name}={value!r}")
            else:
                logging.warning("No model here reads the hyperparameter %s=%r.", name, value)
        if other:
            raise HParamsError(
                f"no model here reads tensor2tensor's {', '.join(other)}. Leave it out; {PAGE} "
                "lists the hyperparameters that are here."
            )
        if changes.get("pos", "") is None:
            changes["pos"] = "none"
        return base.replace(**changes)


def basic_params1() -> HParams:
    """Returns tensor2tensor's basic set."""
    return HParams()


def set_named(name: str) -> Callable[[], HParams]:
    """Returns the function of a set, for modules such as `tensor2tensor.models.transformer`."""

    def made() -> HParams:
        return HParams(registry.hparams(name))

    made.__name__ = name
    return made


class _Set:
    """A user's function of hyperparameters, as one of this library.

    It stands in the user's file, where the registry looks for it.
    """

    def __init__(self, function: Callable[[], HParams]) -> None:
        functools.update_wrapper(self, function)
        self.__code__ = function.__code__
        self._function = function

    def __call__(self) -> OurHParams:
        made = self._function()
        if isinstance(made, OurHParams):
            return made
        if not isinstance(made, HParams):
            raise RegistryError(f"{self._function.__name__} returns {made!r}, no hyperparameters.")
        return made.ours()


def _decorator(register: Callable[[str | None, Any], Any]) -> Callable[..., Any]:
    """Returns a decorator with or without a name."""

    def decorate(target: Any = None) -> Any:
        if target is None or isinstance(target, str):
            return functools.partial(register, target)
        return register(None, target)

    return decorate


def _problem(name: str | None, user: Any) -> Any:
    name = name or registry.default_name(user.__name__, True)
    user.name = name
    try:
        ours: Any = converted(user, name)
    except RegistryError as error:
        ours = _refused(user, str(error))
    registry.register_problem(name)(ours)
    return user


def _refused(user: Any, reason: str) -> type:
    """Returns a class that raises an error when it is used; the rest of the user's file works."""

    def refuse(self: Any, **_: Any) -> None:
        raise RegistryError(reason)

    attributes = {
        "__init__": refuse,
        "__module__": user.__module__,
        "__qualname__": user.__qualname__,
        "__doc__": user.__doc__,
    }
    return type(user.__name__, (), attributes)


def _hparams(name: str | None, function: Any) -> Any:
    registry.register_hparams(name or function.__name__)(_Set(function))
    return function


def _ranged(name: str | None, function: Any) -> Any:
    registry.register_ranged_hparams(name or function.__name__)(function)
    return function


def _model(name: str | None, user: Any) -> Any:
    from t2t_torch.model import T2TModel

    name = name or registry.default_name(user.__name__, True)

    def refuse(self: Any, *_: Any, **__: Any) -> Any:
        raise RegistryError(
            f"model {name!r} is a model of TensorFlow ({user.__module__}). {PAGE} shows how to "
            "write it for torch."
        )

    attributes = {"__init__": refuse, "body": refuse, "__module__": user.__module__}
    registry.register_model(name)(type(user.__name__, (T2TModel,), attributes))
    return user


register_problem = _decorator(_problem)
register_hparams = _decorator(_hparams)
register_ranged_hparams = _decorator(_ranged)
register_model = _decorator(_model)


def problem(name: str) -> Any:
    """Returns a problem: a user's instance where it was written for tensor2tensor."""
    found: Any = registry.problem(name)
    return getattr(found, "user", found)


def hparams(name: str) -> HParams:
    """Returns the hyperparameters of a set."""
    return HParams(registry.hparams(name))
