"""The algebra of arms: axes (grid, zip, one at a time, nested) and excludes become one arm per combination, and a budget that two
stages share becomes their lengths. Pure data."""

import itertools
import json
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from interplay.core.digest import canonical
from interplay.core.keys import parse_model
from interplay.core.model import MOST, KeyPlace, nearest_name, shorten_value
from interplay.kinds.formulas import rl_step_tokens
from interplay.study.spec import Arm, BudgetSplit, Nested

MOST_ARMS = 100_000
"""Upper bound for the combinations of one arm; more are almost certainly a typo."""
LONGEST = 120
"""Characters of a combination's tag; its name is also that of a folder."""

CHANGES = ("set", "grid", "zip", "one_at_a_time", "nested")
"""Keys of an arm that hold `stage.key: value`."""
SPLIT = "split"
"""First part of the keys of axes over the split of a budget."""

Lookup = Callable[[Mapping[str, Any], str], Any]
"""(changes, key) -> the value of `stage.key` in an arm that sets these changes: from them, the stage, the scale or the schema;
None where it has none. `stage` alone gives all values of the stage."""
Tree = Mapping[str, Mapping[str, Any]]
Row = tuple[dict[str, Any], dict[str, Any]]
"""What the axes choose, and what they choose at the centre of `one_at_a_time` that it belongs to."""


class Named(dict[str, Any]):
    """Settings that were chosen by the name of a file, and that name, by which axes call them."""

    def __init__(self, name: str, settings: Any) -> None:
        super().__init__(settings)
        self.name = name


class Combination(NamedTuple):
    """One arm of the plan."""

    group: str
    """The arm of the study that it comes from."""
    path: list[str]
    control: str | None
    """Name of a combination."""
    set: dict[str, Any]
    """Values that replace those of the stages: the arm's `set`, overridden by its axes."""
    axes: dict[str, Any]
    """The values that its axes choose."""
    differs: list[str]
    derived: tuple[str, ...] = ()
    """Keys of `set` that the study does not write: they follow from the split of a budget."""


def split_part(part: str) -> tuple[str, int | None]:
    """`base@2000` in a path -> ("base", 2000): the checkpoint that stage `base` keeps at step 2000; `base` -> ("base", None)."""
    name, _, step = part.partition("@")
    return name, int(step) if step.isdecimal() else None


def combine(arms: Mapping[str, Arm], lookup: Lookup, study: KeyPlace) -> dict[str, Combination]:
    """Every arm of the plan by name, in order, the splits of budgets resolved. Raises UserError."""
    made = expand_axes(arms, lookup, study)
    return {
        name: _split_budget(arms[one.group], one, lookup, study.key("arms", one.group)) if arms[one.group].split else one
        for name, one in made.items()
    }


def expand_axes(arms: Mapping[str, Arm], lookup: Lookup, study: KeyPlace) -> dict[str, Combination]:
    """Every arm by name, in order; one with axes as one combination each. Raises UserError for axes without effect."""
    found: dict[str, Combination] = {}
    centres: dict[str, str] = {}
    for group, arm in arms.items():
        place = study.key("arms", group)
        if "[" in group:
            raise place.error("choose a name without '['; brackets hold the values of axes")
        _check_axes(arm, place)
        tags = _short_names(_axes(arm))
        for chosen, centre in _rows(arm, lookup, place):
            name = _name(group, chosen, tags)
            if len(name) > len(f"{group}[]") + LONGEST:
                tag = name.removeprefix(group)
                raise place.error(f"{tag[: LONGEST // 3]}...] is too long a name; declare arms of their own, with set")
            if name in found:
                raise place.error(f"{name} is made twice; give each value of an axis once")
            found[name] = Combination(group, arm.path, arm.control, {**arm.set, **chosen}, chosen, arm.differs)
            if chosen != centre:
                centres[name] = _name(group, centre, tags)
    made = {name: one._replace(control=_control(name, one, centres.get(name), found, study)) for name, one in found.items()}
    _check_circles(made, study)
    return made


