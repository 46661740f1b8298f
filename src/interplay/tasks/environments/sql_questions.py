r"""Questions about a generated table that a query answers (text-to-SQL): the prompt shows the table's columns and a question,
`people(name, age, city, employer)\nHow many people are older than 40 and live in Rom?`; the policy may try queries,
`sql(SELECT count(*) FROM people WHERE age > 40)`, and boxes one, `\boxed{SELECT ...}`, whose result is compared with that of the
gold query: as a multiset of rows, on the table and on a second one."""

import re
from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple

from interplay.core.random import draw_sample, draw_shuffled, stream, stream_key
from interplay.tasks import family
from interplay.tasks.environments import sandbox
from interplay.tasks.environments.spec import SqlQuestions, SqlTool
from interplay.tasks.facts.chains import invented_name
from interplay.tasks.spec import Verify
from interplay.tasks.transcripts import BROKEN, policy_turns, tool_environment
from interplay.tasks.verdict import BOX, Verdict, extract_answer, first_error, is_answer_dump

COLUMNS = ("name", "age", "city", "employer")
CALL = re.compile(r"\s*sql\((.*)\)\s*", re.DOTALL)
TOOL = SqlTool(rows=50)
YOUNGEST, AGES = 20, 50


class Question(NamedTuple):
    """A table, and what is asked."""

    mode: str
    """What is asked: list, count, average, oldest."""
    rows: tuple[tuple[str, int, str, str], ...]
    conditions: tuple[tuple[str, str, str], ...]
    """(column, operator, value as SQL writes it)."""


ASKED = {
    "list": "Who",
    "count": "How many people",
    "average": "What is the average age of those who",
    "oldest": "Who is oldest of those who",
}
SELECTED = {"list": "name", "count": "count(*)", "average": "avg(age)", "oldest": "name"}
SAID = {
    "age >": "are older than",
    "age <": "are younger than",
    "city =": "live in",
    "employer =": "work for",
    "city !=": "do not live in",
}


def tables(problem: Question) -> tuple[family.Table, ...]:
    """The database."""
    return (family.Table("people", COLUMNS, problem.rows),)


def generate(task: SqlQuestions, seed: int, index: int, op: int) -> Question:
    """A table and a question of `op` conditions, on different pairs of column and operator, that some row fulfils. Keyed by
    (seed, index, op)."""
    draw = stream("sql_questions", task.world, seed, index, op, *task.rows, task.names)
    names = list(invented_name(task.names, "sql_questions", task.world))
    low, high = task.rows
    count = low + draw() % (max(high - low, 0) + 1)
    cities, employers = draw_sample(draw, names, 3), draw_sample(draw, names, 3)
    people = draw_sample(draw, names, count)
    ages = draw_sample(draw, list(range(YOUNGEST, YOUNGEST + AGES)), count)
    rows = tuple((name, age, cities[draw() % 3], employers[draw() % 3]) for name, age in zip(people, ages, strict=True))
    aim = rows[draw() % count]
    conditions = tuple(_condition(draw, kind, aim, cities) for kind in draw_shuffled(draw, list(SAID))[:op])
    mode = list(ASKED)[draw() % len(ASKED)]
    return Question(mode, rows, conditions)


def _condition(draw: Any, kind: str, aim: tuple[str, int, str, str], cities: list[str]) -> tuple[str, str, str]:
    """One that the row `aim` fulfils."""
    column, operator = kind.split()
    if column == "age":
        off = 1 + draw() % 10
        return column, operator, str(aim[1] - off if operator == ">" else aim[1] + off)
    value = next(city for city in cities if city != aim[2]) if operator == "!=" else aim[COLUMNS.index(column)]
    return column, operator, f"'{value}'"


def gold_query(problem: Question) -> str:
    """The query that answers."""
    where = " AND ".join(" ".join(one) for one in problem.conditions)
    order = " ORDER BY age DESC LIMIT 1" if problem.mode == "oldest" else ""
    return f"SELECT {SELECTED[problem.mode]} FROM people WHERE {where}{order}"


def prompt(problem: Question) -> str:
    """Columns and question."""
    said = [f"{SAID[f'{column} {operator}']} {value.strip(chr(39))}" for column, operator, value in problem.conditions]
    return f"people({', '.join(COLUMNS)})\n{ASKED[problem.mode]} {' and '.join(said)}?\n"


