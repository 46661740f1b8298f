"""Trajectories at work: branches at turn ends, replay of episodes, filters of turns, and observations that are learnt."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import turn_cases as cases
from killed_rl import payload, run_killed
from pydantic import ValidationError
from rl_cases import RIGHT, batch_of, now_of
from test_rl_environment_runs import inputs as inputs, spec_of
from test_rl_loop import HOW

from interplay.core.metrics import read
from interplay.core.model import at_progress
from interplay.data.trajectory import Segment
from interplay.evaluate.spec import EvaluateSpec
from interplay.rl import loop
from interplay.rl.advantage_spec import GroupAdvantage
from interplay.rl.batch import Memory, Span
from interplay.rl.edits import edits_after_advantage, edits_before_advantage
from interplay.rl.spec import Method, RLSpec
from interplay.rollout.episodes import play_episodes
from interplay.rollout.request import Rollouts
from interplay.rollout.spec import Branching, EnvironmentEpisode, RetryEpisode
from interplay.rollout.turns import Played
from interplay.tasks import family
from interplay.tasks.transcripts import BROKEN

ROWS = [cases.row("q|", "4"), cases.row("qq|", "9")]
BRANCH = {"first": 1, "at": "random"}

# Branches.


def unsure(text: str, sample: int) -> str:
    """Wrong twice, then right; each sample says something of its own."""
    return f"{sample}$" if text.count("?") < 2 else "4$"


class Unsure(cases.ScriptedEngine):
    """The second turn is less likely than the first, the third more likely."""

    def generate(self, requests: Any, sampling: Any) -> Rollouts:
        made = super().generate(requests, sampling)
        scale = torch.tensor([[1.0, 3.0, 0.5][min("".join(map(chr, r.prompt)).count("?"), 2)] for r in requests])
        return made._replace(logprobs=made.logprobs * scale[made.request][:, None])


def played_with(branch: dict[str, Any], count: int, says: cases.Says = unsure, seed: int = 0) -> tuple[Played, Any]:
    setting = cases.setting(says, ROWS[:1], seed)._replace(engine=Unsure(says))
    spec = RetryEpisode(max_turns=4, feedback="?", branch=Branching(**branch))
    return play_episodes(spec, setting, cases.asked(ROWS[:1], count)), setting.engine


def texts(played: Played) -> list[list[str]]:
    return [[one.text for one in segments] for segments in played.segments or []]


def test_a_branch_goes_on_from_the_end_of_the_turn_before_the_least_likely_one() -> None:
    played, engine = played_with({"first": 1}, 3)
    assert played.rollouts.sample.tolist() == [0, 1, 2]
    assert texts(played)[0] == ["0", "?", "0", "?", "4"]
    assert [one[:2] for one in texts(played)[1:]] == [["0", "?"]] * 2, "what was before is shared"
    assert texts(played)[1] == ["0", "?", "1", "?", "4"]
    assert texts(played)[2][:4] == ["0", "?", "0", "?"], "its second best point is before the third turn"
    for i, segments in enumerate(played.segments):
        assert [t for one in segments for t in one.tokens] == played.rollouts.tokens[i, : played.rollouts.lengths[i]].tolist()
    asked = [(r.first, r.count) for requests, _ in engine.asked for r in requests]
    assert asked.count((1, 1)) == 2, "a branch asks for the turns that it does not share alone"


def test_verdicts_of_shared_turns_are_the_branch_s_too() -> None:
    played, _ = played_with({"first": 1}, 2)
    assert [[turn.verdict.answer for turn in turns] for turns in played.turns] == [[False, False, True]] * 2


def test_episodes_of_one_turn_leave_nothing_to_branch_so_all_start_from_the_prompt() -> None:
    played, engine = played_with({"first": 1}, 3, lambda text, sample: "4$")
    assert texts(played) == [["4"]] * 3
    assert [(r.first, r.count) for requests, _ in engine.asked for r in requests] == [(0, 1), (1, 2)]


def test_rounds_branch_among_all_so_far_and_trees_are_groups_where_that_is_asked() -> None:
    played, _ = played_with({"first": 2, "at": "random", "rounds": 2, "baseline": "tree"}, 6)
    assert played.rollouts.sample.tolist() == [*range(6)]
    assert set(played.trees.tolist()) <= {0, 1}
    assert played.trees.tolist()[:2] == [0, 1]
    for i, tree in enumerate(played.trees.tolist()):
        assert texts(played)[i][0] == str(tree), "a branch begins as its root"
    again, _ = played_with({"first": 2, "at": "random", "rounds": 2, "baseline": "tree"}, 6)
    assert torch.equal(again.rollouts.tokens, played.rollouts.tokens)
    assert played_with({"first": 2}, 6)[0].trees is None


class Counter:
    """A world that counts: `+` adds one, and a turn of digits ends the episode."""

    made = 0

    def __init__(self) -> None:
        self.value = 0
        Counter.made += 1

    def step(self, action: str) -> family.Step:
        self.value += action.count("+")
        return family.Step(f"={self.value};", done=action.isdigit(), tool="count")

    def close(self) -> None:
        pass


def test_the_environment_of_a_branch_is_where_the_shared_calls_left_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from interplay.rollout import episodes

    class Family:
        name, world = "counter", False

        @staticmethod
        def begin(problem: Any) -> Counter:
            return Counter()

    monkeypatch.setattr(episodes, "environment_of", lambda row: Family)
    says: cases.Says = lambda text, sample: "+$" if text.count(";") < 2 else "7$"  # noqa: E731
    setting = cases.setting(says, ROWS[:1])
    spec = EnvironmentEpisode(max_turns=5, branch=Branching(first=1))
    played = play_episodes(spec, setting, cases.asked(ROWS[:1], 4))
    assert texts(played) == [["+", "=1;", "+", "=2;", "7"]] * 4


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"window": 1, "branch": BRANCH}, "write window: null"),
        ({"branch": {"first": 6}}, r"branch\.first = 6: must be less than num_generations, 6"),
    ],
)
def test_branches_that_do_not_fit_are_refused(given: dict[str, Any], message: str) -> None:
    method = {"paper": "p", "allocation": {"name": "fixed", "num_generations": 6}, "episode": {"name": "retry", **given}}
    with pytest.raises(ValidationError, match=message):
        RLSpec(method=method, mix=[1.0], steps=2)


def test_an_evaluation_does_not_branch_and_branches_need_groups_of_one_size() -> None:
    with pytest.raises(ValidationError, match="samples of an evaluation are independent"):
        EvaluateSpec(episode={"name": "retry", "branch": BRANCH})
    method = {"paper": "p", "allocation": {"name": "xrpo"}, "episode": {"name": "retry", "branch": BRANCH}}
    with pytest.raises(ValidationError, match="samples equally many completions"):
        RLSpec(method=method, mix=[1.0], steps=2)


# Filters, replay, observations, by hand.


def episodes_of(said: list[list[tuple[str, str]]], **more: Any) -> Any:
    """A row for each list of (turn, what is read next): a token a character, the last reading empty."""
    segments, spans, observed = [], [], []
    for row in said:
        parts, own, read = [], [], []
        for number, (turn, reply) in enumerate(row):
            own.append(Span(len(read), len(read) + len(turn), number, 0.0))
            read += [False] * len(turn) + [True] * len(reply)
            parts.append(Segment("action", turn, number, call="" if turn.startswith("!") else None))
            parts += [Segment("observation", reply, number)] * bool(reply)
        segments.append(tuple(parts))
        spans.append(own)
        observed.append(read)
    width = max(map(len, observed))
    given = {
        "lengths": [len(one) for one in observed],
        "observed": torch.tensor([[*one, *[False] * (width - len(one))] for one in observed]),
        "segments": segments,
        "spans": spans,
        "turns": [[None] * (len(row) - 1) + [RIGHT] for row in said],
    }
    return {**given, **more}


FOUR = [[("aa", "="), ("b", "")], [("!a", BROKEN), ("b", "")], [("a", BROKEN), ("b", "")], [("a", "="), ("bbb", "")]]


def test_void_turns_overrun_episodes_and_hopeless_groups_are_dropped() -> None:
    cut = torch.tensor([False, False, False, True])
    batch = batch_of([1.0, 0.0, 0.0, 0.0], [0, 0, 1, 1], **episodes_of(FOUR, truncated=cut))

    def kept(limit: int = 9, **given: Any) -> list[int]:
        now = now_of(edits=[{"name": "turn_filter", **given}], max_completion_length=limit)
        before = edits_before_advantage(batch, now)
        after, advantage, bears = edits_after_advantage(before, torch.ones(before.tokens.shape), before.mask(), now)
        assert len(after) == len(advantage) == len(bears)
        assert given.get("count", True) == (len(before) == 4)
        return after.row.tolist()

    assert kept() == [0, 3], "a call that cannot be read, and one whose reply says so"
    assert kept(limit=3) == [0], "the last turn of three tokens was cut"
    assert kept(void=False, overrun=True) == [0, 1, 2]
    assert kept(limit=3, void=False, overrun=True) == [0, 1, 2, 3], "cut, and so not out of turns"
    assert kept(void=False, hopeless=True, count=False) == [0, 1]


def test_a_past_episode_is_replayed_with_its_turns_and_what_it_read() -> None:
    memory = Memory(10)
    now = now_of(edits=[{"name": "replay"}], memory=memory)
    first = batch_of([1.0, 0.0], [3, 3], **episodes_of(FOUR[:2], logprobs=-torch.ones(2, 9)))
    edits_before_advantage(first, now)
    memory.load(json.loads(json.dumps(memory.notes)), {})
    failed = batch_of([0.0, 0.0], [3, 3], **episodes_of([[("a", "")], [("a", "")]]))
    got = edits_before_advantage(failed, now)
    assert len(got) == 3
    assert (got.off_policy.tolist(), got.right.tolist()) == ([False, False, True], [False, False, True])
    assert got.mask()[2].tolist() == [True, True, False, True]
    assert got.spans[2] == first.spans[0]
    assert [(one.kind, one.text) for one in got.segments[2]] == [("action", "aa"), ("observation", "="), ("action", "b")]
    assert (got.turns[2], got.prompts[2]) == ([None, RIGHT], first.prompts[0])


def test_observations_have_the_weight_as_their_advantage_where_a_row_is_learnt_from() -> None:
    batch = batch_of([1.0, 0.0], [0, 0], **episodes_of([FOUR[0], [*FOUR[3][:1], ("bb", "")]]))
    bears = batch.mask().clone()
    bears[1] = False
    for weight, value in ((0.25, 0.25), ({"linear": [0.5, 0.0]}, 0.5)):
        spec = Method(paper="p", episode={"name": "retry"}, edits=[{"name": "observations", "weight": weight}])
        now = now_of(edits=at_progress(spec, 0.0).edits)
        _, advantage, learnt = edits_after_advantage(batch, torch.ones(2, 4), bears, now)
        assert advantage[0].tolist() == [1.0, 1.0, value, 1.0]
        assert learnt.tolist() == [[True] * 4, [False] * 4]
    _, advantage, learnt = edits_after_advantage(
        batch, torch.ones(2, 4), bears, now_of(edits=[{"name": "observations", "weight": 0}])
    )
    assert torch.equal(learnt, bears)


# Whole runs.


def run_spec(steps: int, **method: Any) -> RLSpec:
    made = spec_of(GroupAdvantage(), steps)
    episode = {"name": "environment", "max_turns": 3, "branch": {"first": 2}}
    return RLSpec(**{**made.model_dump(), "method": {**made.method.model_dump(), "episode": episode, **method}})


def test_a_run_with_branches_replay_and_observations_learns_what_it_sampled(inputs: dict[str, Path], tmp_path: Path) -> None:
    edits = [{"name": "replay"}, {"name": "turn_filter"}, {"name": "observations", "weight": {"linear": [0.2, 0.0]}}]
    loop.train_policy(run_spec(5, edits=edits), inputs, tmp_path, HOW)
    lines = read(tmp_path)
    assert all(abs(line["kl_old"]) < 1e-6 for line in lines), "what is learnt is not what was sampled from"
    assert all(line["sampling/sampling_logp_difference/max"] < 1e-4 for line in lines)
    assert all(line["completions"] == 24 for line in lines)
    assert sum(line["optimizer_steps"] for line in lines) > 0
    assert [line["curve/method.edits.2.weight"] for line in lines] == pytest.approx([0.2, 0.15, 0.1, 0.05, 0.0])
    assert all(math.isfinite(line["loss"]) for line in lines)


def test_a_run_that_is_killed_inside_goes_on_to_the_same_bytes(inputs: dict[str, Path], tmp_path: Path) -> None:
    spec = run_spec(5, edits=[{"name": "replay"}])
    loop.train_policy(spec, inputs, tmp_path / "whole", HOW)
    run_killed(spec, inputs, tmp_path / "killed", HOW, [(2, 0.05)])
    assert payload(tmp_path / "killed") == payload(tmp_path / "whole")
