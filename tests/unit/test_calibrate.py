"""Bands that are chosen for each base: by its pass rates on held-out prompts, read where they run, and apart from what is judged."""

import json
from pathlib import Path

import pandas as pd
import pytest
import report_study as study
from hypothesis import given, strategies as st
from lab import Lab, of_kind

from interplay.core import artifact
from interplay.core.execution import Run
from interplay.core.model import UserError
from interplay.data.problems import generate_problems
from interplay.data.spec import ProblemsSpec
from interplay.evaluate.scores import calibrate_bands, choose_bands
from interplay.evaluate.spec import CalibrateSpec
from interplay.report.claim_spec import Claim
from interplay.report.stats import contrast, estimate, frame, notes
from interplay.results import check
from interplay.study.plan import Plan, Stage

STUDY, FILE = "interplay/edge_calibrated", "study/interplay/edge_calibrated.yaml"
RULES = {"id": {"strict_pass@1": (0.8, 1.0)}, "edge": {"strict_pass@1": (0.05, 0.5)}, "hard": {"strict_pass@1": (0.0, 0.02)}}


def rates(*of: float) -> dict[int, dict[str, float]]:
    return {op: {"strict_pass@1": rate} for op, rate in enumerate(of, 2)}


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


# -- the choice --------------------------------------------------------------------------------------------------------------


def test_an_op_belongs_to_the_bands_whose_ranges_hold_its_rates() -> None:
    bands, lacking = choose_bands(RULES, rates(0.98, 0.9, 0.7, 0.4, 0.1, 0.01, 0.0))
    assert bands == {"id": [2, 3], "edge": [5, 6], "hard": [7, 8]}
    assert lacking == []


def test_all_pass_rates_of_a_rule_must_hold() -> None:
    rules = {"edge": {"strict_pass@1": (0.0, 0.3), "strict_pass@32": (0.2, 1.0)}}
    measured = {2: (0.9, 1.0), 3: (0.2, 0.9), 4: (0.01, 0.25), 5: (0.0, 0.1)}
    found = {op: dict(zip(("strict_pass@1", "strict_pass@32"), pair, strict=True)) for op, pair in measured.items()}
    assert choose_bands(rules, found)[0] == {"edge": [3, 4]}


def test_a_base_without_an_edge_says_so_and_the_nearest_op_stands_in() -> None:
    bands, lacking = choose_bands(RULES, rates(0.99, 0.95, 0.03, 0.0))
    assert lacking == ["edge"]
    assert bands["edge"] == [4]


@given(st.lists(st.floats(0, 1), min_size=2, max_size=12))
def test_noise_tears_no_band_apart(measured: list[float]) -> None:
    for ops in choose_bands(RULES, rates(*measured))[0].values():
        assert ops == list(range(ops[0], ops[-1] + 1))


def samples(root: Path, name: str, right: dict[int, list[int]], n: int) -> Path:
    """An evaluation with these counts of strictly right samples by op."""
    rows = [{"op": op, "n": n, "strict": count, "answer": n} for op, counts in right.items() for count in counts]
    (root / name).mkdir()
    pd.DataFrame(rows).to_parquet(root / name / "prompts.parquet")
    return root / name


def test_the_blocks_of_an_evaluation_count_as_one(tmp_path: Path) -> None:
    spec = CalibrateSpec.model_validate({"bands": {"edge": {"strict_pass@1": [0.1, 0.2], "strict_pass@4": [0, 1]}}})
    inputs = {f"samples.{n}": samples(tmp_path, str(n), {2: [2, 2], 3: [n, 0]}, 2) for n in (0, 1)}
    found = calibrate_bands(spec, inputs, tmp_path, Run())
    assert found["bands"] == {"edge": [3]}
    assert found["op"] == {
        "2": {"n": 2, "strict_pass@1": 1.0, "strict_pass@4": 1.0},
        "3": {"n": 2, "strict_pass@1": 0.125, "strict_pass@4": 0.5},
    }


def test_verify_finds_bands_that_the_samples_do_not_give(tmp_path: Path) -> None:
    spec = CalibrateSpec.model_validate({"bands": {"edge": {"strict_pass@1": [0.2, 0.7]}}})
    inputs = {"samples.0": samples(tmp_path, "samples", {2: [4, 4], 3: [2, 2], 4: [0, 0]}, 4)}
    out = tmp_path / "calibrate" / ("a" * 12)
    out.mkdir(parents=True)
    metrics = calibrate_bands(spec, inputs, out, Run())
    identity = {"kind": "calibrate", "digest": "a" * 12, "versions": {}, "spec": spec.model_dump(mode="json"), "deps": {}}
    artifact.finish(out, identity, metrics)
    assert list(check.contradictions(out, inputs)) == []
    (out / "bands.json").write_text(json.dumps({"edge": [2]}))
    assert any("bands.json" in line for line in check.contradictions(out, inputs))


# -- the plan ----------------------------------------------------------------------------------------------------------------


