"""`make demo` installs what studies need, lint and tests the rest, too; with uv where there is one. Read off `make --dry-run`."""

import subprocess
from pathlib import Path

import pytest
from conftest import ROOT


def commands(target: str, venv: Path, uv: str, compiler: str = "/usr/bin/cc") -> list[str]:
    """What make would run on a machine without an environment; `uv` and `compiler`: paths, empty where there is none."""
    command = ["make", "--dry-run", "--no-print-directory", target, f"VENV={venv}", f"UV={uv}", f"COMPILER={compiler}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize("uv", ["", "/opt/uv"])
def test_the_demo_installs_what_studies_need_and_lint_the_rest(tmp_path: Path, uv: str) -> None:
    installer = "/opt/uv pip install" if uv else f"{tmp_path}/bin/pip install"
    installed = {target: [line for line in commands(target, tmp_path, uv) if " install " in line] for target in ("demo", "lint")}
    assert [line.split()[-1] for line in installed["demo"]] == ["torch==2.13.0", '"."']
    torch, all_at_once, *later = installed["lint"]
    assert (torch.split()[-1], all_at_once.split()[-1]) == ("torch==2.13.0", '".[dev]"')
    assert all(line.startswith(installer) for line in (*installed["demo"], torch, all_at_once))
    assert later[0].startswith(f"test {tmp_path}/ready-dev -nt {tmp_path}/ready || {installer}")  # where the demo came first


def test_a_machine_without_a_compiler_gets_one(tmp_path: Path) -> None:
    last = {one: [line for line in commands("demo", tmp_path, "", one) if " install " in line][-1] for one in ("", "/usr/bin/cc")}
    assert last[""].endswith(" ziglang")
    assert last["/usr/bin/cc"].endswith(' "."')


def test_the_demo_ends_with_what_was_found_and_what_to_try(tmp_path: Path) -> None:
    *_, run, report, first, second, third = commands("demo", tmp_path, "")
    assert "snakemake all --config study=demo" in run
    assert "interplay report demo" in report
    assert first.startswith('echo "next:')
    assert all(more.startswith('echo "') and "interplay" in more for more in (second, third))
