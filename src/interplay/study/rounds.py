"""Rounds: stages of a path that are repeated, each round starting from the model of the one before, written out as stages with
names of their own. Pure data: what is made here is the same study, written longer."""

from collections.abc import Mapping
from typing import Any

from interplay.core.model import KeyPlace, nearest_name
from interplay.kinds.table import KINDS
from interplay.study.arms import CHANGES, split_part

Tree = dict[str, Any]
SEED_STRIDE = 1000
"""Between the seeds of a stage in two rounds, so that a round draws neither the prompts nor the noise of another."""


def round_name(part: str, number: int) -> str:
    """`rl` in round 3 -> `rl_3`; `rl@200` -> `rl_3@200`. The first round has the stage's own name, and is the very stage of
    a path without rounds."""
    name, at, step = part.partition("@")
    return f"{name}_{number}{at}{step}" if number > 1 else part


def with_rounds(tree: Tree, place: KeyPlace) -> Tree:
    """The study with each `{repeat: N, stages: [...]}` of its paths written out: the stages of the rounds after the first as
    further stages, equal but for their seeds, and what arms set of a repeated stage set in all rounds in which they do not set
    something else. Raises UserError for what cannot be repeated. What has not the form of the schema is left for the schema."""
    given, stages = tree.get("arms"), tree.get("stages")
    if not isinstance(given, dict) or not isinstance(stages, dict):
        return tree
    made, most = dict[str, Any](), dict[str, int]()
    for name, arm in given.items():
        path = arm.get("path") if isinstance(arm, dict) else None
        if not isinstance(path, list) or not any(isinstance(part, dict) for part in path):
            made[name] = arm
            continue
        here = place.key("arms", name)
        parts, counts = _written_out(path, stages, here.key("path"))
        _check_axes(arm, counts, here)
        made[name] = {**arm, "path": parts, **_in_all_rounds(arm, counts)}
        most |= {stage: max(count, most.get(stage, 1)) for stage, count in counts.items()}
    if not most:
        return tree
    further = {round_name(name, n): _later(stages[name], n) for name, count in most.items() for n in range(2, count + 1)}
    if taken := [name for name in further if name in stages]:
        raise place.key("stages", taken[0]).error("is the name of a round of a repeated stage, too; rename it")
    seeds = tree.get("seeds")
    if isinstance(seeds, dict) and isinstance(seeds.get("vary"), list):
        vary = [one for name in seeds["vary"] for one in (name, *(round_name(name, n) for n in range(2, most.get(name, 1) + 1)))]
        tree = {**tree, "seeds": {**seeds, "vary": vary}}
    return {**tree, "arms": made, "stages": {**stages, **further}}


def _written_out(path: list[Any], stages: Mapping[str, Any], place: KeyPlace) -> tuple[list[Any], dict[str, int]]:
    """The path with its rounds one after another, and how often each of their stages is in it."""
    parts, counts = list[Any](), dict[str, int]()
    for number, part in enumerate(path):
        if not isinstance(part, dict):
            parts.append(part)
            continue
        spot, times, repeated = place.key(number), part.get("repeat"), part.get("stages")
        if part.keys() != {"repeat", "stages"}:
            raise spot.error("must be {repeat: TIMES, stages: [names]}", part)
        if not isinstance(times, int) or isinstance(times, bool) or not 2 <= times <= 100:
            raise spot.key("repeat").error("must be a number of rounds from 2 to 100", times)
        if not isinstance(repeated, list) or not repeated or not all(isinstance(one, str) for one in repeated):
            raise spot.key("stages").error("must be a list of stages", repeated)
        for one in repeated:
            name = split_part(one)[0]
            if name not in stages:
                raise spot.key("stages").error(f"no such stage{nearest_name(name, stages)}", one)
            kind = stages[name].get("kind") if isinstance(stages.get(name), dict) else None
            row = KINDS.get(str(kind))
            if row and (row.makes != "model" or row.starts_path or row.ends_path):
                why = f"'{name}' is a {kind} stage, which starts from no model of a round, or leaves none for the next"
                extra = "; a set names a generate or evaluate stage itself, with arm: before" if row.makes != "model" else ""
                raise spot.key("stages").error(f"{why}; repeat stages that train{extra}", one)
            if name in counts:
                raise spot.key("stages").error(f"'{name}' is repeated twice in this path; give one of them a name of its own")
            counts[name] = times
        parts += [round_name(one, n) for n in range(1, times + 1) for one in repeated]
    if twice := [name for name in counts if path.count(name)]:
        raise place.error(f"'{twice[0]}' is repeated, and is in the path by itself, too; give one of them a name of its own")
    return parts, counts


def _check_axes(arm: Tree, counts: Mapping[str, int], place: KeyPlace) -> None:
    for axis in CHANGES[1:]:
        for key in arm.get(axis) or {}:
            if str(key).partition(".")[0] in counts:
                raise place.key(axis, key).error(
                    "the stage is repeated, and an axis reaches one stage; write an arm for each value"
                )


def _in_all_rounds(arm: Tree, counts: Mapping[str, int]) -> Tree:
    """`set` and `differs` of the arm, with the keys of a repeated stage for each of its rounds."""
    found = Tree()
    if isinstance(given := arm.get("set"), dict):
        found["set"] = {one: value for key, value in given.items() for one in _keys(key, counts)} | given
    if isinstance(given := arm.get("differs"), list):
        found["differs"] = [one for key in given for one in _keys(key, counts)]
    return found


def _keys(key: Any, counts: Mapping[str, int]) -> list[Any]:
    name, dot, rest = str(key).partition(".")
    return [key, *(f"{round_name(name, n)}{dot}{rest}" for n in range(2, counts.get(name, 1) + 1))]


def _later(stage: Any, number: int) -> Any:
    """A stage in a later round."""
    if not isinstance(stage, dict) or stage.get("kind") not in KINDS or "seed" not in KINDS[stage["kind"]].spec.model_fields:
        return stage
    seed = stage.get("seed", 0)
    return {**stage, "seed": seed + SEED_STRIDE * (number - 1)} if isinstance(seed, int) else stage
