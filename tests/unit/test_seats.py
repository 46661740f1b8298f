"""Episodes of several seats: who plays, what each reads, whose reward is whose, and what is learnt from."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import test_rl_loop as loops
import test_rl_self_play as games
import turn_cases as cases
from killed_rl import payload, run_killed
from pydantic import ValidationError

from interplay.core.execution import Run
from interplay.core.model import UserError
from interplay.data.trajectory import SEAT
from interplay.evaluate import sampling
from interplay.evaluate.spec import EvaluateSpec
from interplay.rl import assembly, draw, loop
from interplay.rl.advantage_spec import GroupAdvantage
from interplay.rl.advantages import advantages
from interplay.rl.draw import credited_rewards, episode_rewards
from interplay.rl.reward_spec import EnvironmentReward, OutcomeReward, PayoffReward
from interplay.rl.spec import Method, RLSpec
from interplay.rollout.episodes import play_episodes
from interplay.rollout.spec import SeatsEpisode, SelfPlayEpisode
from interplay.rollout.turns import Played, of_policy, only
from interplay.tasks.environments.games import TIC_TAC_TOE, Board
from interplay.tasks.families import add_own_family, judge_family
from interplay.tasks.spec import OwnTask

inputs = games.inputs
POLICY, FROZEN = {"name": "policy"}, {"name": "model", "model": "seat.0"}


def episode(seated: dict[str, Any], **more: Any) -> SeatsEpisode:
    return SeatsEpisode.model_validate({"seats": seated, **more})


def texts(played: Played) -> list[str]:
    made = played.rollouts
    return ["".join(map(chr, row[:n])) for row, n in zip(made.tokens.tolist(), made.lengths.tolist(), strict=True)]


def test_two_seats_of_the_policy_are_self_play() -> None:
    says = games.moves("783", "763", "1", "x")
    alone = play_episodes(SelfPlayEpisode(), games.setting(says), cases.asked([games.ROW], 4))
    both = play_episodes(episode({"first": POLICY, "second": POLICY}), games.setting(says), cases.asked([games.ROW], 4))
    both = only(both, both.learnt)
    assert texts(both) == texts(alone)
    assert (both.prompts, both.turns, both.segments) == (alone.prompts, alone.turns, alone.segments)
    assert both.seats.tolist() == alone.seats.tolist()


def test_a_frozen_model_writes_what_the_policy_reads_and_nothing_that_is_learnt() -> None:
    other = cases.ScriptedEngine(games.moves("783", "763"))
    setting = games.setting(games.moves("783", "763"))._replace(others={"seat.0": other})
    played = play_episodes(episode({"first": POLICY, "second": FROZEN}), setting, cases.asked([games.ROW], 2))
    assert played.learnt.tolist() == [True, False, True, False], "a row for each seat, of which the frozen one is not learnt from"
    assert texts(played)[0] == "7$8\n3$"
    assert played.observed[0].tolist() == [False, False, True, True, False, False]
    asked = [
        ["".join(map(chr, r.prompt)) for r in requests] for engine in (setting.engine, other) for requests, _ in engine.asked
    ]
    assert asked == [["XX.OO.... X\n"] * 2, ["XX.OO.... X\n7$8\n"], ["XX.OO.... O\n7\n"] * 2], "by model, in batches"
    found = episode_rewards(PayoffReward(), played, [games.ROW] * 4)
    assert found.rewards.sequence == [1, -1, -1, 1]
    assert {seed for _, seed in setting.engine.asked} & {seed for _, seed in other.asked} == set(), "a turn has noise of its own"


@pytest.mark.parametrize(
    ("credit", "expected"),
    [
        ("own", [1, -1, -1, 1]),
        ("shared", [0, 0, 0, 0]),
        ("zero_sum", [2, -2, -2, 2]),
        ({"first": {"first": 1.0, "second": 0.5}}, [0.5, -1, -0.5, 1]),
    ],
)
def test_whose_reward_is_whose_by_hand(credit: Any, expected: list[float]) -> None:
    setting = games.setting(games.moves("783", "763"))
    played = play_episodes(episode({"first": POLICY, "second": POLICY}, credit=credit), setting, cases.asked([games.ROW], 2))
    found = credited_rewards(episode_rewards(PayoffReward(), played, [games.ROW] * 4), played).rewards
    assert found.sequence == expected
    assert [sum(span.value for span in row) for row in found.spans] == expected, "turns earn what their episode does"


def test_the_advantages_of_a_seat_come_from_that_seat_alone(inputs: dict[str, Path], tmp_path: Path, monkeypatch: Any) -> None:
    planted = {0: [5.0, 1.0, 5.0, 1.0], 1: [-9.0, -9.0, -3.0, -3.0]}

    def paid(found: Any, played: Played) -> Any:
        values = [
            planted[seat][sample] for seat, sample in zip(played.seats.tolist(), played.rollouts.sample.tolist(), strict=True)
        ]
        return found._replace(rewards=found.rewards._replace(sequence=values))

    monkeypatch.setattr(draw, "credited_rewards", paid)
    spec = spec_of({"first": POLICY, "second": POLICY}, advantage={"name": "group", "scale_rewards": "none"})
    world, _ = assembly.assemble_run(spec, inputs, loops.HOW, tmp_path)
    now = draw.step_context(world, 1)
    asks = [draw.requests.plain_request(0, 4, world.pool.rows[0].prompt)]
    batch = draw.sample_rollouts(world, [0], asks, now, draw.Counter()).batch
    advantage = advantages(GroupAdvantage(scale_rewards="none"), batch, now)[:, 0].tolist()
    for value, seat, reward in zip(advantage, batch.seats.tolist(), batch.rewards.tolist(), strict=True):
        here = [r for s, r in zip(batch.seats.tolist(), batch.rewards.tolist(), strict=True) if s == seat]
        assert value == pytest.approx(reward - sum(here) / len(here))
    assert {seat: rewards for seat, rewards in planted.items() if seat in batch.seats.tolist()}
    assert set(batch.groups.tolist()) <= {0, 1}


POOL = {"name": "pool", "models": ["a", "b", "c"]}


def met(seed: int, samples: int = 2) -> list[str]:
    """Which model of the pool each of eight prompts meets."""
    rows = [replace(games.ROW, index=i) for i in range(8)]
    others = {name: cases.ScriptedEngine(games.moves("783", "783")) for name in "abc"}
    setting = cases.setting(games.moves("783", "783"), rows, seed)._replace(problem=lambda row: games.BOARD, others=others)
    play_episodes(episode({"first": POLICY, "second": POOL}), setting, cases.asked(rows, samples))
    found = {(r.key, r.first): name for name, told in others.items() for requests, _ in told.asked for r in requests}
    assert all(found[key, 0] == found[key, 1] for key, _ in found), "the samples of a prompt meet the same opponent"
    return [found[10 + i, 0] for i in range(8)]


def test_who_of_a_pool_is_met_is_a_function_of_the_seed() -> None:
    assert met(1) == met(1)
    assert met(1) != met(2)
    assert set(met(1) + met(2)) == {"a", "b", "c"}


def test_scripts_play_the_rules_and_change_places_where_the_seats_rotate() -> None:
    seated = {"first": {"name": "script", "plays": "expert"}, "second": POLICY}
    board = Board("perfect", "X...O....", 0)
    row = cases.row("X...O.... X\n", "draw", "tic_tac_toe", TIC_TAC_TOE.dumps(board))
    setting = cases.setting(lambda text, sample: "x", [row])._replace(problem=lambda _: board)
    played = play_episodes(episode(seated, rotate=True), setting, cases.asked([row], 2))
    policy = of_policy(played)
    assert policy.seats.tolist() == [1, 0], "the policy is second in sample 0 and first in sample 1"
    assert [row[-1].verdict.error for row in policy.turns] == ["illegal", "illegal"]
    assert policy.segments[0][1].text == "1\n" or policy.segments[0][1].seat == 0, "the expert's move was read"
    chance = episode({"first": POLICY, "second": {"name": "script", "plays": "random"}})
    drawn = [
        texts(play_episodes(chance, games.setting(games.moves(*["7xx"] * 4)), cases.asked([games.ROW], 4))) for _ in range(2)
    ]
    assert drawn[0] == drawn[1]


# --- in an order: planners, users and judges ---


SUM = cases.row("2+2=", "\\boxed{4}", "own")
PLANNED = {"planner": {**POLICY, "brief": "plan {prompt}"}, "executor": {**POLICY, "sees": "public"}}


def planned(row: Any, says: cases.Says, seated: dict[str, Any], **more: Any) -> tuple[Played, cases.Setting]:
    setting = cases.setting(says, [row])
    return play_episodes(episode(seated, **more), setting, cases.asked([row])), setting


def speaks(text: str, sample: int) -> str:
    return "hm<call>add</call>$" if text.startswith("plan") else f"{4 if 'add' in text else 5}$"


@pytest.mark.parametrize(("sees", "read"), [("public", "2+2=add\n"), ("all", "2+2=hm<call>add</call>\n"), ("own", "2+2=")])
def test_the_last_of_an_order_answers_and_sees_of_the_others_what_it_may(sees: str, read: str) -> None:
    row = cases.row("2+2=", "4")
    seated = {**PLANNED, "executor": {**POLICY, "sees": sees}}
    form = {"form": "tag"}
    played, setting = planned(row, speaks, seated, order=["planner", "executor"], action=form, max_turns=2)
    prompts = ["".join(map(chr, r.prompt)) for requests, _ in setting.engine.asked for r in requests]
    assert prompts == ["plan 2+2=", read]
    assert [turns[-1].verdict.answer for turns in played.turns] == [sees != "own"] * 2, "one verdict for all"
    assert episode_rewards(OutcomeReward(), played, [row] * 2).rewards.sequence == [float(sees != "own")] * 2


USER = """
class User:
    def __init__(self, polite=False):
        self.polite = polite
    def reset(self, problem, seed):
        self.facts = problem
    def act(self, read):
        self.asked = read
        return f"it is {self.facts}{'!' if self.polite else '.'}" if "what" in read else "hello"
