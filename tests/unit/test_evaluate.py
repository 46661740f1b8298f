"""Evaluation: its arithmetic on hand-worked samples, its judgement of gold and spoilt solutions, and its shards under SIGKILL."""

import itertools
import json
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import world
from forked import Script

from interplay.core.artifact import write_json
from interplay.core.execution import Run
from interplay.data import sets, tokenizer
from interplay.evaluate import sampling
from interplay.evaluate.scores import Samples, answer_prior, powers_of_two, summarise
from interplay.evaluate.spec import EvaluateSpec
from interplay.optim import distributed
from interplay.report.inspect.stage_view import show_rollouts
from interplay.rollout.request import Rollouts
from interplay.tasks.verdict import Row

# --- arithmetic ---


def row(op: int, mode: str, answer: str, band: str = "b") -> Row:
    texts = {"prompt": "", "solution": "", "answer": answer, "graph": "", "key": "", "family": "op_dag", "origin": ""}
    return Row(set=0, index=0, band=band, op=op, mode=mode, **texts)


def samples_of(strict: list[list[int]], answer: list[list[int]]) -> Samples:
    passes = np.array(strict, dtype=bool)
    score = np.where(passes, 1.0, 0.25).astype(np.float32)
    rest = ~passes, np.full(passes.shape, 10), np.where(passes, "none", "value")
    return Samples(passes, np.array(answer, dtype=bool), score, *rest)


def test_k_runs_over_the_powers_of_two_up_to_n() -> None:
    assert (powers_of_two(1), powers_of_two(6), powers_of_two(32)) == ([1], [1, 2, 4], [1, 2, 4, 8, 16, 32])


def test_pass_at_k_of_each_cell_is_the_mean_over_its_problems() -> None:
    rows = [row(2, "forward", "1"), row(2, "forward", "2"), row(10, "reverse", "1", band="hard")]
    got = summarise(rows, samples_of([[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]], [[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 1]]))
    assert (got["n_prompts"], got["n_samples"], got["op"]["2"]["n"]) == (3, 4, 2)
    assert got["op"]["2"]["strict_pass@1"] == pytest.approx((1 / 4 + 2 / 4) / 2)
    # One right of four: half of all pairs hold it. Two of four: one pair of six misses both.
    assert got["op"]["2"]["strict_pass@2"] == pytest.approx((1 / 2 + 5 / 6) / 2)
    assert got["band"]["hard"]["strict_pass@4"] == 0
    assert got["mode"]["reverse"]["answer_pass@4"] == 1
    assert got["all"]["strict_pass@1"] == pytest.approx(3 / 12)
    assert list(got["op"]) == ["2", "10"]


def test_pass_at_k_is_the_share_of_all_choices_of_k_samples_that_hold_a_pass() -> None:
    passes = [[1, 0, 0, 1, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 0]]
    got = summarise([row(1, "forward", "1")] * 4, samples_of(passes, passes))["all"]
    for k in (1, 2, 4):
        choices = [np.mean([any(choice) for choice in itertools.combinations(p, k)]) for p in passes]
        assert got[f"strict_pass@{k}"] == pytest.approx(np.mean(choices))


def test_the_answer_prior_guesses_from_the_other_problems_of_the_same_op_and_mode() -> None:
    rows = [row(2, "forward", a) for a in "1123"] + [row(2, "reverse", "1"), row(3, "forward", "1")]
    assert answer_prior(rows).tolist() == pytest.approx([1 / 3, 1 / 3, 0, 0, 0, 0])
    got = summarise(rows, samples_of([[0, 0]] * 6, [[0, 0]] * 6))["all"]
    assert got["prior_pass@1"] == pytest.approx(2 / 3 / 6)
    assert got["prior_pass@2"] == pytest.approx(2 * (1 - (2 / 3) ** 2) / 6)


def test_error_truncation_and_length_are_means_over_samples() -> None:
    got = summarise([row(1, "forward", "1")], samples_of([[1, 0, 0, 0]], [[1, 0, 0, 0]]))["all"]
    assert (got["errors"], got["truncated"], got["length"]) == ({"none": 0.25, "value": 0.75}, 0.75, 10)


# --- the stage ---


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = tmp_path_factory.mktemp("results")
    return {"model": world.model(results, "m" * 12), "data": world.problem_set(results, "d" * 12, 41, split="test")}


