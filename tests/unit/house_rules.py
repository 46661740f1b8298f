"""The rules of security that the source tree keeps, as one function from a syntax tree to what breaks them."""

import ast
from collections.abc import Iterator

PICKLING = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "jsonpickle", "hickle"}
"""Modules that run what they read."""
PICKLED = {
    *("torch.load", "torch.save", "torch.jit.load", "pandas.read_pickle", "pandas.to_pickle", "numpy.lib.format.read_array"),
    *("torch.package.PackageImporter", "torch.utils.serialization.load"),
}
RUNNING = {"eval", "exec", "compile", "__import__"}
SHELLS = {
    "os.system",
    "os.popen",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
    "asyncio.create_subprocess_shell",
    "pty.spawn",
}
YAML_ASKED = {"yaml.load", "yaml.load_all", "yaml.compose", "yaml.parse", "yaml.scan"}
YAML_UNSAFE = {"yaml.unsafe_load", "yaml.unsafe_load_all", "yaml.full_load", "yaml.full_load_all"}
SAFE_LOADERS = {"yaml.SafeLoader", "yaml.CSafeLoader", "yaml.BaseLoader"}
REMOTE = {"from_pretrained", "from_config"}
EVERYWHERE = {"0.0.0.0", "::", "[::]"}
"""Addresses that are those of every network that a machine is on."""


def broken(source: str, own_functions: bool = False, strict: bool = True) -> list[str]:
    """What in a module breaks the rules, as `line: what`. `own_functions`: it is the one that makes the user's own functions of
    their text; `strict`: loaders of transformers must say that they trust no remote code, and not only not say that they do."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    names = dict(_imported(nodes))
    return sorted(
        f"{node.lineno}: {found}"
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Constant | ast.Call | ast.Name)
        for found in _of(node, names, own_functions, strict)
    )


def _imported(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    """What a name of the module stands for: `np` for `numpy`, `system` for `os.system`."""
    yield "pd", "pandas"
    yield "np", "numpy"
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name.split(".")[0], alias.name if alias.asname else alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _dotted(node: ast.AST, names: dict[str, str]) -> str:
    """`os.system` for whatever leads there; empty for what is no name."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        head = _dotted(node.value, names)
        return f"{head}.{node.attr}" if head else ""
    return ""


def _of(node: ast.AST, names: dict[str, str], own_functions: bool, strict: bool) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (f"imports {alias.name}" for alias in node.names if alias.name.split(".")[0] in PICKLING)
    elif isinstance(node, ast.ImportFrom):
        module = node.module or ""
        if module.split(".")[0] in PICKLING or {f"{module}.{alias.name}" for alias in node.names} & PICKLED:
            yield f"imports from {module}"
    elif isinstance(node, ast.Constant) and node.value in EVERYWHERE:
        yield f"binds to every network: {node.value}"
    elif isinstance(node, ast.Call):
        yield from _of_call(node, names, own_functions, strict)
    elif isinstance(node, ast.Name) and node.id in RUNNING - {"compile"} and not own_functions:
        yield f"runs text: {node.id}"


def _of_call(node: ast.Call, names: dict[str, str], own_functions: bool, strict: bool) -> Iterator[str]:
    called = _dotted(node.func, names)
    last = node.func.attr if isinstance(node.func, ast.Attribute) else called
    given = {word.arg: word.value for word in node.keywords if word.arg}
    if called in PICKLED or last in ("to_pickle", "read_pickle"):
        yield f"pickles: {called or last}"
    if called in ("compile", "builtins.compile", "builtins.eval", "builtins.exec") and not own_functions:
        yield f"runs text: {called}"
    if "allow_pickle" in given and not _is(given["allow_pickle"], False):
        yield "unpickles: allow_pickle"
    if called in SHELLS or ("shell" in given and not _is(given["shell"], False)):
        yield f"asks a shell: {called or last}"
    if called in YAML_UNSAFE or (called in YAML_ASKED and not _safe(node, given, names)):
        yield f"reads YAML that may make objects: {called}"
    if "trust_remote_code" in given and not _is(given["trust_remote_code"], False):
        yield "trusts remote code"
    if strict and last in REMOTE and "trust_remote_code" not in given:
        yield f"does not say that it trusts no remote code: {last}"


def _safe(node: ast.Call, given: dict[str, ast.expr], names: dict[str, str]) -> bool:
    loader = given.get("Loader") or (node.args[1] if len(node.args) > 1 else None)
    return loader is not None and _dotted(loader, names) in SAFE_LOADERS


def _is(node: ast.AST, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value
