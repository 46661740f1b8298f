"""Which files of the package a kind's result depends on, and a digest of each that ignores comments, layout and docstrings.

Identity is declared (`VERSION`), never guessed from files: an edit reruns nothing. But a stage made by sources that read
otherwise now is worth a line, and this is where the line comes from. Files are read and parsed; nothing is imported. Parsing a
hundred files takes a second, so what was found in each is kept next to the bytecode, for the next stage that starts."""

import ast
import contextlib
import functools
import hashlib
import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from interplay.core import artifact
from interplay.kinds.table import KINDS, function_of

PACKAGE = Path(__file__).parent.parent
FAMILY = re.compile(r"interplay\.tasks\.[\w.]+:[A-Z_]+")
"""A task family by module and attribute, imported when it is looked up."""


class Source(NamedTuple):
    """One file: the first 12 hex digits of sha256 over its syntax tree, and the dotted names that it may import."""

    digest: str
    imports: tuple[str, ...]
    named: tuple[str, ...] = ()
    """Modules of the functions that its classes name by text (`RUN = "module:function"`), relative to its folder."""
    dispatches: bool = False
    """Whether it looks such functions up (`spec.RUN`): those that the folders of its imports name."""


def of_kind(kind: str, trainer: str = "native") -> dict[str, str]:
    """File below the package -> digest, for every file that the kind's function, of this trainer, may reach by import
    statements."""
    return of_module(function_of(kind, trainer).partition(":")[0])


def present_files(kind: str, made_by: dict[str, str]) -> dict[str, str]:
    """`of_kind` for the trainer whose file is among those that made a stage."""
    files = {
        trainer: f"{function.partition(':')[0].partition('.')[2].replace('.', '/')}.py"
        for trainer, function in KINDS[kind].trainers.items()
    }
    return of_kind(kind, next((trainer for trainer, file in files.items() if file in made_by), "native"))


@functools.cache
def of_module(module: str, package: Path = PACKAGE) -> dict[str, str]:
    """File below `package` -> digest, for the module and all of the package that it imports, directly or not, and for the JSON
    tables in their folders."""
    found: dict[str, str] = {}
    waiting = [module]
    while waiting:
        for path in _files(waiting.pop(), package):
            name = path.relative_to(package).as_posix()
            if name not in found:
                source = read(path)
                found[name] = source.digest
                found |= {data.relative_to(package).as_posix(): read(data).digest for data in path.parent.glob("*.json")}
                waiting += source.imports
                if source.dispatches:
                    waiting += _dispatched(source, package)
    _keep()
    return dict(sorted(found.items()))


@functools.cache
def read(path: Path) -> Source:
    """What one file holds: as it was found in the same bytes before, or parsed."""
    text = path.read_bytes()
    checksum = hashlib.sha256(text).hexdigest()
    if path.is_relative_to(PACKAGE):
        name = path.relative_to(PACKAGE).as_posix()
        if name not in _kept() or _kept()[name][0] != checksum:
            _kept()[name] = [checksum, *_parsed(text)]
            _NEW.append(name)
        digest, imports, named, dispatches = _kept()[name][1:]
        return Source(digest, tuple(imports), tuple(named), dispatches)
    return _parsed(text)


_NEW: list[str] = []
"""Files of the package that this process parsed and has not kept yet."""


@functools.cache
def _kept() -> dict[str, Any]:
    """File below the package -> [sha256, *Source], as an earlier process left it for this version of this module."""
    try:
        return json.loads(_place().read_bytes())
    except (OSError, ValueError):
        return {}


def _keep() -> None:
    """Write what was parsed next to the bytecode, also where Python writes none (PYTHONDONTWRITEBYTECODE, as images of
    containers have it): every stage would parse all again. Of several processes at once the last one's stays."""
    if _NEW:
        with contextlib.suppress(OSError):
            artifact.write_atomic(_place(), json.dumps(_kept()).encode(), every_worker=True)
        _NEW.clear()


