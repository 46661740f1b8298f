"""The YAML files that make up a study at a scale, as Hydra merges them, with the line of every key.

Read before Hydra, which takes ten times as long, to see that no file lies outside; and when something is wrong: Hydra forgets
where a value came from, and says of most broken files only that they are."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from interplay.core.model import BadKey, UserError, nearest_name


class Source(NamedTuple):
    """One file and the path of its keys in the composed study."""

    file: str
    """As messages show it: `configs/study/edge.yaml`."""
    package: tuple[str, ...]
    """`("study", "stages", "rl", "method")` for a method chosen in a study."""
    root: yaml.Node


def sources(configs: Path, chosen: dict[str, str]) -> list[Source]:
    """All files of `chosen` (`{"study": "edge", "scale": "smoke"}`), later ones overriding earlier ones.

    Raises UserError with file and line at the first that does not parse, repeats a key, or names a file that is not there."""
    return [source for group, name in chosen.items() for source in _with_defaults(configs, group, name, (group,), ())]


def read(configs: Path, path: Path) -> yaml.Node:
    """The file's nodes, with their lines. Raises UserError when it is not one mapping with distinct string keys."""
    shown = name_of(configs, path)
    if path.exists() and not path.resolve().is_relative_to(configs.resolve()):
        raise UserError(f"{shown}: a link that leads out of {configs.name}/, where a study lies; put the file itself there")
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise not_yaml(error, shown) from None
    except yaml.reader.ReaderError as error:
        line = str(path.read_bytes()[: error.position], "utf-8", "replace").count("\n") + 1
        raise UserError(f"{shown}:{line}: not YAML: {error.reason}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{shown}:{error.object[: error.start].count(10) + 1}: not UTF-8 text: {error.reason}") from None
    except RecursionError:
        raise UserError(f"{shown}: nested too deeply to read") from None
    except OSError as error:
        raise UserError(f"{shown}: {error.strerror}") from None
    root = root or yaml.MappingNode("tag:yaml.org,2002:map", [])
    if not isinstance(root, yaml.MappingNode):
        raise UserError(f"{shown}:1: must hold keys and values, such as `question: ...`")
    _distinct(root, shown, set())
    _written_out(root, shown)
    return root


def not_yaml(error: yaml.MarkedYAMLError, shown: str) -> UserError:
    """A parser's complaint with its line."""
    mark = error.problem_mark or error.context_mark
    reason = ", ".join(part for part in (error.context, error.problem) if part)
    return UserError(f"{shown}:{mark.line + 1 if mark else 1}: not YAML: {reason}")


def name_of(configs: Path, path: Path) -> str:
    """The file as messages show it."""
    return f"{configs.name}/{path.relative_to(configs)}"


def line(node: yaml.Node) -> int:
    """Line of a node, from 1."""
    return node.start_mark.line + 1 if node.start_mark else 1


def item(node: yaml.Node | None, key: str) -> yaml.Node | None:
    """The value of a key of a mapping node."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next((value for name, value in reversed(pairs) if name.value == key), None)


def _distinct(node: yaml.Node, shown: str, open_nodes: set[int]) -> None:
    if id(node) in open_nodes:
        raise UserError(f"{shown}:{line(node)}: an anchor that contains itself")
    if isinstance(node, yaml.ScalarNode):
        return
    open_nodes = open_nodes | {id(node)}
    if isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _distinct(value, shown, open_nodes)
        return
    seen: dict[str, int] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag.endswith(":null"):
            raise UserError(f"{shown}:{line(key)}: a key must be a word, not empty, a list or a mapping")
        if key.value in seen:
            raise UserError(f"{shown}:{line(key)}: '{key.value}' occurs twice; it is in line {seen[key.value]} already")
        seen[key.value] = line(key)
        _distinct(value, shown, open_nodes)


def _written_out(root: yaml.MappingNode, shown: str) -> None:
    """No merge among the file's first keys: it could bring in a defaults list that `item` does not see and Hydra does."""
    if merge := next((key for key, _ in root.value if key.tag.endswith(":merge")), None):
        raise UserError(f"{shown}:{line(merge)}: {merge.value}: a file's own first keys are written out, not merged")


def confined(configs: Path, chosen: dict[str, str]) -> None:
    """Raises UserError, with file and line, when a study or scale, or what it includes, is not read from below `configs`: Hydra
    itself would follow `../..`, and look in further folders that `config.yaml` names."""
    for group, name in chosen.items():
        if "${" in name:  # Hydra would resolve it to the name of another file
            raise UserError(f"{configs.name}/{group}/{name}.yaml: a file's name holds no ${{; name it otherwise")
    main = configs / "config.yaml"
    if main.is_file():
        root = Source(name_of(configs, main), (), read(configs, main))
        if (hydra := item(root.root, "hydra")) is not None:
            only = f"only the files of {configs.name}/ are composed; take the key away"
            raise UserError(f"{root.file}:{line(hydra)}: hydra: {only}")
        for wanted in _defaults(root, ""):
            # Its study and its scale give way to the chosen ones, and may be broken.
            if wanted is not None and (wanted.group not in chosen or wanted.package != (wanted.group,)):
                _included(configs, wanted, (root.file,))
    sources(configs, chosen)


