"""Allocation, prompting and continuation: what is requested, what is kept, and the loop around them."""

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import world
from pydantic import ValidationError
from rl_cases import batch_of, now_of

from interplay.core.execution import Run
from interplay.core.metrics import read
from interplay.core.model import UserError
from interplay.model.trainer_spec import TuneOptimizer
from interplay.rl import loop
from interplay.rl.advantage_spec import GroupAdvantage, SegmentAdvantage
from interplay.rl.advantages import by_segments
from interplay.rl.batch import Memory, MicroBatch, StepContext
from interplay.rl.continuation import first_requests, kept_rollouts, next_requests
from interplay.rl.draw import continuation_values
from interplay.rl.group_advantages import group
from interplay.rl.loss_spec import GpgLoss
from interplay.rl.losses import token_losses
from interplay.rl.request_spec import AnnealedShotsPrompting, Hint, OwnAllocation, XrpoAllocation
from interplay.rl.requests import SamplingRequest, first_steps, priority
from interplay.rl.reward_spec import OwnReward
from interplay.rl.spec import Method, RLSpec
from interplay.tasks.transcripts import MARK


def row(n: int) -> Any:
    return SimpleNamespace(set=0, index=n, prompt=f"p{n}|", solution=f"s{n},t{n},u{n}#{n}", answer=f"{n}", key=f"{n:x}")


ROWS = [row(n) for n in range(6)]


def at(
    group: int = 8, prompting: dict[str, Any] | None = None, continuation: dict[str, Any] | None = None, **now: Any
) -> StepContext:
    chosen = {"prompting": prompting or {"name": "plain"}, "continuation": continuation or {"name": "none"}}
    seams = Method.model_validate({"paper": "p", "allocation": {"name": "fixed", "num_generations": group}, **chosen})
    return now_of(allocation=seams.allocation, prompting=seams.prompting, continuation=seams.continuation, rows=ROWS, **now)


# --- hints ---


def test_a_hint_is_the_first_steps_of_the_gold_solution_and_never_all_of_them() -> None:
    assert first_steps(Hint(share=0.5), "a,b,c,d#7") == "a,b,"
    assert first_steps(Hint(share=0.9), "a,b#7") == "a,"
    assert first_steps(Hint(share=0.1), "a,b,c#7") == "a,"
    assert first_steps(Hint(), "a#7") == ""


def test_only_groups_in_which_all_failed_are_sampled_again_with_a_hint_and_credited_without_it() -> None:
    now = at(2, continuation={"name": "guide", "guided": 3})
    first = first_requests(ROWS[:2], now)
    assert first == [SamplingRequest(0, 2, "p0|", "p0|"), SamplingRequest(1, 2, "p1|", "p1|")]
    batch = batch_of([0, 0, 1, 0], [0, 0, 1, 1])
    more = next_requests(ROWS[:2], batch, 0, now)
    assert more == [SamplingRequest(0, 3, "s0,p0|", "p0|")]
    assert next_requests(ROWS[:2], batch, 1, now) == []


def test_guided_completions_replace_the_failed_ones_or_join_them() -> None:
    off = torch.tensor([False, False, False, False, True, True])
    batch = batch_of([0, 0, 1, 0, 1, 0], [0, 0, 1, 1, 0, 0], off_policy=off)
    assert kept_rollouts(batch, at(continuation={"name": "guide"})).row.tolist() == [2, 3, 4, 5]
    assert kept_rollouts(batch, at(continuation={"name": "guide", "mode": "append"})).row.tolist() == [0, 1, 2, 3, 4, 5]
    assert len(kept_rollouts(batch_of([0, 1], [0, 0]), at(continuation={"name": "guide"}))) == 2


def test_the_text_of_a_field_is_not_read_as_a_field() -> None:
    now = at(2, continuation={"name": "guide", "guided": 1})
    odd = SimpleNamespace(**{**vars(row(0)), "solution": "{prompt},t#0"})
    assert next_requests([odd], batch_of([0, 0], [0, 0]), 0, now)[0].sampling == "{prompt},p0|"


def test_a_prefix_is_given_and_judged_and_ends_what_is_learnt_from() -> None:
    start = first_requests(ROWS[:1], at(4, {"name": "prefix"}))
    assert start == [SamplingRequest(0, 2, "p0|s0,", "p0|s0,", "s0,"), SamplingRequest(0, 2, "p0|", "p0|")]
    assert first_requests(ROWS[:1], at(4, {"name": "prefix"}, progress=1.0)) == [SamplingRequest(0, 4, "p0|", "p0|")]


