"""The page that holds the central paper's figures beside what was measured: made of committed files, and of nothing else."""

import difflib
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from conftest import ROOT
from test_papers import refused

from tools.reference import lists, measured, published, reproduction

HEAD = ",".join(published.COLUMNS)
GAIN = "1,edge,RL − base,pass@k,1,about,34,points,F,"
SIZE = "table 1,model,,parameters,,,103.2,M,P,"
FIGURES = """
figures:
  - figure: '1'
    title: the edge
    claim: RL lifts.
    differs: All.
    arms: {base: {demo: base, interplay/extrapolation: base}, RL: {demo: rl_edge, interplay/extrapolation: rl_hard}}
settings:
  study: quickstart
  scales: [laptop]
  rows: [{figure: table 1, panel: model, quantity: parameters, key: plan parameters}]
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with the scores of the demo, a published gain and its figure."""
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    for folder in ("docs/data", "docs/results", "data/scores"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "data/scores/demo.laptop.parquet", tmp_path / "data/scores")
    (tmp_path / published.FIGURES).write_text(FIGURES)
    publish(tmp_path, GAIN)
    return tmp_path


def publish(root: Path, *lines: str) -> None:
    """Write the table of published numbers."""
    (root / published.NUMBERS).write_text("\n".join([HEAD, SIZE, *lines]) + "\n")


def rows(root: Path, starts: str = "| RL − base, pass@1 | ≈ +34 points [F] |") -> list[str]:
    """The lines of the table from the one that begins so, to its end."""
    lines = reproduction.files(root)[root / "docs/reproduction.md"].splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith(starts))
    return lines[first : lines.index("", first)]


def exchange(path: Path, arm: str, other: str) -> None:
    """Let two arms have each other's right samples, at every seed."""
    spec = next(measured.of_study(path.parents[2], "demo")).results.spec
    of = {(row.arm, row.seed): row.evaluations["eval"] for row in spec.arms}
    pairs = {of[arm, seed]: of[other, seed] for name, seed in of if name == arm}
    pairs |= {there: here for here, there in pairs.items()}
    table, known = pq.read_table(path), pq.read_metadata(path).metadata
    whole = table.to_pandas()
    by_stage = {stage: part["strict"].to_numpy(copy=True) for stage, part in whole.groupby("stage")}
    for stage, there in pairs.items():
        whole.loc[whole["stage"] == stage, "strict"] = by_stage[there]
    changed = pa.Table.from_pandas(whole, schema=table.schema.remove_metadata(), preserve_index=False)
    with pq.ParquetWriter(path, changed.schema, store_schema=False) as writer:
        writer.write_table(changed)
        writer.add_key_value_metadata({key: known[key] for key in (b"interplay.files", b"interplay.stages")})


def test_the_page_and_its_pictures_are_what_the_committed_files_say() -> None:
    made = reproduction.files(ROOT)
    for path, text in made.items():
        diff = "\n".join(
            difflib.unified_diff(path.read_text().splitlines(), text.splitlines(), str(path), "made", lineterm="", n=0)
        )
        assert not diff, f"run `make docs` and commit it:\n{diff}"
    pictures = {path for path in made if path.suffix == ".svg"}
    assert set((ROOT / reproduction.PICTURES).iterdir()) == pictures, "no picture is left of an earlier page"
    page = made[ROOT / "docs/reproduction.md"]
    for path in pictures:
        drawn = ElementTree.fromstring(path.read_text())
        assert f"]({path.relative_to(ROOT / 'docs')})" in page
        assert float(drawn.attrib["width"]) <= 340, "one fits a phone, two a desk"
        assert min(float(text.attrib["font-size"]) for text in drawn.iter("{http://www.w3.org/2000/svg}text")) >= 11
    assert page.count("](images/reproduction/") == len(pictures)
    absent = [line for line in page.splitlines() if "no such number is committed" in line]
    others = [line for line in absent if ", reward" not in line]  # of a record: committed where a claim is about it
    assert len(others) == 1, "an arm or a band of docs/data/reproduction.yaml that no study has"


