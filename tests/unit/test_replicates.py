"""`replicates: N`: so many bases, each with all arms on it."""

import copy
from pathlib import Path

import pytest
import yaml
from lab import SCALE, Lab

from interplay.core import artifact
from interplay.core.model import UserError
from interplay.study.expand import plan_study
from interplay.study.plan import registration_path, treatments, with_checksum

SEEDS = "seeds: {values: [0, 1, 2], vary: [mid, gold, rl]}"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_replicates_are_bases_with_one_seed_of_every_later_stage(lab: Lab) -> None:
    lab.edit("study/edge.yaml", SEEDS, "seeds: {values: [0, 1, 2], vary: [base, mid, gold, rl]}")
    spelt = lab.plan("edge")
    lab.edit("study/edge.yaml", "seeds: {values: [0, 1, 2], vary: [base, mid, gold, rl]}", "replicates: 3")
    assert lab.plan("edge").lock() == spelt.lock()


def test_a_scale_may_have_other_replicates_and_the_command_line_others_still(lab: Lab) -> None:
    lab.edit("study/edge.yaml", SEEDS, "replicates: 3\nscales: {smoke: {replicates: 2}}")

    def bases(*given: str) -> int:
        stages = plan_study(lab.configs, "edge", SCALE, given).stages.values()
        return len([stage for stage in stages if stage.kind == "pretrain"])

    assert [bases(), bases("replicates=4"), bases("seeds.values=[0,1,2,3,4]")] == [2, 4, 5]


@pytest.mark.parametrize(
    ("written", "said"), [(f"replicates: 2\n{SEEDS}", "replicates and seeds both say"), ("replicates: 0", "equal to 1")]
)
def test_two_spellings_and_no_replicates_are_refused(lab: Lab, written: str, said: str) -> None:
    lab.edit("study/edge.yaml", SEEDS, written)
    with pytest.raises(UserError, match=said):
        lab.plan("edge")


def test_what_a_study_is_about_are_evaluations_where_nothing_is_trained_for_it(lab: Lab) -> None:
    """The evaluations of an only model, and those of one that is asked otherwise than the first; not those of a start of training."""

    def about(arms: str) -> list[str]:
        lab.edit("study/edge.yaml", "arms:\n", f"arms:\n{arms}")
        study = yaml.safe_load((lab.configs / "study/edge.yaml").read_text())
        names = [name.partition(":")[0].strip() for name in arms.splitlines()]
        kept = {**study, "arms": {name: study["arms"][name] for name in names}, "claims": [], "tables": {}, "figures": {}}
        (lab.configs / "study/asked.yaml").write_text(yaml.safe_dump({**kept, "match": [], "scales": {}}))
        lab.edit("study/edge.yaml", arms, "")
        plan = lab.plan("asked")
        return sorted(
            {plan.stages[one].label.partition("@")[0] for one in treatments(plan.stages, plan.stages[plan.report].spec.arms)}
        )

    only = "  one: {path: [base]}\n"
    assert about(only) == ["one/eval"]
    assert about(f"{only}  two: {{path: [base], control: one, set: {{eval.temperature: 0.5}}}}\n") == ["two/eval"]
    assert about(f"{only}  two: {{path: [base, rl], control: one}}\n") == ["two/eval", "two/rl"]


def test_what_a_fight_is_about_is_registered_with_it(lab: Lab) -> None:
    """Another column, metric or contender of a table with a contrast is a change; registrations of before say nothing of it."""
    design = lab.plan("coffee_losses").design
    name = next(iter(design["contrasts"]))
    assert design["outcomes"][name]["columns"]
    path = registration_path(lab.configs, "coffee_losses", SCALE)
    other = copy.deepcopy(design)
    other["outcomes"][name]["cells"] = ["answer_pass@1"]
    older = {key: item for key, item in design.items() if key != "outcomes"}
    for registered, seen in ((design, []), (other, [f"outcomes[{name}].cells"]), (older, [])):
        made = {"date": "", "commit": "", "late": False, "design": registered, "plan": {}}
        artifact.write_json(path, {"registrations": [with_checksum(made)]})
        spec = (plan := lab.plan("coffee_losses")).stages[plan.report].spec
        assert [change.key for change in spec.registration.changes if change.key.startswith("outcomes")] == seen
