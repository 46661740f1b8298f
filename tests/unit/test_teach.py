"""Runs of teaching: what they leave, what they pay where nothing can be gained, and the same bytes after a kill."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
import world
from killed_stage import kill_once_saved
from logged_cases import unknown
from teach_cases import HOW, spec_of, writer

from interplay.core.digest import canonical
from interplay.core.metrics import read
from interplay.core.model import UserError
from interplay.data import sets, tokenizer
from interplay.kinds.stages import realised_cost
from interplay.model import folder
from interplay.model.trainer_spec import TuneOptimizer
from interplay.rl import proposals, teach
from interplay.rl.teach import ask, become, probe, trained, weights

STILL = TuneOptimizer(learning_rate=0.0)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = tmp_path_factory.mktemp("results")
    easy = world.problem_set(results, "e" * 12, 60, seed=3)
    return {"init": writer(results, "m" * 12, easy), "data.0": world.problem_set(results, "a" * 12, 20), "instances": easy}


def tensors(path: Path) -> dict[str, torch.Tensor]:
    return folder.load_decoder(path / "model").state_dict()


def same(one: Path, other: Path) -> bool:
    a, b = tensors(one), tensors(other)
    return all(torch.equal(a[name], b[name]) for name in a)


def test_a_run_leaves_a_student_lines_and_proposals(inputs: dict[str, Path], tmp_path: Path) -> None:
    spec = spec_of(steps=3, checkpoints=[2], promote_threshold=-1.0, keep_rollouts=5)
    record = teach.teach_student(spec, inputs, tmp_path, HOW)
    assert not unknown("teach", spec, tmp_path)
    lines = read(tmp_path)
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert all(0 < line["valid"] < 1 for line in lines), "the writer is good enough to be told apart"
    assert all(abs(line["valid"] + sum(v for k, v in line.items() if k.startswith("flaw/")) - 1) < 1e-6 for line in lines)
    assert all(abs(line["teacher/kl_old"]) < 1e-6 for line in lines), "engine and training disagree on log-probabilities"
    assert record["promoted"] == 3
    assert not same(tmp_path, inputs["init"])
    assert not same(tmp_path, tmp_path / "checkpoints/2")
    kept = pq.read_table(tmp_path / "proposals.parquet").to_pylist()
    assert [row["step"] for row in kept] == [step for step in (1, 2, 3) for _ in range(5)]
    assert all(row["text"].endswith("|") and row["op"] and row["answer"] for row in kept if not row["flaw"])
    # What its cost was made of: completions and proposals as counted, an update for each token learnt.
    cost = realised_cost({"kind": "teach", "spec": canonical(spec), "metrics": record}, 1000)
    assert (cost.tokens, cost.sampled) == (record["tokens"], record["completion_tokens"] + record["proposal_tokens"])
    assert cost.flops == 1000 * (6 * cost.tokens + 2 * cost.sampled)


def test_both_rewards_start_from_the_same_proposals_and_pay_otherwise(inputs: dict[str, Path], tmp_path: Path) -> None:
    teach.teach_student(spec_of(steps=2, keep_rollouts=16), inputs, tmp_path / "grounded", HOW)
    teach.teach_student(spec_of(steps=2, keep_rollouts=16, teacher_reward="intrinsic"), inputs, tmp_path / "intrinsic", HOW)
    first = {name: pq.read_table(tmp_path / name / "proposals.parquet").to_pylist()[:16] for name in ("grounded", "intrinsic")}
    assert [row["text"] for row in first["grounded"]] == [row["text"] for row in first["intrinsic"]]
    assert [row["reward"] for row in first["grounded"]] != [row["reward"] for row in first["intrinsic"]]
    one, other = read(tmp_path / "grounded")[0], read(tmp_path / "intrinsic")[0]
    assert one["probe_before"] == other["probe_before"]
    assert one["reward"] == pytest.approx(one["probe_after"] - one["probe_before"], abs=1e-6)
    assert 0 < other["reward"] <= 0.25
    assert one["prompt_tokens"] > 1.5 * other["prompt_tokens"], "the intrinsic reward trains one student"


def test_a_student_that_does_not_learn_earns_its_teacher_nothing(inputs: dict[str, Path], tmp_path: Path) -> None:
    # The noise before and after is the same, so the difference is exactly 0, and only validity moves the teacher.
    record = teach.teach_student(spec_of(optimizer=STILL, promote_threshold=0.001, invalid_penalty=0.0), inputs, tmp_path, HOW)
    for line in read(tmp_path):
        assert (line["reward"], line["reward_std"], line["teacher/optimizer_steps"]) == (0.0, 0.0, 0.0)
        assert line["optimizer_steps"] > 0
    assert record["promoted"] == 0
    assert same(tmp_path, inputs["init"])


def test_hard_problems_that_are_solved_already_pay_nothing(inputs: dict[str, Path], tmp_path: Path, monkeypatch: Any) -> None:
    def everything(school: Any, rows: list[Any], n: int, *words: Any) -> Any:
        return [n] * len(rows), n

    monkeypatch.setattr(teach, "ask", everything)
    record = teach.teach_student(spec_of(invalid_penalty=0.0), inputs, tmp_path, HOW)
    assert all((line["probe_before"], line["reward"], line["promoted"]) == (1.0, 0.0, 0.0) for line in read(tmp_path))
    assert record["promoted"] == 0
    assert same(tmp_path, inputs["init"])


def test_a_threshold_that_nobody_reaches_promotes_nobody(inputs: dict[str, Path], tmp_path: Path) -> None:
    teach.teach_student(spec_of(promote_threshold=1.0), inputs, tmp_path, HOW)
    assert all(line["probe_student"] == line["probe_before"] for line in read(tmp_path))
    assert same(tmp_path, inputs["init"])


def test_a_teacher_is_moved_by_its_own_rate_alone(inputs: dict[str, Path], tmp_path: Path) -> None:
    for name, rule in (("still", STILL), ("moved", TuneOptimizer(learning_rate=1e-2))):
        teach.teach_student(spec_of(steps=3, teacher_optimizer=rule), inputs, tmp_path / name, HOW)
    lines = {name: read(tmp_path / name) for name in ("still", "moved")}
    assert lines["still"][0]["valid"] == lines["moved"][0]["valid"]
    assert lines["still"][2]["teacher/entropy"] != lines["moved"][2]["teacher/entropy"]


def test_a_teacher_learns_to_write_problems_where_only_that_pays(inputs: dict[str, Path], tmp_path: Path) -> None:
    spec = spec_of(
        steps=12,
        optimizer=STILL,
        problems_per_dataset=32,
        inner_steps=1,
        prompts_per_step=1,
        probe_problems=1,
        invalid_penalty=1.0,
        teacher_optimizer=TuneOptimizer(learning_rate=3e-4),
    )
    teach.teach_student(spec, inputs, tmp_path, HOW)
    valid = [line["valid"] for line in read(tmp_path)]
    assert sum(valid[-3:]) / 3 > valid[0] + 0.15, "the first step's proposals are of a teacher without an update"


def test_instances_take_the_place_of_proposals(inputs: dict[str, Path], tmp_path: Path) -> None:
    record = teach.teach_student(spec_of(proposer="instances", keep_rollouts=16), inputs, tmp_path, HOW)
    assert (record["valid_first"], record["proposal_tokens"]) == (1.0, 0)
    known = {row.prompt for row in sets.read_rows(inputs["instances"], 0)}
    drawn = [row["text"] for row in pq.read_table(tmp_path / "proposals.parquet").to_pylist()]
    assert set(drawn) <= known
    assert len(set(drawn[:16])) == 16
    assert drawn[:16] != drawn[16:]
    assert not any(name.startswith("teacher/") for name in read(tmp_path)[0])


def test_problems_of_the_splits_for_tests_are_left_out() -> None:
    results = [proposals.read_proposals([f"a{i},ba+{j},cb-a?c|"], world.TASK)[0] for i in range(5) for j in range(5)]
    assert {one.flaw for one in results} == {"grammar"}, "the task has no minus"
    found = [
        proposals.read_proposals([f"a{i},ba+{j},cb+{k},db+c?d|"], world.TASK)[0]
        for i in range(5)
        for j in range(5)
        for k in range(5)
    ]
    held = [one for one in found if one.flaw == proposals.HELD_OUT]
    assert 0 < len(held) < 40
    assert all(one.row is None for one in held)
    assert all(one.row and one.row.answer for one in found if not one.flaw)


def test_equal_datasets_have_equal_students(inputs: dict[str, Path]) -> None:
    school = teach.assemble_course(spec_of(), inputs, HOW).school
    rows, start = sets.read_rows(inputs["instances"], 0)[:6], weights(school.student)
    ends = []
    for _ in range(2):
        become(school.student, start)
        trained(school, rows, 1, 1.0)
        ends.append(weights(school.student))
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in start)
    assert any(not torch.equal(ends[0][name], start[name]) for name in start)
    assert ask(school, rows, 2, "x", 1) == ask(school, rows, 2, "x", 1)


def test_other_steps_ask_other_hard_problems(inputs: dict[str, Path]) -> None:
    course = teach.assemble_course(spec_of(), inputs, HOW)
    asked = [[row.index for row in probe(course.school.spec, course.hard, step)] for step in (1, 2)]
    assert asked[0] != asked[1]
    assert all(len(set(one)) == 6 for one in asked)
    every = probe(spec_of(probe_problems=500), course.hard, 1)
    assert sorted(row.index for row in every) == sorted(row.index for row in course.hard.rows)


def test_a_tokenizer_without_a_token_for_the_end_is_refused(inputs: dict[str, Path]) -> None:
    merged = tokenizer.bpe_tokenizer(iter(["a3?|"] * 20), 300)
    with pytest.raises(UserError, match=r"no token of its own for '\|'"):
        proposals.end_token(merged, world.TASK)


STATE = "resume/state/state.json"
SCRIPT = """
import json, sys
from pathlib import Path
from teach_cases import HOW, spec_of
from interplay.rl import teach
teach.teach_student(spec_of(steps=6, checkpoints=[3]), {k: Path(v) for k, v in json.loads(sys.argv[2]).items()}, Path(sys.argv[1]), HOW)
"""


def test_a_killed_run_ends_with_the_same_bytes(inputs: dict[str, Path], tmp_path: Path) -> None:
    teach.teach_student(spec_of(steps=6, checkpoints=[3]), inputs, tmp_path / "whole", HOW)
    kill_once_saved(SCRIPT, tmp_path / "killed", [json.dumps({role: str(path) for role, path in inputs.items()})], STATE)
    teach.teach_student(spec_of(steps=6, checkpoints=[3]), inputs, tmp_path / "killed", HOW)
    for name in ("model/model.safetensors", "metrics.jsonl", "proposals.parquet", "checkpoints/3/model/model.safetensors"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
