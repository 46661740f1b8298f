"""The whole loop on an untrained toy model: it learns what it is paid for, records what it did, and survives SIGKILL bit by
bit."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import world
from killed_rl import payload, run_killed
from logged_cases import unknown

from interplay.core.artifact import read_json, write_json
from interplay.core.execution import Run
from interplay.core.metrics import read
from interplay.core.model import UserError
from interplay.data import sets, tokenizer
from interplay.model import folder
from interplay.model.trainer_spec import TuneOptimizer
from interplay.report.inspect.stage_view import show_rollouts
from interplay.rl import loop
from interplay.rl.edit_spec import DynamicSampling
from interplay.rl.loss_spec import ClippedLoss
from interplay.rl.request_spec import FixedAllocation
from interplay.rl.reward_spec import OwnReward
from interplay.rl.spec import Method, RLSpec

REWARDS = """
def commas(problems, completions, verdicts, character=","):
    return [c.count(character) / max(len(c), 1) for c in completions]

def half(problems, completions, verdicts):
    return [float(p.index % 2 == 0 and c[:1] < "5") for p, c in zip(problems, completions)]

def never(problems, completions, verdicts):
    return [0.0] * len(completions)
"""


def spec_of(function: str = "commas", steps: int = 6, method: dict[str, Any] | None = None, **more: Any) -> RLSpec:
    values: dict[str, Any] = {
        "method": Method(paper="test", allocation=FixedAllocation(num_generations=4), **(method or {})),
        "reward": OwnReward(function=f"mine.py:{function}", source=REWARDS),
        "mix": [0.75, 0.25],
        "steps": steps,
        "prompts_per_step": 8,
        "max_completion_length": 12,
        "optimizer": TuneOptimizer(learning_rate=5e-3),
        "keep_rollouts": 5,
    }
    return RLSpec(**{**values, **more})


HOW = Run(engine_batch=32, micro_batch_tokens=400, save_minutes=0.0)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = tmp_path_factory.mktemp("results")
    return {
        "init": world.model(results, "m" * 12),
        "data.0": world.problem_set(results, "a" * 12, 30),
        "data.1": world.problem_set(results, "b" * 12, 7, seed=1),
    }


def test_the_policy_learns_what_it_is_paid_for(inputs: dict[str, Path], tmp_path: Path) -> None:
    record = loop.train_policy(spec_of(steps=20), inputs, tmp_path, HOW)
    assert not unknown("rl", spec_of(), tmp_path)
    lines = read(tmp_path)
    assert [line["step"] for line in lines] == list(range(1, 21))
    assert record["reward_last"] > 3 * record["reward_first"]
    assert record["optimizer_steps"] == 20
    assert record["completions"] == 20 * 8 * 4
    assert lines[-1]["entropy"] < lines[0]["entropy"]
    assert all(abs(line["kl_old"]) < 1e-6 for line in lines), "engine and training disagree on log-probabilities"
    folder.load_decoder(tmp_path / "model")


def test_records_show_what_was_sampled_and_how_often_each_prompt_passed(inputs: dict[str, Path], tmp_path: Path) -> None:
    loop.train_policy(spec_of(steps=4), inputs, tmp_path, HOW)
    rollouts = pq.read_table(tmp_path / "rollouts.parquet").to_pylist()
    assert [row["step"] for row in rollouts] == [step for step in range(1, 5) for _ in range(5)]
    for row in rollouts:
        text = row["completion"]
        assert row["reward"] == pytest.approx(text.count(",") / max(len(text), 1))
        assert row["length"] == 12 if row["truncated"] else row["length"] <= 12
        assert row["prompt"].endswith("|")
    history = pq.read_table(tmp_path / "history.parquet").to_pylist()
    assert len(history) == 4 * 8
    assert {row["n"] for row in history} == {4}
    assert sum(row["set"] == 0 for row in history) == 24  # three quarters of the prompts
    assert sum(row["passes"] for row in history) == sum(round(line["strict"] * 32) for line in read(tmp_path))


def test_tokens_and_log_probabilities_are_kept_where_asked(inputs: dict[str, Path], tmp_path: Path) -> None:
    for name, asked in (("plain", False), ("tokens", True)):
        loop.train_policy(spec_of(steps=2, keep_tokens=asked), inputs, tmp_path / name, HOW)
    plain, kept = (pq.read_table(tmp_path / name / "rollouts.parquet") for name in ("plain", "tokens"))
    assert kept.drop(["segments"]).equals(plain)
    decode = tokenizer.load(inputs["init"]).decode
    for row in kept.to_pylist():
        context, action = row["segments"]
        assert (context["kind"], decode(context["tokens"]), context["text"]) == ("context", row["prompt"], row["prompt"])
        assert (action["kind"], decode(action["tokens"]), action["text"]) == ("action", row["completion"], row["completion"])
        assert len(action["tokens"]) == len(action["logprobs"]) == row["length"]
        assert all(value <= 0 for value in action["logprobs"])
        assert action["reward"] == row["reward"]


def test_the_same_run_twice_gives_the_same_bytes_and_another_seed_does_not(inputs: dict[str, Path], tmp_path: Path) -> None:
    for name, seed in (("one", 0), ("two", 0), ("three", 1)):
        loop.train_policy(spec_of(steps=3, seed=seed), inputs, tmp_path / name, HOW)
    assert payload(tmp_path / "one") == payload(tmp_path / "two")
    assert payload(tmp_path / "one")["model/model.safetensors"] != payload(tmp_path / "three")["model/model.safetensors"]


def test_without_a_reward_the_model_does_not_move(inputs: dict[str, Path], tmp_path: Path) -> None:
    spec = spec_of("never", steps=2, method={"loss": ClippedLoss(beta=0.1)})
    record = loop.train_policy(spec, inputs, tmp_path, HOW)
    assert not unknown("rl", spec, tmp_path)
    before = (inputs["init"] / "model" / "model.safetensors").read_bytes()
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == before
    assert (record["steps"], record["optimizer_steps"]) == (2, 0)
    assert [line["reward"] for line in read(tmp_path)] == [0, 0]  # verdicts may be right: `frac_all_fail` counts those
    assert [line["effective_ratio"] for line in read(tmp_path)] == [0, 0]


def test_learning_rate_zero_leaves_the_model_as_it_was(inputs: dict[str, Path], tmp_path: Path) -> None:
    still = TuneOptimizer(learning_rate=0.0)
    loop.train_policy(spec_of(steps=2, optimizer=still), inputs, tmp_path, HOW)
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == (
        inputs["init"] / "model" / "model.safetensors"
    ).read_bytes()


def test_a_prompt_above_the_limit_stops_the_run_before_its_first_step(inputs: dict[str, Path], tmp_path: Path) -> None:
    pool = sets.load_pool([inputs["data.0"], inputs["data.1"]])
    longest = max(len(row.prompt) for row in pool.rows)  # one token a character
    loop.train_policy(spec_of(steps=1, max_prompt_length=longest), inputs, tmp_path / "within", HOW)
    with pytest.raises(UserError, match=f"max_prompt_length = {longest - 1}: the longest prompt has {longest} tokens"):
        loop.train_policy(spec_of(steps=1, max_prompt_length=longest - 1), inputs, tmp_path / "above", HOW)
    assert not (tmp_path / "above/metrics.jsonl").exists()


def test_dynamic_sampling_draws_again_and_counts_what_it_drew(inputs: dict[str, Path], tmp_path: Path) -> None:
    method = {"edits": [DynamicSampling(max_num_gen_batches=3)]}
    loop.train_policy(spec_of("never", steps=1, method=method), inputs, tmp_path / "never", HOW)
    assert read(tmp_path / "never")[0]["groups"] == 3 * 8
    loop.train_policy(spec_of("half", steps=1, method=method), inputs, tmp_path / "half", HOW)
    (line,) = read(tmp_path / "half")
    learnt_from = round(line["effective_ratio"] * line["completions"])
    assert line["completions"] > 32 >= learnt_from > 0
    assert learnt_from % 4 == 0, "of a kept group every row has an advantage, of a dropped one none"


def test_several_updates_per_batch_with_a_reference_report_their_clip_fraction_and_kl(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    method = {"loss": ClippedLoss(num_iterations=2, beta=0.02, entropy_coef=0.001)}
    record = loop.train_policy(spec_of(steps=3, method=method, minibatches=2), inputs, tmp_path, HOW)
    lines = read(tmp_path)
    assert record["optimizer_steps"] == 12
    assert lines[-1]["kl"] > lines[0]["kl"] > 0
    assert max(line["clip_fraction"] for line in lines) > 0


def test_a_run_killed_again_and_again_ends_with_the_bytes_of_one_that_was_not(inputs: dict[str, Path], tmp_path: Path) -> None:
    spec = spec_of(steps=30, method={"loss": ClippedLoss(num_iterations=2), "edits": [DynamicSampling()]}, minibatches=2)
    loop.train_policy(spec, inputs, tmp_path / "whole", HOW)
    out = tmp_path / "killed"
    run_killed(spec, inputs, out, HOW, [(2, 0.0), (7, 0.03), (12, 0.08)])
    assert payload(out) == payload(tmp_path / "whole")


def test_rollouts_are_shown_with_their_judgement_and_the_gold_solution(inputs: dict[str, Path], tmp_path: Path) -> None:
    loop.train_policy(spec_of(steps=2), inputs, tmp_path, HOW)
    results = inputs["data.0"].parent.parent
    out = results / "rl" / ("c" * 12)
    out.mkdir(parents=True)
    (tmp_path / "rollouts.parquet").rename(out / "rollouts.parquet")
    write_json(out / "stage.json", {"deps": {"init": "m" * 12, "data.0": "a" * 12, "data.1": "b" * 12}})
    text = show_rollouts(out, failed=True, limit=3)
    last = pq.read_table(out / "rollouts.parquet").to_pylist()[-1]
    gold = pq.read_table(inputs[f"data.{last['set']}"] / "problems.parquet").to_pylist()
    solution = next(row["solution"] for row in gold if row["index"] == last["index"])
    assert text.count("problem ") == 3
    assert last["prompt"] in text
    assert solution in text
    assert show_rollouts(out, failed=False, limit=3).startswith("none of ")
    (out / "rollouts.parquet").unlink()
    with pytest.raises(UserError, match=r"no rollouts\.parquet or samples\.parquet"):
        show_rollouts(out, failed=None, limit=1)


def test_a_long_run_tells_what_share_of_the_machine_its_updates_used(
    inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop.train_policy(spec_of(steps=1), inputs, tmp_path / "short", HOW)
    assert "update_mfu" not in read_json(tmp_path / "short/telemetry.json")
    monkeypatch.setattr(loop, "LONG", 0.0)
    loop.train_policy(spec_of(steps=1), inputs, tmp_path / "long", HOW)
    told = read_json(tmp_path / "long/telemetry.json")
    assert 0 < told["update_mfu"] < 1
    assert told["completion_tokens_per_second"] > 0
