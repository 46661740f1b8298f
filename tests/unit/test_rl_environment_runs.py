"""Whole runs in a text environment: a model that was taught the form of a turn uses the tool, learns, and is evaluated by turn."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import test_rl_loop as loops
import torch
import turn_cases as cases
import world

from interplay.core.artifact import write_json
from interplay.core.digest import canonical
from interplay.core.execution import Run
from interplay.core.metrics import read
from interplay.core.model import UserError
from interplay.data import corpus, problems, sets, tokenizer
from interplay.data.spec import ProblemsSpec, TokenizerSpec
from interplay.evaluate import sampling
from interplay.evaluate.spec import EvaluateSpec
from interplay.model import folder, heads
from interplay.results.check import contradictions
from interplay.rl import loop
from interplay.rl.advantage_spec import Advantage, GainAdvantage, GroupAdvantage
from interplay.rl.reward_spec import OutcomeReward
from interplay.rl.spec import Method, RLSpec
from interplay.rollout.spec import EnvironmentEpisode
from interplay.tasks.environments.spec import Calculator
from interplay.tasks.transcripts import policy_turns
from interplay.train import lm


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results, task = tmp_path_factory.mktemp("results"), Calculator(largest=4, operators="+")
    out, init = results / "problems" / ("a" * 12), results / "pretrain" / ("m" * 12)
    spec = ProblemsSpec(task=task, bands={"b": {1: 1.0}}, shares={"b": 1.0}, size=25, split="train", unique=False)
    problems.generate_problems(spec, {}, out, Run())
    write_json(out / "stage.json", {"kind": "problems", "digest": "a" * 12, "spec": canonical(spec), "deps": {}})
    tokenizer.build_tokenizer(TokenizerSpec(task=task, algorithm="words"), {}, init, Run())
    decoder = folder.init_decoder(world.SHAPE, tokenizer.load(init).get_vocab_size(), 0)
    cases.teach(decoder, corpus.encode_problems(out, init), 60)
    folder.save_decoder(decoder, init / "model", init / "tokenizer")
    return {"init": init, "data.0": out}


def spec_of(advantage: Advantage, steps: int = 6, window: int | None = None) -> RLSpec:
    episode = EnvironmentEpisode(max_turns=3, window=window)
    method = Method(paper="test", episode=episode, advantage=advantage, allocation=loops.FixedAllocation(num_generations=6))
    rate = loops.TuneOptimizer(learning_rate=3e-3)
    given = {"reward": OutcomeReward(), "mix": [1.0], "prompts_per_step": 4, "max_completion_length": 10, "optimizer": rate}
    return RLSpec(method=method, steps=steps, **given)


@pytest.mark.parametrize(
    ("advantage", "window"),
    [(GroupAdvantage(), None), (GroupAdvantage(), 1), (GainAdvantage(template="\\boxed{{answer}}"), None)],
)
def test_a_taught_model_uses_the_tool_and_learns_with_it(
    inputs: dict[str, Path], tmp_path: Path, advantage: Advantage, window: int | None
) -> None:
    loop.train_policy(spec_of(advantage, window=window), inputs, tmp_path, loops.HOW)
    lines = read(tmp_path)
    assert all(abs(line["kl_old"]) < 1e-6 for line in lines), "what is learnt is not what was sampled from"
    assert all(line["completions"] == 24 for line in lines), "an episode counts once"
    assert max(line["turns"] for line in lines) > 1.2
    assert sum(line["optimizer_steps"] for line in lines) > 0
    history = pq.read_table(tmp_path / "history.parquet").to_pylist()
    assert {row["n"] for row in history} == {6}
    rows = pq.read_table(tmp_path / "rollouts.parquet").to_pylist()
    used = [one for row in rows for one in row["segments"] if one["tool"] == "calc"]
    assert {one["kind"] for one in used} == {"action", "observation"}
    assert all("calc(" in one["text"] for one in used if one["kind"] == "action")


def test_an_evaluation_in_the_environment_counts_answers_by_turn(inputs: dict[str, Path], tmp_path: Path) -> None:
    spec = EvaluateSpec(num_samples=4, max_completion_length=10, episode=EnvironmentEpisode(max_turns=3))
    metrics = sampling.evaluate_model(spec, {"model": inputs["init"], "data": inputs["data.0"]}, tmp_path, Run(engine_batch=64))
    turns = metrics["turns"]
    assert turns["answer"]["3"] == pytest.approx(metrics["all"]["answer_pass@1"])
    assert turns["answer"]["1"] <= turns["answer"]["2"]
    assert turns["mean"] > 1.2
    record = {"kind": "evaluate", "spec": spec.model_dump(mode="json"), "metrics": metrics, "deps": {}, "files": {}}
    write_json(tmp_path / "record.json", record)
    given = {"data": inputs["data.0"]}
    assert list(contradictions(tmp_path, given)) == []
    table = pq.read_table(tmp_path / "samples.parquet")
    rows = table["segments"].to_pylist()
    errors = table["error"].to_pylist()
    row = next(i for i, one in enumerate(rows) if len(one) > 1 and errors[i] != "truncated")
    rows[row][1]["text"] = "5\n5"
    altered = table.set_column(table.column_names.index("segments"), "segments", pa.array(rows, table["segments"].type))
    pq.write_table(altered, tmp_path / "samples.parquet")
    assert any(f"row {row}, column error is" in one and "'made_up'" in one for one in contradictions(tmp_path, given))
    with pytest.raises(UserError, match="are transcripts, which have no single likelihood; write false"):
        sampling.evaluate_model(
            spec.model_copy(update={"nll": True}),
            {"model": inputs["init"], "data": inputs["data.0"]},
            tmp_path / "nll",
            Run(engine_batch=64),
        )


def test_transcripts_are_validated_by_their_turns(inputs: dict[str, Path]) -> None:
    held_out = lm.load_validation(inputs["data.0"], inputs["init"], 64)
    turns = [len(policy_turns(text)) for text in sets.read_table(inputs["data.0"], ["solution"])["solution"].to_pylist()]
    assert len(held_out.band_of) == len(held_out.encoded.lengths) == sum(turns) > len(turns)
    decoder = heads.load_model(inputs["init"], torch.device("cpu"))
    losses = lm.loss_by_band(decoder, held_out, 4096, torch.float32, torch.device("cpu"))
    assert set(losses) == set(held_out.bands)
    assert all(0 < loss < 10 for loss in losses.values())
