from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import report_study as study

from interplay.core.model import UserError
from interplay.report.stats import frame, intervals
from interplay.report.stats.estimate import Estimate, difference, p_value, value
from interplay.report.stats.frame import Results

BASE = {2: [4, 4], 3: [4, 2], 4: [1, 0, 2, 1]}
TUNED = [
    {2: [4, 4], 3: [4, 4], 4: [3, 2, 4, 1]},
    {2: [4, 4], 3: [4, 4], 4: [2, 2, 4, 3]},
    {2: [4, 3], 3: [4, 4], 4: [4, 4, 4, 2]},
]


def results(root: Path, seeds: int = 3, absent: tuple[str, ...] = ()) -> Results:
    """A base that all seeds share, and an RL arm with one model per seed; four samples per prompt."""
    inputs = {"b": study.write_evaluation(root, "b", BASE, extra_answers=1)}
    for seed in range(seeds):
        inputs[f"r{seed}"] = study.write_evaluation(root, f"r{seed}", TUNED[seed])
    arms = [study.arm("base", seed, ["base:pretrain:m"], "b") for seed in range(seeds)]
    arms += [study.arm("rl", seed, ["base:pretrain:m", f"rl:rl:m{seed}"], f"r{seed}", "base") for seed in range(seeds)]
    return frame.read_results(study.spec(arms), {digest: path for digest, path in inputs.items() if digest not in absent})


EDGE = np.array([[3, 2, 4, 1], [2, 2, 4, 3], [4, 4, 4, 2]]) / 4
"""Of `TUNED` on the edge."""


def test_a_value_over_runs_is_their_mean_with_the_interval_of_runs_by_prompts(tmp_path: Path) -> None:
    found = value(results(tmp_path), "rl", "edge", "strict_pass@1")
    assert found.per_seed == pytest.approx((10 / 16, 11 / 16, 14 / 16))
    assert found.value == pytest.approx(35 / 48)
    assert (found.low, found.high) == intervals.crossed_spread(EDGE).interval((0.0, 1.0))
    assert (found.n_prompts, found.n_samples, found.seeds, found.models, found.bases) == (4, 4, (0, 1, 2), 3, 1)
    assert found.digests == ("r0", "r1", "r2")


def of_bases(root: Path, bases: list[str], data: tuple[str, ...] = ("test",) * 4) -> Results:
    """An RL arm whose run at each seed goes out from the base that is named."""
    counts = [*TUNED, TUNED[0]][: len(bases)]
    inputs = {f"r{at}": study.write_evaluation(root, f"r{at}", of, data=data[at]) for at, of in enumerate(counts)}
    arms = [study.arm("rl", at, [f"base:pretrain:{base}", f"rl:rl:m{at}"], f"r{at}") for at, base in enumerate(bases)]
    return frame.read_results(study.spec(arms), inputs)


def test_the_target_is_known_from_the_plan_and_never_switches_with_the_data(tmp_path: Path) -> None:
    """Which seeds share a base decides it, not whether they agree."""
    for name, bases, over in (
        ("each", ["x", "y", "z"], "any base, any prompt (3 bases, 4 prompts)"),
        ("one", ["x", "x", "x"], "this base, any prompt (3 runs, 4 prompts)"),
        ("some", ["x", "y", "x", "z"], "any base, any prompt (3 bases, 4 runs, 4 prompts)"),
    ):
        assert value(of_bases(tmp_path / name, bases), "rl", "edge", "strict_pass@1").over == over


def test_several_runs_on_a_base_count_as_their_mean(tmp_path: Path) -> None:
    found = value(of_bases(tmp_path, ["x", "y", "z", "x"]), "rl", "edge", "strict_pass@1")
    means = np.array([EDGE[[0, 0]].mean(0), EDGE[1], EDGE[2]])
    assert (found.low, found.high) == intervals.crossed_spread(means).interval((0.0, 1.0))
    assert (found.bases, found.models) == (3, 4)


def test_prompts_are_nested_where_each_replicate_has_its_own(tmp_path: Path) -> None:
    found = value(of_bases(tmp_path, ["x", "y", "z"], ("t", "u", "v")), "rl", "edge", "strict_pass@1")
    assert (found.low, found.high) == intervals.nested_spread(list(EDGE)).interval((0.0, 1.0))
    assert found.over == "any base, any prompt (3 bases, 4 prompts each)"


