"""The algebra of arms: axes (grid, zip, one at a time, nested) and excludes become one arm per combination. Pure data."""

import itertools
import json
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from interplay.core.model import UserError, nearest_name, shorten_value
from interplay.study.spec import Arm, Nested

MOST_ARMS = 100_000
"""Combinations of one arm: more is a slip of the pen."""
LONGEST = 120
"""Characters of a combination's tag; its name is also that of a folder."""

SPLIT = "split"
"""What keys of axes over the split of a budget begin with."""

Own = Callable[[Arm, str], Any]
"""(arm, key) -> the value of the key in the arm before its axes: from `set`, stage, scale or schema; None where it has none."""
Tree = dict[str, dict[str, Any]]
Row = tuple[dict[str, Any], dict[str, Any]]
"""What the axes choose, and what they choose at the centre of `one_at_a_time` that it belongs to."""


class Combination(NamedTuple):
    """One arm of the plan."""

    group: str
    """The arm of the study that it comes from."""
    path: list[str]
    control: str | None
    """Name of a combination."""
    set: dict[str, Any]
    """All that it puts in place of the stages' own values: the arm's `set`, and its axes above that."""
    axes: dict[str, Any]
    """The part that its axes choose."""
    differs: list[str]
    worked_out: tuple[str, ...] = ()
    """Keys of `set` that the study does not write: a split of a budget gives them."""


def expand(arms: dict[str, Arm], own: Own, where: str) -> dict[str, Combination]:
    """Every arm by name, in order; one with axes as one combination each. Raises UserError for axes that say nothing."""
    found: dict[str, Combination] = {}
    centres: dict[str, str] = {}
    for group, arm in arms.items():
        spot = f"{where}: arms.{group}"
        if "[" in group:
            raise UserError(f"{spot}: choose a name without '['; brackets stand for the values of axes")
        _axes_are_clear(arm, spot)
        tags = _short_names(_axes(arm))
        for chosen, centre in _rows(arm, own, spot):
            name = _name(group, chosen, tags, spot)
            if name in found:
                raise UserError(f"{spot}: {name} is made twice; give each value of an axis once")
            found[name] = Combination(group, arm.path, arm.control, {**arm.set, **chosen}, chosen, arm.differs)
            if chosen != centre:
                centres[name] = _name(group, centre, tags, spot)
    return {name: made._replace(control=_control(name, made, centres.get(name), found, where)) for name, made in found.items()}


def replaced(stages: Tree, changes: dict[str, Any], where: str) -> Tree:
    """The stages with `stage.key...: value` put in place; a value replaces what stood there, mixes included. A key is
    applied before those that lead into its value: the order in which a study writes them has no meaning."""
    result = dict(stages)
    for dotted in sorted(changes, key=lambda key: key.count(".")):
        value = changes[dotted]
        stage, *keys = dotted.split(".")
        if stage not in result or not keys:
            raise UserError(f"{where}: {dotted}: must be stage.key{nearest_name(stage, result)}")
        result[stage] = _put(result[stage], keys, value, f"{where}: {dotted}")
    return result


def _put(here: dict[str, Any], keys: list[str], value: Any, where: str) -> dict[str, Any]:
    first, *rest = keys
    if rest:
        inner = here.get(first, {})
        if not isinstance(inner, dict):
            raise UserError(f"{where}: '{first}' holds a value, not keys")
        value = _put(inner, rest, value, where)
    return {**here, first: value}