def readers(plan: Plan) -> list[Stage]:
    """Problem sets whose bands are chosen."""
    return [stage for stage in of_kind(plan, "problems") if "calibration" in stage.deps]


def test_what_reads_a_band_depends_on_its_calibration_and_not_on_the_outcome(lab: Lab) -> None:
    before = lab.plan(STUDY)
    (chosen,) = of_kind(before, "calibrate")
    assert {stage.deps["calibration"] for stage in readers(before)} == {chosen.digest}
    assert [stage.label for stage in readers(before)] == ["data.test@0", "data.few@0", "data.edge@0"]
    out = lab.finish(chosen)
    (out / "bands.json").write_text(json.dumps({"id": [1], "edge": [3], "hard": [3]}))
    assert lab.plan(STUDY).lock() == before.lock()


def test_another_rule_is_another_calibration_and_moves_what_reads_it_alone(lab: Lab) -> None:
    before = lab.plan(STUDY)
    lab.edit(FILE, "high: 0.6", "high: 0.7")
    after = lab.plan(STUDY)
    same = {stage.label for digest, stage in before.stages.items() if digest in after.stages}
    assert {"data.fixed", "base/base@0", "rl_pinned/rl@0", "calibrate.prompts", "base/calibrate.samples@0"} <= same
    assert same.isdisjoint({"base/calibrate@0", "data.edge@0", "data.test@0", "rl_edge/rl@0", "base/eval@0"})


def test_each_base_has_a_calibration_and_problems_of_its_own(lab: Lab) -> None:
    lab.edit(FILE, "smoke: {replicates: 1,", "smoke: {replicates: 2,")
    plan = lab.plan(STUDY)
    assert len(of_kind(plan, "calibrate")) == 2
    sets = readers(plan)
    assert len({stage.deps["calibration"] for stage in sets}) == 2
    seeds = {stage.label: stage.spec.seed for stage in sets if isinstance(stage.spec, ProblemsSpec)}
    assert seeds["data.test@0"] != seeds["data.test@1"]


def test_a_base_is_the_same_as_in_a_study_without_calibration(lab: Lab) -> None:
    (base,) = of_kind(lab.plan(STUDY), "pretrain")
    assert base.digest in lab.plan("quickstart").stages


