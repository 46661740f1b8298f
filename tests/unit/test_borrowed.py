"""What studies have in files of their own for papers on many turns and of other fields: each by hand."""

import json
import random
import runpy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import ROOT
from rl_cases import batch_of, now_of

from interplay.data.trajectory import Segment
from interplay.rl.batch import Span
from interplay.rl.sampler import PromptSource

NEAR, TURNS, CONTEXT, LOCKS = (
    runpy.run_path(str(ROOT / f"configs/study/methods/{name}.py")) for name in ("neighbours", "turns", "in_context", "turn_world")
)


def test_the_gold_solution_joins_each_group_and_its_statistics() -> None:
    batch = batch_of([1.0, 0.0, 0.0, 0.0], [0, 0, 7, 7], [2, 1, 2, 2])
    made = NEAR["joined"](batch, now_of(gold=lambda prompt: (f"gold {prompt}", [9, 9, 9])))
    assert len(made) == 6
    gold = (made.row < 0).nonzero()[:, 0]
    assert made.groups[gold].tolist() == [0, 7]
    assert made.rewards[gold].tolist() == [1.0, 1.0]
    assert made.lengths[gold].tolist() == [3, 3]
    assert made.off_policy is not None
    assert made.off_policy.tolist() == (made.row < 0).tolist()
    assert made.excluded is None


def test_the_advantage_of_gold_alone_is_softened_above_the_threshold() -> None:
    batch, now = batch_of([1.0, 1.0], [0, 0], row=torch.tensor([0, -1])), now_of()
    bears = batch.mask()
    _, soft, _ = NEAR["softened"](batch, torch.tensor([[1.8], [1.8]]), bears, now)
    assert soft[:, 0].tolist() == pytest.approx([1.8, 0.8 + float(torch.log(torch.tensor(4.0))) / 3])
    _, same, _ = NEAR["softened"](batch, torch.tensor([[-1.8], [0.5]]), bears, now)
    assert same[:, 0].tolist() == pytest.approx([-1.8, 0.5])


def test_what_another_policy_wrote_is_learnt_where_its_advantage_is_positive() -> None:
    batch = batch_of([1.0, 0.0, 1.0], [0, 0, 0], row=torch.tensor([0, -1, -1]))
    _, _, bears = NEAR["positive"](batch, torch.tensor([[-1.0], [-1.0], [1.0]]), batch.mask(), now_of())
    assert bears[:, 0].tolist() == [True, False, True]


def test_failures_are_paid_for_the_steps_that_they_share_with_a_success_of_their_group() -> None:
    texts = ["p|a=1,b=2,c=3#3", "p|a=1,b=2,c=4#4", "p|x=1#1", "p|a=1,b=2,c=4#4"]
    found = NEAR["progress"](batch_of([1.0, 0.0, 0.0, 0.0], [0, 0, 0, 5], completions=texts), now_of())
    assert found.tolist() == pytest.approx([0.0, 0.5 * 2 / 3, 0.0, 0.0])


def test_the_reward_is_the_share_of_the_group_that_a_completion_wins_against() -> None:
    batch = batch_of([1.0, 1.0, 0.0], [0, 0, 0], [1, 3, 1])
    made = batch.rewards + NEAR["wins"](batch, now_of(max_completion_length=10))
    assert made.tolist() == pytest.approx([1.0, 0.5, 0.0])
    tie = batch_of([0.0, 0.0], [0, 0])
    assert (tie.rewards + NEAR["wins"](tie, now_of())).tolist() == [0.5, 0.5]


def test_an_episode_is_worth_the_share_of_its_group_that_was_paid_less() -> None:
    batch = batch_of([1.2, 0.2, 0.0, 0.2, 3.0], [0, 0, 0, 0, 1])
    made = batch.rewards + LOCKS["preferred"](batch, now_of())
    assert made.tolist() == pytest.approx([1.0, 0.5, 0.0, 0.5, 0.0])


def test_locks_whose_digits_are_known_do_not_tell_them_and_move_on_by_three() -> None:
    world = LOCKS["locks"](known=True)
    problem = world.generate(None, 1, 0, 3)
    assert world.render(problem, None).prompt.count(" ") == 0
    assert world.expert(problem)[:3] == [f"open({(1 + colour + 3 * at) % 10})" for at, colour in enumerate(problem.colours)]
    assert world.reply(problem, world.expert(problem)).reward == 1.0
    told = LOCKS["locks"]()
    assert told.expert(told.generate(None, 1, 0, 1)) != world.expert(world.generate(None, 1, 0, 1))


def test_prompts_of_the_largest_lower_bound_come_first() -> None:
    tries, passes = np.array([100, 2, 0, 100]), np.array([60, 2, 0, 10])
    assert NEAR["pessimistic"](2, 5, 0, tries, passes) == [0, 1]


def deck(ops: list[int]) -> PromptSource:
    return PromptSource([len(ops)], [1.0], 0, 40, [SimpleNamespace(op=op) for op in ops])  # type: ignore[misc]