def same(one: Any, other: Any) -> bool:
    """Whether two YAML values mean the same; `true` is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


# -- axes ----------------------------------------------------------------------------------------------------------------


def _axes(arm: Arm) -> dict[str, list[Any]]:
    """Every axis of the arm with its values, in the order in which they name a combination."""
    nested = {key: axis.values for key, axis in arm.nested.items()}
    return {**arm.grid, **arm.zip, **arm.one_at_a_time, **nested}


def _axes_are_clear(arm: Arm, spot: str) -> None:
    """No key is set twice, no axis is empty, and lists that are walked in step are of one length."""
    seen: dict[str, str] = {}
    for name in ("set", "grid", "zip", "one_at_a_time", "nested"):
        for key in getattr(arm, name):
            clash = next((old for old in seen if key == old or key.startswith(f"{old}.") or old.startswith(f"{key}.")), None)
            around_set = clash is not None and seen[clash] == "set" and (name == "one_at_a_time" or key != clash)
            if clash is not None and not around_set and name != "set":
                raise UserError(f"{spot}.{name}.{key}: {seen[clash]} has {clash} already; keep one of them")
            seen[key] = name
    for key, values in _axes(arm).items():
        if not values:
            raise UserError(f"{spot}.{seen[key]}.{key} = []: no values; give one at least, or leave the key out")
    lengths = {key: len(values) for key, values in arm.zip.items()}
    if len(set(lengths.values())) > 1:
        counted = ", ".join(f"{key} has {count}" for key, count in lengths.items())
        raise UserError(f"{spot}.zip: lists of unequal length: {counted}; give each key as many values")
    count = math.prod([len(values) for values in [*arm.grid.values(), *(axis.values for axis in arm.nested.values())]])
    if count > MOST_ARMS:
        raise UserError(f"{spot}: {count} combinations; {MOST_ARMS} is the most, so leave out values or axes")


def _rows(arm: Arm, own: Own, spot: str) -> list[Row]:
    """Every combination that is not excluded."""
    around = [(key, value) for key, values in arm.one_at_a_time.items() for value in values if not same(value, own(arm, key))]
    alone = [{}, *({key: value} for key, value in around)]
    if arm.one_at_a_time and len(alone) == 1:
        raise UserError(f"{spot}.one_at_a_time: every value is the arm's own; give others")
    steps = [dict(zip(arm.zip, values, strict=True)) for values in zip(*arm.zip.values(), strict=True)] or [{}]
    grid = [dict(zip(arm.grid, values, strict=True)) for values in itertools.product(*arm.grid.values())]
    rows = [({**one, **step, **single}, {**one, **step}) for one in grid for step in steps for single in alone]
    for key, axis in arm.nested.items():
        rows = _nested(arm, rows, key, axis, own, f"{spot}.nested.{key}")
    return _kept(arm, rows, own, spot)


def _nested(arm: Arm, rows: list[Row], key: str, axis: Nested, own: Own, spot: str) -> list[Row]:
    """The rows, each in which the axis is active once per value. A centre takes the value too where the axis is active in it."""
    if not axis.under:
        raise UserError(f"{spot}.under: empty; name a key and its values, or put the axis into grid")
    active = [_matches(arm, chosen, axis.under, own) for chosen, _ in rows]
    if not any(active):
        raise UserError(f"{spot}.under: never active: no combination has {_pairs(axis.under)}; mend it")
    found: list[Row] = []
    for (chosen, centre), on in zip(rows, active, strict=True):
        if not on:
            found.append((chosen, centre))
            continue
        centre_on = _matches(arm, centre, axis.under, own)
        found += [({**chosen, key: value}, {**centre, key: value} if centre_on else centre) for value in axis.values]
    return found


def _kept(arm: Arm, rows: list[Row], own: Own, spot: str) -> list[Row]:
    """The rows without those that an exclude names."""
    axes = _axes(arm)
    for number, entry in enumerate(arm.exclude):
        place = f"{spot}.exclude.{number}"
        if unknown := [key for key in entry if key not in axes]:
            raise UserError(f"{place}.{unknown[0]}: not an axis of this arm{nearest_name(unknown[0], axes)}")
        under = {key: [value] for key, value in entry.items()}
        left = [row for row in rows if not (entry and _matches(arm, row[0], under, own))]
        if len(left) == len(rows):
            raise UserError(f"{place}: leaves out nothing: no combination has {_pairs(under)}; mend it or take it away")
        rows = left
    if not rows:
        raise UserError(f"{spot}.exclude: leaves no combination; take one away")
    return rows


def _matches(arm: Arm, chosen: dict[str, Any], under: dict[str, list[Any]], own: Own) -> bool:
    """Whether each of the keys has one of its values."""
    here = {key: chosen[key] if key in chosen else own(arm, key) for key in under}
    return all(any(same(here[key], value) for value in values) for key, values in under.items())


def _pairs(under: dict[str, list[Any]]) -> str:
    return " and ".join(f"{key} = {' or '.join(map(shorten_value, values))}" for key, values in under.items())


# -- names and controls ----------------------------------------------------------------------------------------------------


def _short_names(axes: dict[str, list[Any]]) -> dict[str, str]:
    """For each key its last parts, as few as tell it from the other axes."""
    parts = {key: key.split(".") for key in axes}
    found = {}
    for key, own in parts.items():
        others = [other for name, other in parts.items() if name != key]
        size = next(n for n in range(1, len(own) + 1) if n == len(own) or all(other[-n:] != own[-n:] for other in others))
        found[key] = ".".join(own[-size:])
    return found


def _name(group: str, chosen: dict[str, Any], names: dict[str, str], spot: str) -> str:
    tag = ",".join(f"{name}={short(chosen[key])}" for key, name in names.items() if key in chosen)
    if len(tag) > LONGEST:
        raise UserError(f"{spot}: [{tag[:40]}...] is too long a name; declare arms of their own, with set")
    return f"{group}[{tag}]" if tag else group


def named(group: str, chosen: dict[str, Any]) -> str:
    """Name of what an arm with these values of its axes would be called."""
    return _name(group, chosen, _short_names({key: [value] for key, value in chosen.items()}), group)


def short(value: Any) -> str:
    """A value within a name: `dapo`, `0.01`, `edge:0.5+corpus:0.5`."""
    if isinstance(value, dict):
        return "+".join(f"{key}:{short(item)}" for key, item in value.items())
    if isinstance(value, list):
        return "+".join(map(short, value))
    return value.replace("/", "_") if isinstance(value, str) else json.dumps(value, default=str)


def _control(name: str, made: Combination, centre: str | None, found: dict[str, Combination], where: str) -> str | None:
    """The combination that this one is compared with."""
    if centre in found:
        return centre
    control, tag = made.control, name.removeprefix(made.group)
    if control is None or (control == name and tag):
        return None
    spot = f"{where}: arms.{made.group}.control = {control!r}"
    if control == name:
        raise UserError(f"{spot}: an arm cannot be its own control; name another, or leave it out")
    if control in found:
        return control
    if f"{control}{tag}" in found and control != made.group:
        return f"{control}{tag}"
    siblings = [other for other in found if found[other].group == control]
    if siblings:
        raise UserError(f"{spot}: that arm has axes; name one of its combinations, such as '{siblings[0]}'")
    raise UserError(f"{spot}: no such arm{nearest_name(control, found)}")
