"""The demo: its arms run from the bases that come with the project, and these are what pre-training makes."""

import html
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import rl_steps
from conftest import ROOT, Laboratory

from interplay.core import artifact, metrics
from interplay.run.stage import run_stage
from interplay.study.expand import plan_study
from tools import demo_bases

pytestmark = pytest.mark.workflow
SHIPPED = ROOT / demo_bases.BASES
MADE = json.loads((SHIPPED / demo_bases.MADE).read_text())
DECISIVE = ("cpu", "python", "torch", "numpy")
"""What the bytes of a base depend on."""
NEAR = 0.02
"""Nats per token: more than bases differ by on other processors, less than what a fault in training costs."""


def test_the_bases_are_small_and_are_those_that_are_described() -> None:
    assert sorted(MADE["bases"]) == ["0", "1", "2", "3"]
    assert sum(path.stat().st_size for path in SHIPPED.rglob("*") if path.is_file()) < 4_000_000
    found = {seed: artifact.model_checksum(SHIPPED / seed) for seed in MADE["bases"]}
    assert found == {seed: base["sha256"] for seed, base in MADE["bases"].items()}
    assert len(set(found.values())) == len(found)
    made = {str(base.seed): base.digest for base in demo_bases.bases(ROOT)}
    assert made == {seed: base["stage"] for seed, base in MADE["bases"].items()}, (
        "demo_full pre-trains other bases than data/demo holds; run `make demo-full` and `python -m tools.demo_bases --write`"
    )


def test_the_demo_runs_from_them_and_every_arm_moves(laboratory: Laboratory) -> None:
    shutil.copytree(SHIPPED, laboratory.folder / demo_bases.BASES)
    result = laboratory.snakemake("study=demo", "scale=smoke")
    assert result.returncode == 0, result.stdout + result.stderr
    said = laboratory.run("interplay", "report", "demo", "--scale", "smoke").stdout.splitlines()
    claims = json.loads((laboratory.folder / "results/by-name/demo.smoke/report/claims.json").read_text())
    assert len(said) == 3 * len(claims) + 1
    assert all(claim["estimate"]["value"] is not None for claim in claims)
    written = (laboratory.folder / "results/by-name/demo.smoke/report/report.html").read_text()
    assert "One problem, before and after" in written
    assert written.count('class="rollout"') > 4
    (*looks, own) = [html.unescape(one) for one in re.findall(r"<pre><code>(.*?)</code></pre>", written, re.DOTALL)]
    assert [look.split()[1] for look in looks] == ["compare", "explain"]
    for line in [*looks, own]:
        tried = laboratory.run(*shlex.split(line))
        assert tried.returncode == 0, f"{line}: {tried.stderr}"
    plan = plan_study(laboratory.folder / "configs", "demo", "smoke")
    assert not [stage for stage in plan.stages.values() if stage.kind == "pretrain"]
    results = laboratory.folder / "results"
    rl_steps.check("demo", plan, results)
    (tuned,) = [stage for stage in plan.stages.values() if stage.kind == "sft"]
    assert rl_steps.weights(results, tuned.digest) != rl_steps.weights(results, tuned.deps["init"])


def test_a_base_that_differs_is_described(tmp_path: Path) -> None:
    shutil.copytree(SHIPPED, tmp_path / demo_bases.BASES)
    made = tmp_path / "results/pretrain/0a0a0a0a0a0a"
    shutil.copytree(SHIPPED / "1", made / "model")
    artifact.write_json(made / "record.json", {"metrics": {"eval_loss": {"id": 0.5}}, "files": {}})
    assert demo_bases.differences(tmp_path, demo_bases.Base(1, made.name, made)) == ""
    differs = demo_bases.differences(tmp_path, demo_bases.Base(0, made.name, made))
    assert differs.startswith("weights differ by up to ")
    assert "validation loss on id 0.5000 here, " in differs


@pytest.mark.slow
def test_a_base_made_anew_is_the_one_that_comes_with_the_project(laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the byte with the libraries and the kind of processor that made it; elsewhere as good."""
    base = demo_bases.bases(ROOT)[0]
    stages = plan_study(ROOT / "configs", demo_bases.STUDY, "laptop").stages
    monkeypatch.chdir(laboratory.folder)
    needed = artifact.closure([base.digest], lambda digest: stages[digest].deps.values())
    for digest in needed:
        out = artifact.folder(Path("results"), stages[digest].kind, digest)
        artifact.write_json(out / "stage.json", stages[digest].as_json())
        run_stage(out)
    made = base._replace(artifact=laboratory.folder / "results/pretrain" / base.digest)
    known = MADE["bases"][str(base.seed)]["eval_loss"]
    for band, loss in demo_bases.losses(made).items():
        assert abs(loss - known[band]) < NEAR
    here = metrics.current_environment()
    if all(here.get(key) == MADE["environment"][key] for key in DECISIVE):
        assert demo_bases.differences(ROOT, made) == ""