def outcome(prompt: int, right: int) -> SimpleNamespace:
    return SimpleNamespace(id=prompt, n=8, strict=right)


def test_the_op_that_fails_most_is_opened_next_and_those_before_stay() -> None:
    ops = [1] * 20 + [2] * 20 + [3] * 20
    sampler = NEAR["Worst"](deck(ops), every=2)
    assert {ops[i] for i in sampler.select(8, 1)[:6]} == {1}
    for step in (1, 2):
        sampler.observe(step, [outcome(0, 8), outcome(20, 1), outcome(40, 5)])
    assert sampler.open == [1, 2]
    assert {ops[i] for i in sampler.select(8, 3)[:6]} <= {1, 2}


def test_the_next_op_is_that_which_promises_most_over_all_ops() -> None:
    ops = [1] * 9 + [2] * 9 + [3] * 9 + [4] * 9 + [5] * 9
    sampler = NEAR["Transfer"](deck(ops), every=1, slope=0.3)
    assert {ops[i] for i in sampler.select(4, 1)} == {3}
    sampler.observe(1, [outcome(20, 8)])
    assert sampler.at in (1, 5), "far from what is known, where the gap of transfer is widest"


def test_turns_are_priced_and_discounted_by_their_number() -> None:
    spans = [[Span(0, 1, 0, 0.0), Span(1, 2, 1, 1.0)], [Span(0, 1, 0, 0.0)]]
    batch = batch_of([1.0, 0.0], [0, 0], [2, 1], spans=spans)
    assert TURNS["priced"](batch, now_of(), price=0.1).tolist() == pytest.approx([-0.2, 0.0])
    assert (batch.rewards + TURNS["discounted"](batch, now_of(), gamma=0.5)).tolist() == pytest.approx([0.5, 0.0])


def test_an_episode_with_a_void_turn_bears_no_loss() -> None:
    said = [(Segment("action", "3"), Segment("observation", "<", 0), Segment("action", "4", 1)), (Segment("action", "x3"),)]
    batch = batch_of([1.0, 0.0], [0, 0], segments=said)
    _, _, bears = TURNS["no_void"](batch, torch.ones(2, 1), batch.mask(), now_of())
    assert bears[:, 0].tolist() == [True, False]


def test_surprise_outside_the_band_around_its_history_is_drawn_back() -> None:
    now = now_of()
    first = batch_of([0.0, 0.0], [0, 0], logprobs=torch.tensor([[-1.0], [-1.0]]))
    _, same, _ = TURNS["smoothed"](first, torch.zeros(2, 1), first.mask(), now)
    assert same.tolist() == [[0.0], [0.0]]
    later = batch_of([0.0, 0.0], [0, 0], logprobs=torch.tensor([[-2.2], [-0.5]]))
    _, found, _ = TURNS["smoothed"](later, torch.zeros(2, 1), later.mask(), now, weight=1.0)
    assert found[:, 0].tolist() == pytest.approx([1.0, -0.3])


def test_the_expert_of_the_safe_finds_the_code_and_is_paid_one() -> None:
    world = TURNS["Safe"]()
    for seed in range(20):
        code = world.generate(random.Random(seed), 4)
        assert world.reset(code, 0) == "4?"
        steps = [world.step(action) for action in world.expert(code)]
        assert [step.done for step in steps] == [False] * (len(steps) - 1) + [True]
        assert sum(step.reward for step in steps) == pytest.approx(1.0)
        assert len(steps) <= 12


def test_a_hurried_episode_ends_early_and_a_patched_one_follows_the_expert() -> None:
    hurried = TURNS["Safe"](patience=2)
    hurried.reset([5, 5], 0)
    assert [hurried.step("0").done for _ in range(2)] == [False, True]
    patched = TURNS["Safe"](patched=True)
    patched.reset([5, 0], 0)
    gold = patched.expert([5, 0])
    assert gold == ["2", "4", "5", "2", "0"]
    steps = [patched.step(action) for action in ["x", *gold[1:]]]
    assert [step.text for step in steps] == ["<", "<", "=", ">", "="]
    assert [step.reward for step in steps] == pytest.approx([0.0, 0.2, 0.2, 0.2, 0.2])
    assert steps[-1].done


def test_few_tables_repeat_and_an_unlinked_answer_is_not_told() -> None:
    fresh, few, unlinked = CONTEXT["Bindings"](), CONTEXT["Bindings"](tables=2), CONTEXT["Histories"](unlinked=True)
    asked = [few.generate(random.Random(seed), 8) for seed in range(60)]
    told = {shown[i : i + 2] for shown, *_ in asked for i in range(0, len(shown), 2)}
    assert len(told) <= 2 * 8
    for seed in range(20):
        shown, symbol, label = problem = fresh.generate(random.Random(seed), 8)
        assert f"{symbol}{label}" in shown
        assert fresh.verify(problem, f"{label}\n")
    best = [CONTEXT["Histories"]().generate(random.Random(seed), 200) for seed in range(5)]
    for shown, _, arm in best:
        paid = {one: np.mean([int(shown[i + 1]) for i in range(0, len(shown), 2) if shown[i] == one]) for one in "xyz"}
        assert max(paid, key=lambda one: paid[one]) == arm
    assert len({unlinked.generate(random.Random(seed), 4)[2] for seed in range(30)}) == 3