# --- contexts ---


def test_a_prefix_ends_the_text_whatever_of_it_the_study_writes() -> None:
    written = {"name": "prefix", "hint": {"share": 0.9}}
    assert first_requests(ROWS[:1], at(4, written))[0] == SamplingRequest(0, 2, "p0|s0,t0,", "p0|s0,t0,", "s0,t0,")
    with pytest.raises(ValidationError, match="should match pattern"):
        at(4, {"name": "prefix", "hint": {"template": "{hint}{prompt}"}})


def test_part_of_a_group_is_steered_by_other_solved_problems() -> None:
    asks = first_requests(ROWS, at(4, {"name": "icpo", "steered": 1, "shots": 2}))
    assert [(ask.slot, ask.n) for ask in asks] == [(slot, n) for slot in range(6) for n in (3, 1)]
    for ask in asks[1::2]:
        own = ROWS[ask.slot].prompt
        assert ask.training == own
        assert ask.sampling.endswith(own)
        assert ask.sampling.count("#") == 2
        assert own not in ask.sampling[: -len(own)], "the prompt's own solution is no example"


def test_steered_failures_are_dropped_and_steered_successes_have_a_bonus_that_falls() -> None:
    off = torch.tensor([False, False, True, True])
    batch = batch_of([1, 0, 1, 0], [0] * 4, off_policy=off)
    kept = kept_rollouts(batch, at(8, {"name": "icpo", "bonus": 0.2}, progress=0.5))
    assert kept.row.tolist() == [0, 1, 2]
    assert kept.rewards.tolist() == pytest.approx([1, 0, 1.1])


def test_shots_are_annealed_by_phase_in_both_texts() -> None:
    def shots(progress: float) -> list[int]:
        asks = first_requests(ROWS, at(8, {"name": "annealed_shots", "schedule": [3, 1, 0]}, progress=progress))
        assert all(ask.sampling == ask.training for ask in asks)
        return [ask.sampling.count("#") for ask in asks]

    assert [set(shots(progress)) for progress in (0.0, 0.3, 0.4, 0.7, 1.0)] == [{3}, {3}, {1}, {0}, {0}]


def test_shots_of_transcripts_have_the_end_token_behind_each_turn_of_the_policy_and_behind_no_reply() -> None:
    turned = [SimpleNamespace(**{**vars(row), "solution": f"calc{MARK}={row.index}{MARK}done"}) for row in ROWS]
    now = replace(at(8, {"name": "annealed_shots", "schedule": [2]}, progress=0.0), rows=turned)
    pieces = first_requests(turned[:1], now)[0].sampling.split(MARK)
    assert pieces[1::2] == ["calc", "done"] * 2, "an end token follows every second piece (data.tokenizer.encode_turns)"
    assert [pieces[2], pieces[6], pieces[8]] == [f"={pieces[0][1]}", f"={pieces[4][1]}", "p0|"]


def test_prompts_that_mostly_failed_get_a_group_behind_their_last_wrong_completion() -> None:
    memory = Memory(6)
    now = at(2, continuation={"name": "reflection"}, memory=memory)
    assert len(first_requests(ROWS[:2], now)) == 2
    kept_rollouts(batch_of([0, 0, 1, 1], [0, 0, 1, 1], completions=["x", "y", "z", "z"]), now)
    asks = first_requests(ROWS[:2], now)
    assert asks[2:] == [SamplingRequest(0, 2, "p0|yp0|", "p0|yp0|", "", 2)]
    kept_rollouts(batch_of([1] * 5, [0] * 5, completions=["w"] * 5), now)
    assert len(first_requests(ROWS[:2], now)) == 2, "five of seven passed since"


def test_a_wrong_completion_is_shown_once_and_right_refinements_join_its_group_by_hand() -> None:
    now = at(2, continuation={"name": "critique", "refined": 3, "template": "{prompt}{completion}!{answer}!{prompt}"})
    assert first_requests(ROWS[:2], now) == [SamplingRequest(0, 2, "p0|", "p0|"), SamplingRequest(1, 2, "p1|", "p1|")]
    batch = batch_of([1, 0, 1, 1], [0, 0, 1, 1], completions=["a", "{answer}", "c", "d"])
    assert next_requests(ROWS[:2], batch, 0, now) == [SamplingRequest(0, 3, "p0|{answer}!0!p0|", "p0|")], (
        "text of a completion is no field"
    )
    assert next_requests(ROWS[:2], batch, 1, now) == []
    off = torch.tensor([False] * 4 + [True] * 3)
    assert kept_rollouts(batch_of([1, 0, 1, 1, 0, 1, 1], [0, 0, 1, 1, 0, 0, 0], off_policy=off), now).row.tolist() == [
        0,
        1,
        2,
        3,
        5,
        6,
    ]
    assert len(kept_rollouts(batch, now)) == 4


