"""A study with a curated set, run by the real Snakemake: filtered by the samples of a named arm; refused where it is contaminated,
before anything downstream starts; killed in the middle and ending with the same bytes."""

import subprocess
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from conftest import BEHIND, Laboratory, below, kill_group, wait_for

from interplay.core import artifact

STUDY = """
defaults:
  - /task@task: op_dag
  - /method@stages.rl.method: grpo
  - _self_

question: Does a filter by pass rate run?
data:
  corpus: {band: id, split: train}
  held_out: {band: id, split: validation}
  edge: {band: id, split: rl, size: 60}
  sifted:
    mix: {edge: 1.0}
    steps:
      - {name: pass_rate, arm: base, evaluate: probe, low: 1, high: 7, of: 8, by: answer}
      - {name: contamination, against: [AGAINST]}
      - {name: custom, function: 'slow.py:slow', options: {seconds: SECONDS}}
  test: {band: id, split: test}
stages:
  base: {kind: pretrain, data: {corpus: 1.0}, validation: held_out}
  rl: {kind: rl, data: {sifted: 1.0}, steps: 1}
  probe: {kind: evaluate, data: edge, num_samples: 8}
  eval: {kind: evaluate, data: test, num_samples: 2}
arms:
  base: {path: [base]}
  rl: {path: [base, rl], control: base}
evaluate: [eval]
tables:
  main: {columns: [id], cells: [strict_pass@1]}
scales:
  smoke: {sizes: {train: 400, validation: 20, test: 20}, kinds: {pretrain: {tokens: 60000}}}
"""
SLOW = """
import time
def slow(rows, seconds):
    time.sleep(seconds)
    return [{**row, "solution": row["solution"]} for row in rows]
"""
ASKED = ("study=sift", "scale=smoke")


@pytest.fixture
def sifting(laboratory: Laboratory) -> Laboratory:
    """With a step of its own beside the study."""
    (laboratory.folder / "configs/study/slow.py").write_text(SLOW)
    return laboratory


def write(laboratory: Laboratory, against: str, seconds: float) -> None:
    text = STUDY.replace("AGAINST", against).replace("SECONDS", str(seconds))
    (laboratory.folder / "configs/study/sift.yaml").write_text(text)


def curated(laboratory: Laboratory) -> Path:
    (found,) = laboratory.folder.glob("results/curate/*")
    return found


def data_files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("record.json", "problems.parquet", "keys.parquet")}


@pytest.mark.slow
def test_a_set_filtered_by_a_named_arm_is_killed_in_the_middle_and_made_again_with_the_same_bytes(sifting: Laboratory) -> None:
    write(sifting, "test", 8.0)
    run = sifting.start(*ASKED)
    try:
        wait_for(lambda: any(sifting.folder.glob("results/curate/*/lease")), 400)
        wait_for(lambda: bool(below(run, curated(sifting).name)))
        time.sleep(2)
    finally:
        kill_group(run)
    out = curated(sifting)
    assert not artifact.done(out)
    result = sifting.snakemake(*ASKED)
    assert result.returncode == 0, result.stdout + result.stderr
    first = data_files(out)
    stage = artifact.read_json(out / "stage.json")
    probe = sifting.folder / "results/evaluate" / stage["deps"]["samples.0.0.0"]
    right: dict[int, int] = {}
    for row in pq.read_table(probe / "samples.parquet").to_pylist():
        right[row["index"]] = right.get(row["index"], 0) + row["answer"]
    kept = {index for index, n in right.items() if 1 <= n <= 7}
    assert 0 < len(kept) < len(right) == 60
    rows = pq.read_table(out / "problems.parquet").to_pylist()
    assert {row["origin"] for row in rows} == {f"{stage['deps']['data.0']}:{index}" for index in kept}
    trained = [artifact.read_json(path) for path in sifting.folder.glob("results/rl/*/record.json")]
    assert any(out.name in record["deps"].values() for record in trained)
    shown = sifting.run("interplay", "show", out.name)
    assert f"pass_rate: 60 -> {len(kept)} rows (too_easy " in shown.stdout
    assert f"contamination: {len(kept)} -> {len(kept)} rows" in shown.stdout
    way = sifting.run("interplay", "rows", f"{out.name}:0").stdout
    assert f"problems {stage['deps']['data.0']} data.edge, as its row " in way
    assert rows[0]["prompt"] in way
    for name in ("record.json", "problems.parquet", "keys.parquet"):
        (out / name).unlink()
    again = subprocess.run(
        [*BEHIND, "python", "-m", "interplay.run.stage", "run", out.name], cwd=sifting.folder, env=sifting.env, check=False
    )
    assert again.returncode == 0
    assert data_files(out) == first


def test_a_contaminated_set_stops_the_study_in_one_line_and_nothing_that_needs_it_starts(sifting: Laboratory) -> None:
    write(sifting, "edge", 0.0)
    study = sifting.folder / "configs/study/sift.yaml"  # a base of one step, of which the step before would keep no row
    lines = [line for line in study.read_text().splitlines() if "name: pass_rate" not in line]
    study.write_text("\n".join(lines).replace("tokens: 60000", "tokens: 2048"))
    result = sifting.snakemake(*ASKED)
    assert result.returncode != 0
    out = curated(sifting)
    stage = artifact.read_json(out / "stage.json")
    direct = sifting.run("python", "-m", "interplay.run.stage", "run", out.name)
    assert direct.returncode == 3
    said = direct.stderr.strip().splitlines()[-1]
    source = stage["deps"]["data.0"]
    assert said.startswith("interplay: curate: step 0 (contamination): ")
    assert f" matches {source}:" in said
    assert "(exact)" in said
    assert said in result.stdout + result.stderr
    assert not artifact.done(out)
    for planned in sifting.folder.glob("results/rl/*/stage.json"):
        needs = artifact.read_json(planned)["deps"].values()
        assert out.name not in needs or not (planned.parent / "lease").exists()