REFUSED = {
    "trained on": ("corpus: {band: pinned_id,", "corpus: {band: id,", "calibrated on arm base, which is trained on this set"),
    "judged by": ("size: '${knobs.few}', seed: 1}", "size: 40, seed: 1}\n  few2: {band: pinned_id, split: validation}", ""),
    "shares": ("edge: {band: edge, split: rl}", "edge: {band: edge, split: rl, op_shares: {2: 1.0}}", "take this away"),
    "samples": ("num_samples: 32", "num_samples: 16", "draws 16 samples per prompt"),
    "arm": ("arm: base\n", "arm: bass\n", "no such arm"),
    "rate": ("hard: {strict_pass@1:", "hard: {nll:", "nll"),
    "task": ("set: {rl.data: {fixed: 1.0}}", "set: {task.distractors: [0, 1]}", "name pinned bands"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_calibrated_is_refused_when_it_is_planned(lab: Lab, case: str) -> None:
    old, new, said = REFUSED[case]
    lab.edit(FILE, old, new)
    if case == "judged by":
        lab.edit(FILE, "wide: {kind: evaluate, data: few,", "wide: {kind: evaluate, data: few2,")
        said = "split validation, which bands are calibrated on"
    with pytest.raises(UserError, match=said):
        lab.plan(STUDY)


# -- the problems ------------------------------------------------------------------------------------------------------------


def made(stage: Stage, bands: dict[str, list[int]], root: Path) -> pd.DataFrame:
    """The rows of a problem set for a base with these bands."""
    out, calibration = root / stage.digest, root / "calibration"
    out.mkdir()
    calibration.mkdir(exist_ok=True)
    (calibration / "bands.json").write_text(json.dumps(bands))
    assert isinstance(stage.spec, ProblemsSpec)
    generate_problems(stage.spec, {"calibration": calibration}, out, Run())
    return pd.read_parquet(out / "problems.parquet")


def others(plan: Plan) -> list[Stage]:
    """Problem sets whose bands are fixed."""
    return [stage for stage in of_kind(plan, "problems") if "calibration" not in stage.deps]


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Their rows, which no choice changes."""
    out = tmp_path_factory.mktemp("fixed")
    for stage in others(Lab(tmp_path_factory.mktemp("lab")).plan(STUDY)):
        made(stage, {}, out)
    return out


@pytest.mark.parametrize("op", [1, 2, 3])
def test_whichever_op_is_chosen_no_problem_is_shared_with_training_test_or_calibration(
    lab: Lab, tmp_path: Path, fixed: Path, op: int
) -> None:
    plan = lab.plan(STUDY)
    bands = {"id": [op], "edge": [op], "hard": [op]}
    chosen = {stage.label: made(stage, bands, tmp_path) for stage in readers(plan)}
    rows = {**{stage.label: pd.read_parquet(fixed / stage.digest / "problems.parquet") for stage in others(plan)}, **chosen}
    test = rows["data.test@0"]
    assert set(test[test["band"] != "pinned_edge"]["op"]) == {op}
    assert list(test["band"].value_counts()) == [40] * 4
    for one, other in [
        ("data.test@0", "calibrate.prompts"),
        ("data.few@0", "calibrate.prompts"),
        ("data.edge@0", "calibrate.prompts"),
        ("data.fixed", "calibrate.prompts"),
        ("data.test@0", "data.edge@0"),
        ("data.test@0", "data.fixed"),
        ("data.test@0", "data.corpus"),
        ("calibrate.prompts", "data.corpus"),
    ]:
        assert set(rows[one]["key"]).isdisjoint(rows[other]["key"])


def test_the_ops_of_a_band_have_equal_shares(lab: Lab, tmp_path: Path) -> None:
    (edge,) = [stage for stage in readers(lab.plan(STUDY)) if stage.label == "data.edge@0"]
    rows = made(edge, {"id": [1], "edge": [2, 3], "hard": [3]}, tmp_path)
    assert dict(rows["op"].value_counts()) == {2: 200, 3: 200}
    assert set(rows["band"]) == {"edge"}


# -- the report --------------------------------------------------------------------------------------------------------------


CLAIM = {"says": "so", "test": {"difference": "strict_pass@1", "band": "edge", "arm": "rl", "against": "base", "at_least": 0.1}}


def results(root: Path, lacking: list[int], seeds: int = 5, policy: str = "not tested") -> frame.Results:
    """Bases of which those at some seeds have no edge: there RL lifts the op that stands in by 60 points, elsewhere by 50."""
    inputs, arms = {}, []
    for seed in range(seeds):
        lacks = seed in lacking
        metrics = {"bands": {"edge": [4]}, "lacking": ["edge"] if lacks else []}
        spec = {"bands": {"edge": {"strict_pass@1": [0.05, 0.5]}}}
        inputs[f"c{seed}"] = study.write_record(root, f"c{seed}", "calibrate", spec, metrics)
        inputs[f"b{seed}"] = study.write_evaluation(root, f"b{seed}", {3: [16] * 20, 4: [2] * 20}, n=16, data=f"t{seed}")
        right = {3: [16 - 8 * lacks] * 20, 4: [9 + seed % 3 + 3 * lacks] * 20}
        inputs[f"r{seed}"] = study.write_evaluation(root, f"r{seed}", right, n=16, data=f"t{seed}")
        path = [f"base:pretrain:m{seed}"]
        trained = {"calibration": f"c{seed}", "calibrated": ["edge"]}
        arms += [{**study.arm("base", seed, path, f"b{seed}"), "calibration": f"c{seed}"}]
        arms += [{**study.arm("rl", seed, [*path, f"rl:rl:r{seed}"], f"r{seed}"), **trained}]
    return frame.read_results(study.spec(arms, bands={"edge": [], "id": []}, lacking=policy), inputs)


def test_a_base_without_an_edge_leaves_the_claim_untested(tmp_path: Path) -> None:
    judged = contrast.judge_claim(results(tmp_path, [1, 3]), Claim.model_validate(CLAIM))
    assert judged.verdict == "not tested"
    assert judged.reason == "no edge at seeds 1, 3: no candidate op has strict_pass@1 in [0.05, 0.5]"


def test_bases_without_an_edge_may_be_left_out_and_the_verdict_says_so(tmp_path: Path) -> None:
    judged = contrast.judge_claim(results(tmp_path, [1, 3], policy="left out"), Claim.model_validate(CLAIM))
    assert judged.verdict == "supported"
    assert judged.estimate.seeds == (0, 2, 4)
    assert "of bases that have the band; no edge at seeds 1, 3" in judged.reason


def test_a_claim_on_a_band_that_no_base_has_is_not_tested(tmp_path: Path) -> None:
    found = results(tmp_path, [0, 1, 2], seeds=3, policy="left out")
    assert contrast.judge_claim(found, Claim.model_validate(CLAIM)).verdict == "not tested"
    assert estimate.value(found, "rl", "edge", "strict_pass@1").missing == ("no base has the band edge",)


def test_an_arm_that_was_trained_on_a_stand_in_is_left_out_of_other_bands_too(tmp_path: Path) -> None:
    found = results(tmp_path, [1, 3])
    assert estimate.value(found, "rl", "id", "strict_pass@1").seeds == (0, 2, 4)
    assert estimate.value(found, "base", "id", "strict_pass@1").seeds == (0, 1, 2, 3, 4)


def test_a_table_says_which_ops_a_column_has_on_which_base(tmp_path: Path) -> None:
    lines = notes.caveats_of(results(tmp_path, [1]), ["base", "rl"])
    assert "edge, chosen for each base on held-out prompts: op 4 (seeds 0, 2, 3, 4); no op, left out (seed 1)." in lines