def test_pass_at_k_is_the_unbiased_estimate_averaged_over_prompts(tmp_path: Path) -> None:
    # 1 - C(4-c, 2) / C(4, 2) for c = 1, 0, 2, 1: 1/2, 0, 5/6, 1/2.
    assert value(results(tmp_path), "base", "edge", "strict_pass@2").value == pytest.approx((1 / 2 + 0 + 5 / 6 + 1 / 2) / 4)


def test_answers_that_are_right_by_a_wrong_way_count_for_the_answer_metric_alone(tmp_path: Path) -> None:
    found = results(tmp_path)
    assert value(found, "base", "edge", "strict_pass@1").value == pytest.approx(4 / 16)
    assert value(found, "base", "edge", "answer_pass@1").value == pytest.approx(8 / 16)


def test_a_shared_base_is_uncertain_over_prompts_for_this_base(tmp_path: Path) -> None:
    found = value(results(tmp_path), "base", "edge", "strict_pass@1")
    assert found.over == "this base, any prompt (1 run, 4 prompts)"
    assert found.models == 1
    assert found.low < 0.25 < found.high


def test_one_seed_is_uncertain_over_prompts_and_says_so(tmp_path: Path) -> None:
    found = difference(results(tmp_path, seeds=1), "rl", "base", "edge", "strict_pass@1")
    assert found.value == pytest.approx(6 / 16)
    assert found.over == "this base, any prompt (1 run, 4 prompts)"
    assert np.isnan(found.detectable)


def test_a_difference_is_paired_by_seed_against_the_shared_base(tmp_path: Path) -> None:
    found = difference(results(tmp_path), "rl", "base", "edge", "strict_pass@1")
    seeds = np.array([6 / 16, 7 / 16, 10 / 16])
    spread = intervals.crossed_spread(EDGE - np.array([1, 0, 2, 1]) / 4)
    assert found.per_seed == pytest.approx(seeds)
    assert (found.low, found.high) == pytest.approx(spread.interval((-1.0, 1.0)))
    assert found.over == "this base, any prompt (3 runs, 4 prompts)"
    assert found.deviation == pytest.approx(seeds.std(ddof=1))
    assert found.detectable > found.deviation


def test_bases_that_agree_exactly_leave_room_for_a_rare_prompt(tmp_path: Path) -> None:
    inputs = {f"r{seed}": study.write_evaluation(tmp_path, f"r{seed}", {4: [0, 0, 0, 0]}) for seed in range(3)}
    arms = [study.arm("rl", seed, [f"rl:rl:m{seed}"], f"r{seed}") for seed in range(3)]
    found = value(frame.read_results(study.spec(arms), inputs), "rl", "edge", "strict_pass@1")
    assert (found.value, found.low, found.models) == (0, 0, 3)
    assert found.high == pytest.approx(1 - 0.025 ** (1 / 4))
    assert found.over == "any base, any prompt (3 bases, 4 prompts)"


@pytest.mark.parametrize(("column", "expected"), [("op:3", 6 / 8), ("id", 14 / 16), (None, 18 / 32)])
def test_a_column_is_an_op_a_band_or_all_prompts(tmp_path: Path, column: str | None, expected: float) -> None:
    assert value(results(tmp_path), "base", column, "strict_pass@1").value == pytest.approx(expected)


def test_a_band_that_the_problem_set_does_not_name_is_known_by_its_ops(tmp_path: Path) -> None:
    prompts = results(tmp_path).prompts["b"]
    assert frame.of_column(prompts, "id_top", {"id_top": [3]})["op"].tolist() == [3, 3]


