"""Standard controls: the arms that a plan gets, what their rewards pay, and what the page says explains a gain."""

from collections.abc import Callable
from pathlib import Path

import pytest
import report_study as study
from conftest import copy_configs

from interplay.core.model import UserError
from interplay.report.stats import confounds, frame
from interplay.rl.reward_spec import FormatReward, RandomReward, ShuffledReward
from interplay.rl.rewards import score_completions
from interplay.study.expand import plan_study
from interplay.study.plan import Plan
from interplay.tasks.verdict import Row, Verdict

ARMS = ["control_random", "control_format", "control_labels", "control_none", "control_sft"]


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    return copy_configs(tmp_path)


def with_controls(configs: Path, said: str = "standard", name: str = "demo") -> Plan:
    path = configs / "study" / f"{name}.yaml"
    path.write_text(path.read_text().replace("\nclaims:\n", f"\ncontrols: {said}\nclaims:\n", 1))
    return plan_study(configs, name, "smoke")


def rows(plan: Plan) -> dict[str, dict]:
    return {row.arm: row for row in plan.stages[plan.report].spec.arms}


def test_controls_are_ordinary_arms_that_differ_from_the_gains_arm_in_one_thing(configs: Path) -> None:
    before = plan_study(configs, "demo", "smoke")
    plan = with_controls(configs)
    found, old = rows(plan), rows(before)
    assert list(found) == [*old, *ARMS]
    assert all(found[name].path == old[name].path and found[name].evaluations == old[name].evaluations for name in old)
    rl = plan.stages[found["rl_edge"].path[-1].digest].spec
    paid = {name: plan.stages[found[name].path[-1].digest].spec for name in ARMS[:3]}
    assert {name: spec.reward.name for name, spec in paid.items()} == dict(
        zip(ARMS[:3], ("random", "format", "shuffled"), strict=True)
    )
    assert all(spec.model_copy(update={"reward": rl.reward}) == rl for spec in paid.values())
    assert [step.digest for step in found["control_none"].path] == [step.digest for step in found["base"].path]
    assert found["control_none"].evaluations["eval"] != found["base"].evaluations["eval"]
    sft, gold = plan.stages[found["control_sft"].path[-1].digest], plan.stages[found["gold_sft"].path[-1].digest]
    tokens = rl.steps * rl.prompts_per_step * rl.method.allocation.num_generations * rl.max_completion_length
    assert sft.spec == gold.spec.model_copy(update={"tokens": tokens})
    report = plan.stages[plan.report].spec
    assert report.tables["main"].arms == list(old)
    assert report.controls.of, report.controls.against == ("rl_edge", "base")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("{of: gold_sft, against: base, band: edge}", "base must end where the RL of gold_sft starts"),
        ("{of: rl_egde, against: base, band: edge}", "rl_edge"),
        ("{of: rl_edge, against: gold_sft, band: edge}", "gold_sft must end where the RL of rl_edge starts: with the path"),
        ("all", "standard"),
        ("{of: rl_edge, against: base, band: egde}", "controls.band = 'egde': no such band of the evaluations"),
        (
            "{of: rl_edge, against: base, band: 'op:99'}",
            "controls.band = 'op:99': no problem that rl_edge is tested on has 99 ops",
        ),
        ("{of: rl_edge, against: base, band: edge, value: strictpass}", "'strictpass' is not a metric"),
        ("{of: rl_edge, against: base, band: edge, value: hacked}", "of 'hacked' less is better"),
        ("{of: rl_edge, against: base, band: edge, value: strict_pass@512}", "give it more num_samples, or lower k"),
    ],
)
def test_controls_that_cannot_be_judged_are_refused(configs: Path, said: str, expected: str) -> None:
    with pytest.raises(UserError, match=r"demo\.yaml") as refused:
        with_controls(configs, said)
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


def test_standard_controls_need_a_claim_about_a_gain(configs: Path) -> None:
    path = configs / "study" / "demo.yaml"
    head, _, tail = path.read_text().partition("\nclaims:\n")
    path.write_text(f"{head}\ncontrols: standard\n{tail[tail.index('scales:') :]}")
    with pytest.raises(UserError, match="no claim compares an arm after RL with what its RL started from"):
        plan_study(configs, "demo", "smoke")


