"""The central papers on the models that they had, planned at scale paper from a model's config.json: sizes, settings and memory."""

from typing import Any

import pytest
from conftest import ROOT

from interplay.results import estimate, state
from interplay.study.expand import plan_study
from interplay.study.plan import Plan

STUDIES = {
    "loongrl/qwen7b": (7_615_616_512, 80e9),
    "cog_drift/qwen4b": (4_022_468_096, 141e9),
    "cog_drift/llama3b": (3_212_749_824, 141e9),
}
"""Study -> parameters of its model, as its model card has them, and bytes of the GPU that its RL is planned for."""


def planned(study: str) -> Plan:
    return plan_study(ROOT / "configs", study, "paper")


def specs(plan: Plan, kind: str) -> list[Any]:
    return [stage.spec for stage in plan.stages.values() if stage.kind == kind]


@pytest.mark.parametrize("study", STUDIES)
def test_a_published_model_is_planned_with_its_size_hours_and_memory(study: str) -> None:
    plan, (parameters, memory) = planned(study), STUDIES[study]
    found = estimate.estimate_launch(state.Library(plan.stages, ROOT / "results", {}), {})
    trained = [stage for stage in plan.stages.values() if stage.kind == "rl"]
    assert trained
    assert {found.costs[stage.digest].parameters for stage in trained} == {parameters}
    assert (found.unknown(), found.hours() > 100) == ([], True)
    assert all(0 < found.memory[stage.digest].device() < memory for stage in trained)  # type: ignore[union-attr]


def test_loongrl_has_the_settings_of_its_paper() -> None:
    plan = planned("loongrl/qwen7b")
    report = plan.stages[plan.report].spec
    path = next(row.path for row in report.arms if row.arm == "loongrl")  # type: ignore[attr-defined]
    stages = [plan.stages[part.digest].spec for part in path if part.kind == "rl"]
    assert [spec.steps for spec in stages] == [42, 168, 118]  # type: ignore[attr-defined]
    for spec in specs(plan, "rl"):
        loss, schedule = spec.method.loss, spec.schedule
        assert (spec.method.allocation.num_generations, loss.beta, loss.entropy_coef) == (8, 0.001, 0)
        assert (spec.optimizer.learning_rate, schedule.name, schedule.decay_ratio) == (1e-6, "cosine", 1.0)
        assert (spec.max_completion_length, spec.trainer, spec.engine) == (4096, "verl", "vllm")
    chains = [step for spec in specs(plan, "curate") for step in spec.steps if step.name == "keychain"]
    assert {(step.context_tokens, step.n_hops, step.chain_count, step.keys) for step in chains} == {(16384, 4, 64, "hex8")}
    assert {step.prevalence for step in chains} == {0.5, 1.0}, "7,500 of 15,000 questions, and all of those of a test"
    forms = {spec.reward.form for spec in specs(plan, "rl")}
    assert forms == {"substring", "substring_published", "exact", "f1_published"}


def test_cog_drift_has_the_settings_of_its_released_script() -> None:
    plan = planned("cog_drift/qwen4b")
    for spec in specs(plan, "rl"):
        loss = spec.method.loss
        assert (spec.prompts_per_step, spec.minibatches, spec.method.allocation.num_generations) == (8, 8, 8)
        assert (loss.epsilon, loss.epsilon_high, loss.beta, loss.kl_estimator) == (0.2, 0.28, 0.01, "k3")
        assert (spec.max_prompt_length, spec.max_completion_length) == (1024, 8192)
        assert (spec.optimizer.learning_rate, spec.temperature, spec.reward.weight) == (1e-6, 1.0, 0.2)
    tries = [step.limits() for spec in specs(plan, "curate") for step in spec.steps if step.name == "pass_rate"]
    assert set(tries) == {(0, 0, 64)}
    samplers = {spec.method.sampler.model_dump_json() for spec in specs(plan, "rl")}
    assert len(samplers) == 4, "uniform, and a ladder that promotes by reward, by right answers and by chance"