def result(problem: Question, text: str) -> list[tuple[Any, ...]] | None:
    """The rows of a query; None where it fails or gives more than a table has."""
    rows, why = sandbox.query(text, tables(problem), TOOL)
    return None if why or len(rows) > TOOL.rows else [tuple(_value(value) for value in row) for row in rows]


def _value(value: Any) -> Any:
    """A value as results are compared: whole numbers are the same as integers and as floats."""
    return round(value, 9) if isinstance(value, float) else value


def shifted(problem: Question) -> Question:
    """Another table with the same columns, whose values are those of other rows: a second test, which a query that writes out
    the result does not pass."""
    rows, count = problem.rows, len(problem.rows)
    moved = [(one[0], rows[n - 1][1], rows[n - 2][2], rows[n - count // 2][3]) for n, one in enumerate(rows)]
    return problem._replace(rows=tuple(moved))


def verify(problem: Question, completion: str, options: Verify) -> Verdict:
    """The verdict on the boxed query of the last turn. Right: its rows are those of the gold query, in any order, on the table
    and on another one. Errors: `truncated` (no query), `query` (it fails), `answer` (another result), `chance` (another one on
    the other table)."""
    last = policy_turns(completion)[-1]
    said = extract_answer(last) if BOX in last and not is_answer_dump(last) else None
    gold, same = gold_query(problem), list[bool]()
    found = result(problem, said) if said else None
    if said and found is not None:
        other = shifted(problem)
        given = ((problem, found), (other, result(other, said)))
        same = [Counter(rows or ()) == Counter(result(one, gold) or ()) for one, rows in given]
    right = bool(same) and all(same)
    error = first_error(truncated=not said, query=found is None, answer=not same or not same[0], chance=not right)
    return Verdict(right, right, float(right), error, said=(said or "")[:80])


def structure(problem: Question) -> str:
    """16 hex digits: rows and their order count, since the question is about them."""
    rows = sorted((str(row[1]), *row[2:]) for row in problem.rows)
    return f"{stream_key('sql_questions', problem.mode, str(problem.conditions), str(rows)):016x}"


def solve(prompt: str, task: SqlQuestions, replies: family.Replies) -> str:
    """The query, read from the prompt alone."""
    asked = prompt.partition("\n")[2].strip().removesuffix("?")
    mode = next(mode for mode in sorted(ASKED, key=lambda one: -len(ASKED[one])) if asked.startswith(f"{ASKED[mode]} "))
    conditions = list[tuple[str, str, str]]()
    for part in asked.removeprefix(f"{ASKED[mode]} ").split(" and "):
        kind = next(kind for kind, words in SAID.items() if part.startswith(f"{words} "))
        value = part.removeprefix(f"{SAID[kind]} ")
        column, operator = kind.split()
        conditions.append((column, operator, value if column == "age" else f"'{value}'"))
    return gold_query(Question(mode, (), tuple(conditions)))


def vocabulary(task: SqlQuestions) -> list[str]:
    """The pieces of a tokenizer of words."""
    pieces = ["people", *COLUMNS, "SELECT ", "count(*)", "avg(age)", " FROM people WHERE ", " AND ", " ORDER BY age DESC LIMIT 1"]
    said = [*(f"{words} " for words in (*ASKED.values(), *SAID.values())), " and ", "?\n", " > ", " < ", " = ", " != ", "sql("]
    return [*pieces, *said, BOX, BROKEN, sandbox.NOTHING, sandbox.ERROR, *invented_name(task.names, "sql_questions", task.world)]


_PLAYED = tool_environment(
    "sql",
    CALL,
    lambda problem, text: sandbox.run_sql(text, tables(problem), TOOL),
    prompt=prompt,
    answer=gold_query,
    name="sql_questions",
    generate=generate,
    solve=solve,
    loads=family.from_json(Question),
    structure=structure,
    vocabulary=vocabulary,
    expert=lambda problem: [f"sql({gold_query(problem)})", f"{BOX}{gold_query(problem)}}}"],
    tables=tables,
)
SQL_QUESTIONS = replace(_PLAYED, verify=verify, errors=("truncated", "query", "answer", "chance"))
