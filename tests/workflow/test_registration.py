"""A study that is registered, run and then changed: the page names what was changed after seeing data, with real git and
Snakemake."""

import json
import subprocess
from pathlib import Path

import pytest
from conftest import Laboratory

from interplay.study.expand import plan_study

pytestmark = pytest.mark.workflow
STUDY = """
task: op_dag
question: Does a step of RL help?
data:
  corpus: {band: id, split: train, size: 300}
  edge: {band: edge, split: rl, size: 40}
  test: {bands: [id, edge], split: test, size: 20}
stages:
  base: {kind: pretrain, model: pico, data: {corpus: 1.0}, tokens: 2048}
  rl: {kind: rl, data: {edge: 1.0}, method: grpo, steps: 1, prompts_per_step: 2}
  eval: {kind: evaluate, data: test, num_samples: 2}
arms:
  base: {path: [base]}
  rl: {path: [base, rl], control: base}
evaluate: [eval]
seeds: {values: [0, 1], vary: [base, rl]}
exploratory: true
tables:
  main: {columns: [edge], cells: [strict_pass@1]}
claims:
  - says: RL lifts the edge
    test: {difference: strict_pass@1, band: edge, arm: rl, against: base, at_least: 0.10}
    forecast: {interval: [5, 20], probability: 0.7}
  - says: The base solves a part
    test: {value: strict_pass@1, band: edge, arm: base, at_most: 0.9}
"""
NAME = ("study=registered", "scale=smoke")


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=one", "-c", "user.email=one@example.org", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def page(laboratory: Laboratory) -> str:
    plan = plan_study(laboratory.folder / "configs", "registered", "smoke")
    return (laboratory.folder / "results/report" / plan.report / "report.html").read_text()


def changed_keys(laboratory: Laboratory) -> list[str]:
    plan = plan_study(laboratory.folder / "configs", "registered", "smoke")
    return [change.key for change in plan.stages[plan.report].spec.registration.changes]


def test_the_page_names_what_was_changed_after_the_registration(laboratory: Laboratory) -> None:
    folder, file = laboratory.folder, "configs/registered/registered.smoke.json"
    study = "configs/study/registered.yaml"
    (folder / study).write_text(STUDY)
    (folder / ".gitignore").write_text("results\nlogs\n.snakemake\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "the study")
    words = ("register", "registered", "--scale", "smoke")
    done = laboratory.run("interplay", *words)
    assert done.returncode == 0, done.stderr
    assert "registered: 2 claims; commit" in done.stdout
    made = json.loads((folder / file).read_text())["registrations"][0]
    assert (made["late"], made["commit"]) == (False, git(folder, "rev-parse", "--short=12", "HEAD").strip())
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "registered")
    added = git(folder, "log", "-1", "--format=%h of %cs").strip()

    edits = [("rl: {steps: 4,", "rl: {steps: 5,"), ("max_completion_length: 48", "max_completion_length: 40")]
    for (before, after), seen in zip(edits, ([], ["kinds.rl.max_completion_length", "kinds.rl.steps"]), strict=True):
        laboratory.edit("configs/scale/smoke.yaml", before, after)
        assert sorted(changed_keys(laboratory)) == seen, "the study says its steps itself, so that no stage has moved"
    for before, after in edits:
        laboratory.edit("configs/scale/smoke.yaml", after, before)
    plain = "rl: {path: [base, rl], control: base"
    for steps, seen in ((1, []), (2, ["arms[rl].set"])):
        laboratory.edit(study, plain, f"{plain}, set: {{rl.steps: {steps}}}")
        assert changed_keys(laboratory) == seen, "what an arm sets is a change where a stage has moved"
        laboratory.edit(study, f"{plain}, set: {{rl.steps: {steps}}}", plain)

    done = laboratory.snakemake(*NAME)
    assert done.returncode == 0, done.stdout + done.stderr
    first = page(laboratory)
    assert f"{file}, committed in {added}" in first
    assert "changed after seeing data" not in first
    assert "Forecast: +5 to +20 points" in first
    assert "; 70% that it comes out for the claim" in first

    scores = laboratory.run("interplay", "register", "--forecasts").stdout
    assert "registered at smoke, RL lifts the edge: +5 to +20 points" in scores
    again = laboratory.run("interplay", *words)
    assert again.returncode == 2
    assert "are finished; --late registers it as after data" in again.stderr

    laboratory.edit(study, "at_least: 0.10", "at_least: -0.5")
    laboratory.edit(study, "size: 40", "size: 60")
    laboratory.edit(
        study, "claims:\n", "claims:\n  - {says: New, test: {value: strict_pass@1, band: id, arm: rl, at_most: 0.95}}\n"
    )
    done = laboratory.snakemake(*NAME)
    assert done.returncode == 0, done.stdout + done.stderr
    changed = page(laboratory)
    assert "changed after seeing data: test.at_least: 0.1 → -0.5" in changed
    assert "changed after seeing data: added" in changed
    assert "Changed after seeing data: data.edge.size: 40 → 60." in changed
    said = laboratory.run("interplay", "report", "registered", "--scale", "smoke").stdout
    assert "changed after seeing data: test.at_least: 0.1 → -0.5" in said

    text = (folder / file).read_text()
    (folder / file).write_text(text.replace('"at_least": 0.1', '"at_least": -0.5'))
    done = laboratory.snakemake(*NAME)
    assert "was edited since it was written" in page(laboratory), "a threshold that was changed in the file, too"
    (folder / file).write_text(text)

    late = laboratory.run("interplay", *words, "--late")
    assert "registered after data: 3 claims" in late.stdout
    kept = json.loads((folder / file).read_text())["registrations"]
    assert [one["late"] for one in kept] == [False, True]
    assert len(plan_study(folder / "configs", "registered", "smoke").stages) > 0