"""


def test_a_simulated_user_knows_what_the_policy_does_not() -> None:
    user = {"name": "user.py:User", "source": USER, "polite": True}
    row = cases.row("guess", "7")

    def says(text: str, sample: int) -> str:
        return "7$" if "it is 7!" in text else "what$"

    setting = cases.setting(says, [row])._replace(problem=lambda _: 7)
    spec = episode({"user": user, "agent": POLICY}, order=["user", "agent"], max_turns=4)
    played = play_episodes(spec, setting, cases.asked([row]))
    agent = of_policy(played)
    assert [(one.kind, one.text, one.seat) for one in agent.segments[0]] == [
        ("context", "guess", None), ("context", "hello\n", 0), ("action", "what", 1), ("observation", "it is 7!\n", 0),
        ("action", "7", 1),
    ]  # fmt: skip
    assert agent.turns[0][-1].verdict.answer
    wrong = {"name": "user.py:User", "source": USER.replace("self.facts = problem", "self.facts = problem + 'x'")}
    spec = episode({"user": wrong, "agent": POLICY}, order=["user", "agent"])
    with pytest.raises(UserError, match=r"user\.py:User: fails at line \d+ \(TypeError"):
        play_episodes(spec, setting, cases.asked([row]))


def test_a_judge_reads_the_episode_and_pays_the_policy() -> None:
    judge = {"name": "judge", "model": "seat.0", "brief": "{answer}|{episode}", "pattern": r"mark (\d)"}
    setting = cases.setting(lambda text, sample: "no$", [cases.row("p", "4")])
    judge_engine = cases.ScriptedEngine(lambda text, sample: "mark 3$" if text == "4|solver: no\n" else "none$")
    seated = {"solver": POLICY, "critic": {**POLICY, "trained": False}, "judge": judge}
    spec = episode(seated, order=["critic", "solver"], max_turns=2)
    played = play_episodes(spec, setting._replace(others={"seat.0": judge_engine}), cases.asked([setting.rows[0]]))
    text = "".join(map(chr, judge_engine.asked[0][0][0].prompt))
    assert text == "4|critic: no\nsolver: no\n"
    assert [row[-1].paid for row in played.turns] == [0.0, 0.0], "nothing matched"
    judge_engine.says = lambda text, sample: "mark 3$"
    played = play_episodes(spec, setting._replace(others={"seat.0": judge_engine}), cases.asked([setting.rows[0]]))
    assert episode_rewards(EnvironmentReward(), played, [setting.rows[0]] * 2).rewards.sequence == [3.0, 3.0]
    assert played.learnt.tolist() == [True, False]
    spec.seats["judge"] = judged = spec.seats["judge"].model_copy(update={"pattern": "(mark)"})
    with pytest.raises(UserError, match=rf"judge {judged.model}: pattern '\(mark\)' finds 'mark', no number"):
        play_episodes(spec, setting._replace(others={"seat.0": judge_engine}), cases.asked([setting.rows[0]]))


# --- worlds of several seats ---


AUCTION = '''
from interplay.tasks.family import Step

class Auction:
    """Three bid in turn; the highest wins the good at its price, and the seller gets that."""

    seats = ("seller", "ann", "bob")

    def generate(self, rng, op):
        return {"ann": rng.randrange(9), "bob": rng.randrange(9)}

    def reset(self, problem, seed):
        self.worth, self.bids = problem, []
        return "sell"

    def brief(self, problem, seat):
        return f"{seat} {problem.get(seat, '')}|"

    def step(self, action):
        self.bids.append(int(action) if action.isdigit() else 0)
        if len(self.bids) < 3:
            return Step(f"{self.bids[-1]}?", 0.0)
        low, *bids = self.bids
        best = max(bids)
        won = 1 + bids.index(best)
        gain = self.worth["ann" if won == 1 else "bob"] - best
        return Step("", float(gain) if won == 2 else 0.0, True, pays={0: float(best), **({1: float(gain)} if won == 1 else {})})
'''


def test_a_world_of_three_pays_each_seat_its_own() -> None:
    task = OwnTask(function="auction.py:Auction", source=AUCTION)
    label = add_own_family(task)
    family = judge_family(label)
    problem = family.loads('{"ann":8,"bob":3}')
    row = cases.row("sell", "", label, '{"ann":8,"bob":3}')
    setting = cases.setting(lambda text, sample: {"s": "0$", "a": "5$", "b": "2$"}[text[0]], [row])
    setting = setting._replace(problem=lambda _: problem)
    spec = episode({name: POLICY for name in ("bob", "seller", "ann")})
    played = play_episodes(spec, setting, cases.asked([row]))
    assert list(played.seat_names) == ["seller", "ann", "bob"]
    assert ["".join(map(chr, prompt)) for prompt in played.prompts] == ["seller |", "ann 8|0?", "bob 3|5?"]
    assert episode_rewards(EnvironmentReward(), played, [row] * 3).rewards.sequence == [5.0, 3.0, 0.0]
    shared = play_episodes(spec.model_copy(update={"credit": "shared"}), setting, cases.asked([row]))
    found = credited_rewards(episode_rewards(EnvironmentReward(), shared, [row] * 3), shared)
    assert found.rewards.sequence == pytest.approx([8 / 3] * 3)
    with pytest.raises(UserError, match=r"has no seat 'eve'; it has seller, ann, bob"):
        play_episodes(episode({"eve": POLICY, "bob": POLICY}), setting, cases.asked([row]))


# --- runs ---


def spec_of(seated: dict[str, Any], steps: int = 4, **more: Any) -> RLSpec:
    given = {"episode": {"name": "seats", "seats": seated}, "allocation": {"name": "fixed", "num_generations": 4}, **more}
    method = Method.model_validate({"paper": "test", **given})
    return RLSpec(
        method=method, reward=PayoffReward(), mix=[1.0], steps=steps, prompts_per_step=6, max_completion_length=2,
        optimizer=loops.TuneOptimizer(learning_rate=5e-3),
    )  # fmt: skip


@pytest.mark.slow
def test_a_killed_run_with_a_pool_and_a_frozen_model_ends_with_the_same_bytes(inputs: dict[str, Path], tmp_path: Path) -> None:
    pool = {"name": "pool", "models": ["seat.0"], "every": 2, "keep": 2}
    spec, given = spec_of({"first": POLICY, "second": pool}, 10), {**inputs, "seat.0": inputs["init"]}
    loop.train_policy(spec, given, tmp_path / "whole", loops.HOW)
    run_killed(spec, given, tmp_path / "killed", loops.HOW, [(3, 0.02), (6, 0.02)])
    assert payload(tmp_path / "killed") == payload(tmp_path / "whole")
    rows = pq.read_table(tmp_path / "whole" / "rollouts.parquet").to_pylist()
    wrote = {one["seat"] for row in rows for one in row["segments"] if one["kind"] == "action"}
    assert wrote == {0}, "what the pool wrote is read, and no row of its own"


def test_past_policies_join_and_leave_and_are_saved(inputs: dict[str, Path], tmp_path: Path) -> None:
    spec = spec_of({"first": POLICY, "second": {"name": "pool", "every": 1, "keep": 2}})
    world, learner = assembly.assemble_run(spec, inputs, loops.HOW, tmp_path)
    opponents = world.opponents
    for step in (1, 2, 3):
        learner.policy.model.norm.weight.data.fill_(float(step))
        opponents.update(step)
    assert opponents.past_names() == ["past.2", "past.3"]
    again, _ = assembly.assemble_run(spec, inputs, loops.HOW, tmp_path)
    again.opponents.load(opponents.tensors())
    assert again.opponents.past_names() == ["past.2", "past.3"]
    assert [float(model.model.norm.weight[0]) for model, _ in again.opponents.past.values()] == [2.0, 3.0]


def test_a_pool_plays_no_earlier_policy_than_it_keeps() -> None:
    others = {f"past.{step}": cases.ScriptedEngine(games.moves("783", "763")) for step in range(4)}
    setting = games.setting(games.moves("783", "763"))._replace(others=others, past=list(others))
    for seed in range(20):
        drawn = setting._replace(sampling=setting.sampling._replace(seed=seed))
        play_episodes(
            episode({"first": POLICY, "second": {"name": "pool", "every": 1, "keep": 2}}), drawn, cases.asked([games.ROW])
        )
    assert [bool(one.asked) for one in others.values()] == [False, False, True, True]


def test_an_evaluation_against_a_frozen_opponent_counts_wins_by_seat(inputs: dict[str, Path], tmp_path: Path) -> None:
    seated = {"first": POLICY, "second": FROZEN}
    spec = EvaluateSpec.model_validate(
        {"episode": {"name": "seats", "seats": seated, "rotate": True}, "num_samples": 4, "max_completion_length": 2}
    )
    given = {"model": inputs["init"], "data": inputs["data.0"], "seat.0": inputs["init"]}
    found = sampling.evaluate_model(spec, given, tmp_path, Run())
    table = pq.read_table(tmp_path / "samples.parquet")
    assert {name: one["n"] for name, one in found["seats"].items()} == {"first": 80, "second": 80}
    for name, one in found["seats"].items():
        scores = [score for score, seat in zip(table["score"].to_pylist(), table[SEAT].to_pylist(), strict=True) if seat == name]
        assert one["win"] == pytest.approx(sum(score > 0.5 for score in scores) / 80)
    assert len(table) == 160


@pytest.mark.parametrize(
    ("seated", "more", "message"),
    [
        ({"first": FROZEN, "second": FROZEN}, {}, "seats: none is the policy's"),
        ({"first": {"name": "policy", "trained": False}, "second": FROZEN}, {}, "no seat is trained"),
        ({"first": POLICY, "second": {"name": "pool"}}, {}, "an empty pool"),
        ({"a": POLICY, "b": POLICY}, {"order": ["a", "c"]}, "no seat 'c'; the seats are a, b"),
        ({"a": POLICY, "b": POLICY}, {"credit": {"a": {"z": 1.0}}}, "credit: no seat 'z'"),
        ({"a": POLICY, **{name: {"name": "pool", "every": n} for name, n in (("b", 1), ("c", 2))}}, {}, "write one every"),
        ({"a": POLICY, "b": {"name": "judge", "model": "m", "pattern": "[0-9"}}, {}, "is no regular expression"),
        ({"a": POLICY, "b": {"name": "judge", "model": "m", "pattern": "[0-9]"}}, {}, "has no group"),
    ],
)
def test_seats_that_cannot_be_are_refused_in_one_line(seated: Any, more: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        RLSpec.model_validate(
            {"method": {"paper": "p", "episode": {"name": "seats", "seats": seated, **more}}, "mix": [1.0], "steps": 1}
        )
