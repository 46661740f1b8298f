"""`offline` of an RL stage: the planner has the prompts sampled by the model that the stage starts from."""

from pathlib import Path

import pytest
from conftest import ROOT
from lab import Lab, of_kind

from interplay.core.model import UserError
from interplay.study.expand import load

STUDY = "study/quickstart.yaml"
RL = "rl: {kind: rl, data: {edge: 1.0}"


def with_offline(tmp_path: Path, keys: str) -> Lab:
    lab = Lab(tmp_path)
    lab.edit(STUDY, RL, f"probe: {{kind: evaluate, data: edge, num_samples: 8}}\n  {RL}, {keys}")
    lab.edit("method/grpo.yaml", "allocation:", "sampler: {name: single_stream}\nallocation:")
    return lab


def test_the_prompts_of_every_set_are_sampled_by_the_model_that_rl_starts_from(tmp_path: Path) -> None:
    plan = with_offline(tmp_path, "offline: probe").plan()
    for stage in of_kind(plan, "rl"):
        sampled = plan.stages[stage.deps["offline.0.0"]]
        assert (sampled.kind, sampled.spec.num_samples) == ("evaluate", 8)  # type: ignore[attr-defined]
        assert sampled.deps == {"model": stage.deps["init"], "data": stage.deps["data.0"]}
    without = with_offline(tmp_path / "without", "steps: 4").plan()
    assert not {stage.digest for stage in of_kind(plan, "rl")} & set(without.stages)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("offline: base", r"stages\.rl\.offline = 'base': is a pretrain stage; name one of kind evaluate"),
        ("offline: prob", r"stages\.rl\.offline = 'prob': no such stage; did you mean 'probe'"),
        ("offline: probe, method: {paper: p}", r"the sampler uniform learns nothing from samples; take it away"),
    ],
)
def test_what_cannot_be_or_is_not_read_is_refused(tmp_path: Path, keys: str, message: str) -> None:
    lab = with_offline(tmp_path, keys)
    if "method" in keys:
        lab.edit("method/grpo.yaml", "sampler: {name: single_stream}\n", "")
        lab.edit(STUDY, ", method: {paper: p}", "")
    with pytest.raises(UserError, match=message):
        lab.plan()


def test_only_a_stage_of_kind_rl_takes_samples(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.edit(STUDY, "base: {kind: pretrain", "base: {kind: pretrain, offline: eval")
    with pytest.raises(UserError, match=r"stages\.base\.offline: unknown key 'offline' of pretrain; it is a key of rl"):
        lab.plan()


def test_a_study_may_vary_its_seeds_by_those_of_the_scale(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.edit(STUDY, "seeds: {values: [0], vary: [base, rl]}", "seeds: {vary: [base, rl]}")
    assert len({stage.digest for stage in of_kind(lab.plan(), "pretrain")}) == 1
    lab.edit("scale/smoke.yaml", "seeds: [0]", "seeds: [0, 1, 2]")
    assert len({stage.digest for stage in of_kind(lab.plan(), "pretrain")}) == 3


CURRICULA = sorted(path.stem for path in (ROOT / "configs" / "curriculum").glob("*.yaml"))


@pytest.mark.parametrize("name", CURRICULA)
def test_a_curriculum_is_taken_in_by_its_file(tmp_path: Path, name: str) -> None:
    lab = Lab(tmp_path)
    lab.edit(STUDY, "  - _self_", f"  - /curriculum@stages.rl.method.sampler: {name}\n  - _self_")
    assert load(lab.configs, "quickstart", "smoke")[0].stages["rl"]["method"]["sampler"]["name"] == name.removesuffix("_beta")
    assert of_kind(lab.plan(), "rl")