def test_another_committed_score_changes_the_cell_and_the_word(root: Path) -> None:
    before = rows(root)
    assert "+12.8 [+5.6, +19.9] points, 4 bases" in before[0]
    assert before[0].endswith("laptop, int8, fast) | **same sign** |")
    exchange(root / "data/scores/demo.laptop.parquet", "base", "rl_edge")
    after = rows(root)
    assert "-12.8 [-19.9, -5.6] points, 4 bases" in after[0]
    assert after[0].endswith("| **contradicted** |")


def test_a_row_says_not_run_and_fills_once_scores_are_committed(root: Path) -> None:
    scores = root / "data/scores/demo.laptop.parquet"
    held = scores.read_bytes()
    scores.unlink()
    (line,) = rows(root)
    assert "| not run ([demo](../configs/study/demo.yaml), [interplay/extrapolation]" in line
    scores.write_bytes(held)
    assert [line.split(" | ")[2].split(" ")[0] for line in rows(root)] == ["+12.8", "not"]


def test_an_arm_that_did_not_act_and_a_base_without_room_are_not_tested(root: Path) -> None:
    shutil.copy(ROOT / "docs/results/interplay.extrapolation.laptop.json.gz", root / "docs/results")
    shutil.copy(ROOT / lists.SUPERSEDED, root / lists.SUPERSEDED)
    publish(root, GAIN, GAIN.replace("pass@k,1,about,34", "pass@128,,,42"))
    idle = "an earlier plan) | **not tested** (rl_hard did not act: its weights stayed as they were) |"
    assert rows(root)[1].endswith(idle)
    full, unmoved = rows(root, "| RL − base, pass@128 | +42 points [F] | pass@16: ")
    assert full.endswith("| **not tested** (no room: base is at 89.7 %) |")
    assert unmoved.endswith(idle)
    entry = next(entry for entry in lists.withdrawals(ROOT) if entry.claim == "RL beyond the edge does not widen the edge")
    (root / lists.WITHDRAWN).write_text(yaml.safe_dump([entry.model_dump()]))
    assert rows(root, "| RL − base, pass@128 |")[1].endswith("| **withdrawn** (dead_arm) |")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (GAIN.replace(",F,", ",,"), "value = 34 and mark = ''; a number needs a mark, P, C, F, R"),
        (GAIN.replace(",F,", ",X,"), "value = 34 and mark = 'X'; a number needs a mark"),
        (GAIN.replace(",34,", ",,"), "value = empty and mark = 'F'; a number needs a mark, P, C, F, R, and what is not read has neither"),
        (GAIN.replace(",34,", ",many,"), "value = 'many' should be a number"),
        (GAIN.replace("about", "roughly"), "bound = 'roughly' should be"),
        (GAIN + "a, b", "should have 10 fields; quote a note with a comma"),
        (GAIN.replace("1,edge", "2,edge"), "docs/data/reproduction.yaml has no figure '2'"),
    ],
)  # fmt: skip
def test_a_published_number_without_a_mark_is_refused(
    line: str, said: str, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(root, line)
    monkeypatch.chdir(root)
    assert said in refused("reproduction", published.NUMBERS, capsys)


def test_published_differences_are_those_of_their_curves() -> None:
    """Up to what reading a plot costs."""
    table = published.numbers(ROOT)
    known = {(row.figure, row.panel, row.curve, row.quantity, row.x): row.value for row in table}
    checked = 0
    for row in table:
        sides = [known.get((row.figure, row.panel, side, row.quantity, row.x)) for side in row.curve.split(published.MINUS)]
        if len(sides) == 2 and None not in sides and row.value is not None:
            assert abs(sides[0] - sides[1] - row.value) <= (0.05 if row.mark == "R" else 2), row
            checked += 1
    assert checked >= 8