@pytest.mark.parametrize(
    ("arm", "column", "metric", "says"),
    [
        ("rl", "edge", "strict_pass@1", "evaluation r1 of rl at seed 1 is not there"),
        ("rl", "edge", "strict_pass@8", "has 4 samples per prompt, strict_pass@8 needs 8"),
        ("rl", "far", "strict_pass@1", "no prompt of far in evaluation r0"),
        ("sft", "edge", "strict_pass@1", "the study has no arm 'sft'"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, arm: str, column: str, metric: str, says: str) -> None:
    found = value(results(tmp_path, absent=("r1",)), arm, column, metric)
    assert any(says in reason for reason in found.missing)


def test_the_seeds_that_are_there_are_still_estimated(tmp_path: Path) -> None:
    found = value(results(tmp_path, absent=("r1",)), "rl", "edge", "strict_pass@1")
    assert found.seeds == (0, 2)
    assert found.value == pytest.approx((10 + 14) / 32)


def test_arms_evaluated_on_different_problem_sets_are_not_subtracted(tmp_path: Path) -> None:
    inputs = {
        "a": study.write_evaluation(tmp_path, "a", {4: [1]}),
        "b": study.write_evaluation(tmp_path, "b", {4: [2]}, data="other"),
    }
    arms = [study.arm(name, 0, [f"x:rl:{name}"], name) for name in "ab"]
    found = difference(frame.read_results(study.spec(arms), inputs), "a", "b", "edge", "strict_pass@1")
    assert np.isnan(found.value)
    assert found.missing == ("a and b at seed 0 were evaluated on different problem sets",)


def test_damaged_samples_are_one_line_that_names_the_file(tmp_path: Path) -> None:
    out = study.write_evaluation(tmp_path, "a", {4: [1]})
    (out / "samples.parquet").write_bytes(b"torn")
    with pytest.raises(UserError, match=r"samples\.parquet: not readable"):
        frame.count_samples(out)


def test_counts_do_not_depend_on_the_order_of_the_samples(tmp_path: Path) -> None:
    out = study.write_evaluation(tmp_path, "a", BASE)
    before = frame.count_samples(out)
    pd.read_parquet(out / "samples.parquet").sample(frac=1, random_state=0).to_parquet(out / "samples.parquet")
    pd.testing.assert_frame_equal(frame.count_samples(out), before)


def test_the_first_evaluation_with_enough_samples_counts(tmp_path: Path) -> None:
    inputs = {"few": study.write_evaluation(tmp_path, "few", BASE, n=4)}
    inputs["many"] = study.write_evaluation(tmp_path, "many", {4: [4, 8, 0, 0]}, n=8)
    arm = {**study.arm("base", 0, ["base:pretrain:m"], "few"), "evaluations": {"a": "few", "b": "many"}}
    found = frame.read_results(study.spec([arm]), inputs)
    assert value(found, "base", "edge", "strict_pass@1").digests == ("few",)
    assert value(found, "base", "edge", "strict_pass@8").value == 0.5
    assert value(found, "base", "id", "strict_pass@8").missing == (
        "evaluation few of base at seed 0 has 4 samples per prompt, strict_pass@8 needs 8",
    )
    assert [said.count("samples per prompt") for said in value(found, "base", "edge", "strict_pass@16").missing] == [2]


def test_a_band_that_one_set_names_is_never_read_off_the_ops_of_another(tmp_path: Path) -> None:
    """One question in two forms: the bands `edge` and `easier` have the same ops, in two evaluations."""
    inputs = {"open": study.write_evaluation(tmp_path, "open", {4: [0, 1]})}
    inputs["form"] = study.write_evaluation(tmp_path, "form", {4: [4, 4]}, band="easier")
    arm = {**study.arm("base", 0, ["base:pretrain:m"], "open"), "evaluations": {"eval": "open", "in_form": "form"}}
    spec = study.spec([arm]).model_copy(update={"bands": {**study.BANDS, "easier": [4], "late": [4]}})
    found = frame.read_results(spec, inputs)
    assert value(found, "base", "edge", "strict_pass@1").value == 1 / 8
    assert value(found, "base", "easier", "strict_pass@1").value == 1
    assert value(found, "base", "late", "strict_pass@1").value == 1 / 8, "no set names it: known by its ops"
    partial = frame.read_results(spec, {"open": inputs["open"]})
    assert value(partial, "base", "easier", "strict_pass@1").missing == ("evaluation form of base at seed 0 is not there",)


def test_scores_without_bounds_that_all_agree_have_neither_an_interval_nor_a_small_p() -> None:
    """Every sample of one arm has 2 turns and of the other 1: nothing bounds how many a rare prompt takes."""
    spread = intervals.crossed_spread(np.ones((3, 80)))
    found = {of: Estimate(1.0, *spread.interval(of), spread=spread) for of in ((-np.inf, np.inf), (-1.0, 1.0))}
    assert [p_value(one) for one in found.values()] == [1.0, spread.p_value()]