SPEC = EvaluateSpec(num_samples=4, max_completion_length=10, seed=5)
HOW = Run(engine_batch=4)
"""One problem's samples decode side by side: 41 problems in 11 shards of 4."""


def test_gold_solutions_pass_and_spoilt_ones_fail_and_each_lands_in_its_problems_row(inputs: dict[str, Path]) -> None:
    pool, text = sets.load_pool([inputs["data"]]), tokenizer.load(inputs["model"])
    ids = [3, 17, 40]
    gold = [pool.rows[i].solution for i in ids]
    encoded = [[*text.encode(written).ids, 1] for solution in gold for written in (solution, solution[:-1] + "_")]
    width = max(map(len, encoded))
    rollouts = Rollouts(
        request=torch.tensor([0, 0, 1, 1, 2, 2]),
        sample=torch.tensor([0, 1] * 3),
        tokens=torch.tensor([tokens + [0] * (width - len(tokens)) for tokens in encoded]),
        lengths=torch.tensor([len(tokens) for tokens in encoded]),
        logprobs=torch.zeros(6, width),
        truncated=torch.zeros(6, dtype=torch.bool),
    )
    table = sampling.completion_rows(SPEC, pool, ids, rollouts, text).to_pylist()
    assert [r["strict"] for r in table] == [True, False] * 3
    assert [r["index"] for r in table] == [pool.rows[i].index for i in ids for _ in range(2)]
    assert [r["op"] for r in table] == [pool.rows[i].op for i in ids for _ in range(2)]
    assert [r["completion"] for r in table[::2]] == gold
    assert {r["error"] for r in table[::2]} == {"none"}


def test_every_problem_has_its_samples_in_order_and_the_metrics_follow_from_them(inputs: dict[str, Path], tmp_path: Path) -> None:
    metrics = sampling.evaluate_model(SPEC, inputs, tmp_path, HOW)
    table = pq.read_table(tmp_path / "samples.parquet")
    problems = pq.read_table(inputs["data"] / "problems.parquet")
    assert table["index"].to_pylist() == [i for i in problems["index"].to_pylist() for _ in range(4)]
    assert table["sample"].to_pylist() == [0, 1, 2, 3] * 41
    assert (metrics["n_prompts"], metrics["n_samples"]) == (41, 4)
    assert sum(cell["n"] for cell in metrics["op"].values()) == 41
    assert metrics["all"]["answer_pass@1"] == pytest.approx(np.mean(table["answer"].to_pylist()))
    assert metrics["all"]["truncated"] == pytest.approx(np.mean(table["truncated"].to_pylist()))
    assert len(set(table["completion"].to_pylist())) > 100, "samples of one prompt, or prompts, share their noise"


def test_tokens_and_log_probabilities_of_samples_are_kept_where_asked(inputs: dict[str, Path], tmp_path: Path) -> None:
    for name, spec in (("plain", SPEC), ("tokens", SPEC.model_copy(update={"keep_tokens": True}))):
        sampling.evaluate_model(spec, inputs, tmp_path / name, HOW)
    kept = pq.read_table(tmp_path / "tokens/samples.parquet")
    assert kept.drop(["segments"]).equals(pq.read_table(tmp_path / "plain/samples.parquet"))
    for row in kept.to_pylist():
        (one,) = row["segments"]
        assert (one["text"], one["answer"]) == (row["completion"], row["answer"])
        assert len(one["tokens"]) == len(one["logprobs"]) == row["length"]


def test_samples_do_not_depend_on_which_other_problems_are_evaluated(inputs: dict[str, Path], tmp_path: Path) -> None:
    sampling.evaluate_model(SPEC, inputs, tmp_path / "all", HOW)
    few = tmp_path / "results" / "problems" / "few"
    few.mkdir(parents=True)
    pq.write_table(pq.read_table(inputs["data"] / "problems.parquet").slice(11, 5), few / "problems.parquet")
    (few / "stage.json").write_bytes((inputs["data"] / "stage.json").read_bytes())
    sampling.evaluate_model(SPEC, {**inputs, "data": few}, tmp_path / "few", HOW)
    every, some = (pq.read_table(tmp_path / name / "samples.parquet")["completion"].to_pylist() for name in ("all", "few"))
    same = np.mean([a == b for a, b in zip(every[44:64], some, strict=True)])
    assert same >= 0.95  # another batch may round a tie the other way, but the noise is each problem's own