def test_second_tries_are_worth_what_they_are_above_the_first_ones_by_hand() -> None:
    """RLTF-SD (arXiv:2602.02482): A = R(y1) - mean R(y0). First tries 1, 0, 0, 0 have mean 0.25, and second ones 1 and 0 are 0.75
    above and 0.25 below it; without a ratio the loss of a token is -A log pi."""
    now = at(2, continuation={"name": "critique", "refined": 2, "failed": "keep"})
    off = torch.tensor([False] * 4 + [True] * 2)
    kept = kept_rollouts(batch_of([1, 0, 0, 0, 1, 0], [0] * 6, off_policy=off), now)
    found = group(GroupAdvantage(scale_rewards="none"), kept, now)[:, 0].tolist()
    assert found == pytest.approx([0.75, -0.25, -0.25, -0.25, 0.75, -0.25])
    logp = torch.log(torch.tensor([[0.5], [0.25]])).requires_grad_()
    seen = MicroBatch(logp, torch.zeros(2, 1), torch.tensor([[0.75], [-0.25]]), torch.ones(2, 1, dtype=torch.bool))
    token_losses(GpgLoss(), seen)[0].sum().backward()
    assert logp.grad is not None
    assert logp.grad.flatten().tolist() == pytest.approx([-0.75, 0.25])


# --- allocation ---


def test_the_rounds_spend_the_whole_budget_where_rewards_differ_most() -> None:
    now = now_of(allocation=XrpoAllocation(num_generations=4, first=2, rounds=2, exploration=0.0), rows=ROWS)
    assert [ask.n for ask in first_requests(ROWS[:3], now)] == [2, 2, 2]
    batch = batch_of([1, 0, 1, 1, 0, 0], [0, 0, 1, 1, 2, 2])
    assert [(ask.slot, ask.n) for ask in next_requests(ROWS[:3], batch, 0, now)] == [(0, 3)]
    full = batch_of([1, 0] * 6, [0] * 8 + [1, 1, 2, 2])
    assert next_requests(ROWS[:3], full, 1, now) == []


def test_an_episode_whose_turns_are_rows_counts_once_in_the_budget() -> None:
    now = now_of(allocation=XrpoAllocation(num_generations=4, first=2, rounds=1, exploration=0.0), rows=ROWS)
    batch = batch_of([0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1], excluded=torch.tensor([True, False, False] * 2))
    assert next_requests(ROWS[:2], batch, 0, now) == [SamplingRequest(0, 4, "p0|", "p0|")]


def test_an_allocation_that_asks_for_nothing_is_refused() -> None:
    source = "def none(num_generations, prompts, batch, rounds):\n    return [0] * prompts\n"
    own = OwnAllocation(function="own.py:none", source=source)
    with pytest.raises(UserError, match=r"own\.py:none: asks for no completion in the first round"):
        first_requests(ROWS[:2], now_of(allocation=own, rows=ROWS))


def test_exploration_prefers_prompts_with_few_completions() -> None:
    spec = XrpoAllocation(exploration=1.0)
    found = priority(spec, np.array([2.0, 8.0]), np.array([0.0, 0.0]))
    assert found[0] > found[1]
    # t_{1, .975} = 12.706: 12.706 * 0.5 * (1/sqrt 2 - 1/sqrt 3) + sqrt(ln 4 / 2).
    by_hand = 12.7062 * 0.5 * (2**-0.5 - 3**-0.5) + (np.log(4) / 2) ** 0.5
    assert priority(spec, np.array([2.0, 2.0]), np.array([0.5, 0.0]))[0] == pytest.approx(by_hand, rel=1e-4)


def test_rounds_of_an_allocation_sample_from_the_text_that_the_prompting_chooses() -> None:
    xrpo = XrpoAllocation(num_generations=4, first=2, rounds=2, exploration=0.0)
    shots = AnnealedShotsPrompting(schedule=[1])
    now = now_of(allocation=xrpo, prompting=shots, rows=ROWS)
    first = first_requests(ROWS[:2], now)
    assert [(one.slot, one.n, one.sampling.count("#")) for one in first] == [(0, 2, 1), (1, 2, 1)]
    more = next_requests(ROWS[:2], batch_of([1, 0, 1, 1], [0, 0, 1, 1]), 0, now)
    assert [(one.slot, one.n, one.sampling) for one in more] == [(0, 2, first[0].sampling)]