def apply_changes(stages: Tree, changes: Mapping[str, Any], place: KeyPlace) -> dict[str, Mapping[str, Any]]:
    """The stages with `stage.key...: value` put in place; a value replaces the earlier one whole, mixes included. A key is
    applied before those that lead into its value: the order in which a study writes them has no meaning. Stages without a
    change are the same objects."""
    result = dict(stages)
    for dotted in sorted(changes, key=lambda key: key.count(".")):
        stage, *keys = dotted.split(".")
        spot = place.key(stage, *keys)
        if stage not in result or not keys:
            raise spot.error(f"must be stage.key{nearest_name(stage, result)}")
        result[stage] = put_value(result[stage], keys, changes[dotted], spot)
    return result


def put_value(here: Mapping[str, Any], keys: list[str], value: Any, place: KeyPlace) -> Mapping[str, Any]:
    """The mapping with a value put where keys lead. Raises UserError where they lead into a value."""
    first, *rest = keys
    if rest:
        inner = here.get(first, {})
        if not isinstance(inner, dict):
            raise place.error(f"'{first}' holds a value, not keys")
        value = put_value(inner, rest, value, place)
    return {**here, first: value}


def _equal(one: Any, other: Any) -> bool:
    """Whether two YAML values mean the same; `true` is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _is_own(arm: Arm, key: str, value: Any, lookup: Lookup) -> bool:
    """Whether the key has this value in an arm before its axes; settings of a file are compared as the spec that they make."""
    own = own_value(arm, key, lookup)
    return _equal(value, own) or (isinstance(value, Named) and lookup({**arm.set, key: value}, key) == own)


# -- axes ----------------------------------------------------------------------------------------------------------------


def _axes(arm: Arm) -> dict[str, list[Any]]:
    """Every axis of the arm with its values, in the order in which they name a combination."""
    nested = {key: axis.values for key, axis in arm.nested.items()}
    return {**arm.grid, **arm.zip, **arm.one_at_a_time, **nested}


def _check_axes(arm: Arm, place: KeyPlace) -> None:
    """No key is set twice, no axis is empty, and lists that are walked in step are of equal length."""
    seen: dict[str, str] = {}
    for name in CHANGES:
        for key in getattr(arm, name):
            if key in seen and (seen[key], name) != ("set", "one_at_a_time"):
                raise place.key(name, key).error(f"{seen[key]} has {key} already; keep one of them")
            seen[key] = name
    for key, values in _axes(arm).items():
        if not values:
            raise place.key(seen[key], key).error("no values; give one at least, or leave the key out", [])
    lengths = {key: len(values) for key, values in arm.zip.items()}
    if len(set(lengths.values())) > 1:
        counted = ", ".join(f"{key} has {count}" for key, count in lengths.items())
        raise place.key("zip").error(f"lists of unequal length: {counted}; give each key as many values")
    count = math.prod([len(values) for values in [*arm.grid.values(), *(axis.values for axis in arm.nested.values())]])
    if count > MOST_ARMS:
        raise place.error(f"{count} combinations; {MOST_ARMS} is the most, so leave out values or axes")


def own_value(arm: Arm, key: str, lookup: Lookup) -> Any:
    """The value of a key in an arm before its axes."""
    first, _, rest = key.partition(".")
    return getattr(arm.split, rest, None) if first == SPLIT else lookup(arm.set, key)


def _rows(arm: Arm, lookup: Lookup, place: KeyPlace) -> list[Row]:
    """Every combination that is not excluded."""
    axes = arm.one_at_a_time
    around = [(key, value) for key, values in axes.items() for value in values if not _is_own(arm, key, value, lookup)]
    alone = [{}, *({key: value} for key, value in around)]
    if arm.one_at_a_time and len(alone) == 1:
        raise place.key("one_at_a_time").error("every value is the arm's own; give others")
    steps = [dict(zip(arm.zip, values, strict=True)) for values in zip(*arm.zip.values(), strict=True)] or [{}]
    grid = [dict(zip(arm.grid, values, strict=True)) for values in itertools.product(*arm.grid.values())]
    rows = [({**one, **step, **single}, {**one, **step}) for one in grid for step in steps for single in alone]
    for key, axis in arm.nested.items():
        rows = _nested(arm, rows, key, axis, lookup, place.key("nested", key))
    return _without_excluded(arm, rows, lookup, place.key("exclude"))


def _nested(arm: Arm, rows: list[Row], key: str, axis: Nested, lookup: Lookup, place: KeyPlace) -> list[Row]:
    """The rows, each in which the axis is active once per value. A centre takes the value too where the axis is active in it."""
    if not axis.under:
        raise place.key("under").error("empty; name a key and its values, or put the axis into grid")
    active = [_matches(arm, chosen, axis.under, lookup) for chosen, _ in rows]
    if not any(active):
        remedy = "correct the values, or take it away"
        raise place.key("under").error(f"never active: no combination has {_pairs(axis.under)}; {remedy}")
    found: list[Row] = []
    for (chosen, centre), on in zip(rows, active, strict=True):
        if not on:
            found.append((chosen, centre))
            continue
        centre_on = _matches(arm, centre, axis.under, lookup)
        found += [({**chosen, key: value}, {**centre, key: value} if centre_on else centre) for value in axis.values]
    return found


def _without_excluded(arm: Arm, rows: list[Row], lookup: Lookup, place: KeyPlace) -> list[Row]:
    """The rows that no exclude names."""
    axes = _axes(arm)
    for number, entry in enumerate(arm.exclude):
        if unknown := [key for key in entry if key not in axes]:
            raise place.key(number, unknown[0]).error(f"not an axis of this arm{nearest_name(unknown[0], axes)}")
        under = {key: [value] for key, value in entry.items()}
        left = [row for row in rows if not (entry and _matches(arm, row[0], under, lookup))]
        if len(left) == len(rows):
            remedy = "correct the values, or take it away"
            raise place.key(number).error(f"leaves out nothing: no combination has {_pairs(under)}; {remedy}")
        rows = left
    if not rows:
        raise place.error("leaves no combination; take one away")
    return rows


def _matches(arm: Arm, chosen: dict[str, Any], under: dict[str, list[Any]], lookup: Lookup) -> bool:
    """Whether each of the keys has one of its values."""

    def has(key: str, value: Any) -> bool:
        return _equal(chosen[key], value) if key in chosen else _is_own(arm, key, value, lookup)

    return all(any(has(key, value) for value in values) for key, values in under.items())


def _pairs(under: dict[str, list[Any]]) -> str:
    return " and ".join(f"{key} = {' or '.join(map(shorten_value, values))}" for key, values in under.items())


# -- names and controls ----------------------------------------------------------------------------------------------------


def _short_names(axes: dict[str, list[Any]]) -> dict[str, str]:
    """For each key its last parts, as few as distinguish it from the other axes."""
    parts = {key: key.split(".") for key in axes}
    found = {}
    for key, own in parts.items():
        others = [other for name, other in parts.items() if name != key]
        size = next(n for n in range(1, len(own) + 1) if n == len(own) or all(other[-n:] != own[-n:] for other in others))
        found[key] = ".".join(own[-size:])
    return found


def _name(group: str, chosen: dict[str, Any], names: dict[str, str]) -> str:
    tag = ",".join(f"{name}={short_value(chosen[key])}" for key, name in names.items() if key in chosen)
    return f"{group}[{tag}]" if tag else group


def name_of(group: str, chosen: dict[str, Any]) -> str:
    """Name of an arm with these values of its axes."""
    return _name(group, chosen, _short_names({key: [value] for key, value in chosen.items()}))


def short_value(value: Any) -> str:
    """A value within a name: `dapo`, `0.01`, `edge:0.5+corpus:0.5`."""
    if isinstance(value, Named):
        return value.name.replace("/", "_")
    if isinstance(value, dict):
        return "+".join(f"{key}:{short_value(item)}" for key, item in value.items())
    if isinstance(value, list):
        return "+".join(map(short_value, value))
    return value.replace("/", "_") if isinstance(value, str) else json.dumps(value, default=str)


def _control(name: str, made: Combination, centre: str | None, found: dict[str, Combination], study: KeyPlace) -> str | None:
    """The combination that this one is compared with."""
    if centre in found:
        return centre
    control, tag = made.control, name.removeprefix(made.group)
    if control is None or (control == name and tag):
        return None
    place = study.key("arms", made.group, "control")
    if control == name:
        raise place.error("an arm cannot be its own control; name another, or leave it out", control)
    if control in found:
        return control
    if f"{control}{tag}" in found and control != made.group:
        return f"{control}{tag}"
    siblings = [other for other in found if found[other].group == control]
    if siblings:
        raise place.error(f"that arm has axes; name one of its combinations, such as '{siblings[0]}'", control)
    raise place.error(f"no such arm{nearest_name(control, found)}", control)


def _check_circles(found: Mapping[str, Combination], study: KeyPlace) -> None:
    """Raises UserError where controls lead back to the arm that they began with."""
    for name, one in found.items():
        chain = [name]
        while (control := found[chain[-1]].control) is not None and control not in chain:
            chain.append(control)
        if control == name:
            circle, place = " -> ".join([*chain, name]), study.key("arms", one.group, "control")
            raise place.error(f"controls lead in a circle: {circle}; one of these arms has none", chain[1])


# -- budgets that are split between mid-training and RL --------------------------------------------------------------------
# (BudgetSplit of study/spec.py): the tokens of one stage and the steps of the other follow, so that the charges of
# `match: {accounting: paper}` add up to the budget.

SPLIT_KINDS = {"mid": ("midtrain", "sft"), "rl": ("rl",)}
"""Key of a split -> kinds of the stage that it names."""


def budget_shares(split: BudgetSplit) -> tuple[Fraction, Fraction]:
    """Tokens of mid-training and tokens charged to RL, as exact fractions: floats would round 0.8 of a budget down."""
    part = Fraction(str(split.rl_share))
    return (1 - part) * (split.tokens or 0), part * (split.tokens or 0)


def _split_budget(arm: Arm, one: Combination, lookup: Lookup, place: KeyPlace) -> Combination:
    """The combination with the tokens and steps that its split comes to, and without a stage that has no share."""
    spot = place.key(SPLIT)
    split = _chosen_split(arm, one, spot)
    _check_split_stages(arm, split, lookup, spot)
    for key in (f"{split.mid}.tokens", f"{split.rl}.steps"):
        if key in one.set:
            remedy = f"take it out of set and axes, or take {SPLIT} away"
            raise place.error(f"{key} follows from {SPLIT}; {remedy}")
    own = {key: value for key, value in one.set.items() if not key.startswith(f"{SPLIT}.")}
    mid_tokens, rl_tokens = budget_shares(split)
    path, found = list(one.path), dict[str, Any]()
    if mid_tokens:
        batch = lookup({**own, f"{split.mid}.tokens": MOST}, f"{split.mid}.batch_tokens")
        found[f"{split.mid}.tokens"] = batch * _round_units(mid_tokens, Fraction(batch), f"one batch of {split.mid}", split, spot)
    else:
        path.remove(split.mid)
    if rl_tokens:
        step = rl_step_tokens(canonical(lookup({**own, f"{split.rl}.steps": MOST}, split.rl)))
        found[f"{split.rl}.steps"] = _round_units(rl_tokens, step, f"one step of {split.rl}", split, spot)
    else:
        path.remove(split.rl)
    return one._replace(path=path, set={**own, **found}, derived=tuple(found))


def _chosen_split(arm: Arm, one: Combination, place: KeyPlace) -> BudgetSplit:
    """The split with the values that the axes choose."""
    assert arm.split is not None
    chosen = {key.removeprefix(f"{SPLIT}."): value for key, value in one.set.items() if key.startswith(f"{SPLIT}.")}
    split = parse_model(BudgetSplit, {**arm.split.model_dump(), **chosen}, place)
    for name in ("tokens", "rl_share"):
        if getattr(split, name) is None:
            raise place.key(name).error(f"missing; give it here, or as an axis, {SPLIT}.{name}")
    return split


def _check_split_stages(arm: Arm, split: BudgetSplit, lookup: Lookup, place: KeyPlace) -> None:
    """Both stages are on the path, to their ends, and are of the right kinds."""
    for key, kinds in SPLIT_KINDS.items():
        name = getattr(split, key)
        if name not in arm.path:
            raise place.key(key).error(f"not on the path of this arm, {arm.path}; put it there, or name another", name)
        if (found := lookup({}, f"{name}.kind")) not in kinds:
            raise place.key(key).error(f"is a {found} stage; name one of kind {' or '.join(kinds)}", name)


def _round_units(tokens: Fraction, unit: Fraction, what: str, split: BudgetSplit, place: KeyPlace) -> int:
    """The number of units nearest to the tokens."""
    if tokens < unit:
        part = f"its share of {split.tokens:,} tokens at rl_share {split.rl_share}, {float(tokens):,.0f}"
        under = f"is under {what}, {float(unit):,.0f}; raise tokens, or lower the batch"
        raise place.key("tokens").error(f"{part}, {under}", split.tokens)
    return round(tokens / unit)
