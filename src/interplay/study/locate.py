"""The file and line of a refused key. Checks are about the composed study (`configs/study/edge.yaml: stages.rl.steps`); the key
itself may come from an arm's `set`, from the scale, or from a file that the study includes. Hydra forgets where a value came
from, and says of most broken files only that they are: so the files are read once more, by study/files.py."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from interplay.core.keys import fill_rest
from interplay.core.model import KeyPlace, UserError, nearest_name, shorten_value
from interplay.study import arms, files
from interplay.study.files import Source, item

Keys = tuple[str, ...]


REMEDIES = {
    "Recursive interpolation": "it leads back to itself; write a value in its place",
    "Unsupported interpolation type": "write a value, or a knob of the study as ${knobs.NAME}",
    "Missing mandatory value": "??? stands for a value that is missing; write it",
}
"""What to do about OmegaConf's errors."""


def locate_error(error: UserError, configs: Path, study: str, scale: str) -> UserError:
    """The error with file and line of the key it is about; unchanged when it is about no key of this study or scale."""
    groups = {f"{configs.name}/study/{study}.yaml": "study", f"{configs.name}/scale/{scale}.yaml": "scale"}
    about = error.place
    if about is None or about.line or about.file not in groups:
        return error
    try:
        sources = files.sources(configs, {"study": study, "scale": scale})
    except UserError as broken:
        return broken
    found = _find_places(sources, groups[about.file], about.keys)
    lacks = error.problem.startswith("missing;")  # so a file that has the key is not the one
    best = max((one for one in found if one.rest or not lacks), key=lambda one: _rank(one, error.value), default=None)
    best = best and _in_named_file(configs, best)
    if best is None:  # about a key that the file should have
        return type(error)(error.problem, about._replace(line=1), error.value)
    place = files.at_line(best.source.place.key(*best.keys, *best.rest), best.node)
    passed = about.keys[: len(about.keys) - len(best.rest)]
    passed = passed[1:] if passed[:1] == ("scale",) else passed
    own = passed == best.keys and (about.file == place.file or "/scale/" in place.file)
    origin = "" if own else f" ({'.'.join(passed)} of study {study})"
    return type(error)(f"{error.problem}{origin}", place, error.value)


def diagnose_files(error: Exception, configs: Path, study: str, scale: str) -> UserError:
    """What is wrong with files that Hydra could not compose: found by reading them, or else in Hydra's own words."""
    file = KeyPlace(f"{configs.name}/study/{study}.yaml")
    if isinstance(error, RecursionError):
        return file.error("nested too deeply, or files that include each other in a circle")
    try:
        sources = files.sources(configs, {"study": study, "scale": scale})
    except UserError as broken:
        return broken
    if isinstance(error, yaml.MarkedYAMLError):
        named = str(error.problem_mark and error.problem_mark.name).removeprefix(f"{configs.resolve().parent}/")
        return files.not_yaml(error, KeyPlace(named))
    for source in sources:
        if found := _bad_interpolation(source.root):
            remedy = "not an interpolation; write \\${ for a plain ${"
            return files.at_line(source.place, found).error(f"{found.value!r}: {remedy}")
    first = (str(error).strip() or str(error.__cause__ or "").strip() or type(error).__name__).splitlines()[0]
    first = first.rpartition("raised while resolving interpolation: ")[2]
    if knob := re.fullmatch(r"Interpolation key 'knobs\.(.+)' not found", first):
        of_study = [source.root for source in sources if source.package == ("study",)]
        changed = [item(item(root, "scales"), scale) for root in of_study]
        known = [name.value for root in (*of_study, *changed) for name, _ in _pairs(item(root, "knobs"))]
        first = f"no knob is called '{knob[1]}'{nearest_name(knob[1], known) or '; give the study knobs: {NAME: value}'}"
    first += next((f"; {remedy}" for said, remedy in REMEDIES.items() if first.startswith(said)), "")
    group, *keys = _composed_keys(error) or ("",)
    if group in ("study", "scale") and keys:
        owner = file if group == "study" else KeyPlace(f"{configs.name}/scale/{scale}.yaml")
        return locate_error(owner.key(*keys).error(first), configs, study, scale)
    return file.error(first)


def _composed_keys(error: Exception) -> Keys:
    """The path of the key that OmegaConf has an error about; empty: none. Its text of the path joins the names with dots, which
    they may have themselves."""
    key, node = getattr(error, "key", None), getattr(error, "parent_node", None)
    found: list[str] = []
    while node is not None and key is not None:
        found.append(str(key))
        key, node = node._key(), node._get_parent()
    return tuple(reversed(found))


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


# -- how far a path leads in each file ---------------------------------------------------------------------------------------


class Found(NamedTuple):
    """How far a path leads in one file."""

    source: Source
    keys: Keys
    """The keys of the file on the way."""
    node: yaml.Node
    """The key, or the item of a list, that was reached last."""
    value: yaml.Node
    rest: Keys
    """The part of the path that the file has not."""


def _find_places(sources: list[Source], group: str, keys: Keys) -> Iterator[Found]:
    """Every place that the path may mean, the most literal first within a file."""
    for prefix, wanted in _readings(sources, group, keys):
        for source in sources:
            if (found := _descend(source, prefix, wanted)) is not None:
                yield found


NAMED = {"method": "method", "sampler": "curriculum", "model": "model", "task": "task"}
"""Last word of a key that may hold the name of a file -> its folder below configs/."""


