"""Sampler, requests, episode, reward and edit: the members of the loop's seams."""

import inspect
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from rl_cases import now_of

from interplay.core.extension import Extension
from interplay.core.model import PermanentError, UserError
from interplay.rl.advantage_spec import SpanAdvantage
from interplay.rl.batch import Batch, Span, join, take
from interplay.rl.continuation import first_requests
from interplay.rl.draw import episode_requests
from interplay.rl.edit_spec import DynamicSampling
from interplay.rl.edits import edits_before_advantage, informative
from interplay.rl.request_spec import FixedAllocation
from interplay.rl.requests import SamplingRequest
from interplay.rl.reward_spec import OutcomeReward, ProcessReward
from interplay.rl.rewards import score_completions
from interplay.rl.sampler import Outcome, PromptSource
from interplay.rl.sampler_spec import UniformSampler
from interplay.rl.samplers import build_sampler
from interplay.rl.spec import CAPABILITIES, SEAMS, RLSpec
from interplay.rl.teach_spec import TeachSpec
from interplay.tasks.verdict import Verdict

# --- sampler ---


def test_the_uniform_sampler_draws_every_prompt_once_per_epoch_in_another_order_each_time() -> None:
    draws = build_sampler(UniformSampler(), PromptSource([12], [1.0], 3))
    epochs = [[i for step in range(3) for i in draws.select(4, step)] for _ in range(2)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(12))] * 2
    assert epochs[0] != epochs[1]


def test_the_uniform_sampler_keeps_the_mix_to_within_one_prompt_at_any_time() -> None:
    draws = build_sampler(UniformSampler(), PromptSource([50, 20, 5], [0.5, 0.3, 0.2], 0))
    taken = np.zeros(3)
    for drawn in range(1, 200):
        (one,) = draws.select(1, drawn)
        taken[np.searchsorted([50, 70], one, side="right")] += 1
        assert np.abs(taken - drawn * np.array([0.5, 0.3, 0.2])).max() <= 1


def test_a_set_with_share_zero_is_never_drawn() -> None:
    assert max(build_sampler(UniformSampler(), PromptSource([3, 3], [1.0, 0.0], 0)).select(30, 1)) < 3


def test_an_empty_set_with_a_share_is_refused_before_the_first_draw() -> None:
    with pytest.raises(PermanentError, match=r"uniform: data\.1 has share 0\.5 of the mix and no prompt"):
        build_sampler(UniformSampler(), PromptSource([3, 0], [0.5, 0.5], 0))


def test_the_seed_decides_the_order() -> None:
    first, again, other = (build_sampler(UniformSampler(), PromptSource([40], [1.0], s)).select(20, 1) for s in (1, 1, 2))
    assert first == again != other


FREQUENT = """
def least_tried(m, step, seed, tries, passes, floor=0):
    return sorted(range(len(tries)), key=lambda i: (tries[i], i))[:m]
"""


@pytest.mark.parametrize(
    "spec", [UniformSampler(), Extension(function="mine.py:least_tried", source=FREQUENT)], ids=["uniform", "custom"]
)
def test_a_sampler_goes_on_from_its_state_as_if_it_had_never_stopped(spec: UniformSampler | Extension) -> None:
    whole, first = (build_sampler(spec, PromptSource([7, 5], [0.6, 0.4], 9)) for _ in range(2))

    def steps(draws, numbers: range) -> list[list[int]]:
        seen = []
        for step in numbers:
            seen.append(draws.select(3, step))
            draws.observe(step, [Outcome(i, (0.0,) * 4, step % 2, step % 2) for i in seen[-1]])
        return seen

    expected = steps(whole, range(1, 9))
    steps(first, range(1, 5))
    second = build_sampler(spec, PromptSource([7, 5], [0.6, 0.4], 9))
    second.load_state_dict(first.state_dict(), first.tensors())
    assert steps(second, range(5, 9)) == expected[4:]


def test_a_custom_sampler_sees_the_success_history_of_each_prompt() -> None:
    source = (
        "def f(m, step, seed, tries, passes, bonus):\n    assert tries.tolist() == [8, 4, 0] and passes.tolist() == [3, 1, 0]\n"
    )
    draws = build_sampler(
        Extension(function="s.py:f", source=source + "    return [bonus] * m\n", options={"bonus": 2}),
        PromptSource([3], [1.0], 0),
    )
    draws.observe(1, [Outcome(i, (0.0,) * 4, passes, passes) for i, passes in ((0, 1), (1, 1), (0, 2))])
    assert draws.select(2, 1) == [2, 2]