@pytest.mark.slow  # launches at two looks; boundaries and looks by themselves in test_sequential
def test_settle_adds_replicates_by_looks_until_every_claim_has_stopped(laboratory: Laboratory) -> None:
    """Three replicates, then four; the second call has nothing to do, and the seeds are those declared, then on from the last."""
    study = laboratory.folder / "configs/study/registered.yaml"
    looks = "evaluate: [eval]\nstopping: {looks: [3, 4], beta: 0.1}"
    study.write_text(STUDY.replace("evaluate: [eval]", looks).replace("values: [0, 1]", "values: [0, 1, 2]"))
    plain = laboratory.run("interplay", "settle", "registered", "--scale", "smoke")
    assert "next look: 3 replicates: snakemake all --config study=registered scale=smoke" in plain.stdout, plain.stderr
    assert not (laboratory.folder / "results/rl").exists()
    assert laboratory.run("interplay", "register", "registered", "--scale", "smoke").returncode == 0
    short = laboratory.run("interplay", "settle", "registered", "--scale", "smoke", "--hours", "0.0001")
    assert short.returncode == 0, short.stderr
    assert "the hours are used" in short.stdout
    done = laboratory.run("interplay", "settle", "registered", "--scale", "smoke", "--hours", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "look at 3 replicates" in done.stdout
    plan = plan_study(laboratory.folder / "configs", "registered", "smoke", ["seeds.values=[0,1,2,3]"])
    claims = laboratory.run("interplay", "judge", "registered", "--scale", "smoke").stdout
    last = (laboratory.folder / "results/report" / plan.report / "record.json").exists()
    assert f"look {2 if last else 1} of 2, at {4 if last else 3} replicates, boundary" in claims
    assert "open" not in claims
    reports = [path.read_text() for path in laboratory.folder.glob("results/report/*/report.html")]
    assert reports
    assert not [page for page in reports if "hanged after seeing data" in page], "the seeds of a look are no change"
    again = laboratory.run("interplay", "settle", "registered", "--scale", "smoke", "--hours", "1")
    assert "look at" not in again.stdout
    assert "next look" not in again.stdout