def test_blocks_of_samples_together_are_what_one_stage_of_all_of_them_gives(inputs: dict[str, Path], tmp_path: Path) -> None:
    shapes = {"whole": (0, 64), "first": (0, 32), "second": (32, 32)}
    for name, (first, count) in shapes.items():
        spec = SPEC.model_copy(update={"num_samples": count, "first_sample": first})
        sampling.evaluate_model(spec, inputs, tmp_path / name, Run(engine_batch=64))
    tables = {name: pq.read_table(tmp_path / name / "samples.parquet").to_pylist() for name in shapes}
    blocks = {(row["index"], row["sample"]): row for row in [*tables["first"], *tables["second"]]}
    assert len(blocks) == len(tables["whole"]) == 41 * 64
    assert [blocks[row["index"], row["sample"]] for row in tables["whole"]] == tables["whole"]


def test_another_seed_gives_other_samples(inputs: dict[str, Path], tmp_path: Path) -> None:
    sampling.evaluate_model(SPEC, inputs, tmp_path / "a", HOW)
    sampling.evaluate_model(SPEC.model_copy(update={"seed": 6}), inputs, tmp_path / "b", HOW)
    assert (tmp_path / "a" / "samples.parquet").read_bytes() != (tmp_path / "b" / "samples.parquet").read_bytes()


RUNNER = """
import json, sys
from pathlib import Path
from interplay.evaluate import sampling
from interplay.evaluate.spec import EvaluateSpec
from interplay.core.execution import Run
spec, inputs, out, how = (json.loads(a) for a in sys.argv[1:])
print(json.dumps(sampling.evaluate_model(EvaluateSpec(**spec), {k: Path(v) for k, v in inputs.items()}, Path(out), Run(**how))))
"""


def test_a_killed_evaluation_goes_on_from_its_shards_to_the_same_bytes(inputs: dict[str, Path], tmp_path: Path) -> None:
    spec = SPEC.model_copy(update={"max_completion_length": 60})
    expected = sampling.evaluate_model(spec, inputs, tmp_path / "whole", HOW)
    out = tmp_path / "killed"
    arguments: list[Any] = [spec.model_dump(), {role: str(path) for role, path in inputs.items()}, str(out), HOW.model_dump()]
    process = Script(RUNNER, *map(json.dumps, arguments))
    while process.poll() is None and len(list(out.glob("resume/shards/*.parquet"))) < 2:
        time.sleep(0.002)
    assert process.kill() == -signal.SIGKILL
    first = sorted(out.glob("resume/shards/*.parquet"))
    stamps = {file: file.stat().st_mtime_ns for file in first}
    assert 2 <= len(first) < 11
    again = Script(RUNNER, *map(json.dumps, arguments))
    assert again.wait() == 0, again.errors.read_text()
    assert json.loads(again.output.read_text()) == expected
    assert (out / "samples.parquet").read_bytes() == (tmp_path / "whole" / "samples.parquet").read_bytes()
    assert {file: file.stat().st_mtime_ns for file in first} == stamps, "a finished shard was done again"


def test_the_last_progress_line_shows_the_mean_over_all_samples_those_of_an_earlier_attempt_too(
    inputs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sampling.evaluate_model(SPEC, inputs, tmp_path / "first", HOW)
    earlier, kept = pq.read_table(tmp_path / "first" / "samples.parquet").slice(0, 80), tmp_path / "resume" / "shards"
    right = pa.array([True] * 60 + [False] * 20)
    distributed.write_shard(kept, range(20), earlier.set_column(earlier.column_names.index("strict"), "strict", right))
    capsys.readouterr()
    metrics = sampling.evaluate_model(SPEC, inputs, tmp_path, HOW)
    last = capsys.readouterr().err.splitlines()[-1]
    assert metrics["all"]["strict_pass@1"] > 0.3
    assert f" strict {metrics['all']['strict_pass@1']:.4g} " in last


def test_samples_are_shown_with_their_problem(inputs: dict[str, Path], tmp_path: Path) -> None:
    out = inputs["data"].parent.parent / "evaluate" / ("e" * 12)
    out.mkdir(parents=True)
    sampling.evaluate_model(SPEC, inputs, out, HOW)
    write_json(out / "stage.json", {"deps": {"model": "m" * 12, "data": "d" * 12}})
    text = show_rollouts(out, failed=True, limit=4)
    first = sets.load_pool([inputs["data"]]).rows[0]
    assert text.count("problem ") == 4
    assert f"  prompt {first.prompt}\n" in text
    assert f"  gold   {first.solution}\n" in text