def test_ucb_regrets_less_than_chance_in_the_bandit() -> None:
    def lost(teacher: str) -> float:
        world, total = CONTEXT["Bandit"](teacher), 0.0
        for seed in range(60):
            problem = world.generate(random.Random(seed), 10)
            row = SimpleNamespace(graph=json.dumps(problem))
            total += CONTEXT["regret"](row, "\x1e".join(world.expert(problem)), None)
        return total / 60

    assert lost("ucb") + 1 < lost("chance") == pytest.approx(4.0, abs=0.4)


def test_a_page_tells_its_values_and_its_opening_is_paid_by_its_rank() -> None:
    make = runpy.run_path(str(ROOT / "configs/study/methods/pages.py"))["Pages"]
    problem = [[["a", "3"], ["c", "1"], ["b", "7"], ["h", "0"]], "b"]
    paged = make(answer=0.5, action=0.5, ranked=True)
    assert paged.reset(problem, 0) == "ac bh b?"
    steps = [paged.step(action) for action in ("p0", "p1", "p1", "=b7")]
    assert [step.text for step in steps] == ["a3c1?", "b7h0?", "b7h0?", ""]
    assert [step.reward for step in steps] == [0.0, 0.25, 0.0, 0.5]
    assert make(whole=True).reset(problem, 0) == "a3c1 b7h0 a3c1 b7h0 b?"
    for options in ({}, {"whole": True}):
        world = make(**options)
        actions = world.expert(problem)
        world.reset(problem, 0)
        assert sum(world.step(action).reward for action in actions) == 1.0


def test_a_plan_is_carried_out_and_a_user_says_what_is_wanted_when_asked() -> None:
    roles = runpy.run_path(str(ROOT / "configs/study/methods/roles.py"))
    problem = [["ac", "d2", "c5", "bd"], "a", "c5", "c", "d"]
    parts = {part: roles["Chain"](part) for part in ("plan", "execute", "whole")}
    assert {part: one.solution(problem) for part, one in parts.items()} == {"plan": "d", "execute": "d2", "whole": "c5"}
    assert parts["execute"].prompt(problem) == parts["plan"].prompt(problem) + "d\n" == "ac d2 c5 bd ad\n"
    assert parts["whole"].verify(problem, "c5\n")
    drawn = [parts["whole"].generate(random.Random(seed), 3) for seed in range(200)]
    assert 0.6 < np.mean([one[3] == one[4] for one in drawn]) < 0.75, "right in half, and by chance in a third of the rest"
    known = [["a3", "c1"], "c", "c1", "?"]
    world, user, mute = roles["Talk"](), roles["User"](), roles["User"](mute=True)
    assert world.reset(known, 0) == "a3 c1 .\n"
    assert [world.step(turn).text for turn in world.expert(known)] == ["c\n", ""]
    for one in (user, mute):
        one.reset(known, 0)
    assert [user.act("a3 c1 "), user.act("?\n"), mute.act("?\n")] == [".", "c", "."]


def test_a_search_pays_for_each_person_on_the_path_once_and_answers_to_another_relation() -> None:
    search = runpy.run_path(str(ROOT / "configs/study/methods/turn_fight.py"))["Search"](people=4)
    about = {"a": ["k", "m"], "k": ["o", "m"], "m": ["a", "o"], "o": ["a", "k"]}
    problem = [about, "bh", "a"]  # the heir of a's boss
    assert search.expert(problem) == ["fa", "fk", "=m"]
    assert search.reset(problem, 0) == "a?"
    read = [search.step(action) for action in ("fo", "fa", "fa", "fk", "k", "=m")]
    assert [step.text for step in read] == ["ba hk -?", "bk hm b?", "bk hm b?", "bo hm h?", "?", ""]
    assert [step.reward for step in read] == [0, 0.1, 0, 0.1, 0, 1]
    assert [step.done for step in read] == [False] * 5 + [True]


def test_a_walk_pays_moves_that_come_nearer_than_ever_and_ends_at_the_second_goal() -> None:
    grid = runpy.run_path(str(ROOT / "configs/study/methods/turn_fight.py"))["Grid"](side=4)
    problem = [[0, 0], [1, 0], [1, 2]]
    assert grid.expert(problem) == ["e", "s", "s"]
    assert grid.reset(problem, 0) == "00>10?"
    read = [grid.step(action) for action in ("w", "e", "s", "n", "s", "s")]
    assert [step.text for step in read] == ["00>10?", "10>12?", "11>12?", "10>12?", "11>12?", ""]
    assert [round(3 * step.reward) for step in read] == [0, 1, 1, 0, 0, 1]
    assert [step.done for step in read] == [False] * 5 + [True]
