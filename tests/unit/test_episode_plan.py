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
            r"igpo\.yaml:\d: episode = 'environment': needs problems of an environment, and data\.0 has those of op_dag",
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
