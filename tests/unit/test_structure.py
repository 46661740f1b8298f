"""The package's structure keeps its bounds, and the tool that measures it measures what it says."""

import ast
from pathlib import Path

from conftest import ROOT

from tools import structure

NOT_YET = ("code lines",)
"""Bounds that are not reached yet; one that is comes off this list."""


def test_the_structure_keeps_its_bounds() -> None:
    found = {one.what: one for one in structure.findings(ROOT / "src" / "interplay")}
    assert found.keys() >= set(NOT_YET)
    beyond = [one for one in found.values() if one.what not in NOT_YET and not one.holds()]
    assert not beyond, "\n".join(f"{one.what}: {one.value:g}, bounds {one.low:g} to {one.high:g}: {one.where}" for one in beyond)


def test_no_public_name_of_a_module_is_a_container_that_fills_while_it_runs() -> None:
    """State belongs to an object. Two memos of classes that are loaded have a leading underscore."""
    found = []
    for path in sorted((ROOT / "src" / "interplay").rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                name = ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
                if ast.unparse(node.value) in ("{}", "[]", "set()", "dict()", "list()") and not name.startswith("_"):
                    found.append(f"{path.relative_to(ROOT)}: {name}")
    assert not found


def package(root: Path, **files: str) -> dict[str, structure.Finding]:
    """Findings of a package of these files, `folder__name` as `folder/name.py`."""
    for name, text in files.items():
        path = root / "interplay" / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {one.what: one for one in structure.findings(root / "interplay")}


def test_docstrings_comments_and_blank_lines_are_no_code(tmp_path: Path) -> None:
    made = package(tmp_path, core__a='"""Doc."""\n\nimport json\n# why\nX = (\n    1,\n)\n"""What X is."""\n')
    assert made["code lines"].value == 4
    assert made["import lines, % of code"].value == 25


def test_a_module_is_as_long_as_its_file(tmp_path: Path) -> None:
    made = package(tmp_path, core__a="import json\n" + "# why\n" * 400)
    assert (made["longest module, all lines"].value, made["longest module, all lines"].where) == (401, ["401 core.a"])


def test_circles_and_imports_upward_are_named(tmp_path: Path) -> None:
    made = package(
        tmp_path,
        core__a="from interplay.tasks import b\n",
        tasks__b="def f():\n    from interplay.core.a import X\n",
        tasks__spec="import torch\nfrom interplay.tasks import b\n",
        data__c="from interplay.tasks import spec\n",
    )
    assert made["import circles"].where == ["core.a tasks.b"]
    assert made["imports upward"].where == ["core.a -> tasks.b"]
    assert made["imports of a spec beyond specs"].where == ["tasks.spec -> tasks.b", "tasks.spec -> torch"]


def test_packages_of_one_floor_import_nothing_of_each_other(tmp_path: Path) -> None:
    made = package(tmp_path, rl__a="from interplay.train import b\n", train__b="", study__c="from interplay.rl import a\n")
    assert made["imports upward"].where == ["rl.a -> train.b"]


def test_tests_of_a_kind_and_shared_names_are_counted(tmp_path: Path) -> None:
    made = package(
        tmp_path,
        kinds__table='KINDS: dict[str, int] = {"rl": 1, "sft": 2}\nSETS = ("sft",)\n',
        rl__a='if kind == "rl" or error.kind == "missing" or kind in KINDS or kind == other:\n    pass\n',
        data__a='x = stage.kind in ("rl", *SETS) or stage.kind not in SETS\n',
        data__spec="",
        rl__spec="",
    )
    assert made["tests of a kind by name"].where == ["2 data.a", "1 rl.a"]
    assert made["modules that share a basename"].value == 2
