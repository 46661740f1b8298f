"""`make demo` installs what studies need, lint and tests the rest, too (read off `make --dry-run`); uv installs what pip would, or pip does."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT

from tools.install import read_settings, uv_options


def commands(target: str, venv: Path, compiler: str = "/usr/bin/cc") -> list[str]:
    """What make would run on a machine without an environment; `compiler`: a path, empty where there is none."""
    command = ["make", "--dry-run", "--no-print-directory", target, f"VENV={venv}", f"COMPILER={compiler}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def test_the_demo_installs_what_studies_need_and_lint_the_rest(tmp_path: Path) -> None:
    installer = f"{tmp_path}/bin/python tools/install.py"
    installed = {target: [line for line in commands(target, tmp_path) if installer in line] for target in ("demo", "lint")}
    assert [line.split()[-1] for line in installed["demo"]] == ["torch==2.13.0", '"."']
    torch, all_at_once, *later = installed["lint"]
    assert (torch.split()[-1], all_at_once.split()[-1]) == ("torch==2.13.0", '".[dev]"')
    assert later[0].startswith(f"test {tmp_path}/ready-dev -nt {tmp_path}/ready || {installer}")  # where the demo came first


def test_a_machine_without_a_compiler_gets_one(tmp_path: Path) -> None:
    last = {
        one: [line for line in commands("demo", tmp_path, one) if "tools/install.py" in line][-1] for one in ("", "/usr/bin/cc")
    }
    assert last[""].endswith(" ziglang")
    assert last["/usr/bin/cc"].endswith(' "."')


def test_the_demo_ends_with_what_was_found_and_what_to_try(tmp_path: Path) -> None:
    *_, run, report, first, second, third = commands("demo", tmp_path)
    assert "snakemake all --config study=demo" in run
    assert "interplay report demo" in report
    assert first.startswith('echo "next:')
    assert all(more.startswith('echo "') and "interplay" in more for more in (second, third))


def test_uv_is_told_what_pip_is_configured_to() -> None:
    lines = ["global.index-url='https://one.example/simple'", "install.index-url='https://two.example/simple'", "list.format='json'",
             "global.extra-index-url='https://three.example/simple\\nhttps://four.example/simple'", ":env:.find-links='/wheels'", ":env:.no-index='1'"]  # fmt: skip
    options = uv_options(read_settings(lines))
    pairs = list(zip(options[::2], options[1::2], strict=False))
    assert pairs[0] == ("--index-strategy", "unsafe-best-match")
    assert ("--default-index", "https://two.example/simple") in pairs
    assert [value for option, value in pairs if option == "--index"] == [
        "https://three.example/simple",
        "https://four.example/simple",
    ]
    assert ("--find-links", "/wheels") in pairs
    assert options[-1] == "--no-index"


@pytest.mark.parametrize("status", [0, 1])
def test_pip_installs_where_uv_fails(tmp_path: Path, status: int) -> None:
    with zipfile.ZipFile(wheel := tmp_path / "pebble-1.0-py3-none-any.whl", "w") as file:
        file.writestr("pebble.py", "size = 3\n")
        file.writestr("pebble-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: pebble\nVersion: 1.0\n")
        file.writestr(
            "pebble-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr("pebble-1.0.dist-info/RECORD", "")
    (uv := tmp_path / "uv").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\nexit {status}\n')
    uv.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [sys.executable, "tools/install.py", "--target", str(tmp_path / "lib"), "--no-deps", str(wheel)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert (tmp_path / "asked").read_text().startswith(f"pip install --quiet --python {sys.executable}")
    assert (tmp_path / "lib" / "pebble.py").exists() == bool(status)
    assert ("uv failed" in done.stderr) == bool(status)
