"""Numbers of the package's structure, and the bounds that they keep: `python -m tools.structure [SRC]` prints a line for each,
`--all` also the modules behind those that fail. Bounds are literal; tests/unit/test_structure.py holds them."""

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

import networkx as nx

FLOORS: tuple[tuple[str, ...], ...] = (
    ("core",),
    ("tasks",),
    ("kernels",),
    ("optim",),
    ("data",),
    ("model",),
    ("rollout",),
    ("train", "rl", "evaluate"),
    ("kinds",),
    ("study",),
    ("results",),
    ("report", "track"),
    ("run",),
    ("api", "serve"),
    ("cli",),
    ("__main__",),
)
"""Packages of the package from the bottom up. A module imports from its own floor's package and from floors below."""
SPEC = "spec"
"""Modules of this name, or whose name ends in `_spec`, lie on a floor of their own, right above `core`: every package may import
them, and they import `core`, `pydantic` and each other, so that planning imports no torch."""
SPEC_TABLES = ("kinds.table", "kinds.study_keys")
"""Data that a spec above them may import, too: a study is a union over the kinds."""
SPEC_LIBRARIES = {"pydantic", "annotated_types", "typing_extensions"}
"""Libraries that a spec may import in addition to the standard library."""
UNCOUNTED = ("spec.py", "__init__.py", "__main__.py")
"""Basenames that modules may share."""


TABLES = ("KINDS", "REFERENCES")
"""Of kinds; a look-up in them names none."""
MOST_MODULES = 260
"""230 for what the package computes itself, and what adapters of other packages and audits of tasks add."""
MOST_CODE = 26_636
"""15 % below the first edition."""


class Module(NamedTuple):
    """What is measured of one module."""

    name: str
    """Dotted, below the package: `rl.loss_spec`; a package by its own name, the package itself is empty."""
    path: Path
    code: int
    """Lines of code, without docstrings, comments and blank lines."""
    imports: int
    """Lines of code that belong to imports."""
    kinds: int
    """Comparisons of something called `kind` with the name of a kind of stage, or with several."""
    targets: tuple[str, ...]
    """Modules of the package that it imports, anywhere in its text."""
    libraries: frozenset[str]


class Finding(NamedTuple):
    """A measured number, its bounds, and where it comes from."""

    what: str
    value: float
    low: float
    high: float
    where: list[str]

    def holds(self) -> bool:
        """Whether the number lies within its bounds."""
        return self.low <= self.value <= self.high


def modules(src: Path) -> list[Module]:
    """The modules of the package at `src`, such as src/interplay."""
    files = sorted(src.rglob("*.py"))
    names = {path: ".".join(path.relative_to(src).with_suffix("").parts).removesuffix("__init__").strip(".") for path in files}
    known, kinds = set(names.values()), _kinds(src)
    return [_module(path, names[path], src.name, known, kinds) for path in files]


def findings(src: Path) -> list[Finding]:
    """Every bound with its number."""
    found = modules(src)
    measured = [one.code for one in found if one.path.name != "__init__.py"]
    code, imports = sum(one.code for one in found), sum(one.imports for one in found)
    names = Counter(one.path.name for one in found)
    shared = {name: count for name, count in names.items() if count > 1 and name not in UNCOUNTED}
    kinds = {one.name: one.kinds for one in found if one.kinds}
    graph = nx.DiGraph([(one.name, target) for one in found for target in one.targets])
    circles = [sorted(part) for part in nx.strongly_connected_components(graph) if len(part) > 1]
    upward, heavy = list(_upward(found)), list(_heavy_specs(found))
    longest = sorted(((len(one.path.read_text().splitlines()), one.name) for one in found), reverse=True)
    infinity = float("inf")
    return [
        Finding("modules", len(found), 0, MOST_MODULES, []),
        Finding("median code lines of a module", median(measured), 80, 220, []),
        Finding(
            "longest module, all lines", longest[0][0], 0, 400, [f"{lines} {name}" for lines, name in longest if lines > 400]
        ),
        Finding("import lines, % of code", round(100 * imports / code, 1), 0, 7, []),
        Finding("modules that share a basename", sum(shared.values()), 0, 60, [f"{n} {name}" for name, n in shared.items()]),
        Finding("code lines", code, 0, MOST_CODE, []),
        Finding("tests of a kind by name", sum(kinds.values()), 0, 10, [f"{n} {name}" for name, n in kinds.items()]),
        Finding("import circles", len(circles), 0, 0, [" ".join(names) for names in circles]),
        Finding("imports upward", len(upward), 0, 0, upward),
        Finding("imports of a spec beyond specs", len(heavy), 0, 0, heavy),
        Finding("modules under 40 code lines", sum(lines < 40 for lines in measured), 0, infinity, []),
    ]