def _in_named_file(configs: Path, found: Found) -> Found:
    """The place in the file whose name the path leads to, where it leads on; else the place itself."""
    name, group = found.value, NAMED.get(found.keys[-1].rpartition(".")[2])
    if not found.rest or group is None or not isinstance(name, yaml.ScalarNode):
        return found
    path = configs / group / f"{name.value}.yaml"
    if not path.is_file():
        return found
    inner = Source(files.place_of(configs, path), (), files.read(configs, path))
    return _descend(inner, (), found.rest) or Found(inner, (), inner.root, inner.root, found.rest)


def _rank(found: Found, value: str) -> tuple[int, bool]:
    """A place is better the further the path leads there; then if it holds the value that was refused, or one share of it."""
    share = f"{found.keys[-1].rpartition('.')[2]!r}: "  # of a mix, as `rl.data.edge: [0.1, 0.5]` names it
    if isinstance(found.value, yaml.ScalarNode):
        text = found.value.value
        return -len(found.rest), value in (repr(text), text) or f"{share}{text}" in value
    try:
        written = yaml.SafeLoader("").construct_document(found.value)
        held = fill_rest(written)
    except ValueError:  # what is refused is the mix as it is written
        held = written
    except yaml.YAMLError:
        return -len(found.rest), False
    texts = [*map(shorten_value, (held, *held))]
    return -len(found.rest), value in texts or any(f"{share}{text}" in value for text in texts)


def _readings(sources: list[Source], group: str, keys: Keys) -> Iterator[tuple[Keys, Keys]]:
    """The path itself, and the other paths from which its value may come: (keys that are given, keys that are searched)."""
    yield (group,), keys
    if group != "study" or not keys:
        return
    yield from _changed(sources, keys)
    if keys[0] == "scale":
        yield ("scale",), keys[1:]
    if keys[0] == "stages" and len(keys) > 1:
        yield from _in_arms(sources, keys[1:])
        packed = keys[2:3] == ("corpus",)
        yield ("scale", "kinds", "corpus" if packed else _kind(sources, keys[1])), keys[3:] if packed else keys[2:]
    if keys[0] == "data":
        yield ("scale",), keys[2:]
    if "task" in keys:
        inner = keys[keys.index("task") + 1 :]
        yield from _in_arms(sources, ("task", *inner))
        yield ("study", "task"), inner
        yield ("scale", "task"), inner


def _changed(sources: list[Source], keys: Keys) -> Iterator[tuple[Keys, Keys]]:
    """Readings in what the study changes of a scale: keys of problem sets, and of stages by their kind."""
    changes = [item(source.root, "scales") for source in sources if source.package == ("study",)]
    for scale in [str(name.value) for node in changes for name, _ in _pairs(node)]:
        yield ("study", "scales", scale), keys
        if keys[0] == "stages" and len(keys) > 1:
            yield ("study", "scales", scale, "kinds", _kind(sources, keys[1])), keys[2:]


def _in_arms(sources: list[Source], keys: Keys) -> Iterator[tuple[Keys, Keys]]:
    """Readings in every `stage.key: value` of every arm that sets the key, one around it, the innermost first, or one in it: a
    mix is refused as a whole for the share `rl.data.edge`, and of an unknown key `rl.nope.x` the part `rl.nope` is refused."""
    for source in sources:
        for arm, body in _pairs(item(source.root, "arms") if source.package == ("study",) else None):
            for part in arms.CHANGES:
                for dotted in sorted((name.value for name, _ in _pairs(item(body, part))), key=len, reverse=True):
                    names, prefix = tuple(dotted.split(".")), ("study", "arms", arm.value, part, dotted)
                    if keys[: len(names)] == names:
                        yield prefix, keys[len(names) :]
                    elif names[: len(keys)] == keys:
                        yield prefix, ()


def _kind(sources: list[Source], stage: str) -> str:
    kinds = [item(item(item(source.root, "stages"), stage), "kind") for source in sources if source.package == ("study",)]
    return next((str(node.value) for node in reversed(kinds) if isinstance(node, yaml.ScalarNode)), "")


def _descend(source: Source, prefix: Keys, keys: Keys) -> Found | None:
    """Follow `prefix` and then `keys` through the file; None when the file's keys are elsewhere in the study."""
    outer = len(source.package)
    path = (*prefix, *keys)
    if path[:outer] != source.package:
        return None
    passed: Keys = ()
    node = here = source.root
    for name in path[outer:]:
        step = next((step for step in _steps(here) if step[0] == name), None)
        if step is None:
            break
        _, node, here = step
        passed = (*passed, name)
    if not passed or outer + len(passed) < len(prefix):
        return None
    return Found(source, passed, node, here, path[outer + len(passed) :])


def _steps(node: yaml.Node) -> list[tuple[str, yaml.Node, yaml.Node]]:
    """Each key of a mapping, or index of a list, with its node and that of its value."""
    if isinstance(node, yaml.SequenceNode):
        return [(str(index), value, value) for index, value in enumerate(node.value)]
    return [(name.value, name, value) for name, value in _pairs(node)]


def _pairs(node: yaml.Node | None) -> list[tuple[yaml.ScalarNode, yaml.Node]]:
    """The keys of a mapping, which reading has checked to be words, and their values."""
    return node.value if isinstance(node, yaml.MappingNode) else []
