"""Completions that are sampled in pieces: what states are worth by sampling on, trees of segments, and windows over several steps."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import world
from comma_runs import HOW, spec_of
from killed_rl import payload, run_killed
from rl_cases import batch_of, now_of

from interplay.core.metrics import read
from interplay.kernels import exact
from interplay.rl import loop
from interplay.rl.advantage_spec import GaeAdvantage, GroupAdvantage, SegmentAdvantage, ValueHead
from interplay.rl.advantages import by_segments, cuts
from interplay.rl.batch import Batch, StepContext, join
from interplay.rl.continuation import first_requests, kept_rollouts, next_requests
from interplay.rl.edit_spec import UncertainTokens
from interplay.rl.edits import uncertain_tokens
from interplay.rl.request_spec import FixedAllocation, TreeContinuation, WindowContinuation
from interplay.rl.requests import WINDOWS, Tree, tree_kept, windows_carried
from interplay.rl.reward_spec import OwnReward

ROWS: Any = [SimpleNamespace(prompt=f"p{n}|") for n in range(2)]

# -- segments --------------------------------------------------------------------------------------------------------------------


def test_a_segment_begins_after_so_many_uncertain_tokens() -> None:
    sure, unsure = 0.95, 0.5
    assert cuts([unsure, sure, unsure, sure, unsure, unsure], 0.9, 2) == [0, 4]
    assert cuts([sure, unsure, sure, unsure], 0.9, 1) == [1, 3]
    assert cuts([sure, sure, sure], 0.9, 1) == []
    assert cuts([unsure] * 4, 0.9, 1) == [0, 1, 2, 3]


def test_a_segment_is_worth_what_it_adds_to_what_is_to_be_expected() -> None:
    """Cut-points at tokens 0, 2, 3 of row 0 and interval 1: segments 0-1, 2, 3; the last one ends in the row's reward. Row 1 has
    none."""
    logs = torch.tensor([[0.5, 0.95, 0.5, 0.5], [0.99, 0.99, 1.0, 1.0]]).log()
    batch = batch_of([1.0, 0.0], [0, 0], [4, 2], logprobs=logs)
    worth = {(0, 0): 0.5, (0, 2): 0.25, (0, 3): 0.75, (1, 0): 0.5}

    def continued(given: Batch, places: Any, n: int) -> torch.Tensor:
        assert given is batch
        assert n == 3
        return torch.tensor([worth[place] for place in places], dtype=torch.float64)

    found = by_segments(SegmentAdvantage(samples=3, cutpoint_interval=1), batch, now_of(continued=continued))
    assert found.tolist() == [[-0.25, -0.25, 0.5, 0.25], [0.0] * 4]
    bears = uncertain_tokens(UncertainTokens(), batch, found, batch.mask(), now_of())[2]
    assert bears.tolist() == [[True, False, True, True], [False] * 4]


# -- trees -----------------------------------------------------------------------------------------------------------------------


def rows_of(rewards: list[float], groups: list[int], unfinished: list[bool], texts: list[str]) -> Batch:
    cut = torch.tensor(unfinished)
    return batch_of(rewards, groups, unfinished=cut if cut.any() else None, truncated=cut, completions=texts)


def test_a_segment_of_a_tree_is_worth_the_mean_over_its_continuations() -> None:
    """Prompt 0: segments a (ended, 1) and b (continued by bc: 1 and bd: 0); prompt 1: e (ended, 0), f (continued by fg: 0, fh: 0)."""
    spec = TreeContinuation(branches=[2, 2], segment=4)
    now = now_of(allocation=FixedAllocation(num_generations=4), continuation=spec, max_completion_length=10)
    first = first_requests(ROWS, now)
    assert [(ask.slot, ask.n, ask.limit, ask.goes_on) for ask in first] == [(0, 2, 4, True), (1, 2, 4, True)]
    drawn = rows_of([1, 0, 0, 0], [0, 0, 1, 1], [False, True, False, True], ["a", "b", "e", "f"])
    second = next_requests(ROWS, drawn, 0, now)
    assert [(ask.slot, ask.sampling, ask.given, ask.limit, ask.own, ask.goes_on) for ask in second] == [
        (0, "p0|b", "b", 6, True, False),
        (1, "p1|f", "f", 6, True, False),
    ]
    groups = [ask.group for ask in second for _ in range(2)]
    more = rows_of([1, 0, 0, 0], groups, [False] * 4, ["bc", "bd", "fg", "fh"])  # type: ignore[arg-type]
    whole = join([drawn, more], 0, same_groups=True)
    assert next_requests(ROWS, whole, 1, now) == []
    kept = kept_rollouts(whole, now)
    assert kept.rewards.tolist() == [1, 0.5, 0, 0, 1, 0, 0, 0]
    assert len(set(kept.groups.tolist())) == 4
    assert kept.groups[4] == kept.groups[5] != kept.groups[0]
    assert kept.unfinished is None
    assert not kept.truncated.any()


def test_a_frontier_descends_until_something_ends_and_then_goes_on_anywhere_in_the_tree() -> None:
    """Two are begun, a and b, which do not end. The likelier one, b, is continued: bc (right) and bd (open). Something ended, so what
    is open, a and bd, is compared: a below the prompt and bd below b, both with one completion that was paid."""
    spec = TreeContinuation(branches=[2, 2], segment=4, expansions=2)
    now = now_of(allocation=FixedAllocation(num_generations=4), continuation=spec, max_completion_length=12)
    assert [(ask.n, ask.limit, ask.goes_on) for ask in first_requests(ROWS[:1], now)] == [(2, 4, True)]

    def logs(*each: float) -> torch.Tensor:
        return torch.tensor(each)[:, None]

    begun = replace(rows_of([0, 0], [0, 0], [True, True], ["a", "b"]), logprobs=logs(-2.0, -1.0))
    (ask,) = next_requests(ROWS[:1], begun, 0, now)
    assert (ask.n, ask.sampling, ask.given, ask.group, ask.limit, ask.goes_on) == (2, "p0|b", "b", -2, 4, True)
    for surprise, expected in (
        (0.5, "a"),
        (3.0, "bd"),
    ):  # by likelihood: values and, but for 0.01 (sqrt(2/3) - sqrt(1/3)), depths are equal
        more = replace(rows_of([1, 0], [-2, -2], [False, True], ["bc", "bd"]), logprobs=logs(-1.0, -surprise))
        both = join([begun, more], 0, same_groups=True)
        (ask,) = next_requests(ROWS[:1], both, 1, now)
        assert ask.given == expected
        assert next_requests(ROWS[:1], both, 2, now) == []
    kept = kept_rollouts(both, now)
    assert kept.rewards.tolist() == [0, 0.5, 1, 0]
    tree = Tree(both, exact.FAST)
    assert (tree.depths, tree.value_below(-1, range(4)), tree.value_below(0, range(4))) == ([1, 1, 2, 2], math.tanh(1.0), 0.0)


def test_three_levels_are_averaged_from_the_leaves() -> None:
    spec = TreeContinuation(branches=[2, 2, 2], segment=2)
    groups = [0, 0, -1, -1, -4, -4]  # 0 goes on with 2 and 3, 3 with 4 and 5
    batch = rows_of([0, 0, 1, 0, 1, 1], groups, [True, False, False, True, False, False], list("abcdef"))
    assert tree_kept(spec, batch, now_of()).rewards.tolist() == [1, 0, 1, 1, 1, 1]


# -- windows ---------------------------------------------------------------------------------------------------------------------


def test_what_does_not_end_is_gone_on_with_in_place_of_a_fresh_prompt() -> None:
    spec = WindowContinuation(window=4)
    now = now_of(allocation=FixedAllocation(num_generations=1), continuation=spec, max_completion_length=10)
    assert windows_carried(spec, now, 2) == []
    assert [(a.sampling, a.limit, a.goes_on) for a in first_requests(ROWS, now)] == [("p0|", 4, True), ("p1|", 4, True)]
    drawn = replace(rows_of([1, 0], [0, 1], [False, True], ["ab", "cdef"]), lengths=torch.tensor([2, 4]))
    assert kept_rollouts(drawn, now) is drawn
    assert now.memory.notes[WINDOWS] == [{"id": 1, "text": "cdef", "tokens": 4}]
    assert windows_carried(spec, now, 2) == [1]
    first, fresh = first_requests([ROWS[1], ROWS[0]], now)
    assert (first.sampling, first.given, first.limit, first.goes_on) == ("p1|cdef", "cdef", 4, True)
    assert (fresh.sampling, fresh.given) == ("p0|", "")
    now.memory.notes[WINDOWS][0]["tokens"] = 8
    last = first_requests([ROWS[1], ROWS[0]], now)[0]
    assert (last.limit, last.goes_on) == (2, False), "the run's limit ends it"


# -- in the loop -----------------------------------------------------------------------------------------------------------------


CHAIN = {
    "allocation": FixedAllocation(num_generations=4),
    "advantage": SegmentAdvantage(samples=2, cutpoint_interval=4),
    "edits": [UncertainTokens()],
}
TREE = {
    "allocation": FixedAllocation(num_generations=9),
    "continuation": TreeContinuation(branches=[3, 3], segment=4),
    "advantage": GroupAdvantage(scale_rewards="none"),
}
WINDOW = {
    "allocation": FixedAllocation(num_generations=1),
    "continuation": WindowContinuation(window=5),
    "advantage": GaeAdvantage(),
    "critic": ValueHead(learning_rate=2e-3, lam=1.0),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = tmp_path_factory.mktemp("results")
    return {"init": world.model(results, "m" * 12), "data.0": world.problem_set(results, "a" * 12, 40)}


@pytest.mark.parametrize(("method", "steps"), [(CHAIN, 12), (TREE, 12), (WINDOW, 45)], ids=["chain", "tree", "windows"])
def test_the_policy_learns_what_it_is_paid_for(
    method: dict[str, Any], steps: int, inputs: dict[str, Path], tmp_path: Path
) -> None:
    record = loop.train_policy(spec_of(steps, **method), inputs, tmp_path, HOW)
    assert record["reward_last"] > 1.5 * record["reward_first"] > 0


def test_a_step_begins_with_what_the_last_one_left_and_is_as_wide_as_ever(inputs: dict[str, Path], tmp_path: Path) -> None:
    loop.train_policy(spec_of(4, **WINDOW), inputs, tmp_path, HOW)
    lines = read(tmp_path)
    assert all(line["completions"] == 8 for line in lines)
    assert all(line["length"] <= 5 for line in lines)


def test_a_state_is_worth_the_mean_reward_of_what_follows_it(inputs: dict[str, Path], tmp_path: Path) -> None:
    """Paid for its first character alone, a state behind it is worth all or nothing, and equal states are worth the same."""
    first = "def first(problems, completions, verdicts):\n    return [float(c[:1] in ',0123') for c in completions]\n"
    asked: list[Any] = []
    kept: dict[str, StepContext] = {}

    def spy(spec: SegmentAdvantage, batch: Batch, now: StepContext) -> torch.Tensor:
        places = [(row, kept) for row in range(len(batch)) for kept in (0, 1)]
        asked.append((batch, places, now.continued(batch, places, 4)))
        kept["now"] = now
        return torch.zeros(batch.tokens.shape)

    from interplay.rl import advantages

    spec = spec_of(1, **CHAIN).model_copy(update={"reward": OwnReward(function="mine.py:first", source=first)})
    old = advantages.MEMBERS["segments"]
    advantages.MEMBERS["segments"] = spy
    try:
        loop.train_policy(spec, inputs, tmp_path, HOW)
    finally:
        advantages.MEMBERS["segments"] = old
    batch, places, worth = asked[0]
    found = dict(zip(places, worth.tolist(), strict=True))
    ends = batch.lengths - (~batch.truncated).long()  # tokens that are characters, unless a special one was sampled
    told = [row for row in range(len(batch)) if len(batch.completions[row]) == ends[row] > 0]
    assert [found[row, 1] for row in told] == [float(batch.rewards[row]) for row in told]
    by_prompt: dict[tuple[int, ...], set[float]] = {}
    for row in range(len(batch)):
        by_prompt.setdefault(tuple(batch.prompts[row]), set()).add(found[row, 0])
    assert all(len(values) == 1 for values in by_prompt.values())
    assert len({value for values in by_prompt.values() for value in values}) > 1
    assert Counter(kept["now"].memory.notes) == Counter()


@pytest.mark.slow
def test_a_killed_run_of_windows_ends_with_the_bytes_of_one_that_was_not(inputs: dict[str, Path], tmp_path: Path) -> None:
    spec = spec_of(30, **WINDOW)
    loop.train_policy(spec, inputs, tmp_path / "whole", HOW)
    run_killed(spec, inputs, tmp_path / "killed", HOW, [(3, 0.0), (9, 0.0)])
    assert payload(tmp_path / "killed") == payload(tmp_path / "whole")


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ({"continuation": WindowContinuation()}, "windows needs .*; write method.advantage = gae"),
        (
            {"allocation": FixedAllocation(num_generations=216), "continuation": TreeContinuation()},
            "2 segments of 30 tokens leave nothing of max_completion_length, 12",
        ),
        ({**CHAIN, "continuation": TREE["continuation"]}, "segments needs .*; write method.continuation = none"),
    ],
)
def test_pieces_that_do_not_fit_are_refused(method: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        spec_of(1, **method)
