"""`interplay plan` foretells time and bytes of problem sets and corpora."""

from pathlib import Path

import pytest
from lab import Lab, of_kind

from interplay import cli
from interplay.cli import overview
from interplay.core.execution import Run
from interplay.results import estimate, state, telemetry
from interplay.study.plan import Plan, Stage
from interplay.tasks.op_dag.terse_prompts import OP_DAG

SIZE = 4000
"""Problems of the quickstart's corpus in these tests."""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.chdir(tmp_path)
    lab = Lab(tmp_path)
    lab.edit("study/quickstart.yaml", "corpus: {band: id, split: train}", f"corpus: {{band: id, split: train, size: {SIZE}}}")
    return lab


def made(lab: Lab, plan: Plan) -> estimate.Estimate:
    found = state.scan_results(lab.results)
    return estimate.estimate_launch(state.Library(plan.stages, lab.results, found), found)


def corpus_set(plan: Plan) -> Stage:
    return next(stage for stage in of_kind(plan, "problems") if stage.label == "data.corpus")


def test_without_records_problems_and_corpora_take_what_the_stated_rates_of_their_family_say(lab: Lab) -> None:
    plan, rate = lab.plan(), OP_DAG.rates
    problems, (packed,) = corpus_set(plan), of_kind(plan, "corpus")
    found = made(lab, plan)
    assert found.times[problems.digest] == estimate.Time(SIZE / rate.made, 0.0, estimate.RATED)
    assert found.times[packed.digest] == estimate.Time(SIZE / rate.packed, 0.0, estimate.RATED)
    assert found.bytes[problems.digest] == SIZE * rate.set_bytes
    assert found.bytes[packed.digest] == SIZE * rate.corpus_bytes


def test_threads_share_the_problems_and_not_the_packing(lab: Lab) -> None:
    stage = {"kind": "problems", "spec": {"task": {"name": "op_dag"}}, "deps": {}, "run": Run(threads=4).model_dump()}
    rate = OP_DAG.rates
    assert telemetry.generation_seconds(stage, 8000, "op_dag") == pytest.approx(8000 / rate.made / 4)
    assert telemetry.generation_seconds({**stage, "kind": "corpus"}, 8000, "op_dag") == pytest.approx(8000 / rate.packed)
    assert telemetry.generation_seconds(stage, 8000, "") is None


def test_the_pace_and_the_bytes_of_finished_sets_count_where_they_are_large_enough(lab: Lab) -> None:
    small = corpus_set(lab.plan())
    out = lab.finish(small, 8.0)
    size = (out / "payload.bin").stat().st_size
    lab.edit("study/quickstart.yaml", f"size: {SIZE}", f"size: {5 * SIZE}")
    larger = lab.plan()
    found = made(lab, larger)
    digest = corpus_set(larger).digest
    assert found.times[digest] == estimate.Time(pytest.approx(40.0), 0.0, estimate.MEASURED)  # type: ignore[arg-type]
    assert found.bytes[digest] == pytest.approx(5 * size)
    lab.edit("study/quickstart.yaml", f"size: {5 * SIZE}", f"size: {11 * SIZE}")
    far = lab.plan()
    assert made(lab, far).times[corpus_set(far).digest].source == estimate.RATED


def test_a_model_leaves_its_weights_once_for_each_that_is_kept(lab: Lab) -> None:
    plan = lab.plan()
    found = made(lab, plan)
    (base,) = of_kind(plan, "pretrain")
    rl = of_kind(plan, "rl")[0]
    weights = 4 * (found.costs[base.digest].parameters or 0)
    assert weights
    assert found.bytes[base.digest] == weights * (1 + len(base.spec.checkpoints))  # type: ignore[attr-defined]
    kept = len(rl.spec.checkpoints) + 3 * rl.run.keep_state  # type: ignore[attr-defined]
    assert found.bytes[rl.digest] == weights * (1 + kept)


def test_a_plan_says_what_it_will_leave_on_disk_and_of_which_kinds_nothing_is_known(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["plan", "quickstart", "--scale", "smoke"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    rate = OP_DAG.rates
    assert f"corpus {overview.size(round(SIZE * rate.corpus_bytes))}" in said
    assert "unknown for tokenizer, evaluate, report" in said
    seen = overview.overview_json(overview.read_overview(lab.plan(), lab.configs, lab.results))
    (packed,) = [stage for stage in seen["stages"] if stage["kind"] == "corpus"]
    assert packed["bytes"] == SIZE * rate.corpus_bytes
