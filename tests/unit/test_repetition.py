"""Arms that repeat another with another trainer: what the plan adds, how far the curves agree, and a verdict that depends on it."""

from pathlib import Path
from typing import Any

import pytest
import report_study as study
from lab import Lab

from interplay.core.digest import canonical
from interplay.core.model import UserError
from interplay.kinds.stages import leaf_differences
from interplay.report.stats import frame
from interplay.report.write import answers, headline

FILE = "study/methods/engines.yaml"


def test_the_arm_that_is_added_differs_in_the_trainer_and_in_nothing_else(tmp_path: Path) -> None:
    plan = Lab(tmp_path).plan("methods/engines")
    rows = {row.arm: row for row in plan.stages[plan.report].spec.arms}
    assert list(rows) == ["base", "grpo", "grpo_trl", "dapo", "dapo_trl", "sampled"]
    for arm in ("grpo", "dapo"):
        one, other = (plan.stages[rows[name].path[-1].digest] for name in (arm, f"{arm}_trl"))
        assert leaf_differences(canonical(one.spec), canonical(other.spec)) == {"trainer": ("native", "trl")}
        assert (one.deps, rows[f"{arm}_trl"].control) == (other.deps, arm)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("  sampled:", "  grpo_trl:", "replicate_with = 'trl': adds grpo_trl, which is there; rename that arm"),
        ("base: {path: [base]}", "base: {path: [base], replicate_with: trl}", "no stage of its path has it; take it away"),
        ("dtype: float32", "dtype: int8", r"trainer = trl: dtype = int8: TRL has float32 or bfloat16; write that"),
        ("replicate_with: trl}", "replicate_with: verl}", "replicate_with = 'verl': should be 'trl'"),
    ],
)
def test_what_cannot_be_repeated_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    lab = Lab(tmp_path)
    lab.edit(FILE, old, new)
    with pytest.raises(UserError, match=said):
        lab.plan("methods/engines")


def line(step: int, **more: float) -> dict[str, Any]:
    return {"step": step, "reward": 0.5, "answer": 0.5, "completion_tokens": 90, "loss": -0.1, "grad_norm": 0.4, **more}


def test_curves_agree_as_long_as_the_completions_are_the_same() -> None:
    one = [line(1), line(2), line(3)]
    assert answers.agreement(one, [line(1), line(2, loss=-0.10001), line(3, reward=0.6, loss=-0.3)]) == (
        "the same completions for the first 2 of 3 steps; loss, grad_norm are equal there to 0.1% of their largest value"
    )
    wrong = answers.agreement(one, [line(1, loss=-0.12), line(2), line(3)])
    assert wrong.endswith("loss parts at step 1 (-0.1 and -0.12) though the completions were the same")
    assert answers.agreement(one, [line(1, reward=0.4)]) == "no step sampled the same"


@pytest.mark.parametrize(
    ("theirs", "said"), [(10, "are the same with trl"), (2, "Depends on the implementation: it lifts the edge")]
)
def test_a_verdict_that_another_trainer_does_not_give_is_named(tmp_path: Path, theirs: int, said: str) -> None:
    inputs, arms = {}, []
    for seed in range(3):
        for name, right in (("b", 2), ("r", 10), ("t", theirs)):
            inputs[f"{name}{seed}"] = study.write_evaluation(tmp_path, f"{name}{seed}", {4: [right] * 20}, n=16)
        for digest, trainer in (("n", "native"), ("f", "trl")):
            out = study.write_record(tmp_path, f"{digest}{seed}", "rl", {**study.RL, "trainer": trainer}, {})
            study.write_steps(out, loss=[-0.1, -0.2], reward=[0.5, 0.5], completion_tokens=[90, 90])
            inputs[f"{digest}{seed}"] = out
        base = study.write_record(tmp_path, f"m{seed}", "pretrain", {"seed": seed}, {})
        inputs[f"m{seed}"] = base
        path = [f"base:pretrain:m{seed}"]
        arms += [
            study.arm("base", seed, path, f"b{seed}"),
            study.arm("rl", seed, [*path, f"rl:rl:n{seed}"], f"r{seed}", "base"),
            study.arm("rl_trl", seed, [*path, f"rl:rl:f{seed}"], f"t{seed}", "rl"),
        ]
    test = {"difference": "strict_pass@1", "band": "edge", "arm": "rl", "against": "base", "at_least": 0.1}
    found = frame.read_results(study.spec(arms, claims=[{"says": "it lifts the edge", "test": test}]), inputs)
    assert answers.repetitions(found) == {"trl": {"rl": "rl_trl"}}
    (line,) = answers.implementation_lines(found)
    assert said in line
    made = answers.answer_study(found)
    assert f"{line}." in headline.make_headline(made).others
    assert len(answers.repetition_lines(found)) == 3
    assert "the same completions for the first 2 of 2 steps" in answers.repetition_lines(found)[0]
