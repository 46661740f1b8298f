"""Whole runs whose episodes have several turns: they learn, resume bit by bit, and are evaluated by turn."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import test_rl_loop as loops
import world
from killed_rl import payload, run_killed

from interplay.core.execution import Run
from interplay.core.metrics import read
from interplay.core.model import UserError
from interplay.data import tokenizer
from interplay.evaluate import sampling
from interplay.evaluate.spec import EvaluateSpec
from interplay.model import folder
from interplay.rl import loop
from interplay.rl.edit_spec import AttemptsShaping
from interplay.rl.loss_spec import ClippedLoss
from interplay.rl.spec import RLSpec
from interplay.rollout.engine import engine
from interplay.rollout.episodes import play_episodes
from interplay.rollout.request import Request, Sampling
from interplay.rollout.spec import RetryEpisode
from interplay.rollout.turns import Setting
from interplay.tasks.verdict import Verdict

HOW = loops.HOW


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = tmp_path_factory.mktemp("results")
    return {"init": world.model(results, "m" * 12), "data.0": world.problem_set(results, "a" * 12, 20)}


def spec_of(steps: int, function: str = "commas", **method: Any) -> RLSpec:
    given = {"episode": RetryEpisode(max_turns=3, feedback="?"), **method}
    return loops.spec_of(function, steps, given, mix=[1.0], prompts_per_step=4, max_completion_length=8)


def test_a_run_with_retries_learns_and_its_engine_and_its_training_agree(inputs: dict[str, Path], tmp_path: Path) -> None:
    loop.train_policy(spec_of(30), inputs, tmp_path, HOW)
    lines = read(tmp_path)
    first, last = (sum(line["reward"] for line in some) for some in (lines[:5], lines[-5:]))
    assert last > 1.5 * first
    assert all(abs(line["kl_old"]) < 1e-6 for line in lines), "what was read has a log-probability or is not in the context"
    assert all(1 <= line["turns"] <= 3 for line in lines)
    assert max(line["turns"] for line in lines) > 1
    rows = pq.read_table(tmp_path / "rollouts.parquet").to_pylist()
    assert {len(row["segments"]) for row in rows} == {1, 3, 5}
    for row in rows:
        own, seen = row["segments"][::2], row["segments"][1::2]
        assert ({one["kind"] for one in own}, [one["turn"] for one in own]) == ({"action"}, list(range(row["turns"])))
        assert [(one["kind"], one["text"], one["reward"]) for one in seen] == [("observation", "?", None)] * len(seen)
        assert own[-1]["reward"] == row["reward"]
        assert row["completion"] == "".join(one["text"] for one in row["segments"])
        assert all(one["tokens"] is None for one in row["segments"])


@pytest.mark.slow
@pytest.mark.parametrize("window", [None, 1])
def test_a_killed_run_with_retries_ends_with_the_bytes_of_one_that_was_not(
    inputs: dict[str, Path], tmp_path: Path, window: int | None
) -> None:
    method = {
        "episode": RetryEpisode(max_turns=3, feedback="?", window=window),
        "shaping": [AttemptsShaping()],
        "loss": ClippedLoss(num_iterations=2, first_turn_beta=0.05),
    }
    spec = spec_of(10, **method)
    loop.train_policy(spec, inputs, tmp_path / "whole", HOW)
    run_killed(spec, inputs, tmp_path / "killed", HOW, [(3, 0.02)])
    assert payload(tmp_path / "killed") == payload(tmp_path / "whole")


def test_a_sentence_that_the_tokenizer_cannot_write_is_refused_in_one_line(inputs: dict[str, Path], tmp_path: Path) -> None:
    spec = spec_of(1, episode=RetryEpisode(feedback="Try again."))
    with pytest.raises(UserError, match=r"T") as caught:
        loop.train_policy(spec, inputs, tmp_path, HOW)
    assert "\n" not in str(caught.value)


def test_turns_do_not_depend_on_who_shares_their_batch(inputs: dict[str, Path]) -> None:
    tokens = tokenizer.load(inputs["init"])
    decoder = folder.load_decoder(inputs["init"] / "model")

    def played(rows: int, prompts: list[str]) -> dict[int, list[int]]:
        asked = [Request(tokens.encode(prompt).ids, len(prompt), 0, 3) for prompt in prompts]
        setting = Setting(
            engine("native", decoder, Run(engine_batch=rows)),
            Sampling(1.0, 1.0, 0, 6, 3, 1, 0),
            lambda texts, special=False: [tokens.encode(text).ids for text in texts],
            tokens.decode_batch,
            [None] * len(prompts),  # type: ignore[list-item]
            lambda row, text: Verdict(False, False, 0.0, "answer"),
        )
        made = play_episodes(RetryEpisode(max_turns=3, feedback="?"), setting, asked).rollouts
        keys = [(asked[r].key, s) for r, s in zip(made.request.tolist(), made.sample.tolist(), strict=True)]
        return {key: row[:n] for key, row, n in zip(keys, made.tokens.tolist(), made.lengths.tolist(), strict=True)}

    together, alone = played(64, ["a1?", "b2+3?", "c?"]), played(2, ["b2+3?"])
    assert {key: together[key] for key in alone} == alone


def test_an_evaluation_of_retries_tells_how_many_are_right_by_turn(inputs: dict[str, Path], tmp_path: Path) -> None:
    given = {"model": inputs["init"], "data": inputs["data.0"]}
    spec = EvaluateSpec(num_samples=8, max_completion_length=6, episode=RetryEpisode(max_turns=4, feedback="?"))
    metrics = sampling.evaluate_model(spec, given, tmp_path / "more", Run(engine_batch=64))
    once = sampling.evaluate_model(spec.model_copy(update={"episode": None}), given, tmp_path / "once", Run(engine_batch=64))
    by_turn = metrics["turns"]["answer"]
    assert list(by_turn) == ["1", "2", "3", "4"]
    assert list(by_turn.values()) == sorted(by_turn.values())
    assert by_turn["1"] == once["all"]["answer_pass@1"], "the first turn is the completion"
    assert by_turn["4"] == metrics["all"]["answer_pass@1"]
    assert "turns" not in once
    table = pq.read_table(tmp_path / "more" / "samples.parquet").to_pylist()
    assert metrics["turns"]["mean"] == pytest.approx(
        sum(one["kind"] == "action" for row in table for one in row["segments"]) / len(table)
    )
    apart = spec.model_copy(update={"episode": RetryEpisode(max_turns=4, feedback="?", window=2)})
    windowed = sampling.evaluate_model(apart, given, tmp_path / "window", Run(engine_batch=64))
    assert windowed["n_samples"] == 8
    assert windowed["turns"]["answer"]["1"] == by_turn["1"]
