"""What models wrote, on the page: problems in plain notation, one before and after training, completions by class of error."""

import random
from pathlib import Path

import pandas as pd
import pytest
import report_study as study
import test_families as families

from interplay.report.stats import frame
from interplay.report.write import answers, examples, headline
from interplay.report.write.examples import Piece
from interplay.tasks.families import judge_family, task_family
from interplay.tasks.op_dag import terse_prompts
from interplay.tasks.op_dag.spec import OpDag
from interplay.tasks.spec import Verify

TASK = OpDag(name="op_dag", modulus=7, operators="+-*", letters=12, distractors=(1, 2))
FAMILY = terse_prompts.OP_DAG


def problems(count: int = 6) -> list[dict]:
    """Rows of a problem set of op 4."""
    made = [FAMILY.generate(TASK, 0, index, 4) for index in range(count)]
    texts = [FAMILY.render(problem, TASK) for problem in made]
    return [
        {"index": index, "family": "op_dag", "graph": FAMILY.dumps(problem), **rendered._asdict()}
        for index, (problem, rendered) in enumerate(zip(made, texts, strict=True))
    ]


def spoilt(row: dict) -> str:
    """The gold solution with another value in its last step."""
    body, wrong = row["solution"].rpartition("#")[0], str((int(row["answer"]) + 1) % 7)
    return f"{body[: -len(row['answer'])]}{wrong}#{wrong}"


def write_samples(root: Path, digest: str, rows: list[dict], right: list[int], n: int = 4) -> Path:
    """An evaluation of which `right` samples of each problem are the gold solution and the others are spoilt."""
    samples = []
    for row, good in zip(rows, right, strict=True):
        for sample in range(n):
            completion = row["solution"] if sample < good else spoilt(row)
            found = judge_family("op_dag").verify(FAMILY.loads(row["graph"]), completion, Verify())
            place = {
                "index": row["index"],
                "sample": sample,
                "band": "edge",
                "op": 4,
                "mode": "forward",
                "completion": completion,
            }
            samples.append({**place, "strict": found.strict, "answer": found.answer, "score": 1.0, "error": found.error})
    out = study.write_record(root, digest, "evaluate", {"num_samples": n}, {}, {"data": "test"})
    pd.DataFrame(samples).to_parquet(out / "samples.parquet")
    return out


def made(root: Path, after: list[int], with_problems: bool = True) -> answers.Answer:
    rows = problems()
    inputs = {"b": write_samples(root, "b", rows, [4, 0, 1, 0, 4, 0]), "r": write_samples(root, "r", rows, after)}
    if with_problems:
        out = study.write_record(root, "test", "problems", {}, {})
        pd.DataFrame(rows).to_parquet(out / "problems.parquet")
    arms = [
        study.arm("base", 0, ["base:pretrain:p"], "b"),
        study.arm("rl", 0, ["base:pretrain:p", "rl:rl:m"], "r", control="base"),
    ]
    test = {"difference": "strict_pass@1", "band": "edge", "arm": "rl", "against": "base", "at_least": 0.1}
    return answers.answer_study(frame.read_results(study.spec(arms, claims=[{"says": "RL lifts it", "test": test}]), inputs))


def worked(found: answers.Answer) -> examples.Worked | None:
    pair = examples.lead_pair(found, headline.make_headline(found))
    assert pair == ("base", "rl", "edge")
    return examples.worked_problem(found, *pair)


def test_the_problem_that_changed_most_is_shown_with_its_error_located(tmp_path: Path) -> None:
    found = worked(made(tmp_path, [4, 3, 4, 4, 4, 1]))
    before, after = found.sides
    assert (before.arm, before.right, before.error, after.arm, after.right, after.n) == ("base", 0, "value", "rl", 4, 4)
    *steps, step, answer = before.pieces
    assert not any(piece.wrong for piece in [*steps, *after.pieces])
    assert step.wrong.startswith("right is ")
    assert answer == Piece(answer.text, f"right is {problems()[3]['answer']}", True)
    assert [piece.differs for piece in after.pieces] == [False] * len(after.pieces)
    assert found.problem.asks.endswith(", counting modulo 7?")