@pytest.mark.parametrize("body", ["return [0]", "return [0, 3]", "return [0, -1]", "return [0, 1.7]", "return None", "pass"])
def test_a_custom_sampler_that_does_not_return_m_ids_is_refused(body: str) -> None:
    spec = Extension(function="s.py:f", source=f"def f(m, step, seed, tries, passes):\n    {body}\n")
    with pytest.raises(UserError, match=r"s\.py:f: must return 2 ids in \[0, 3\)"):
        build_sampler(spec, PromptSource([3], [1.0], 0)).select(2, 1)


# --- allocation and episode ---


def test_the_fixed_allocation_gives_every_prompt_the_same_number_and_its_own_text() -> None:
    rows = [SimpleNamespace(prompt="a3?a|"), SimpleNamespace(prompt="b1?b|")]
    asked = first_requests(rows, now_of(allocation=FixedAllocation(num_generations=6)))
    assert asked == [SamplingRequest(0, 6, "a3?a|", "a3?a|"), SamplingRequest(1, 6, "b1?b|", "b1?b|")]


def test_a_prompt_drawn_twice_in_a_step_gets_new_samples() -> None:
    seen: Counter[int] = Counter()
    first = episode_requests([[1], [2], [1]], [11, 12, 11], [4, 4, 4], seen)
    later = episode_requests([[2]], [12], [4], seen)
    assert [(r.key, r.first, r.count) for r in first + later] == [(11, 0, 4), (12, 0, 4), (11, 4, 4), (12, 4, 4)]


# --- reward ---


def verdict(
    strict: bool, answer: bool, right: float, value: int = 0, dependency: int = 0, missing: int = 0, extra: int = 0
) -> Verdict:
    return Verdict(
        strict=strict,
        answer=answer,
        score=right,
        error="none" if strict else "value",
        value_mismatches=value,
        dependency_mismatches=dependency,
        missing=missing,
        extra=extra,
        nodes=4,
    )


RIGHT = verdict(True, True, 1.0)
LUCKY = verdict(False, True, 0.5, value=1, dependency=2)
"""Two of four steps right; one of the others is charged twice by the released code; the answer is right all the same."""
WRONG = verdict(False, False, 0.75, value=1, extra=1)
HOPELESS = verdict(False, False, 0.0, value=4, dependency=4, extra=9)


def rewards(spec) -> list[float]:
    return score_completions(spec, [None] * 4, [""] * 4, [RIGHT, LUCKY, WRONG, HOPELESS]).sequence


def test_outcome_reads_the_answer_and_strict_every_step() -> None:
    assert rewards(OutcomeReward()) == [1, 1, 0, 0]
    assert rewards(ProcessReward(form="strict")) == [1, 0, 0, 0]


def test_the_published_blend_is_alpha_outcome_plus_the_rest_step_accuracy() -> None:
    assert rewards(ProcessReward(form="blend", alpha=0.2)) == pytest.approx([1, 0.2 + 0.8 * 0.5, 0.8 * 0.75, 0])


def test_the_released_blend_charges_a_node_twice_and_extras_and_gives_nothing_for_a_wrong_answer() -> None:
    # LUCKY: 1 - (1 + 2) / 4 = 1/4.
    assert rewards(ProcessReward(form="blend_released", alpha=0.2)) == pytest.approx([1, 0.2 + 0.8 * 0.25, 0, 0])


def test_the_dense_reward_is_the_released_step_score_without_the_gate() -> None:
    # WRONG: 1 - (1 value + 1 extra + 1 answer) / 4 = 1/4; HOPELESS: clipped at 0.
    assert rewards(ProcessReward(form="dense")) == pytest.approx([1, 0.25, 0.25, 0])


def test_the_parts_of_a_reward_are_kept() -> None:
    parts = score_completions(ProcessReward(form="blend"), [None], [""], [LUCKY]).parts
    assert parts == {"outcome": [1.0], "steps": [0.5]}


def test_a_custom_reward_gets_problems_completions_verdicts_and_its_options() -> None:
    source = "def f(problems, completions, verdicts, bonus):\n"
    source += "    return [p + len(c) + v.score + bonus for p, c, v in zip(problems, completions, verdicts)]\n"
    spec = Extension(function="mine.py:f", source=source, options={"bonus": 100})
    assert score_completions(spec, [10, 20], ["a", "bcd"], [RIGHT, LUCKY]).sequence == [112.0, 123.5]


