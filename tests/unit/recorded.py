"""Recorders at function boundaries: a function still does what it does, and a test sees what it was given and returned."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest


class Call(NamedTuple):
    """One call."""

    given: dict[str, Any]
    """Arguments by parameter name, however they were passed."""
    returned: Any
    note: Any
    """What `note` made of the arguments before the call: values that the call or later code changes."""


def recorded(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, note: Callable[[dict[str, Any]], Any] = lambda given: None
) -> list[Call]:
    """Replace `owner.name` (of a module or a class) by a recorder that calls through; returns the list that its calls join."""
    calls: list[Call] = []
    real = getattr(owner, name)
    signature = inspect.signature(real)

    def recorder(*positional: Any, **named: Any) -> Any:
        bound = signature.bind(*positional, **named)
        bound.apply_defaults()
        given = dict(bound.arguments)
        noted = note(given)
        returned = real(*positional, **named)
        calls.append(Call(given, returned, noted))
        return returned

    monkeypatch.setattr(owner, name, recorder)
    return calls