def row(index: int, answer: str) -> Row:
    return Row(0, index, "edge", 2, "forward", "", "", answer, "", "", "op_dag", "")


def said(text: str, right: bool = False, error: str = "none") -> Verdict:
    return Verdict(right, right, float(right), error, said=text)


def test_rewards_of_controls_know_nothing_of_what_is_right() -> None:
    problems = [one for one in (row(0, "0"), row(1, "1"), row(2, "2")) for _ in range(2)]
    verdicts = [said("0", True), said("1"), said("1", True), said("2"), said("2", True), said("0")]
    paid = score_completions(ShuffledReward(), problems, ["."] * 6, verdicts)
    assert paid.sequence == [0, 1, 0, 1, 0, 1]  # by identity, each row once: the label is the next problem's answer
    texts = [f"text {n}" for n in range(4000)]
    drawn = score_completions(RandomReward(share=0.25), [problems[0]] * 4000, texts, [verdicts[0]] * 4000).sequence
    assert drawn == score_completions(RandomReward(share=0.25), [problems[0]] * 4000, texts, [verdicts[1]] * 4000).sequence
    assert sum(drawn) / 4000 == pytest.approx(0.25, abs=0.03)
    assert drawn != score_completions(RandomReward(share=0.25), [problems[0]] * 4000, texts[::-1], [verdicts[0]] * 4000).sequence
    form = [said("1"), said("0", True), said("", error="parse")]
    assert score_completions(FormatReward(weight=1.0), [problems[0]] * 3, ["."] * 3, form).sequence == [1, 1, 0]


GAIN = [9, 10, 11]
"""Right of 16 samples at each base, on 20 prompts, where the base has 2."""


def judged(root: Path, make: Callable[[int], list[int]], kind: str = "random", gain: list[int] = GAIN) -> confounds.Controlled:
    inputs, arms = {}, []
    for seed in range(3):
        rights = {"base": [2] * 20, "rl": [gain[seed]] * 20, f"control_{kind}": make(seed)}
        for name, right in rights.items():
            digest = f"{name}{seed}"
            inputs[digest] = study.write_evaluation(root, digest, {4: right}, n=16)
            path = [f"base:pretrain:m{seed}", *([] if name == "base" else [f"rl:rl:{digest}"])]
            arms.append(study.arm(name, seed, path, digest))
    asked = {"of": "rl", "against": "base", "band": "edge", "among": [kind]}
    return confounds.judge_controls(frame.read_results(study.spec(arms, controls=asked), inputs))


@pytest.mark.parametrize(
    ("right", "word"),
    [
        (lambda seed: [GAIN[seed]] * 20, confounds.EXPLAINS),
        (lambda seed: [13] * 20, confounds.EXPLAINS),
        (lambda seed: [8] * 20, confounds.EXPLAINS),
        (lambda seed: [5 + seed] * 20, confounds.PART),
        (lambda seed: [2] * 20, confounds.RULED_OUT),
        (lambda seed: [4, 16, 2][seed : seed + 1] * 20, confounds.OPEN),
    ],
)
def test_a_control_explains_a_gain_or_is_ruled_out_only_where_intervals_decide(
    tmp_path: Path, right: Callable, word: str
) -> None:
    found = judged(tmp_path, right)
    assert found.rows[0].word == word
    assert ("the gain is not of the reward" in found.left) == (word == confounds.EXPLAINS)
    assert ("left is the reward" in found.left) == (word == confounds.RULED_OUT)


def test_without_a_gain_nothing_is_explained(tmp_path: Path) -> None:
    assert "no gain to explain" in judged(tmp_path, lambda seed: [9] * 20, gain=[2, 4, 1]).left


def test_each_control_names_the_explanation_that_it_leaves(tmp_path: Path) -> None:
    lefts = {
        kind: judged(tmp_path / kind, lambda seed: [GAIN[seed]] * 20, kind).left for kind in confounds.NAMES if kind != "prior"
    }
    assert len({left.rpartition(": ")[2] for left in lefts.values()}) == 5
    assert "the form of the answers explains it" in lefts["format"]
    assert "it needs no RL" in lefts["sft"]