@pytest.mark.parametrize(
    "body",
    ["return [1.0]", "return [float('nan')] * 2", "return None", "return 1.0", "return ['x'] * 2", "return [None] * 2", "pass"],
)
def test_a_custom_reward_that_does_not_return_finite_numbers_is_refused(body: str) -> None:
    spec = Extension(function="mine.py:f", source=f"def f(problems, completions, verdicts):\n    {body}\n")
    with pytest.raises(UserError, match=r"mine\.py:f: must return 2 finite floats"):
        score_completions(spec, [None] * 2, [""] * 2, [RIGHT, LUCKY])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def f(problems):\n    return [0.0]\n", "must take 3 arguments, bonus .*too many positional"),
        ("def f(problems, completions, verdicts):\n    return [0.0]\n", "must take 3 arguments, bonus .*'bonus'"),
        ("def f(*given, bonus):\n    return 1\n\ndef g(*given): ...\n", "must return 1 finite floats, not 1$"),
        ("def f(*given, bonus):\n\n    return [1 / 0]\n", r"fails at line 3 \(ZeroDivisionError: division by zero\)"),
    ],
)
def test_a_custom_function_of_another_form_or_that_fails_is_one_line_with_its_name(source: str, message: str) -> None:
    with pytest.raises(UserError, match=rf"^mine\.py:f: {message}"):
        score_completions(Extension(function="mine.py:f", source=source, options={"bonus": 1}), [None], [""], [RIGHT])


def test_a_custom_source_that_fails_or_lacks_the_function_is_one_line() -> None:
    for source, message in [
        ("def g(): pass", "defines no function 'f'"),
        ("1/0", "ZeroDivisionError"),
        ("def f(:", "SyntaxError"),
    ]:
        with pytest.raises(UserError, match=message):
            score_completions(Extension(function="mine.py:f", source=source), [None], [""], [RIGHT])


# --- batch and edits ---


def groups_of(*rewards: list[float], first_row: int = 0, width: int = 3) -> Batch:
    flat = [r for group in rewards for r in group]
    n = len(flat)
    return Batch(
        row=torch.arange(first_row, first_row + n),
        ids=torch.tensor([10 * g for g, group in enumerate(rewards) for _ in group]),
        groups=torch.tensor([g for g, group in enumerate(rewards) for _ in group]),
        prompts=[[i] for i in range(n)],
        tokens=torch.arange(n * width).view(n, width),
        lengths=torch.full((n,), width),
        logprobs=-torch.ones(n, width),
        truncated=torch.zeros(n, dtype=torch.bool),
        completions=[str(r) for r in flat],
        verdicts=[RIGHT if r >= 1 else WRONG for r in flat],
        right=torch.tensor([r >= 1 for r in flat]),
        rewards=torch.tensor(flat, dtype=torch.float64),
        parts={"steps": torch.tensor(flat, dtype=torch.float64)},
    )


def test_rows_keep_together_what_belongs_together() -> None:
    batch = take(groups_of([0, 1], [0.5, 0.5]), torch.tensor([3, 1]))
    assert (batch.row.tolist(), batch.groups.tolist(), batch.prompts, batch.completions) == (
        [3, 1],
        [1, 0],
        [[3], [1]],
        ["0.5", "1"],
    )
    assert batch.tokens.tolist() == [[9, 10, 11], [3, 4, 5]]
    assert batch.parts["steps"].tolist() == [0.5, 1.0]


def test_joined_batches_keep_their_groups_apart_and_are_padded_to_the_longest() -> None:
    joined = join([groups_of([0, 1]), groups_of([1, 0], [0, 0], width=4)], pad_token=99)
    assert joined.groups.tolist() == [0, 0, 1, 1, 2, 2]
    assert joined.tokens[:2].tolist() == [[0, 1, 2, 99], [3, 4, 5, 99]]
    assert joined.mask().sum(1).tolist() == [3, 3, 4, 4, 4, 4]


def test_a_batch_that_says_who_is_off_policy_joined_to_one_that_does_not_says_so_of_all() -> None:
    said = replace(groups_of([0, 1]), off_policy=torch.tensor([True, False]))
    joined = join([groups_of([0, 1]), said], pad_token=0)
    assert joined.off_policy.tolist() == [False, False, True, False]
    assert join([groups_of([0, 1])] * 2, pad_token=0).off_policy is None
    assert join([said, said], 0, same_groups=True).groups.tolist() == [0, 0, 0, 0]


def test_only_groups_with_two_different_rewards_inform() -> None:
    batch = groups_of([0, 0], [0.1, 0.1], [1, 0], [0.3, 0.2])
    assert informative(DynamicSampling(), batch, now_of()).tolist() == [False] * 4 + [True] * 4


def test_groups_whose_blocks_differ_inform_the_advantage_of_spans_though_their_rewards_are_equal() -> None:
    def row(*values: float) -> list[Span]:
        return [Span(place, place + 1, place, value) for place, value in enumerate(values)]

    spans = [row(1, 0), row(0, 1), row(1, 0), row(1, 0), row(1, 1), row(0, 1)]
    batch = replace(groups_of([0.5, 0.5], [0.5, 0.5], [1, 0.5]), spans=spans)
    assert informative(DynamicSampling(), batch, now_of(advantage=SpanAdvantage())).tolist() == [
        True,
        True,
        False,
        False,
        True,
        True,
    ]
    assert informative(DynamicSampling(), batch, now_of(advantage=SpanAdvantage(normalise="pooled"))).all()
    assert informative(DynamicSampling(), batch, now_of()).tolist() == [False] * 4 + [True] * 2


