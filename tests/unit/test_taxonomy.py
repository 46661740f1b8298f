"""The taxonomy family: the tree, its facts, recall by depth."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from interplay.core.execution import Run
from interplay.core.keys import parse_model
from interplay.core.model import KeyPlace, UserError
from interplay.data import problems, sets, tokenizer
from interplay.data.spec import SPLITS, ProblemsSpec
from interplay.tasks.facts.chains import TAXONOMY, Fact, Problem, tree
from interplay.tasks.facts.spec import Taxonomy
from interplay.tasks.spec import Verify

CHAIN = Problem("recall", (Fact("Nomi", "is a", "Bela"), Fact("Bela", "is a", "Toru")))
ONE, TWO, END = "Nomi is a Bela.", "Bela is a Toru.", "\\boxed{Toru}"

TASKS = st.builds(
    Taxonomy,
    world=st.integers(0, 20),
    depth=st.integers(1, 5),
    branching=st.integers(1, 4),
    level=st.sampled_from(["statement", "recall"]),
)


@given(st.data())
def test_every_problem_is_solved_from_its_prompt_and_its_gold_solution_is_strictly_right(data: st.DataObject) -> None:
    task = data.draw(TASKS)
    op = data.draw(st.integers(*task.ops()))
    problem = TAXONOMY.generate(task, data.draw(st.integers(0, 5)), data.draw(st.integers(0, 10**6)), op)
    prompt, solution, answer = TAXONOMY.render(problem, task)
    assert TAXONOMY.solve(prompt, task) == answer == problem.answer
    assert problem.op == op
    assert TAXONOMY.verify(problem, solution, Verify(extra_nodes="penalised")).strict
    assert TAXONOMY.loads(TAXONOMY.dumps(problem)) == problem
    words = tokenizer.word_tokenizer(TAXONOMY.vocabulary(task))
    ids, lengths = tokenizer.encode_all(words, [prompt, solution])
    assert words.decode(ids.tolist()) == prompt + solution
    assert lengths.tolist() == ([2, 2] if task.level == "statement" else [op + 3, 5 * op + 3])
    assert set(prompt + solution) <= set(TAXONOMY.alphabet(task))


def test_the_tree_is_whole_and_every_class_has_a_name_of_its_own() -> None:
    task = Taxonomy(depth=4, branching=3, level="statement")
    names = tree(task)
    assert len(set(names)) == len(names) == 1 + 3 + 9 + 27 + 81 == task.classes()
    above = {}
    for index in range(len(names) - 1):
        (fact,) = TAXONOMY.generate(task, 0, index, 1).hops
        above[fact.subject] = fact.object
    assert set(above) == set(names[1:])
    assert set(Counter(above.values()).values()) == {3}
    depths = Counter()
    for name in names:
        steps = 0
        while name in above:
            name, steps = above[name], steps + 1
        depths[steps] += 1
    assert depths == {0: 1, 1: 3, 2: 9, 3: 27, 4: 81}


def test_recall_asks_every_class_that_is_deep_enough() -> None:
    task = Taxonomy(depth=4, branching=2)
    for op, classes in ((1, 30), (3, 24), (4, 16)):
        asked = {TAXONOMY.generate(task, 0, index, op).hops[0].subject for index in range(600)}
        assert len(asked) == classes


def test_a_set_of_statements_holds_every_fact_evenly_in_each_split(tmp_path: Path) -> None:
    task = Taxonomy(depth=4, branching=2, level="statement")
    for split in ("train", "test"):
        spec = ProblemsSpec(task=task, bands={"b": {1: 1.0}}, shares={"b": 1.0}, size=60, split=split)
        problems.generate_problems(spec, {}, tmp_path / split, Run())
        counts = Counter(sets.read_table(tmp_path / split)["prompt"].to_pylist())
        assert len(counts) == 30
        assert set(counts.values()) == {2}


def test_splits_of_questions_share_no_key(tmp_path: Path) -> None:
    for split, own in SPLITS.items():
        spec = ProblemsSpec(task=Taxonomy(depth=9), bands={"b": {3: 1.0}}, shares={"b": 1.0}, size=40, split=split)
        problems.generate_problems(spec, {}, tmp_path / split, Run())
        assert {int(key, 16) % 100 in own for key in sets.read_table(tmp_path / split)["key"].to_pylist()} == {True}


@pytest.mark.parametrize(
    ("completion", "error", "score"),
    [
        (f"{ONE} {TWO} {END}", "none", 1.0),
        (f"{ONE} {TWO}", "truncated", 1.0),
        (f"{ONE} and {TWO} {END}", "parse", 0.0),
        (f"{ONE} Bela is a Zuli. {END}", "wrong_hop", 0.5),
        (f"{TWO} {END}", "missing_hop", 0.5),
        (f"{TWO} {ONE} {END}", "order", 0.5),
        (f"{ONE} {TWO} \\boxed{{Bela}}", "answer", 1.0),
    ],
)
def test_verdicts_worked_by_hand(completion: str, error: str, score: float) -> None:
    verdict = TAXONOMY.verify(CHAIN, completion, Verify())
    assert (verdict.error, verdict.score, verdict.strict) == (error, score, error == "none")


def test_questions_read_as_written_here() -> None:
    assert TAXONOMY.render(CHAIN, Taxonomy()) == ("What is the kind of the kind of Nomi?\n", f"{ONE} {TWO} {END}", "Toru")
    one = CHAIN._replace(hops=CHAIN.hops[:1])
    assert TAXONOMY.render(one, Taxonomy()).prompt == "What is the kind of Nomi?\n"
    assert TAXONOMY.render(one._replace(mode="statement"), Taxonomy())[:2] == ("Nomi is a ", "Bela.")
    with pytest.raises(ValueError, match="not a prompt"):
        TAXONOMY.solve("Why?\n", Taxonomy())
    with pytest.raises(ValueError, match="no fact"):
        TAXONOMY.solve(f"What is {'the kind of ' * 99}Nomi?\n", Taxonomy())


def test_statements_are_shared_and_share_no_key_with_questions() -> None:
    one = CHAIN._replace(hops=CHAIN.hops[:1])
    stated = one._replace(mode="statement")
    assert (TAXONOMY.shared(one), TAXONOMY.shared(stated)) == (False, True)
    assert len({TAXONOMY.structure(problem) for problem in (CHAIN, one, stated)}) == 3


def test_another_process_makes_the_same_problems() -> None:
    code = (
        "from interplay.tasks.facts.spec import Taxonomy\nfrom interplay.tasks.facts.chains import TAXONOMY\n"
        "problem = TAXONOMY.generate(Taxonomy(world=3), 1, 7, 4)\nprint(TAXONOMY.dumps(problem), TAXONOMY.structure(problem))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": "7"}, capture_output=True, text=True, check=True
    )
    problem = TAXONOMY.generate(Taxonomy(world=3), 1, 7, 4)
    assert run.stdout == f"{TAXONOMY.dumps(problem)} {TAXONOMY.structure(problem)}\n"


def test_a_tree_that_is_too_large_and_an_ancestor_above_the_root_are_refused_in_one_line() -> None:
    with pytest.raises(UserError, match="more than 100000 classes"):
        parse_model(Taxonomy, {"depth": 40, "branching": 3}, KeyPlace("study.yaml", ("task",)))
    with pytest.raises(UserError, match=r"op 7 lies outside 1\.\.6"):
        TAXONOMY.generate(Taxonomy(depth=6), 0, 0, 7)
