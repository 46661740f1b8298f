"""Continuations that show own attempts: ExIt's histories and PIT's gap."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
import turn_cases as turns
import world
from comma_runs import HOW, spec_of
from killed_rl import payload, run_killed
from rl_cases import RIGHT, WRONG, batch_of, now_of

from interplay.core.execution import Run
from interplay.core.metrics import read
from interplay.data import tokenizer
from interplay.evaluate import sampling
from interplay.evaluate.spec import EvaluateSpec
from interplay.rl import loop
from interplay.rl.advantages import advantages
from interplay.rl.batch import Batch, Memory, StepContext
from interplay.rl.continuation import (
    HISTORIES,
    append_attempts,
    carried_prompts,
    first_requests,
    kept_rollouts,
    next_requests,
    started_histories,
)
from interplay.rl.edit_spec import DynamicSampling, GapShaping
from interplay.rl.request_spec import ExitContinuation, FixedAllocation, ShownAttemptContinuation
from interplay.rl.requests import SamplingRequest
from interplay.rl.shaping import shape_rewards
from interplay.rollout.episodes import play_episodes
from interplay.rollout.spec import RetryEpisode

ROWS = [turns.row(f"p{n}|", "7") for n in range(4)]
EXIT = ExitContinuation(resample=1.0, feedback="?")


def at(continuation: Any, memory: Memory, step: int = 1, group: int = 2) -> StepContext:
    allocation = FixedAllocation(num_generations=group)
    return now_of(allocation=allocation, continuation=continuation, memory=memory, rows=ROWS, step=step)


def found(rewards: list[float], slots: list[int], ids: list[int], texts: list[str], **more: Any) -> Batch:
    """Rows of groups `slots`, whose prompts are `ids`."""
    return batch_of(rewards, slots, ids=torch.tensor(ids), completions=texts, **more)


def remembered(*entries: dict[str, Any]) -> Memory:
    memory = Memory(4)
    memory.notes[HISTORIES] = [{"id": 0, "attempts": ["x"], "score": 0.25, "seen": 0.0, **entry} for entry in entries]
    return memory


# --- ExIt ---


def test_a_group_leaves_a_history_with_its_variance_and_the_next_step_starts_from_it() -> None:
    memory = Memory(4)
    assert carried_prompts(at(EXIT, memory), 2) == []
    assert first_requests(ROWS[:2], at(EXIT, memory)) == [
        SamplingRequest(0, 2, "p0|", "p0|"),
        SamplingRequest(1, 2, "p1|", "p1|"),
    ]
    batch = found([1, 0, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1], ["r", "w", "v", "v"])
    assert kept_rollouts(batch, at(EXIT, memory)) is batch
    # Variance of 1, 0 is 0.25, of 0, 0 it is 0; the right completion is not gone on from.
    first = {"id": 0, "attempts": ["w"], "score": 0.25, "seen": 0.0}
    assert memory.notes[HISTORIES] == [first, {"id": 1, "attempts": ["v"], "score": 0.0, "seen": 0.0}]
    later = at(EXIT, memory, step=2)
    assert carried_prompts(later, 2) == [0], "a history whose group did not differ teaches nothing"
    text = append_attempts("p0|", ["w"], "?")
    asks = first_requests([ROWS[0], ROWS[3]], later)
    assert asks == [SamplingRequest(0, 2, text, text, group=0, shown=0.0), SamplingRequest(1, 2, "p3|", "p3|")]


def test_a_history_is_scored_by_its_own_group_and_grows_by_an_attempt_up_to_its_depth() -> None:
    memory = remembered({"attempts": ["x"]})
    spec = EXIT.model_copy(update={"depth": 2})
    kept_rollouts(found([0, 0], [0, 0], [0, 0], ["y", "y"]), at(spec, memory))
    assert [(one["attempts"], one["score"]) for one in memory.notes[HISTORIES]] == [(["x"], 0.0), (["x", "y"], 0.0)]
    memory = remembered({"attempts": ["x", "y"]})
    kept_rollouts(found([1, 0], [0, 0], [0, 0], ["z", "z"]), at(spec, memory))
    assert [one["attempts"] for one in memory.notes[HISTORIES]] == [["x", "y"]], "deep enough"


def test_a_step_starts_from_histories_in_proportion_to_the_variance_of_their_groups() -> None:
    memory = remembered({"id": 0, "score": 0.25}, {"id": 1, "score": 0.0625}, {"id": 2, "score": 0.0})

    def share(priority: str) -> list[float]:
        spec = EXIT.model_copy(update={"priority": priority})
        chosen = [started_histories(spec, at(spec, memory, step=step), 1)[0]["id"] for step in range(3000)]
        return [chosen.count(i) / 3000 for i in range(3)]

    assert share("variance") == pytest.approx([0.8, 0.2, 0.0], abs=0.03)
    assert share("uniform") == pytest.approx([1 / 3] * 3, abs=0.03)
    half = EXIT.model_copy(update={"resample": 0.5, "priority": "uniform"})
    counts = [len(started_histories(half, at(half, memory, step=step), 2)) for step in range(2000)]
    assert sum(counts) / 4000 == pytest.approx(0.5, abs=0.03)
    all_three = started_histories(half.model_copy(update={"resample": 1.0}), at(half, memory), 9)
    assert sorted(one["id"] for one in all_three) == [0, 1, 2], "no history twice in a step"


def test_the_buffer_is_bounded_and_what_teaches_least_goes_first_the_oldest_of_equals() -> None:
    memory = remembered({"id": 0, "score": 0.1}, {"id": 1, "score": 0.2}, {"id": 2, "score": 0.1})
    kept_rollouts(
        found([0.5, 0.0], [0, 0], [3, 3], ["a", "a"]), at(EXIT.model_copy(update={"buffer": 3, "resample": 0.0}), memory)
    )
    kept = [(one["id"], round(one["score"], 4)) for one in memory.notes[HISTORIES]]
    assert kept == [(0, 0.1), (1, 0.2), (2, 0.1)], "the newest teaches least"
    spec = EXIT.model_copy(update={"buffer": 2, "resample": 0.0, "priority": "uniform"})
    kept_rollouts(found([0.5, 0.0], [0, 0], [3, 3], ["a", "a"]), at(spec, memory))
    assert [one["id"] for one in memory.notes[HISTORIES]] == [2, 3]


def test_what_was_cut_or_right_is_not_gone_on_from_unless_right_ones_are_to_be() -> None:
    cut = torch.tensor([True, False])
    batch = replace(found([0, 1], [0, 0], [0, 0], ["cut", "right"], truncated=cut), verdicts=[WRONG, RIGHT])
    for always, attempts in ((False, []), (True, [["right"]])):
        memory = Memory(4)
        kept_rollouts(batch, at(EXIT.model_copy(update={"always": always}), memory))
        assert [one["attempts"] for one in memory.notes.get(HISTORIES, [])] == attempts


def test_what_is_learnt_is_what_an_episode_with_more_turns_reads(inputs: dict[str, Path]) -> None:
    """The context of a history of two attempts, token for token, is that of the third turn of a retry, end tokens included."""
    of_model, special = tokenizer.load(inputs["init"]), tokenizer.special(inputs["init"])
    said = iter(["a+b", "12", "3"])
    rows = [turns.row("a?", "no")]
    setting = turns.setting(lambda text, sample: next(said) + turns.END, rows)
    play_episodes(RetryEpisode(max_turns=3, feedback="?"), setting, turns.asked(rows, 1))
    read_last = setting.engine.asked[-1][0][0].prompt  # type: ignore[attr-defined]
    assert turns.decode([read_last]) == ["a?a+b?12?"]
    (tokens,) = tokenizer.encode_turns(of_model, [append_attempts("a?", ["a+b", "12"], "?")], special.eos)
    as_told = [special.eos if chr(i) == turns.END else of_model.encode(chr(i)).ids[0] for i in read_last]
    assert tokens == as_told


# --- PIT ---

PIT = ShownAttemptContinuation(references=2, feedback="?")


def test_pit_pays_the_gap_to_the_attempt_that_was_shown_by_hand() -> None:
    """Attempts of one prompt earn 1 and 0; behind the first come completions worth 1 and 0.5, behind the second 1 and 0: gaps 0,
    -0.5, 1, 0, whose mean is 0.125."""
    now = now_of(continuation=PIT, shaping=[GapShaping()])
    shown = torch.tensor([float("nan")] * 2 + [1.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    batch = shape_rewards(batch_of([1, 0, 1, 0.5, 1, 0], [0, 0, 1, 1, 1, 1], shown=shown), now)
    assert batch.rewards.tolist() == [1, 0, 0, -0.5, 1, 0]
    assert batch.parts["gap"].tolist() == [0, 0, -1, -1, 0, 0]
    learnt = kept_rollouts(batch, now)
    assert learnt.row.tolist() == [2, 3, 4, 5], "the attempts themselves are not learnt"
    plain = now.method.advantage.model_copy(update={"scale_rewards": "none"})
    assert advantages(plain, learnt, now)[:, 0].tolist() == pytest.approx([-0.125, -0.625, 0.875, -0.125])


def test_every_attempt_is_shown_to_as_many_completions_with_what_it_earned() -> None:
    now = at(PIT, Memory(4), group=4)
    assert first_requests(ROWS[:2], now) == [SamplingRequest(0, 2, "p0|", "p0|"), SamplingRequest(1, 2, "p1|", "p1|")]
    batch = found([1, 0, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1], ["a", "b", "c", "d"])
    more = next_requests(ROWS[:2], batch, 0, now)
    assert [(ask.slot, ask.n, ask.group, ask.shown) for ask in more] == [
        (0, 1, 2, 1.0),
        (0, 1, 2, 0.0),
        (1, 1, 3, 0.0),
        (1, 1, 3, 0.0),
    ]
    assert [ask.sampling for ask in more] == [
        append_attempts(f"p{n}|", [text], "?") for n, text in ((0, "a"), (0, "b"), (1, "c"), (1, "d"))
    ]
    assert all(ask.sampling == ask.training for ask in more)
    assert next_requests(ROWS[:2], batch, 1, now) == []


# --- in the loop ---


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = tmp_path_factory.mktemp("results")
    return {"init": world.model(results, "m" * 12), "data.0": world.problem_set(results, "a" * 12, 20)}


METHODS: dict[str, dict[str, Any]] = {
    "exit": {"allocation": FixedAllocation(num_generations=4), "continuation": ExitContinuation(feedback="?", depth=2)},
    "pit": {
        "allocation": FixedAllocation(num_generations=8),
        "continuation": ShownAttemptContinuation(references=2, feedback="?"),
        "shaping": [GapShaping()],
    },
}


@pytest.mark.parametrize("name", METHODS)
def test_a_run_learns_and_two_give_the_same_bytes(name: str, inputs: dict[str, Path], tmp_path: Path) -> None:
    spec = spec_of(12, **METHODS[name])
    for out in ("one", "two"):
        loop.train_policy(spec, inputs, tmp_path / out, HOW)
    assert payload(tmp_path / "one") == payload(tmp_path / "two")
    lines = read(tmp_path / "one")
    assert {line["completions"] for line in lines} == {spec.prompts_per_step * spec.method.allocation.num_generations}
    assert all(abs(line["kl_old"]) < 1e-6 for line in lines), "what is learnt follows what it was sampled behind"
    assert max(line["effective_ratio"] for line in lines) > 0


def test_a_model_of_shallow_histories_is_evaluated_at_more_attempts_than_it_was_trained_at(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    loop.train_policy(spec_of(6, **METHODS["exit"]), inputs, tmp_path / "rl", HOW)
    episode = RetryEpisode(max_turns=5, feedback="?")
    spec = EvaluateSpec(num_samples=4, max_completion_length=6, episode=episode)
    metrics = sampling.evaluate_model(
        spec, {"model": tmp_path / "rl", "data": inputs["data.0"]}, tmp_path / "eval", Run(engine_batch=64)
    )
    by_turn = list(metrics["turns"]["answer"].values())
    assert len(by_turn) == 5
    assert by_turn == sorted(by_turn)
    segments = pq.read_table(tmp_path / "eval" / "samples.parquet")["segments"].to_pylist()
    deepest = METHODS["exit"]["continuation"].depth + 1
    assert max(sum(one["kind"] == "action" for one in row) for row in segments) > deepest, "attempts that no group of the run had"


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_a_killed_run_ends_with_the_bytes_of_one_that_was_not(name: str, inputs: dict[str, Path], tmp_path: Path) -> None:
    spec = spec_of(20, **METHODS[name])
    loop.train_policy(spec, inputs, tmp_path / "whole", HOW)
    run_killed(spec, inputs, tmp_path / "killed", HOW, [(3, 0.0), (9, 0.0)])
    assert payload(tmp_path / "killed") == payload(tmp_path / "whole")


@pytest.mark.parametrize(
    ("method", "says"),
    [
        (
            {"shaping": [GapShaping()]},
            "gap needs a member that shows own attempts .*; write method.continuation = exit, shown_attempt",
        ),
        (
            {"continuation": EXIT, "shaping": [GapShaping()]},
            "gap needs a member that shows different attempts to a group, or compares rewards across groups",
        ),
        (
            {"continuation": EXIT, "edits": [DynamicSampling()]},
            "continuation = exit does not go with method.edits: dynamic_sampling",
        ),
        ({"continuation": EXIT, "episode": RetryEpisode()}, "episode = retry needs .*; write method.continuation = none"),
        (
            {"continuation": PIT, "advantage": {"name": "tracked"}, "sampler": {"name": "single_stream"}},
            "tracked does not go with method.continuation = shown_attempt",
        ),
        ({"continuation": {"name": "shown_attempt", "references": 3}}, "must divide num_generations, 8"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(method: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        spec_of(1, **method)
    assert "\n" not in str(caught.value).partition("Value error, ")[2].partition(" [type")[0]