def edited(rounds: int, batch: Batch, draw: Callable[[int], Batch]) -> Batch:
    return edits_before_advantage(batch, replace(now_of(edits=[DynamicSampling(max_num_gen_batches=rounds)]), draw=draw))


def test_dynamic_sampling_draws_as_many_fresh_groups_as_it_lost_until_full() -> None:
    asked: list[int] = []
    fresh = [groups_of([1, 1], [0, 1], [1, 1], first_row=8), groups_of([0, 1], [1, 0], first_row=14)]

    def draw(m: int) -> Batch:
        asked.append(m)
        return fresh[len(asked) - 1]

    batch = edited(5, groups_of([0, 0], [0, 1], [1, 1], [0, 0]), draw)
    assert asked == [3, 2]
    assert batch.row.tolist() == [2, 3, 10, 11, 14, 15, 16, 17]
    assert batch.rewards.view(4, 2).sum(1).tolist() == [1, 1, 1, 1]


def test_dynamic_sampling_of_prompts_with_several_groups_each_stops_when_the_step_is_full() -> None:
    asked: list[int] = []

    def draw(m: int) -> Batch:
        asked.append(m)
        return groups_of(*[[0, 1]] * (2 * m))

    assert len(edited(5, groups_of([0, 1], [1, 1], [1, 1], [0, 0]), draw).groups.unique()) == 7
    assert asked == [3]


def test_dynamic_sampling_stops_after_its_rounds_and_may_leave_nothing() -> None:
    asked: list[int] = []

    def draw(m: int) -> Batch:
        asked.append(m)
        return groups_of([0, 0])

    nothing = edited(3, groups_of([0, 0]), draw)
    assert (len(nothing), asked) == (0, [1, 1])
    edited(1, groups_of([0, 0], [0, 1]), draw)
    assert asked == [1, 1]


def test_dynamic_sampling_goes_by_verdicts_where_advantages_want_a_critic() -> None:
    """Its values come once all groups are drawn."""
    method = {"paper": "p", "advantage": {"name": "gae"}, "critic": {"name": "value_head"}}
    other = {"mix": [1.0], "steps": 1}
    with pytest.raises(ValidationError, match=r"dynamic_sampling does not go with method\.advantage = gae"):
        RLSpec.model_validate({"method": {**method, "edits": [{"name": "dynamic_sampling"}]}, **other})
    RLSpec.model_validate({"method": {**method, "edits": [{"name": "dynamic_sampling", "metric": "acc"}]}, **other})


# --- what cannot learn ---


def run_of(group: int, advantage: dict, **more: Any) -> RLSpec:
    method = {"paper": "p", "allocation": {"name": "fixed", "num_generations": group}, "advantage": advantage}
    reward = {"name": "subproblems" if advantage["name"] == "spans" else "process"}
    return RLSpec.model_validate({"method": method, "reward": reward, "mix": [1.0], "steps": 1, **more})


@pytest.mark.parametrize("name", ["group", "spans"])
def test_a_group_of_one_is_refused_where_completions_are_compared_with_each_other(name: str) -> None:
    with pytest.raises(
        ValidationError,
        match=rf"advantage = {name} does not go with method.allocation = fixed.*num_generations = 1; give 2 at least",
    ):
        run_of(1, {"name": name})
    run_of(2, {"name": name})


def test_pooled_spans_compare_the_parts_of_a_single_completion() -> None:
    run_of(1, {"name": "spans", "normalise": "pooled"})


def test_rollouts_that_are_all_equal_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"temperature = 0 .*nothing is learnt"):
        run_of(2, {"name": "group"}, temperature=0)


def test_every_capability_is_described_needed_or_refused_and_provided_by_some_member() -> None:
    """Also those that depend on options: they are named in the source of `needs`, `provides` or `refuses`."""
    classes = {one for members in SEAMS.values() for one in members} | {RLSpec, TeachSpec}
    files = {inspect.getsourcefile(one) for one in classes}
    source = "".join(Path(str(file)).read_text() for file in files)
    asked = {word for one in classes for word in one.NEEDS | one.REFUSES}
    provided = {word for one in classes for word in one.PROVIDES}
    assert asked | provided <= set(CAPABILITIES)
    for word in CAPABILITIES:
        assert word in provided or f'{{"{word}"}} if' in source, f"nothing provides {word}"
        assert word in asked or f'{{"{word}"}} if' in source, f"nothing needs or refuses {word}"
