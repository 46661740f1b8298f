"""The file and line of a refused key. Checks are about the composed study (`configs/study/edge.yaml: stages.rl.steps`); the key
itself may come from an arm's `set`, from the scale, or from a file that the study includes."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from interplay.core.model import BadKey, UserError
from interplay.study.files import Source, item, line, not_yaml, sources

Keys = tuple[str, ...]


class Place(NamedTuple):
    """How far a path leads in one file."""

    source: Source
    keys: list[str]
    """The keys of the file on the way."""
    node: yaml.Node
    """The key, or the item of a list, that was reached last."""
    value: yaml.Node
    rest: Keys
    """The part of the path that the file has not."""


def located(error: UserError, configs: Path, study: str, scale: str) -> UserError:
    """The error with file and line of the key it is about; unchanged when it is about no key of this study or scale."""
    groups = {f"{configs.name}/study/{study}.yaml": "study", f"{configs.name}/scale/{scale}.yaml": "scale"}
    file = next((file for file in groups if str(error).startswith(f"{file}: ")), None)
    if file is None:
        return error
    try:
        files = sources(configs, {"study": study, "scale": scale})
    except UserError as broken:
        return broken
    about = error.about
    best = max(_places(files, groups[file], about), key=lambda place: _rank(place, about), default=None) if about else None
    if about is None or best is None:  # about a key that the file should have
        return UserError(f"{file}:1: {str(error).removeprefix(f'{file}: ')}")
    return UserError(_message(best, about, study))


def diagnosed(error: Exception, configs: Path, study: str, scale: str) -> UserError:
    """What is wrong with files that Hydra could not compose: found by reading them, or else in Hydra's own words."""
    file = f"{configs.name}/study/{study}.yaml"
    if isinstance(error, RecursionError):
        return UserError(f"{file}: nested too deeply, or files that include each other in a circle")
    try:
        files = sources(configs, {"study": study, "scale": scale})
    except UserError as broken:
        return broken
    if isinstance(error, yaml.MarkedYAMLError):
        return not_yaml(error, str(error.problem_mark and error.problem_mark.name).removeprefix(f"{configs.resolve().parent}/"))
    for source in files:
        if found := _bad_interpolation(source.root):
            return UserError(f"{source.file}:{line(found)}: {found.value!r}: not an interpolation; write \\${{ for a plain ${{")
    group, _, key = str(getattr(error, "full_key", None) or "").replace("[", ".").replace("]", "").partition(".")
    first = (str(error).strip() or str(error.__cause__ or "").strip() or type(error).__name__).splitlines()[0]
    first = first.rpartition("raised while resolving interpolation: ")[2]
    if group in ("study", "scale") and key:
        owner = file if group == "study" else f"{configs.name}/scale/{scale}.yaml"
        return located(UserError(f"{owner}: {key}: {first}"), configs, study, scale)
    return UserError(f"{file}: {first}")


def _bad_interpolation(node: yaml.Node) -> yaml.ScalarNode | None:
    """The first text with a `${` that OmegaConf cannot parse."""
    from omegaconf.errors import GrammarParseError
    from omegaconf.grammar_parser import parse

    if isinstance(node, yaml.ScalarNode):
        try:
            if "${" in node.value:
                parse(node.value)
        except GrammarParseError:
            return node
        return None
    inner = [value for _, value in node.value] if isinstance(node, yaml.MappingNode) else node.value
    return next((found for value in inner if (found := _bad_interpolation(value))), None)


def _places(files: list[Source], group: str, about: BadKey) -> Iterator[Place]:
    """Every place that the path may mean, the most literal first within a file."""
    for prefix, wanted in _readings(files, group, about.keys):
        for source in files:
            place = _descend(source, prefix, wanted, about.problem.startswith("unknown key"))
            if place is not None:
                yield place


def _readings(files: list[Source], group: str, keys: Keys) -> Iterator[tuple[Keys, Keys]]:
    """The path itself, and the other paths from which its value may come: (keys that are given, keys that are searched)."""
    yield (group,), keys
    if group != "study":
        return
    yield from _changed(files, keys)
    if keys[0] == "scale":
        yield ("scale",), keys[1:]
    parts = [("study", "arms", arm, part) for arm, part in _arm_parts(files)]
    if keys[0] == "stages" and len(keys) > 1:
        for prefix in parts:
            yield prefix, keys[1:]
        packed = keys[2:3] == ("corpus",)
        yield ("scale", "kinds", "corpus" if packed else _kind(files, keys[1])), keys[3:] if packed else keys[2:]
    if keys[0] == "data":
        yield ("scale",), keys[2:]
    if "task" in keys:
        inner = keys[keys.index("task") + 1 :]
        for prefix in parts:
            yield prefix, ("task", *inner)
        yield ("study", "task"), inner
        yield ("scale", "task"), inner


