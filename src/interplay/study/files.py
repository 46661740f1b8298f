"""The YAML files that make up a study at a scale, as Hydra merges them, with the line of every key; and what they name on the
disk.

Read before Hydra, which takes ten times as long, to see that no file lies outside; and when something is wrong, by
study/locate.py."""

import importlib.metadata
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import yaml

from interplay.core import artifact, extension
from interplay.core.keys import parse_model
from interplay.core.model import KeyPlace, Model, UserError, nearest_name, shorten_value
from interplay.data.spec import DatasetSpec
from interplay.model.spec import SourceSpec, config_size


class Source(NamedTuple):
    """One file and the path of its keys in the composed study."""

    place: KeyPlace
    package: tuple[str, ...]
    """`("study", "stages", "rl", "method")` for a method chosen in a study."""
    root: yaml.Node


def sources(configs: Path, chosen: dict[str, str]) -> list[Source]:
    """All files of `chosen` (`{"study": "edge", "scale": "smoke"}`), later ones overriding earlier ones.

    Raises UserError with file and line at the first that does not parse, repeats a key, or names a file that is not there."""
    return [source for group, name in chosen.items() for source in _with_defaults(configs, group, name, (group,), ())]


def read(configs: Path, path: Path) -> yaml.Node:
    """The file's nodes, with their lines. Raises UserError when it is not one mapping with distinct string keys."""
    place = place_of(configs, path)
    if path.exists() and not path.resolve().is_relative_to(configs.resolve()):
        raise place.error(f"a link that leads out of {configs.name}/, where a study lies; put the file itself there")
    try:
        root = _nodes(path.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        raise not_yaml(error, place) from None
    except yaml.reader.ReaderError as error:
        line = str(path.read_bytes()[: error.position], "utf-8", "replace").count("\n") + 1
        raise place._replace(line=line).error(f"not YAML: {error.reason}") from None
    except UnicodeDecodeError as error:
        place = place._replace(line=error.object[: error.start].count(10) + 1)
        raise place.error("not UTF-8 text; save it as UTF-8") from None
    except RecursionError:
        raise place.error("nested too deeply to read") from None
    except OSError as error:
        raise place.error(str(error.strerror)) from None
    if root is None and path.parent == configs / "study":
        raise place._replace(line=1).error(f"empty; write the study, or remove it and run `interplay new {path.stem}`")
    if not isinstance(root := root or yaml.MappingNode("tag:yaml.org,2002:map", []), yaml.MappingNode):
        raise place._replace(line=1).error("must hold keys and values, such as `question: ...`")
    _distinct(root, place, set())
    # A merge among the file's first keys could bring in a defaults list that `item` does not see and Hydra does.
    if merge := next((key for key, _ in root.value if key.tag.endswith(":merge")), None):
        raise at_line(place, merge).key(merge.value).error("a file's own first keys are written out, not merged")
    return root


@lru_cache(256)
def _nodes(text: str) -> yaml.Node | None:
    """Kept, since studies share files and a study is planned at several scales; they are only read."""
    return yaml.compose(text, Loader=yaml.SafeLoader)


REMEDIES = {
    "character '\\t'": "a tab; indent with spaces",
    "flow sequence": "a list that a '[' opened has no ',' or ']' here; separate its items, or close it",
    "flow mapping": "a mapping that a '{' opened has no ',' or '}' here; separate its items, or close it",
    "quoted scalar": "a text that a quotation mark opened has no end; close it",
    "mapping values are not allowed": "a second ':' in a line; put text that holds one in quotation marks",
    "expected <block end>": "a line that is indented otherwise than those above; align them, with plain blanks",
    "but found another document": "a second document begins; keep one in a file, without the line ---",
    "constructor for the tag": "a word that begins with ! means nothing here; take it away",
    "could not find expected ':'": "a line without `KEY: VALUE`; write a blank behind the ':', or align a text that goes on",
}
"""Of a parser's complaint -> what it means and what to do."""


def not_yaml(error: yaml.MarkedYAMLError, place: KeyPlace) -> UserError:
    """A parser's complaint with its line."""
    mark = error.problem_mark or error.context_mark
    reason = ", ".join(part for part in (error.context, error.problem) if part)
    remedy = next((remedy for part, remedy in REMEDIES.items() if part in reason), None)
    return place._replace(line=mark.line + 1 if mark else 1).error(f"not YAML: {remedy or f'{reason}; correct that line'}")


def place_of(configs: Path, path: Path) -> KeyPlace:
    """The file as messages show it, such as `configs/study/edge.yaml`."""
    return KeyPlace(f"{configs.name}/{path.relative_to(configs)}")


def at_line(place: KeyPlace, node: yaml.Node) -> KeyPlace:
    """The place with the line of a node."""
    return place._replace(line=node.start_mark.line + 1 if node.start_mark else 1)


def item(node: yaml.Node | None, key: str) -> yaml.Node | None:
    """The value of a key of a mapping node."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next((value for name, value in reversed(pairs) if name.value == key), None)


def _distinct(node: yaml.Node, place: KeyPlace, open_nodes: set[int]) -> None:
    if id(node) in open_nodes:
        raise at_line(place, node).error("an anchor that contains itself")
    if isinstance(node, yaml.ScalarNode):
        digits = node.value.lstrip("+-")
        if node.tag.endswith((":int", ":float")) and (":" in digits or (digits[:1] == "0" and digits[1:].isdecimal())):
            number = yaml.SafeLoader("").construct_document(node)  # in sixties, or octal
            raise at_line(place, node).error(f"YAML reads {node.value} as {number}; write {number}, or '{node.value}' as text")
        return
    open_nodes = open_nodes | {id(node)}
    if isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _distinct(value, place, open_nodes)
        return
    seen: dict[str, int] = {}
    for key, value in node.value:
        here = at_line(place, key)
        if not isinstance(key, yaml.ScalarNode) or key.tag.endswith((":null", ":bool")):
            raise here.error("a key must be a word, not empty, a list or a mapping; put yes, no, on and off in quotation marks")
        if key.value in seen:
            raise here.error(f"'{key.value}' occurs twice; it is in line {seen[key.value]} already")
        seen[key.value] = here.line
        _distinct(value, place, open_nodes)


def refuse_outside(configs: Path, chosen: dict[str, str]) -> None:
    """Raises UserError, with file and line, when a study or scale, or what it includes, is not read from below `configs`: Hydra
    itself would follow `../..`, and look in further folders that `config.yaml` names."""
    for group, name in chosen.items():
        if "${" in name:  # Hydra would resolve it to the name of another file
            raise KeyPlace(f"{configs.name}/{group}/{name}.yaml").error("a file's name holds no ${; name it otherwise")
    main = configs / "config.yaml"
    if main.is_file():
        root = Source(place_of(configs, main), (), read(configs, main))
        if (hydra := item(root.root, "hydra")) is not None:
            only = f"only the files of {configs.name}/ are composed; take the key away"
            raise at_line(root.place, hydra).key("hydra").error(only)
        for wanted in _defaults(root, ""):
            # Its study and its scale give way to the chosen ones, and may be broken.
            if wanted is not None and (wanted.group not in chosen or wanted.package != (wanted.group,)):
                _included(configs, wanted, (root.place.file,))
    sources(configs, chosen)


# -- Hydra's defaults lists --------------------------------------------------------------------------------------------


class _Wanted(NamedTuple):
    """One file that a defaults list asks for."""

    group: str
    name: str
    package: tuple[str, ...]
    error: Callable[[str], UserError]
    """Makes an error about the item, with its line."""
    optional: bool


def _with_defaults(configs: Path, group: str, name: str, package: tuple[str, ...], outer: tuple[str, ...]) -> list[Source]:
    path = configs / group / f"{name}.yaml"
    own = Source(place_of(configs, path), package, read(configs, path))
    found: list[Source] = []
    for wanted in _defaults(own, group):
        if wanted is None:
            found.append(own)
            continue
        found += _included(configs, wanted, (*outer, own.place.file))
    return found if own in found else [*found, own]


def _included(configs: Path, wanted: _Wanted, outer: tuple[str, ...]) -> list[Source]:
    """The file that an item of a defaults list names, with what it includes; none where it is optional and not there."""
    if not (configs / wanted.group / f"{wanted.name}.yaml").is_file():
        if wanted.optional:
            return []
        raise wanted.error(_no_file(configs, wanted))
    if f"{configs.name}/{wanted.group}/{wanted.name}.yaml" in outer:
        raise wanted.error("files that include each other in a circle")
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
    place = source.place.key("defaults")
    if not isinstance(node, yaml.SequenceNode):
        raise at_line(place, node).error("must be a list, such as [/task@task: op_dag, _self_]")
    placed = False
    for entry in node.value:
        at = at_line(place, entry)
        if isinstance(entry, yaml.ScalarNode) and entry.value == "_self_":
            if placed:
                raise at.error("_self_ occurs twice")
            placed = True
            yield None
        elif isinstance(entry, yaml.ScalarNode) and entry.tag.endswith(":str"):
            inner, _, name = entry.value.partition("@")[0].rpartition("/")
            target = f"{inner}@{entry.value.partition('@')[2]}" if "@" in entry.value else inner
            yield _wanted(target, name, source, group, at.error)
        elif isinstance(entry, yaml.MappingNode) and len(entry.value) == 1:
            key, value = entry.value[0]
            item_place = at.key(key.value)
            for option in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if not isinstance(option, yaml.ScalarNode):
                    raise item_place.error("must be the name of a file")
                if option.tag.endswith(":null"):
                    continue
                if not option.tag.endswith(":str"):  # such as !!binary, which is another text to Hydra
                    raise item_place.error("must be the name of a file, as text", option.value)
                yield _wanted(key.value, option.value, source, group, partial(item_place.error, value=option.value))
        else:
            raise at.error("an item is a file's name, `group: name`, or _self_")


def _wanted(target: str, name: str, source: Source, group: str, error: Callable[[str], UserError]) -> _Wanted:
    if "${" in target + name:  # Hydra would resolve it later, to any file
        raise error(f"{target}: {name}: an interpolation cannot choose a file; write its name out")
    *words, target = target.split(" ")
    if "override" in words:
        raise error("a study cannot override the choice of another file; name the file to take instead")
    folder, _, package = target.partition("@")
    inner = folder.strip("/") if folder.startswith("/") else f"{group}/{folder}".strip("/")
    if package.startswith("_global_"):
        keys = tuple(part for part in package.split(".")[1:] if part)
    elif package == "_here_":
        keys = source.package
    else:
        keys = (*source.package, *(part for part in (package or folder.strip("/").replace("/", ".")).split(".") if part))
    if ".." in f"{inner}/{name}".split("/") or folder.startswith("//") or name.startswith("/"):
        remedy = "name a file below it, such as /task: op_dag"
        raise error(f"{folder}/{name}: leads out of the folder of the studies; {remedy}")
    if inner.split("/")[0] == "hydra":  # Hydra brings files of that name along
        raise error(f"{inner}: only the files of the folder of the studies are composed; take the item away")
    if group == "study" and folder and not package and inner.split("/")[0] == "study":
        raise error(f"{folder}/{name}: Hydra would put that study under a key; write /{inner}/{name}@_here_")
    return _Wanted(inner, name.removesuffix(".yaml"), keys, error, "optional" in words)


# -- what enters a study from the disk ---------------------------------------------------------------------------------------
# Members of the user's own (core.extension), models in folders and data files: their content enters the spec, and so the digest.


def fill_extensions(spec: Mapping[str, Any], folder: Path, place: KeyPlace) -> dict[str, Any]:
    """The spec with the texts of members of the user's own, and versions of their distributions, which only the disk has."""
    if extension.is_extension(spec):
        return {**spec, **_content(spec, folder, place)}
    return {key: _filled(value, folder, place.key(key)) for key, value in spec.items()}


def _filled(value: Any, folder: Path, place: KeyPlace) -> Any:
    if isinstance(value, list):
        return [_filled(item, folder, place.key(index)) for index, item in enumerate(value)]
    return fill_extensions(value, folder, place) if isinstance(value, dict) else value


def read_files(
    model: type[Model], spec: Mapping[str, Any], run: Mapping[str, Any], folder: Path, place: KeyPlace
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Spec and run block with the texts of members of the user's own, or versions of their distributions, and with the checksum
    of a file or model folder in the spec and its path in the run block. Raises UserError for a path that leads nowhere."""
    known, given, spec, run = spec.get("sha256"), spec, fill_extensions(spec, folder, place), dict(run)
    if run.get("path") is not None:
        below_root(run["path"], place.key("run", "path"))
    if model is SourceSpec and spec.pop("config", ""):
        run["config"] = _model_config(given["config"], place.key("config"))
    key, checksum = PLACES.get(model, ("", file_checksum))
    of_harness = spec.get("format") == "lm_eval"
    checksum = task_checksum if of_harness else checksum
    if key in spec:
        run["path"] = below_root(spec.pop(key), place.key(key))
        spec["sha256"] = found = checksum(run["path"], known, place)
        if known not in (None, found):
            named = run["path"].removeprefix(artifact.HUB)
            raise place.key("sha256").error(f"but {named} has {found}; put the right files there, or correct it", known)
        if model is DatasetSpec and not of_harness and (known is None or Path(run["path"]).is_file()):
            _check_items(run["path"], parse_model(DatasetSpec, spec, place), place)
    return spec, run


def _model_config(given: Any, place: KeyPlace) -> dict[str, Any]:
    """A model's config.json as a study gives it, whose size can be counted. Raises UserError where there is none."""
    try:
        config = artifact.read_json(Path(below_root(given, place))) if isinstance(given, str) else dict(given)
        config_size(config)
    except (UserError, ValueError, TypeError) as error:
        raise place.error(f"{error}; give the model's config.json", given if isinstance(given, str) else None) from None
    return config


def _check_items(file: str, spec: DatasetSpec, place: KeyPlace) -> None:
    from interplay.data import foreign  # NumPy and pyarrow, for studies that read files alone

    try:
        foreign.check_first_items(path := artifact.local_file(file), spec)
    except UserError as error:
        key = "hub" if file.startswith(artifact.HUB) else "file"
        raise place.key(key).error(str(error).removeprefix(f"{path}: "), file.removeprefix(artifact.HUB)) from None


def below_root(path: Any, place: KeyPlace) -> str:
    """A path that a study names, as it is written: relative to the project's root, and below it. A link there may lead anywhere,
    since the user made it. Raises UserError when the text itself leads out."""
    if not isinstance(path, str):
        raise place.error("must be a path, as text", path)
    if "://" in path and not path.startswith(artifact.HUB):
        raise place.error("an address; download the file, or write hub: owner/name@revision/FILE", path)
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not path.isprintable():
        origin = shorten_value(str(pure) if pure.is_absolute() else f"FOLDER/{pure.name}")
        remedy = f"link what lies elsewhere, as by `ln -s {origin} data/external/`, and name the link"
        raise place.error(f"must lie below the project's root; {remedy}", path)
    return path


def model_checksum(path: str, known: str | None, place: KeyPlace) -> str:
    """Identity of a model folder. Raises UserError when there is none."""
    try:
        return artifact.model_checksum(Path(path))
    except (UserError, OSError, ValueError) as error:
        raise place.key("path").error(str(error), path) from None


def file_checksum(file: str, known: str | None, place: KeyPlace) -> str:
    """Identity of a data file; where it is not here, what the study says. Raises UserError where there is neither."""
    try:
        path = artifact.local_file(file) if known is None else Path(file)
        found = artifact.checksum(path) if path.is_file() else None
    except UserError as error:
        raise place.key("hub").error(str(error).removeprefix(f"{file}: "), file.removeprefix(artifact.HUB)) from None
    except (OSError, ValueError) as error:  # a name too long for any file, or one that may not be read
        why = getattr(error, "strerror", None) or error
        raise place.key("file").error(f"not readable: {why}", file) from None
    if found is None and known is None:
        there = "no such file; put it there, or give its sha256 as well"
        raise place.key("file").error("a folder; name a file in it" if path.is_dir() else there, file)
    return found or str(known)


def task_checksum(task: str, known: str | None, place: KeyPlace) -> str:
    """Identity of a task of lm-eval. Raises UserError where there is none."""
    from interplay.data import harness

    try:
        return harness.task_checksum(task)
    except UserError as error:
        raise place.key("file").error(str(error).removeprefix(f"{task}: "), task) from None


PLACES = {SourceSpec: ("path", model_checksum), DatasetSpec: ("file", file_checksum)}
"""Spec -> the key by which a study names what is on disk, and its identity."""


def _content(member: Mapping[str, Any], folder: Path, outer: KeyPlace) -> dict[str, str]:
    """What only this machine knows of a member of the user's own: the text of its file, or the version of its distribution."""
    key = "name" if ":" in member.get("name", "") else "function"
    place, function = outer.key(key), str(member[key])
    file, _, name = function.partition(":")
    if name and not file.endswith(".py") and "/" not in file:
        try:
            return {"distribution": file, "version": importlib.metadata.version(file)}
        except importlib.metadata.PackageNotFoundError:
            remedy = "install it, or write file.py:Name for a file in the study's folder"
            raise place.error(f"no distribution {file!r} is installed; {remedy}", function) from None
    try:
        path = (folder / file).resolve()
        inside = path.is_relative_to(folder.resolve())
        text = path.read_text(encoding="utf-8") if inside and path.is_file() else None
    except (OSError, ValueError) as error:  # ValueError: no file's name, or no text
        raise place.error(f"not readable as text in UTF-8: {error}", function) from None
    if not name.isidentifier() or not inside:
        raise place.error("must be file.py:Name, the file in the study's folder", function)
    if text is None:
        raise place.error(f"no file {file} in the study's folder; write it there", function)
    return {"source": text}