@pytest.mark.parametrize(
    ("seams", "message"),
    [
        ({"prompting": {"name": "icpo", "steered": 8}}, "must be less than num_generations, 8"),
        ({"allocation": {"name": "xrpo", "first": 1}}, r"must lie in 2\.\.num_generations, 8"),
        ({"continuation": {"name": "guide", "hint": {"template": "{prompt}"}}}, r"must hold \{hint\} and \{prompt\} once each"),
        ({"continuation": {"name": "reflection", "template": "{prompt}"}}, r"must hold \{prompt\} and \{completion\}"),
        ({"allocation": {"name": "xrpo"}, "continuation": {"name": "guide"}}, "continuation = guide"),
        ({"prompting": {"name": "prefix"}, "continuation": {"name": "critique"}}, "continuation = critique"),
        ({"prompting": {"name": "prefix"}, "edits": [{"name": "replay"}]}, "replay does not go with method.prompting = prefix"),
        ({"prompting": {"name": "prefix"}, "edits": [{"name": "demonstrations"}]}, "demonstrations does not go with method"),
        ({"allocation": {"name": "xrpo"}, "prompting": {"name": "icpo"}}, "prompting"),
        ({"shaping": [{"name": "overlong"}, {"name": "kl"}, {"name": "overlong"}]}, "shaping: overlong is there twice"),
        ({"continuation": {"name": "tree"}}, "num_generations = 8: must be the product of branches, 216"),
    ],
)
def test_what_cannot_work_is_refused(seams: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        RLSpec(method={"paper": "p", **seams}, mix=[1.0], steps=1)


def test_steps_of_completions_that_are_begun_are_not_ranked() -> None:
    with pytest.raises(ValidationError, match=r"does not go with method\.prompting = prefix, which begins completions itself"):
        RLSpec(method={"paper": "p", "prompting": {"name": "prefix"}}, mix=[1.0], steps=1, judge_credit=True)


def test_no_state_is_sampled_on_from_where_no_token_begins_a_segment() -> None:
    """As of a policy that is sure of every token of a step."""
    batch = batch_of([1, 0], [0, 0])
    now = now_of(continued=partial(continuation_values, None, 1, Counter()))
    assert not by_segments(SegmentAdvantage(), batch, now).any()


# --- in the loop ---

HALF = """
def half(problems, completions, verdicts):
    return [float(p.index % 2 == 0 and c[:1] < "5") for p, c in zip(problems, completions)]
"""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = tmp_path_factory.mktemp("results")
    return {"init": world.model(results, "m" * 12), "data.0": world.problem_set(results, "a" * 12, 20)}


SEAM_OF = {name: "prompting" for name in ("prefix", "icpo", "annealed_shots")} | {
    name: "continuation" for name in ("guide", "reflection", "critique")
}


@pytest.mark.parametrize("name", [*SEAM_OF, "xrpo"])
def test_every_member_runs_and_two_runs_give_the_same_bytes(name: str, inputs: dict[str, Path], tmp_path: Path) -> None:
    group = {"name": "xrpo" if name == "xrpo" else "fixed", "num_generations": 4}
    seams = {SEAM_OF[name]: {"name": name}} if name in SEAM_OF else {}
    spec = RLSpec(
        method=Method.model_validate({"paper": "test", "allocation": group, **seams}),
        reward=OwnReward(function="mine.py:half", source=HALF),
        mix=[1.0],
        steps=2,
        prompts_per_step=4,
        max_completion_length=8,
        optimizer=TuneOptimizer(learning_rate=5e-3),
    )
    how = Run(engine_batch=32, micro_batch_tokens=600, save_minutes=0.0)
    for out in ("one", "two"):
        loop.train_policy(spec, inputs, tmp_path / out, how)
    weights = [(tmp_path / out / "model" / "model.safetensors").read_bytes() for out in ("one", "two")]
    assert weights[0] == weights[1]
    assert weights[0] != (inputs["init"] / "model" / "model.safetensors").read_bytes()
    lines = read(tmp_path / "one")
    assert all(line["completions"] >= 16 for line in lines)
    if name == "guide":
        assert lines[0]["kl_old"] >= 0
        assert lines[0]["completions"] > 16, "groups in which all failed were sampled again"
    if name == "xrpo":
        assert {line["completions"] for line in lines} == {16}