def _module(path: Path, name: str, package: str, known: set[str], kinds: frozenset[str]) -> Module:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    lines = code_lines(text, tree)
    imported = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    of_imports = {number for node in imported for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    outside = {root for node in imported for root in _roots(node)} - {package, ""} - sys.stdlib_module_names
    targets = dict.fromkeys(target for node in imported for target in _targets(node, package, known) if target != name)
    tests = sum(isinstance(node, ast.Compare) and _tests_kind(node, kinds) for node in nodes)
    return Module(name, path, len(lines), len(lines & of_imports), tests, tuple(targets), frozenset(outside))


def code_lines(text: str, tree: ast.AST) -> set[int]:
    """Numbers of the lines that hold code: no docstrings (a string as a statement), comments and blank lines."""
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    documents = {
        number
        for node in strings
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in skipped]
    return {number for token in tokens for number in range(token.start[0], token.end[0] + 1)} - documents


def _roots(node: ast.Import | ast.ImportFrom) -> list[str]:
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    return [name.partition(".")[0] for name in names]


def _targets(node: ast.Import | ast.ImportFrom, package: str, known: set[str]) -> Iterator[str]:
    """Modules of the package that an import loads: `from interplay.data import spec` loads data.spec."""
    if isinstance(node, ast.Import):
        yield from (alias.name.removeprefix(f"{package}.") for alias in node.names if alias.name.startswith(f"{package}."))
    elif node.module and node.module.partition(".")[0] == package:
        below = node.module.removeprefix(package).strip(".")
        for alias in node.names:
            inner = f"{below}.{alias.name}".strip(".")
            if inner in known or below:
                yield inner if inner in known else below


def _tests_kind(node: ast.Compare, kinds: frozenset[str]) -> bool:
    """Whether `kind` is compared with a name of the table, a tuple of such names, or a constant that holds some. Look-ups in
    the table itself (`kind in KINDS`) are none."""
    called = getattr(node.left, "attr", getattr(node.left, "id", ""))
    if called != "kind" or not isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn):
        return False
    values = list(ast.walk(node.comparators[0]))
    named = any(isinstance(one, ast.Constant) and one.value in kinds for one in values)
    return named or any(isinstance(one, ast.Name) and one.id.isupper() and one.id not in TABLES for one in values)


def _kinds(src: Path) -> frozenset[str]:
    """The names of kinds, from the text of the table."""
    table = src / "kinds" / "table.py"
    body = ast.parse(table.read_text(encoding="utf-8")).body if table.exists() else []
    assigned = [node for node in body if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict)]
    keys = [key for node in assigned if isinstance(node.value, ast.Dict) and "KINDS" in ast.dump(node) for key in node.value.keys]
    return frozenset(str(key.value) for key in keys if isinstance(key, ast.Constant))


def is_spec(name: str) -> bool:
    """Whether a module holds settings: `rl.spec`, `report.metric_spec`."""
    last = name.rpartition(".")[2]
    return last == SPEC or last.endswith(f"_{SPEC}")


def floor(name: str) -> float:
    """The floor of a module: half a floor above `core` for specs."""
    package = name.partition(".")[0]
    if is_spec(name):
        return 0.5
    return next((number for number, packages in enumerate(FLOORS) if package in packages), len(FLOORS))


def _upward(found: list[Module]) -> Iterator[str]:
    for one in found:
        for target in one.targets:
            above = floor(target) > floor(one.name)
            across = floor(target) == floor(one.name) and target.partition(".")[0] != one.name.partition(".")[0]
            if not is_spec(one.name) and (above or across):
                yield f"{one.name} -> {target}"


def _is_table_below(name: str, target: str) -> bool:
    package = next((number for number, packages in enumerate(FLOORS) if name.partition(".")[0] in packages), 0)
    return target in SPEC_TABLES and package > floor(target)


def _heavy_specs(found: list[Module]) -> Iterator[str]:
    for one in found:
        if is_spec(one.name):
            yield from (
                f"{one.name} -> {target}"
                for target in one.targets
                if floor(target) > 0.5 and not _is_table_below(one.name, target)
            )
            yield from (f"{one.name} -> {library}" for library in sorted(one.libraries - SPEC_LIBRARIES))


def main(argv: list[str]) -> int:
    """Print the numbers; 1 if one is out of bounds."""
    src = Path(next((word for word in argv if not word.startswith("-")), "src/interplay"))
    results = findings(src)
    for one in results:
        bound = f"{one.low:g} to {one.high:g}" if one.low else f"at most {one.high:g}"
        print(f"{'ok ' if one.holds() else 'NOT'} {one.what:36} {one.value:>8g}  {'' if one.high == float('inf') else bound}")
        if "--all" in argv and not one.holds():
            print("".join(f"      {line}\n" for line in one.where), end="")
    return not all(one.holds() for one in results)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
