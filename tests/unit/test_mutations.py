"""A damaged study is either still a study, or refused in one line with exit code 2: no traceback, no job, no file."""

import random
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from conftest import Laboratory, copy_configs
from mutations import damaged, write_rich

from interplay.cli import main

FILES = [
    *[("rich", "study/rich.yaml")] * 4,
    ("quickstart", "study/quickstart.yaml"),
    ("edge", "study/edge.yaml"),
    ("edge_bases", "study/edge.yaml"),
    ("edge_bases", "study/edge_bases.yaml"),
    ("ladder", "study/ladder.yaml"),
    ("rich", "scale/smoke.yaml"),
    ("quickstart", "scale/smoke.yaml"),
    ("rich", "method/grpo.yaml"),
    ("rich", "task/op_dag.yaml"),
    ("rich", "model/pico.yaml"),
]
"""A study, and a file of it that is damaged."""
REFUSAL = re.compile(r"interplay: (configs/\S+\.yaml(:\d+)?: .+)\n")
LONGEST = 1000
"""Characters of a refusal."""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy_configs(tmp_path)
    write_rich(tmp_path / "configs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(root: Path) -> list[str]:
    """But for what is kept beside Python files: of a reward that was tried, that it passed."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if "__pycache__" not in path.parts)


def judge(root: Path, seeds: range, capsys: pytest.CaptureFixture[str]) -> Counter[str]:
    """Damage one file per seed, plan the study, and check what came of it. Counts valid and refused ones."""
    found: Counter[str] = Counter()
    before = files(root)
    for seed in seeds:
        chance = random.Random(seed)
        study, file = chance.choice(FILES)
        path = root / "configs" / file
        text = path.read_text()
        path.write_bytes(damaged(text, chance).encode("utf-8", "surrogatepass"))
        started = time.monotonic()
        try:
            code = main(["plan", study, "--scale", "smoke"])
        except BaseException as error:
            raise AssertionError(f"seed {seed}, {file}: {type(error).__name__}: {error}") from error
        said = capsys.readouterr().err
        assert time.monotonic() - started < 60, f"seed {seed}, {file}: slow"
        assert code in (0, 2), f"seed {seed}, {file}: exit code {code}"
        if code == 2:
            assert REFUSAL.fullmatch(said), f"seed {seed}, {file}: {said!r}"
            assert len(said) < LONGEST, f"seed {seed}, {file}: {said!r}"
        else:
            assert said == "", f"seed {seed}, {file}: {said!r}"
        found["valid" if code == 0 else "refused, with a line" if re.search(r"\.yaml:\d+: ", said) else "refused"] += 1
        path.write_text(text)
    assert files(root) == before, "planning left files behind"
    return found


@pytest.mark.parametrize("study", sorted({study for study, _ in FILES}))
def test_undamaged_the_studies_are_valid(study: str, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", study, "--scale", "smoke"]) == 0, capsys.readouterr().err


def test_25_damaged_studies_are_valid_or_refused_in_one_line(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = judge(root, range(25), capsys)
    assert found["valid"] >= 1
    assert found["refused, with a line"] >= 17


@pytest.mark.slow
def test_1000_damaged_studies_are_valid_or_refused_in_one_line(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = judge(root, range(1000, 2000), capsys)
    assert found["valid"] >= 50
    assert found["refused, with a line"] >= 600
    with capsys.disabled():
        print(dict(found), file=sys.stderr)


@pytest.mark.slow
def test_snakemake_refuses_damaged_studies_alike_and_leaves_nothing(tmp_path: Path) -> None:
    laboratory = Laboratory(tmp_path)
    write_rich(laboratory.folder / "configs")
    before = files(laboratory.folder)
    path = laboratory.folder / "configs/study/rich.yaml"
    text, codes = path.read_text(), Counter[int]()
    for seed in range(12):
        path.write_bytes(damaged(text, random.Random(seed)).encode("utf-8", "surrogatepass"))
        result: subprocess.CompletedProcess[str] = laboratory.snakemake("study=rich", "scale=smoke", flags=("-n",))
        codes[result.returncode] += 1
        assert result.returncode in (0, 2), result.stderr
        assert "Traceback" not in result.stderr, result.stderr
        path.write_text(text)
    assert codes[2] >= 6
    left = [file for file in files(laboratory.folder) if file not in before and not file.startswith(".snakemake")]
    assert left == []
