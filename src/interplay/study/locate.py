"""Where a refused key stands. Checks speak of the composed study (`configs/study/edge.yaml: stages.rl.steps = 'many': ...`); the
key itself may stand in an arm's `set`, in the scale, or in a file that the study includes. This finds it and adds its line."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from interplay.core.model import UserError
from interplay.study.files import Source, item, line, not_yaml, sources


class Place(NamedTuple):
    """How far a message's path leads in one file."""

    source: Source
    keys: list[str]
    """The part of the path that stands in the file."""
    node: yaml.Node
    """The key, or the item of a list, that was reached last."""
    value: yaml.Node
    rest: str
    """What of the message lies behind the path, its dot, colon or equals sign included."""


def located(error: UserError, configs: Path, study: str, scale: str) -> UserError:
    """The error with file and line of the key it is about; unchanged when it is about no key of this study or scale."""
    message = str(error)
    heads = {f"{configs.name}/study/{study}.yaml: ": "study", f"{configs.name}/scale/{scale}.yaml: ": "scale"}
    head = next((head for head in heads if message.startswith(head)), None)
    if head is None:
        return error
    try:
        files = sources(configs, {"study": study, "scale": scale})
    except UserError as broken:
        return broken
    text = f".{message.removeprefix(head)}"
    best = max(_places(files, heads[head], text), key=_rank, default=None)
    if best is None:  # about a key that the file should have
        return UserError(f"{head.removesuffix(': ')}:1: {message.removeprefix(head)}")
    return UserError(_message(best, head, text, study))


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


def _places(files: list[Source], group: str, text: str) -> Iterator[Place]:
    """Every place that the path at the start of `text` may mean, the most literal first within a file."""
    for prefix, wanted in _readings(files, group, text):
        for source in files:
            place = _descend(source, (*prefix,), wanted)
            if place is not None:
                yield place


def _readings(files: list[Source], group: str, text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """The path as it stands, and the other keys from which its value may come: (keys already passed, text of the rest)."""
    yield (group,), text
    if group != "study":
        return
    yield from _changed(files, text)
    if text.startswith(".scale."):
        yield ("scale",), text.removeprefix(".scale")
    parts = [("study", "arms", arm, part) for arm, part in _arm_parts(files)]
    if stage := re.match(r"\.stages(\.|: )(?P<rest>(?P<name>[^.:]+).*)", text):
        for prefix in parts:
            yield prefix, f".{stage['rest']}"
        inner = stage["rest"].removeprefix(stage["name"])
        own = re.sub(r"^(\.|: )corpus(?=\.|: | = )", "", inner)
        yield ("scale", "kinds", _kind(files, stage["name"]) if own == inner else "corpus"), own
    if data := re.match(r"\.data(\.|: )[^.:]+(?P<rest>.*)", text):
        yield ("scale",), data["rest"]
    if task := re.search(r"(\.|: )task(?P<rest>(\.|: | = ).*)", text):
        for prefix in parts:
            yield prefix, f".task{task['rest']}"
        yield ("study", "task"), task["rest"]
        yield ("scale", "task"), task["rest"]


def _changed(files: list[Source], text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Readings in what the study changes of a scale: keys of problem sets, and of stages by their kind."""
    changes = [item(source.root, "scales") for source in files if source.package == ("study",)]
    for scale in [str(name.value) for node in changes if isinstance(node, yaml.MappingNode) for name, _ in node.value]:
        yield ("study", "scales", scale), text
        if stage := re.match(r"\.stages(\.|: )(?P<name>[^.:]+)(?P<rest>.*)", text):
            yield ("study", "scales", scale, "kinds", _kind(files, stage["name"])), stage["rest"]


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


def _descend(source: Source, prefix: tuple[str, ...], text: str) -> Place | None:
    """Follow `prefix` and then the keys at the start of `text` through the file; None when the file is elsewhere."""
    wanted, rest = list(prefix), text
    for part in source.package:
        if wanted:
            if wanted.pop(0) != part:
                return None
        elif (after := _after(rest, part)) is not None:
            rest = after
        else:
            return None
    keys: list[str] = []
    node = here = source.root
    while (step := _longest(here, f".{wanted[0]}" if wanted else rest)) is not None:
        name, node, here, after = step
        keys.append(name)
        if wanted:
            wanted.pop(0)
        else:
            rest = after
    return Place(source, keys, node, here, rest) if keys and not wanted else None


def _longest(node: yaml.Node, text: str) -> tuple[str, yaml.Node, yaml.Node, str] | None:
    """The key of a mapping, or the index of a list, with which `text` starts: keys may hold dots, so the longest counts."""
    if isinstance(node, yaml.MappingNode):
        pairs = [(str(name.value), name, value) for name, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        pairs = [(str(index), value, value) for index, value in enumerate(node.value)]
    else:
        return None
    found = [(key, name, value, after) for key, name, value in pairs if (after := _after(text, key)) is not None]
    return max(found, key=lambda step: len(step[0]), default=None)


def _after(text: str, key: str) -> str | None:
    """The rest of a text that starts with `.key` or `: key`; None when it does not."""
    key = " ".join(key.split())
    path, unknown, _ = text.partition(": unknown key")
    if unknown and path and f".{key}".startswith(f"{path}."):  # an arm's `rl.nope.x` is refused at `rl.nope`
        return text.removeprefix(path)
    start = next((start for start in (".", ": ") if text.startswith(start + key)), None)
    if not key or start is None:
        return None
    rest = text[len(start) + len(key) :]
    return rest if not rest or rest.startswith((".", ": ", " = ")) else None


def _rank(place: Place) -> tuple[int, bool]:
    """A place is better the further the message's path leads there; then if it holds the value that was refused."""
    value = place.value.value if isinstance(place.value, yaml.ScalarNode) else None
    return -len(place.rest), value is not None and place.rest.startswith((f" = {value!r}", f" = {value}:"))


def _message(place: Place, head: str, text: str, study: str) -> str:
    path = ".".join(place.keys)
    shown = f"{place.source.file}:{line(place.node)}: {path}{place.rest}"
    passed = text[1 : len(text) - len(place.rest)].replace(": ", ".").removeprefix("scale.")
    if passed == path and head.startswith(f"{place.source.file}:"):
        return shown
    return shown if "/scale/" in place.source.file and passed == path else f"{shown} ({passed} of study {study})"
