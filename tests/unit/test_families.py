"""The table of task families: each row is one object that keeps the interface, and looking one up stays light."""

import json
import os
import random
import subprocess
import sys

import pytest
import test_environments as environments

from interplay.core.keys import union_members
from interplay.kinds import sources
from interplay.report.metric_spec import ERRORS
from interplay.tasks import qa, reformulated
from interplay.tasks.environments.spec import PACKAGED
from interplay.tasks.facts.spec import Bios, Capo, Taxonomy
from interplay.tasks.families import families_with, judge_family, open_question, task_family
from interplay.tasks.family import Environment, Family, Game, Generator
from interplay.tasks.op_dag.spec import OpDag, OpDagProse
from interplay.tasks.spec import FAMILIES, Brevo, Depo, Lano, Mano, OwnTask, Task, Verify, WordCounts
from interplay.tasks.verdict import Row, first_error

TASKS = {
    "op_dag": OpDag(),
    "op_dag_prose": OpDagProse(),
    "bios": Bios(people=20),
    "taxonomy": Taxonomy(),
    "mano": Mano(),
    "depo": Depo(),
    "brevo": Brevo(),
    "lano": Lano(depth=4),
    "capo": Capo(people=40),
    "word_counts": WordCounts(),
    **environments.TASKS,
}
STRICTEST = Verify(operator=True, extra_nodes="penalised")


def corruptions(solution: str, other: str, draw: random.Random) -> list[str]:
    """The solution, part of it, one of another problem, and with single characters replaced."""
    texts = [solution, "", solution[: len(solution) // 2], other, f"{solution} {solution}"]
    for _ in range(20):
        place = draw.randrange(len(solution))
        texts.append(solution[:place] + draw.choice("abc019+-=,. ") + solution[place + 1 :])
    return texts


def test_every_row_is_one_object_of_its_name_and_every_task_of_the_union_has_one() -> None:
    families = {name: judge_family(name) for name in FAMILIES}
    assert all(isinstance(family, Family) and family.name == name for name, family in families.items())
    named = {model.model_fields["name"].default for model in union_members(Task) if model is not OwnTask}
    elsewhere = {*PACKAGED, "sql_questions", "with_tools"}  # tested in test_adapters and test_tools
    assert named | {"with_tools"} == set(families_with(Generator)) == {*TASKS, *elsewhere}
    assert set(families_with(Game)) == {"tic_tac_toe", "kuhn"} < set(families_with(Environment))


@pytest.mark.parametrize("name", TASKS)
def test_verdicts_have_the_error_classes_that_the_family_declares(name: str) -> None:
    task, family, draw = TASKS[name], task_family(TASKS[name]), random.Random(name)
    low, high = task.ops()
    other, seen = "", set()
    for index in range(12):
        problem = family.generate(task, 0, index, low + index % (min(high, low + 6) - low + 1))
        solution = family.render(problem, task).solution
        for text in corruptions(solution, other, draw):
            seen |= {family.verify(problem, text, options).error for options in (Verify(), STRICTEST)}
        other = solution
    assert {"none"} < seen <= {"none", *family.errors}


def test_a_report_knows_every_declared_error_class() -> None:
    assert {error for name in FAMILIES for error in judge_family(name).errors} <= set(ERRORS)


def test_the_first_error_class_that_applies_is_named() -> None:
    assert first_error(truncated=False, parse=[], answer=1) == "answer"
    assert first_error(truncated=0, parse=None) == "none"


def test_a_question_in_another_form_names_its_open_question_and_others_are_their_own() -> None:
    problem = qa.Problem("How many?", ("12",))
    row = Row(0, 0, "b", 1, "open", *qa.render(problem), qa.dumps(problem), "0", "qa", "d:0")
    assert open_question(row) is row
    form = reformulated.Form("true_false", "qa", row.graph, "12", statement="13")
    prompt, solution, answer = reformulated.render(row, form)
    posed = Row(0, 0, "b", 1, "true_false", prompt, solution, answer, reformulated.dumps(form), "0", "reformulated", "d:0")
    opened = open_question(posed)
    assert (opened.family, opened.graph, opened.prompt, opened.answer) == ("qa", row.graph, row.prompt, "12")


def test_a_family_is_imported_when_it_is_looked_up_and_not_before() -> None:
    code = (
        "import sys, json; from interplay.tasks.families import judge_family\n"
        "before = set(sys.modules); judge_family('taxonomy')\n"
        "print(json.dumps([sorted(before), sorted(sys.modules)]))"
    )
    run = subprocess.run([sys.executable, "-c", code], env=dict(os.environ), capture_output=True, text=True, check=True)
    before, after = json.loads(run.stdout)
    assert "interplay.tasks.facts.chains" in set(after) - set(before)
    assert not {"torch", "interplay.tasks.facts.people", "interplay.tasks.op_dag.terse", "interplay.tasks.qa"} & set(after)


def test_the_sources_of_a_kind_include_every_family() -> None:
    files = sources.of_kind("problems")
    for target in FAMILIES.values():
        assert target.partition(":")[0].removeprefix("interplay.").replace(".", "/") + ".py" in files