def test_a_completion_without_a_sentence_is_shown_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of an episode in which a model of a task without steps wrote nothing."""
    monkeypatch.setattr(examples, "plain_completion", lambda row, completion: [])
    before, after = worked(made(tmp_path, [4, 3, 4, 4, 4, 1])).sides
    assert (before.right, before.pieces, after.right, after.pieces) == (0, [], 4, [])


def test_a_loss_is_shown_as_a_loss(tmp_path: Path) -> None:
    before, after = worked(made(tmp_path, [0, 0, 0, 0, 4, 0])).sides
    assert (before.right, before.error, after.right, after.error) == (4, "none", 0, "value")


def test_without_a_flip_a_problem_is_shown_that_changed_or_one_that_was_not_always_right(tmp_path: Path) -> None:
    before, after = worked(made(tmp_path / "less", [4, 1, 1, 0, 4, 0])).sides
    assert (before.right, after.right) == (0, 1)
    before, after = worked(made(tmp_path / "same", [4, 0, 1, 0, 4, 0])).sides
    assert (before.right, before.pieces) == (after.right, after.pieces)


def test_without_the_problems_there_is_no_example(tmp_path: Path) -> None:
    bare = made(tmp_path / "bare", [4] * 6, with_problems=False)
    assert worked(bare) is None
    assert examples.rollouts(bare, ["base"]) == []


def test_completions_are_a_few_of_each_class_of_each_arm(tmp_path: Path) -> None:
    shown = examples.rollouts(made(tmp_path, [4, 3, 4, 4, 4, 1]), ["rl", "base"])
    counts = pd.DataFrame(shown).groupby(["arm", "error"], sort=False).size().to_dict()
    assert counts == {("rl", "none"): 3, ("rl", "value"): 2, ("base", "value"): 3, ("base", "none"): 3}
    assert shown == examples.rollouts(made(tmp_path / "again", [4, 3, 4, 4, 4, 1]), ["rl", "base"])
    assert all(any(piece.differs for piece in one["pieces"]) == (one["error"] != "none") for one in shown)


def test_the_page_carries_no_more_completions_than_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples, "MOST_BYTES", 3000)
    assert 0 < len(examples.rollouts(made(tmp_path, [4] * 6), ["base"])) < 6


def test_terse_text_in_plain_notation() -> None:
    texts = {
        "ca*b": "c = a × b",
        "b6+3=2": "b = 6 + 3 = 2",
        "a6": "a = 6",
        "c(_+3)*2=2_+6": "c = (x + 3) × 2 = 2x + 6",
        "2_=-5": "2x = −5",
    }
    assert {text: terse_prompts.plain_notation(text) for text in texts} == texts


@pytest.mark.parametrize(
    ("completion", "wrong"),
    [
        ("ba+3,a6|a6,b6+3=2#2", []),
        ("ba+3,a5|a5,b5+3=1#1", ["right is a = 6", "right is a = 6", "right is b = a + 3 = 6 + 3 = 2", "right is 2"]),
        ("a6|b6+3=2#2", []),
        ("b6+3=2,a6#2", ["uses a before its value"]),
        ("a6,b#2", ["cannot be read as a step"]),
        ("a6#2", ["never works out b"]),
        ("a6,b6+3=2", ["stops before it"]),
        ("a6,\n😀", ["cannot be read as a step", "stops before it"]),
    ],
)
def test_steps_of_a_completion_say_what_is_wrong_with_them(completion: str, wrong: list[str]) -> None:
    problem = terse_prompts.parse_prompt("a6,d1,ba+3?b|", TASK)
    assert [step.wrong for step in terse_prompts.plain_steps(problem, completion) if step.wrong] == wrong
    given, asks = terse_prompts.plain_problem(problem)
    assert (given, asks) == ([("a = 6", True), ("d = 1", False), ("b = a + 3", True)], "What is b, counting modulo 7?")


@pytest.mark.parametrize("name", families.TASKS)
def test_completions_of_every_family_are_shown_and_no_right_step_is_called_wrong(name: str) -> None:
    task, family, draw = families.TASKS[name], task_family(families.TASKS[name]), random.Random(name)
    for index in range(6):
        problem = family.generate(task, 0, index, task.ops()[0] + index % 2)
        row = {"family": name, "graph": family.dumps(problem), **family.render(problem, task)._asdict()}
        gold = examples.plain_completion(row, row["solution"])
        assert gold
        assert not any(piece.wrong or piece.differs for piece in gold)
        assert examples.plain_problem(row).given
        for text in families.corruptions(row["solution"], "", draw):
            pieces, found = examples.plain_completion(row, text), family.verify(problem, text, Verify())
            assert not (found.strict and any(piece.wrong for piece in pieces)), text
            if name == "op_dag" and found.error in ("value", "answer", "truncated", "missing_node"):
                assert any(piece.wrong for piece in pieces), text


def test_a_long_completion_is_judged_whole_and_its_first_steps_are_shown() -> None:
    problem = terse_prompts.parse_prompt("a6,d1,ba+3?b|", TASK)
    row = {"family": "op_dag", "graph": terse_prompts.OP_DAG.dumps(problem), "solution": "a6,b6+3=2#2"}
    shown = examples.plain_completion(row, "a6," * 300 + row["solution"])
    assert {piece.text for piece in shown} == {"a = 6"}
    assert not any(piece.wrong for piece in shown)
    assert len(shown) == examples.LONGEST // len("a = 6")


def test_plain_text_is_marked_by_the_sentences_that_its_reference_does_not_have() -> None:
    row = {"family": "qa", "prompt": "How many?", "solution": "Two and two. So 4.", "answer": "4", "graph": "", "index": 0}
    assert examples.plain_problem(row) == examples.Problem([("How many?", True)], "", [Piece("Two and two."), Piece("So 4.")])
    assert examples.plain_completion(row, "two and two.\nSo 5.") == [Piece("two and two."), Piece("So 5.", "", True)]
