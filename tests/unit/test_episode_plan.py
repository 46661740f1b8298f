"""Episodes in studies: one line adds a method of several turns, and what cannot be played is refused before any job."""

from pathlib import Path

import pytest
from lab import Lab, of_kind

from interplay.core.model import UserError

STUDY = "study/quickstart.yaml"


@pytest.mark.parametrize("name", ["ufo", "score_first", "score"])
def test_a_study_takes_a_method_of_several_turns_as_any_other(tmp_path: Path, name: str) -> None:
    lab = Lab(tmp_path)
    lab.edit(STUDY, "/method@stages.rl.method: grpo", f"/method@stages.rl.method: {name}")
    stages = of_kind(lab.plan(), "rl")
    assert {stage.spec.method.episode.name for stage in stages} == {"retry"}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "igpo",
            r"igpo\.yaml:\d+: episode = 'environment': needs problems of an environment, and data\.0 has those of op_dag",
        ),
        ("spiral", r"episode = self_play needs .*; write reward = payoff"),
    ],
)
def test_an_episode_that_the_problems_do_not_allow_is_refused_in_one_line(tmp_path: Path, name: str, message: str) -> None:
    lab = Lab(tmp_path)
    lab.edit(STUDY, "/method@stages.rl.method: grpo", f"/method@stages.rl.method: {name}")
    with pytest.raises(UserError, match=message) as caught:
        lab.plan()
    assert "\n" not in str(caught.value)


def test_an_evaluation_names_its_episode_and_keeps_its_digest_without_one(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    before = {stage.digest for stage in of_kind(lab.plan(), "evaluate")}
    lab.edit(STUDY, "kind: evaluate,", "kind: evaluate, episode: {name: retry, max_turns: 3, feedback: '?'},")
    after = of_kind(lab.plan(), "evaluate")
    assert not before & {stage.digest for stage in after}
    assert {stage.spec.episode.max_turns for stage in after} == {3}  # type: ignore[attr-defined]
    lab.edit(STUDY, "name: retry, max_turns: 3, feedback: '?'", "name: environment")
    with pytest.raises(UserError, match=r"episode = 'environment': needs problems of an environment"):
        lab.plan()


def test_sources_of_turn_credit_that_a_world_does_not_pay_are_refused_when_the_study_is_planned(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.edit("study/methods/zoo_tools.yaml", "rl.method: igpo", "rl.method: mt_grpo")
    with pytest.raises(
        UserError, match=r"sources = 'environment': needs an environment that pays turns, and calculator, .* none"
    ):
        lab.plan("methods/zoo_tools")
    lab.edit("study/methods/zoo_tools.yaml", "rl.method: mt_grpo", "rl.method: matchtir")
    assert of_kind(lab.plan("methods/zoo_tools"), "rl"), "its expert calls the tool"
    lab.edit("study/methods/turn_world.py", "expert=expert,", "expert=lambda problem: [],")
    with pytest.raises(UserError, match=r"sources = 'gold_calls': needs gold calls, and locks, .* has no expert that makes any"):
        lab.plan("methods/turn_credit")


SEATS = "study/methods/seats.yaml"


def test_arms_of_seats_become_roles_and_an_arm_that_sits_twice_is_one(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    plan = lab.plan("methods/seats")
    base = next(stage.digest for stage in of_kind(plan, "pretrain"))
    seated = [stage for stage in plan.stages.values() if "seat.0" in stage.deps]
    assert {stage.deps["seat.0"] for stage in seated} == {base}
    assert {stage.kind for stage in seated} == {"rl", "evaluate"}
    pools = [stage.spec.method.episode.seats["second"] for stage in of_kind(plan, "rl")]  # type: ignore[attr-defined]
    assert [one.models for one in pools if one.name == "pool"] == [["seat.0"]]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "second: {name: model, model: base}}}",
            "third: {name: model, model: base}}}",
            r"episode\.seats: tic_tac_toe has no seat 'third'; it has first, second",
        ),
        (
            "second: {name: policy}}}}",
            "second: {name: model, model: bse}}}}",
            r"episode\.seats = 'bse': no such arm; did you mean 'base'",
        ),
        (
            "rl.method.episode.credit: shared}}",
            "rl.method.episode.credit: shared, task.opponent: perfect, rl.method.episode.order: [first, second]}}",
            "tic_tac_toe has seats of its own, first, second; remove order",
        ),
        (
            "seats: {first: {name: policy}, second: {name: script, plays: expert}}}",
            "seats: {first: {name: policy}, second: {name: pool, every: 3}}}",
            "an evaluation has no past policies",
        ),
        (
            "seats: {first: {name: policy}, second: {name: policy}}}}",
            "seats: {first: {name: policy, trained: false}, second: {name: policy, trained: false}}}}",
            "no seat is trained; write",
        ),
    ],
)
def test_seats_that_cannot_be_filled_are_refused_in_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    lab = Lab(tmp_path)
    lab.edit(SEATS, old, new)
    with pytest.raises(UserError, match=message) as caught:
        lab.plan("methods/seats")
    assert "\n" not in str(caught.value)


def test_a_seat_of_a_model_with_another_tokenizer_is_refused(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.edit(
        SEATS,
        "arms:\n  base: {path: [base]}\n",
        "arms:\n  base: {path: [base]}\n  other: {path: [base], set: {task.opponent: perfect}}\n",
    )
    lab.edit(SEATS, "second: {name: policy}}}}", "second: {name: model, model: other}}}}")
    with pytest.raises(UserError, match="has another tokenizer than the policy; name an arm with the same one"):
        lab.plan("methods/seats")