@functools.cache
def _place() -> Path:
    version = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    return Path(importlib.util.cache_from_source(__file__)).with_name(f"sources.{version}.json")


def _parsed(text: bytes) -> Source:
    """A file that does not parse counts by its bytes and imports nothing: running it will fail."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return Source(hashlib.sha256(text).hexdigest()[:12], ())
    written, nodes = list[str](), list[ast.AST]()
    _write(tree, written, nodes)
    digest = hashlib.sha256("".join(written).encode()).hexdigest()[:12]
    return Source(digest, tuple(sorted(_imports(nodes))), *_dispatch(nodes))


def differing_files(made_by: dict[str, str], now: dict[str, str]) -> list[str]:
    """Files that read otherwise than when a stage was made, are new or are gone."""
    return sorted(name for name in {*made_by, *now} if made_by.get(name) != now.get(name))


@functools.cache
def _files(module: str, package: Path) -> list[Path]:
    """The file of a dotted name and the `__init__.py` of each package on the way; [] for what lies outside the package.

    A name may end in something that a module defines; then the module before it is meant. The whole package's own `__init__.py`
    is left out: it is the door for people in Python, and what that leads to is no part of a stage."""
    first, *parts = module.split(".")
    if first != package.name:
        return []
    here, found = package, []
    for part in parts:
        here = here / part
        # A folder that a package left, with bytecode alone, is none: Python imports the module of that name.
        found.append(inner if (inner := here / "__init__.py").is_file() else here.with_suffix(".py"))
    return [path for path in found if path.is_file()]


def _imports(nodes: list[ast.AST]) -> Iterator[str]:
    """Dotted names in import statements at any depth, and the modules of `module:attribute` strings of families (tasks.spec). All
    imports are absolute, so levels need no resolving."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and FAMILY.fullmatch(node.value):
            yield node.value.partition(":")[0]
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _dispatch(nodes: list[ast.AST]) -> tuple[tuple[str, ...], bool]:
    """Modules that classes name as `RUN: ... = "module:function"`, and whether `RUN` of an object is read."""
    assigned = (node for node in nodes if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "RUN")
    values = (node.value.value for node in assigned if isinstance(node.value, ast.Constant))
    named = tuple(sorted({value.partition(":")[0] for value in values if isinstance(value, str)}))
    return named, any(isinstance(node, ast.Attribute) and node.attr == "RUN" for node in nodes)


def _dispatched(source: Source, package: Path) -> Iterator[str]:
    """Dotted names of the modules that a dispatching file may load: those that specs in the folders of its imports name."""
    folders = {path.parent for module in source.imports for path in _files(module, package)} - {package}
    for folder in folders:
        modules = {module for path in folder.glob("*.py") for module in read(path).named}
        yield from (".".join([package.name, *folder.relative_to(package).parts, module]) for module in modules)


def _write(node: object, out: list[str], nodes: list[ast.AST]) -> None:
    """A syntax tree as text and its nodes in a row, less docstrings. Not `ast.dump`, which writes empty fields differently from
    one Python to the next."""
    if isinstance(node, list):
        out.append("[")
        for item in node:
            _write(item, out, nodes)
        out.append("]")
    elif not isinstance(node, ast.AST):
        out.append(repr(node))
    elif not isinstance(node, ast.expr_context):
        nodes.append(node)
        out.append(f"({type(node).__name__}")
        for name in node._fields:
            value = getattr(node, name, None)
            if name == "body" and isinstance(value, list):
                value = [item for item in value if not _is_text(item)]
            if value is not None and value != []:
                out.append(f" {name}=")
                _write(value, out, nodes)
        out.append(")")


def _is_text(statement: ast.stmt) -> bool:
    """A string as a statement has no effect: a docstring, of a module, function, class or attribute."""
    return (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str)
    )