# -- Hydra's defaults lists --------------------------------------------------------------------------------------------


class _Wanted(NamedTuple):
    """One file that a defaults list asks for."""

    group: str
    name: str
    package: tuple[str, ...]
    at: str
    """File, line and text of the item, for errors."""
    optional: bool


def _with_defaults(configs: Path, group: str, name: str, package: tuple[str, ...], outer: tuple[str, ...]) -> list[Source]:
    path = configs / group / f"{name}.yaml"
    own = Source(name_of(configs, path), package, read(configs, path))
    found: list[Source] = []
    for wanted in _defaults(own, group):
        if wanted is None:
            found.append(own)
            continue
        found += _included(configs, wanted, (*outer, own.file))
    return found if own in found else [*found, own]


def _included(configs: Path, wanted: _Wanted, outer: tuple[str, ...]) -> list[Source]:
    """The file that an item of a defaults list names, with what it includes; none where it is optional and not there."""
    if not (configs / wanted.group / f"{wanted.name}.yaml").is_file():
        if wanted.optional:
            return []
        raise UserError(f"{wanted.at}: {_no_file(configs, wanted)}")
    if f"{configs.name}/{wanted.group}/{wanted.name}.yaml" in outer:
        raise UserError(f"{wanted.at}: files that include each other in a circle")
    return _with_defaults(configs, wanted.group, wanted.name, wanted.package, outer)


def _no_file(configs: Path, wanted: _Wanted) -> str:
    folder = configs / wanted.group
    if not folder.is_dir():
        groups = [path.name for path in configs.iterdir() if path.is_dir() and path.name not in ("plans", "schema")]
        return f"no folder {configs.name}/{wanted.group}{nearest_name(wanted.group, groups)}"
    known = [str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.yaml")]
    return f"no file {configs.name}/{wanted.group}/{wanted.name}.yaml{nearest_name(wanted.name, known)}"


def _defaults(source: Source, group: str) -> Iterator[_Wanted | None]:
    """What the defaults list asks for, in order; None where the file's own keys come."""
    node = item(source.root, "defaults")
    if node is None:
        return
    if not isinstance(node, yaml.SequenceNode):
        raise UserError(f"{source.file}:{line(node)}: defaults: must be a list, such as [/task@task: op_dag, _self_]")
    placed = False
    for entry in node.value:
        at = f"{source.file}:{line(entry)}: defaults"
        if isinstance(entry, yaml.ScalarNode) and entry.value == "_self_":
            if placed:
                raise UserError(f"{at}: _self_ occurs twice")
            placed = True
            yield None
        elif isinstance(entry, yaml.ScalarNode) and entry.tag.endswith(":str"):
            inner, _, name = entry.value.partition("@")[0].rpartition("/")
            place = f"{inner}@{entry.value.partition('@')[2]}" if "@" in entry.value else inner
            yield _wanted(place, name, source, group, at)
        elif isinstance(entry, yaml.MappingNode) and len(entry.value) == 1:
            key, value = entry.value[0]
            for option in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if not isinstance(option, yaml.ScalarNode):
                    raise UserError(f"{at}.{key.value}: must be the name of a file")
                if option.tag.endswith(":null"):
                    continue
                if not option.tag.endswith(":str"):  # such as !!binary, which is another text to Hydra
                    raise UserError(f"{at}.{key.value} = {option.value}: must be the name of a file, as text")
                yield _wanted(key.value, option.value, source, group, f"{at}.{key.value} = {option.value}")
        else:
            raise UserError(f"{at}: an item is a file's name, `group: name`, or _self_")


def _wanted(place: str, name: str, source: Source, group: str, at: str) -> _Wanted:
    if "${" in place + name:  # Hydra would resolve it later, to any file
        raise UserError(f"{at}: {place}: {name}: an interpolation cannot choose a file; write its name out")
    *words, place = place.split(" ")
    if "override" in words:
        raise UserError(f"{at}: a study cannot override the choice of another file; name what it wants instead")
    folder, _, package = place.partition("@")
    inner = folder.strip("/") if folder.startswith("/") else f"{group}/{folder}".strip("/")
    if package.startswith("_global_"):
        where = tuple(part for part in package.split(".")[1:] if part)
    elif package == "_here_":
        where = source.package
    else:
        where = (*source.package, *(part for part in (package or folder.strip("/").replace("/", ".")).split(".") if part))
    if ".." in f"{inner}/{name}".split("/") or folder.startswith("//") or name.startswith("/"):
        remedy = "name a file below it, such as /task: op_dag"
        raise UserError(f"{at}: {folder}/{name}: leads out of the folder of the studies; {remedy}")
    if inner.split("/")[0] == "hydra":  # Hydra brings files of that name along
        raise UserError(f"{at}: {inner}: only the files of the folder of the studies are composed; take the item away")
    return _Wanted(inner, name.removesuffix(".yaml"), where, at, "optional" in words)


# -- the place of a refused key ----------------------------------------------------------------------------------------------
# The file and line of a refused key. Checks are about the composed study (`configs/study/edge.yaml: stages.rl.steps`); the key
# itself may come from an arm's `set`, from the scale, or from a file that the study includes.

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
