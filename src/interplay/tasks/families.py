"""The table of task families: which module generates, renders and judges the problems of each."""

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

from interplay.core.model import UserError
from interplay.tasks import conflicts, qa, reformulated, subproblems
from interplay.tasks.bios import family as bios
from interplay.tasks.environments import bios_search, calculator, kuhn, self_search, tic_tac_toe, twenty_questions
from interplay.tasks.multihop import family as multihop
from interplay.tasks.multihop import problem as multihop_problem
from interplay.tasks.multihop.problem import Item
from interplay.tasks.op_dag import family as op_dag
from interplay.tasks.op_dag import posed
from interplay.tasks.op_dag.render import names as letters
from interplay.tasks.op_dag_prose import family as op_dag_prose
from interplay.tasks.spec import Task
from interplay.tasks.taxonomy import family as taxonomy
from interplay.tasks.verdict import Row

ENVIRONMENTS: dict[str, ModuleType] = {
    "calculator": calculator,
    "bios_search": bios_search,
    "self_search": self_search,
    "twenty_questions": twenty_questions,
    "tic_tac_toe": tic_tac_toe,
    "kuhn": kuhn,
}
"""Families that reply to a policy's turns: `reply(problem, said) -> Reply`, of its turns so far. Their `solve` may ask them:
`solve(prompt, task, ask)`."""
GAMES: dict[str, ModuleType] = {"tic_tac_toe": tic_tac_toe, "kuhn": kuhn}
"""Those of them that are games of two seats (tasks.environments.games)."""
FAMILIES: dict[str, ModuleType] = {
    "op_dag": op_dag,
    "op_dag_prose": op_dag_prose,
    "bios": bios,
    "taxonomy": taxonomy,
    **ENVIRONMENTS,
}
"""Families that generate problems, by the name of their task."""
JUDGES: dict[str, ModuleType] = {
    **FAMILIES,
    "conflicts": conflicts,
    "multihop": multihop,
    "qa": qa,
    "reformulated": reformulated,
    "subproblems": subproblems,
}
"""Families that judge completions, by the column `family` of a row."""
ITEMS: dict[str, Callable[[Any], Item | None]] = {"multihop": multihop_problem.item, "bios": bios.item}
"""Families whose problems are, or hold, questions over documents: problem -> item; None for a problem that has no documents."""


class Language(NamedTuple):
    """How the prompts of a family are read that a model wrote."""

    read: Callable[[str, Any], Any]
    """(text, task) -> the problem that it poses, or one of the flaws."""
    starts: Callable[[Any], str]
    """task -> the characters that a prompt may begin with."""
    end: str
    """The token that ends a prompt, and stands nowhere else in one."""
    flaws: tuple[str, ...]
    """Why a text poses none."""


LANGUAGES: dict[str, Language] = {"op_dag": Language(posed.posed, letters, posed.END, posed.FLAWS)}
"""Families whose problems a model may write."""
OPENED: dict[str, Callable[[Row], Row]] = {
    "reformulated": lambda row: reformulated.open_row(row, reformulated.read_form(row.graph)),
    "subproblems": subproblems.whole_problem,
}
"""Families whose rows put a question of another family in another form: row -> the row of that question."""


def task_family(task: Task) -> ModuleType:
    """The module that generates the problems of a task."""
    return FAMILIES[task.name]


def judge_family(name: str) -> ModuleType:
    """The module that judges the completions of a row of this family."""
    return JUDGES[name]


def environment_of(row: Row) -> ModuleType:
    """The module whose `reply(problem, said)` is the environment of a row. Raises UserError where its family has none."""
    if row.family not in ENVIRONMENTS:
        raise UserError(
            f"method.episode = environment: the family '{row.family}' of row {row.index} replies to nothing; "
            f"known: {', '.join(ENVIRONMENTS)}"
        )
    return ENVIRONMENTS[row.family]


def game_of(row: Row) -> ModuleType:
    """The game of a row, with `judge(problem, moves, seat)`. Raises UserError where its family is not a game."""
    if row.family not in GAMES:
        raise UserError(
            f"method.episode = self_play: the family '{row.family}' of row {row.index} is no game; known: {', '.join(GAMES)}"
        )
    return GAMES[row.family]


def solved(task: Task, problem: Any, prompt: str) -> str:
    """The answer to a prompt by the solver of the task's family, which reads nothing but the prompt and, where the family
    replies, what it asks for."""
    module = FAMILIES[task.name]
    if task.name in ENVIRONMENTS:
        return module.solve(prompt, task, partial(module.reply, problem))
    return module.solve(prompt, task)


def multihop_item(row: Row) -> Item | None:
    """The question over documents that a row asks, in whatever form; None where it asks no such thing."""
    found = ITEMS.get(row.family)
    return found(judge_family(row.family).loads(row.graph)) if found else None


def open_question(row: Row) -> Row:
    """The row of the question that a row puts in another form, as far as that question goes; any other row itself."""
    return OPENED[row.family](row) if row.family in OPENED else row