def _changed(files: list[Source], keys: Keys) -> Iterator[tuple[Keys, Keys]]:
    """Readings in what the study changes of a scale: keys of problem sets, and of stages by their kind."""
    changes = [item(source.root, "scales") for source in files if source.package == ("study",)]
    for scale in [str(name.value) for node in changes if isinstance(node, yaml.MappingNode) for name, _ in node.value]:
        yield ("study", "scales", scale), keys
        if keys[0] == "stages" and len(keys) > 1:
            yield ("study", "scales", scale, "kinds", _kind(files, keys[1])), keys[2:]


def _arm_parts(files: list[Source]) -> list[tuple[str, str]]:
    """Every mapping of every arm that may hold `stage.key: value`."""
    found = []
    for source in files:
        arms = item(source.root, "arms") if source.package == ("study",) else None
        for arm, body in arms.value if isinstance(arms, yaml.MappingNode) else []:
            for part, value in body.value if isinstance(body, yaml.MappingNode) else []:
                if isinstance(value, yaml.MappingNode):
                    found.append((str(arm.value), str(part.value)))
    return list(dict.fromkeys(found))


def _kind(files: list[Source], stage: str) -> str:
    kinds = [item(item(item(source.root, "stages"), stage), "kind") for source in files if source.package == ("study",)]
    return next((str(node.value) for node in reversed(kinds) if isinstance(node, yaml.ScalarNode)), "")


def _descend(source: Source, prefix: Keys, keys: Keys, unknown: bool) -> Place | None:
    """Follow `prefix` and then `keys` through the file; None when the file's keys are elsewhere in the study."""
    given, rest = list(prefix), keys
    for part in source.package:
        if given:
            if given.pop(0) != part:
                return None
        elif rest[:1] == (part,):
            rest = rest[1:]
        else:
            return None
    passed: list[str] = []
    node = here = source.root
    for part in given:
        step = next((step for step in _steps(here) if step[0] == part), None)
        if step is None:
            return None
        _, node, here = step
        passed.append(part)
    while (longest := _longest(here, rest, unknown)) is not None:
        (name, node, here), count = longest
        passed.append(name)
        rest = rest[count:]
    return Place(source, passed, node, here, rest) if passed else None


Step = tuple[str, yaml.Node, yaml.Node]
"""A key of a mapping, or an index of a list, with its node and that of its value."""


def _steps(node: yaml.Node) -> list[Step]:
    if isinstance(node, yaml.MappingNode):
        return [(str(name.value), name, value) for name, value in node.value]
    if isinstance(node, yaml.SequenceNode):
        return [(str(index), value, value) for index, value in enumerate(node.value)]
    return []


def _longest(node: yaml.Node, keys: Keys, unknown: bool) -> tuple[Step, int] | None:
    """The step with which the path goes on, and how many parts of the path it is. Names may have dots, so the longest counts."""
    found = [(step, count) for step in _steps(node) if (count := _matches(step[0], keys, unknown))]
    return max(found, key=lambda one: len(one[0][0]), default=None)


def _matches(name: str, keys: Keys, unknown: bool) -> int:
    """How many parts of the path a name is; 0: the path does not go on with it. An arm's `rl.nope.x` is refused at `rl.nope`."""
    parts = tuple(" ".join(name.split()).split("."))
    if name and keys[: len(parts)] == parts:
        return len(parts)
    return len(keys) if unknown and keys and parts[: len(keys)] == keys else 0


def _rank(place: Place, about: BadKey) -> tuple[int, bool]:
    """A place is better the further the path leads there; then if it holds the value that was refused."""
    value = place.value.value if isinstance(place.value, yaml.ScalarNode) else None
    return -len(".".join(place.rest)), value is not None and about.value in (repr(value), value)


def _message(place: Place, about: BadKey, study: str) -> str:
    path = ".".join(place.keys)
    shown = f"{place.source.file}:{line(place.node)}: {'.'.join((path, *place.rest))}{about.tail}"
    passed = ".".join(about.keys[: len(about.keys) - len(place.rest)]).removeprefix("scale.")
    if passed == path and (about.file == place.source.file or "/scale/" in place.source.file):
        return shown
    return f"{shown} ({passed} of study {study})"
