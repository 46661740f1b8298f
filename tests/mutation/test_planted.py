"""Planted faults stay applicable: each text occurs once in src, changes it into Python, and names tests that exist."""

import ast

import pytest
from fault_list import FAULTS, Fault
from planted import ROOT, files_of, places

LEAST = 52


def test_there_are_enough_faults_each_with_a_name_of_its_own() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= LEAST


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_can_be_planted(fault: Fault) -> None:
    files = places(fault.old, ROOT / "src")
    assert len(files) == 1, f"{fault.old!r} must occur once in src, for the fault to be planted; it occurs {len(files)} times"
    text = files[0].read_text()
    changed = text.replace(fault.old, fault.new)
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))
    assert sum(a != b for a, b in zip(text.splitlines(), changed.splitlines(), strict=True)) == 1
    assert fault.tests
    assert [path.name for path in files_of(fault) if not path.exists()] == []
