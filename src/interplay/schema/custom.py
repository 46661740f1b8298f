"""Functions of the user's own, named in a study."""

import inspect
import traceback
import types
from collections.abc import Callable
from typing import Any, Literal

from interplay.schema.base import Model, UserError, plural


class Custom(Model):
    """A function of the user's: `file.py:function`, the file lying beside the study's YAML."""

    name: Literal["custom"] = "custom"
    function: str
    """`file.py:function`, relative to the study's folder."""
    source: str = ""
    """Full source of the file; filled in when the study is planned, so that its content is part of the identity."""
    options: dict[str, float | int | str | bool] = {}
    """Passed to the function as keyword arguments."""


def load(spec: Custom) -> Callable[..., Any]:
    """The function that `spec` names, made from the source it carries: the file may have changed or be on another machine.

    Raises UserError when the source does not run or does not define the function."""
    file, _, name = spec.function.rpartition(":")
    module = types.ModuleType(file.removesuffix(".py").replace("/", "."))
    try:
        exec(compile(spec.source, file, "exec"), module.__dict__)
    except Exception as error:
        raise UserError(f"{spec.function}: {file} does not run ({type(error).__name__}: {error})") from error
    function = module.__dict__.get(name)
    if not callable(function):
        raise UserError(f"{spec.function}: {file} defines no function '{name}'; give file.py:function")
    return function


def call(spec: Custom, function: Callable[..., Any], *given: Any) -> Any:
    """What the function returns. Raises UserError when it does not take what it is given, or fails, with its line."""
    try:
        inspect.signature(function).bind(*given, **spec.options)
    except TypeError as error:
        options = "".join(f", {name}" for name in spec.options)
        wanted = plural(len(given), "argument")
        raise UserError(f"{spec.function}: must take {wanted}{options} ({error})") from None
    try:
        return function(*given, **spec.options)
    except Exception as error:  # whatever the study's own code raises is the study's to mend
        file = spec.function.rpartition(":")[0]
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        at = f" at line {lines[-1]}" if lines else ""
        raise UserError(f"{spec.function}: fails{at} ({type(error).__name__}: {error})") from error
