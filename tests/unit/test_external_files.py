"""The script that gets published files: what it cuts, and that it writes nothing but what the studies ask for."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

SCRIPT = ROOT / "data/external/fetch.py"
LINES = {"train.jsonl": 7473, "test.jsonl": 1319}


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """Files of the published lengths with other words."""
    for name, count in LINES.items():
        (tmp_path / name).write_text("".join(f'{{"line": {number}}}\n' for number in range(count)))
    for name in ("hotpotqa_train.json", "hotpotqa200.json"):
        (tmp_path / name).write_text(json.dumps([{"from": name}]))
    return tmp_path


def test_subsets_are_lines_as_they_are_in_their_order_and_items_one_after_the_other(published: Path) -> None:
    spec = importlib.util.spec_from_file_location("fetch", SCRIPT)
    assert spec
    assert spec.loader
    fetch = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fetch)
    made = fetch.subsets({path.name: path.read_bytes() for path in published.iterdir()})
    train = [json.loads(line)["line"] for line in made["gsm8k_train.jsonl"].splitlines()]
    assert (len(train), train[:3], train) == (800, [20, 32, 33], sorted(set(train)))
    assert len(made["gsm8k_test.jsonl"].splitlines()) == 200
    assert [item["from"] for item in json.loads(made["hotpotqa.json"])] == ["hotpotqa_train.json", "hotpotqa200.json"]


def test_a_source_that_has_changed_or_is_missing_is_one_line_and_nothing_is_written(published: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    command = [sys.executable, str(SCRIPT), "--from", str(published), "--to", str(out)]
    changed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (changed.returncode, changed.stdout) == (2, "")
    assert re.fullmatch(r"fetch: gsm8k_train.jsonl: sha256 \w+, not bd2b1c\w+: its source has changed\n", changed.stderr)
    (published / "train.jsonl").write_text("{}\n")
    short = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (short.returncode, short.stderr.count("\n")) == (2, 1)
    (published / "test.jsonl").unlink()
    missing = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (missing.returncode, missing.stderr.count("\n"), "test.jsonl" in missing.stderr) == (2, 1, True)
    assert list(out.iterdir()) == []


def test_the_studies_checksums_are_those_of_the_script() -> None:
    study = (ROOT / "configs/study/smollm2/keychain_gsm8k.yaml").read_text()
    assert set(re.findall(r'"(\w{64})"', SCRIPT.read_text())) == set(re.findall(r"sha256: (?:&\w+ )?(\w{64}), format", study))
