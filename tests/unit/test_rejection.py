"""Rejection sampling: a row's solution becomes a right sample of its own, by number of the sample, and what has none is dropped."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import examples
from hypothesis import given, strategies as st
from op_dag_cases import cases
from pydantic import ValidationError
from reform_cases import TASK, row

from interplay.core.artifact import write_json
from interplay.core.execution import Run
from interplay.core.model import PermanentError
from interplay.data import corpus, curate, sets, tokenizer
from interplay.data.curate import StepInputs
from interplay.data.spec import TokenizerSpec
from interplay.data.steps.filter import rejection_sampling
from interplay.data.steps.spec import CurateSpec, RejectionSampling
from interplay.tasks.op_dag.dag import Node, Problem
from interplay.tasks.op_dag.terse import render
from interplay.tasks.op_dag.terse_prompts import OP_DAG
from interplay.tasks.op_dag.terse_verifier import verify
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import UNFINISHED, Row

# cb*2 over bd+a, a1, d3, modulo 23.
NODES = (Node("a", "", (), 1), Node("d", "", (), 3), Node("b", "+", (1, 0), None), Node("c", "*", (2,), 2))
PROBLEM = Problem("forward", 23, NODES, 4, (1, 3, 4, 8), (0,) * 4, (0, 1, 2, 3), (0,) * 5)
GOLD = "cb*2,bd+a,d3,a1|a1,d3,b3+1=4,c4*2=8#8"
SWAPPED = "cb*2,bd+a,d3,a1|d3,a1,b3+1=4,c4*2=8#8"
"""As right as the gold, in another order."""
BY_LUCK = "cb*2,bd+a,d4,a1|a1,d4,b4+1=4,c4*2=8#8"
"""The right answer by a wrong way: a wrong leaf, and a wrong sum that makes up for it."""
WRONG = "cb*2,bd+a,d3,a1|a1,d3,b3+1=5,c5*2=10#10"


def source(index: int = 0) -> Row:
    made, base = render(PROBLEM, TASK), row(TASK, 4, index, index)
    columns = {"prompt": made.prompt, "solution": made.solution, "answer": made.answer, "graph": OP_DAG.dumps(PROBLEM)}
    return base.__class__(**{name: getattr(base, name) for name in base.__slots__} | columns)


def evaluation(folder: Path, completions: dict[int, list[str]], cut: tuple[tuple[int, int], ...] = ()) -> Path:
    """Samples by row, judged by the verifier itself; `cut` names those that reached the length limit. The last sample stands
    first in the file."""
    entries = []
    for index, texts in completions.items():
        for number, text in enumerate(texts):
            verdict = verify(PROBLEM, text, Verify())
            columns = {"strict": verdict.strict, "answer": verdict.answer, "truncated": (index, number) in cut}
            entries.append({"index": index, "sample": number, "completion": text, **columns})
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(entries[::-1]), folder / "samples.parquet")
    return folder


def step(folder: Path, spec: RejectionSampling, *completions: list[str], cut: tuple[tuple[int, int], ...] = ()) -> Any:
    rows = [source(index) for index in range(len(completions))]
    inputs = StepInputs(0, {"data.0": folder, "samples.0.0.0": evaluation(folder, dict(enumerate(completions)), cut)}, 0)
    return rejection_sampling(spec, rows, inputs)


def test_the_examples_are_right_and_wrong_as_they_are_called() -> None:
    judged = {text: verify(PROBLEM, text, Verify()) for text in (GOLD, SWAPPED, BY_LUCK, WRONG)}
    assert [(one.strict, one.answer) for one in judged.values()] == [(True, True), (True, True), (False, True), (False, False)]


def test_the_first_right_sample_takes_the_place_of_the_gold_and_rows_without_one_go(tmp_path: Path) -> None:
    made = step(tmp_path, RejectionSampling(), [WRONG, SWAPPED, GOLD], [WRONG, WRONG, WRONG])
    assert [(one.index, one.solution) for one in made.rows] == [(0, SWAPPED)]
    gold, (kept,) = source(), made.rows
    assert kept.transforms == ("rejection_sampling",)
    assert (kept.prompt, kept.answer, kept.graph, kept.key, kept.origin, kept.mode) == (
        gold.prompt, gold.answer, gold.graph, gold.key, gold.origin, gold.mode,
    )  # fmt: skip
    assert made.counts == {"right_samples": 2, "never_right": 1, "only_truncated": 0, "further": 0}


@pytest.mark.parametrize(("by", "kept"), [("strict", SWAPPED), ("answer", BY_LUCK)])
def test_a_right_answer_by_a_wrong_way_is_taken_by_answer_and_not_by_process(by: str, kept: str, tmp_path: Path) -> None:
    spec = RejectionSampling.model_validate({"by": by})
    assert [one.solution for one in step(tmp_path, spec, [BY_LUCK, SWAPPED]).rows] == [kept]
    lucky_only = step(tmp_path / "alone", spec, [BY_LUCK, WRONG], [GOLD])
    assert [one.index for one in lucky_only.rows] == ([1] if by == "strict" else [0, 1])


def test_more_per_prompt_makes_further_rows_with_different_texts(tmp_path: Path) -> None:
    made = step(tmp_path, RejectionSampling(per_prompt=3), [SWAPPED, SWAPPED, GOLD, WRONG], [GOLD, GOLD])
    assert [(one.index, one.solution) for one in made.rows] == [(0, SWAPPED), (0, GOLD), (1, GOLD)]
    assert made.counts["further"] == 1
    assert len(step(tmp_path / "two", RejectionSampling(per_prompt=1), [SWAPPED, GOLD]).rows) == 1


def test_a_sample_that_was_cut_at_the_limit_is_not_taken(tmp_path: Path) -> None:
    made = step(tmp_path, RejectionSampling(), [SWAPPED, GOLD], [GOLD, WRONG], cut=((0, 0), (1, 0)))
    assert [(one.index, one.solution) for one in made.rows] == [(0, GOLD)]
    assert made.counts == {"right_samples": 3, "never_right": 0, "only_truncated": 1, "further": 0}


def test_a_row_without_samples_is_an_error_and_no_row_that_is_never_right(tmp_path: Path) -> None:
    inputs = StepInputs(0, {"data.0": tmp_path, "samples.0.0.0": evaluation(tmp_path, {0: [GOLD]})}, 0)
    with pytest.raises(PermanentError, match=r"row .*:1 has 0 samples"):
        rejection_sampling(RejectionSampling(), [source(0), source(1)], inputs)


@given(cases(), st.lists(st.integers(0, 10**6), min_size=1, max_size=4))
@examples(50)
def test_what_is_taken_by_process_is_strictly_right_whatever_was_sampled(case: tuple, cuts: list[int]) -> None:
    task, problem = case
    gold = render(problem, task).solution
    texts = [gold[: cut % (len(gold) + 1)] for cut in cuts]
    judged = [verify(problem, text, Verify()) for text in texts]
    rows = [row(TASK, 4, 0)]
    samples = [
        {"completion": text, "strict": one.strict, "answer": one.answer, "truncated": False}
        for text, one in zip(texts, judged, strict=True)
    ]
    inputs = StepInputs(0, {"data.0": Path("x")}, 0)
    inputs.__dict__["samples"] = {(0, 0): samples}
    made = rejection_sampling(RejectionSampling(per_prompt=9), rows, inputs)
    assert [one.solution for one in made.rows] == list(dict.fromkeys(text for text in texts if text == gold))


def test_the_stage_writes_finished_rows_that_end_in_an_end_token_and_says_what_it_dropped(tmp_path: Path) -> None:
    sets.write_table(sets.table_of_rows([source(0), source(1)]), tmp_path / ("a" * 12))
    write_json(tmp_path / ("a" * 12) / "stage.json", {"kind": "problems", "digest": "a" * 12, "deps": {}})
    inputs = {"data.0": tmp_path / ("a" * 12), "samples.0.0.0": evaluation(tmp_path / "e", {0: [SWAPPED], 1: [WRONG]})}
    spec = CurateSpec.model_validate({"mix": [1.0], "steps": [{"name": "rejection_sampling"}]})
    record = curate.curate_problems(spec, inputs, tmp_path / "out", Run())
    counts = {"right_samples": 1, "never_right": 1, "only_truncated": 0, "further": 0}
    assert record == {"mixed": 2, "size": 1, "steps": [{"step": "rejection_sampling", "given": 2, "left": 1, **counts}]}
    tokenizer.build_tokenizer(TokenizerSpec(task=TASK), {}, tmp_path / "tokenizer", Run())
    encoded = corpus.encode_problems(tmp_path / "out", tmp_path / "tokenizer")
    text = tokenizer.load(tmp_path / "tokenizer").decode(encoded.tokens.tolist())
    assert text == source().prompt + SWAPPED
    assert encoded.tokens[-1] == tokenizer.special(tmp_path / "tokenizer").eos


@pytest.mark.parametrize("after", ["intervention", "atoms", "subproblems", "rejection_sampling"])
def test_a_step_that_writes_from_the_gold_cannot_undo_it(after: str) -> None:
    with pytest.raises(ValidationError, match="which would undo rejection_sampling"):
        CurateSpec.model_validate({"mix": [1.0], "steps": [{"name": "rejection_sampling"}, {"name": after}]})


def test_it_cannot_follow_what_left_solutions_unfinished_or_spoilt() -> None:
    for before in ({"name": "intervention"}, {"name": "poison", "kind": "answer", "ratio": 0.5}):
        with pytest.raises(ValidationError):
            CurateSpec.model_validate({"mix": [1.0], "steps": [before, {"name": "rejection_sampling"}]})
    assert source().mode != UNFINISHED
