r"""Questions that code answers, a program or a query, judged by running it in the sandbox of the tools
(tasks.environments.sandbox).

`programs` (program synthesis, arXiv:2108.07732): the completion holds a Python program, which is run against the tests of its
row. A test is `assert EXPRESSION == VALUE` with a literal value, as in MBPP. The program and the expression run in the sandbox,
where no test is known; the value that comes out is compared outside it, so that an object which says that it equals everything
passes nothing. Each test has a fresh interpreter, and nothing is left of the tests before it.

`sql_questions` (text-to-SQL): the prompt shows the columns of a generated table and a question, `people(name, age, city,
employer)\nHow many people are older than 40 and live in Rom?`; the policy may try queries, `sql(SELECT count(*) FROM people WHERE
age > 40)`, and boxes one, `\boxed{SELECT ...}`, whose result is compared with that of the gold query: as a multiset of rows, on
the table and on a second one."""

import ast
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from interplay.core.random import draw_sample, draw_shuffled, stream, stream_key
from interplay.tasks import family
from interplay.tasks.environments import sandbox
from interplay.tasks.environments.spec import PythonTool, SqlQuestions, SqlTool
from interplay.tasks.facts.chains import invented_name
from interplay.tasks.spec import Verify
from interplay.tasks.transcripts import BROKEN, policy_turns, tool_environment
from interplay.tasks.verdict import BOX, Verdict, extract_answer, first_error, is_answer_dump

# A program, run against tests.


INSTRUCTION = "Write a Python program in a code block."
TOOL = PythonTool(seconds=1.0, megabytes=32, longest=10_000)
"""Limits of a program with one test."""
MOST_TESTS = 20
BLOCK = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:\n?```|$)", re.DOTALL)


class Test(NamedTuple):
    """One of a row."""

    call: str
    """The expression, such as `add(1, 2)`."""
    value: str
    """What it must come to, a literal."""


class Problem(NamedTuple):
    """A question with tests."""

    question: str
    tests: tuple[Test, ...]
    program: str
    """One that passes; empty: none is known."""
    id: str = ""
    """The source's own name for it."""


def read_test(text: str) -> Test:
    """`assert EXPRESSION == VALUE` with a literal value. Raises ValueError for other texts."""
    try:
        match ast.parse(text.strip()).body:
            case [ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]))]:
                return Test(ast.unparse(left), repr(ast.literal_eval(right)))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        pass
    raise ValueError(f"{text.strip()[:60]!r} is no `assert EXPRESSION == VALUE` with a literal value")


def render(problem: Problem) -> family.Rendered:
    """The question and an instruction; the program in a code block; the values of the tests. The tests are not shown."""
    solution = f"```python\n{problem.program}\n```" if problem.program else ""
    return family.Rendered(f"{problem.question}\n{INSTRUCTION}\n", solution, said_of(test.value for test in problem.tests))


def said_of(values: Iterable[str]) -> str:
    """What a program came to, as answers are compared and voted on: two programs that pass the same tests say the same."""
    return "; ".join(values)


def program_of(completion: str) -> str:
    """The program of a completion: its last code block, which may be cut, or all of it where it has none."""
    blocks = BLOCK.findall(completion)
    return (blocks[-1] if blocks else completion).strip("\n")


class Value(NamedTuple):
    """What an expression came to."""

    value: Any
    """Plain data: literals, and lists, tuples, sets and dicts of such, of 10,000 parts at most."""
    fine: bool
    """Whether there is one."""
    shown: str
    """It, or why there is none, as text."""


COUNTED = """
def {}(
    value, one=(type(None), bool, int, float, str, bytes), many=(list, tuple, set, frozenset), dict=dict, is_a=isinstance, len=len
):
    left, parts = 10000, [value]
    while parts:
        part = parts.pop()
        if is_a(part, one):
            continue
        if not is_a(part, many) and not is_a(part, dict):
            return ()
        left -= len(part)
        if left < 0:
            return ()
        for inner in part:
            parts.append(inner)
            if is_a(part, dict):
                parts.append(part[inner])
    return (value,)
"""
"""Lets only data of so many parts out of the sandbox: forty tuples, each of which holds the one before it twice, have a trillion,
and to hash, compare or write them out here would not end. A program does not know its name, nor reach what it calls."""
NO_DATA = "no data, or too many parts"


@lru_cache(maxsize=4096)
def _evaluated(code: str, expressions: tuple[str, ...], tool: PythonTool) -> tuple[Value, ...]:
    found, name = list[Value](), f"_{os.urandom(16).hex()}"
    for one in expressions:
        try:
            with sandbox.interpreter(tool) as session:
                session.feed_run(COUNTED.format(name), print_callback=_unheard)
                session.feed_run(f"{code}\nNone", print_callback=_unheard)
                counted = session.feed_run(f"{name}({one})", print_callback=_unheard)
            value = counted[0] if counted else None
            shown = sandbox.plain(repr(value), tool.output).rstrip("\n") if counted else NO_DATA
            found.append(Value(value, bool(counted), shown))
        except sandbox.monty().MontyError as error:
            why = error.display("type-msg") if hasattr(error, "display") else sandbox.DEAD
            found.append(Value(None, False, why.partition("\n")[0][:80]))
            if why.startswith(("TimeoutError", "MemoryError", sandbox.DEAD)):
                break
        except (ValueError, RecursionError, UnicodeError) as error:  # a value that cannot be reported from outside
            found.append(Value(None, False, type(error).__name__))
    return tuple(found)


def _unheard(stream: str, text: str) -> None:
    """What a program prints is no part of its values."""


def evaluate(code: str, expressions: Sequence[str], tool: PythonTool) -> tuple[Value, ...]:
    """What each expression comes to behind a program, each in a state of its own; after one that a limit stops none is tried."""
    if len(code) > tool.longest:
        return (Value(None, False, "too long"),)
    return _evaluated(code, tuple(expressions), tool)


def verify(problem: Problem, completion: str, options: Verify) -> Verdict:
    """The verdict on any text; its score is the share of tests passed, and all must be. Never raises on account of the text.
    Errors: truncated (no program), raised (it fails, gives no data, or a limit stops it), answer (a test fails)."""
    program = program_of(completion)
    found = evaluate(program, [test.call for test in problem.tests], TOOL) if program.strip() else []
    passed = [_equal(one, test.value) for one, test in zip(found, problem.tests, strict=False)]
    share = sum(passed) / len(problem.tests)
    broken = not any(one.fine for one in found)
    error = first_error(truncated=not program.strip(), raised=broken, answer=share < 1)
    return Verdict(share == 1, share == 1, share, error, said=said_of(one.shown for one in found))


def _equal(found: Value, value: str) -> bool:
    """Whether a value is the literal, outside the sandbox, where no object of a program gets."""
    try:
        return found.fine and bool(found.value == ast.literal_eval(value))
    except RecursionError:
        return False


loads = family.from_json(Problem)
"""The inverse of `dumps`."""


def dumps(problem: Problem) -> str:
    """JSON, the same for equal problems."""
    return family.compact_json(problem._asdict())


PROGRAMS = family.Family(name="programs", errors=("truncated", "raised", "answer"), loads=loads, verify=verify)


# A query over a generated table.


COLUMNS = ("name", "age", "city", "employer")
CALL = re.compile(r"\s*sql\((.*)\)\s*", re.DOTALL)
SQL_TOOL = SqlTool(rows=50)
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


def question_tables(problem: Question) -> tuple[family.Table, ...]:
    """The database."""
    return (family.Table("people", COLUMNS, problem.rows),)


def generate_question(task: SqlQuestions, seed: int, index: int, op: int) -> Question:
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


def question_prompt(problem: Question) -> str:
    """Columns and question."""
    said = [f"{SAID[f'{column} {operator}']} {value.strip(chr(39))}" for column, operator, value in problem.conditions]
    return f"people({', '.join(COLUMNS)})\n{ASKED[problem.mode]} {' and '.join(said)}?\n"


def query_result(problem: Question, text: str) -> list[tuple[Any, ...]] | None:
    """The rows of a query; None where it fails or gives more than a table has."""
    rows, why = sandbox.query(text, question_tables(problem), SQL_TOOL)
    return None if why or len(rows) > SQL_TOOL.rows else [tuple(_value(value) for value in row) for row in rows]


def _value(value: Any) -> Any:
    """A value as results are compared: whole numbers are the same as integers and as floats."""
    return round(value, 9) if isinstance(value, float) else value


def shifted(problem: Question) -> Question:
    """Another table with the same columns, whose values are those of other rows: a second test, which a query that writes out
    the result does not pass."""
    rows, count = problem.rows, len(problem.rows)
    moved = [(one[0], rows[n - 1][1], rows[n - 2][2], rows[n - count // 2][3]) for n, one in enumerate(rows)]
    return problem._replace(rows=tuple(moved))


def verify_query(problem: Question, completion: str, options: Verify) -> Verdict:
    """The verdict on the boxed query of the last turn. Right: its rows are those of the gold query, in any order, on the table
    and on another one. Errors: `truncated` (no query), `query` (it fails), `answer` (another result), `chance` (another one on
    the other table)."""
    last = policy_turns(completion)[-1]
    said = extract_answer(last) if BOX in last and not is_answer_dump(last) else None
    gold, same = gold_query(problem), list[bool]()
    found = query_result(problem, said) if said else None
    if said and found is not None:
        other = shifted(problem)
        given = ((problem, found), (other, query_result(other, said)))
        same = [Counter(rows or ()) == Counter(query_result(one, gold) or ()) for one, rows in given]
    right = bool(same) and all(same)
    error = first_error(truncated=not said, query=found is None, answer=not same or not same[0], chance=not right)
    return Verdict(right, right, float(right), error, said=(said or "")[:80])


def question_structure(problem: Question) -> str:
    """16 hex digits: rows and their order count, since the question is about them."""
    rows = sorted((str(row[1]), *row[2:]) for row in problem.rows)
    return f"{stream_key('sql_questions', problem.mode, str(problem.conditions), str(rows)):016x}"


def solve_question(prompt: str, task: SqlQuestions, replies: family.Replies) -> str:
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


def question_vocabulary(task: SqlQuestions) -> list[str]:
    """The pieces of a tokenizer of words."""
    pieces = ["people", *COLUMNS, "SELECT ", "count(*)", "avg(age)", " FROM people WHERE ", " AND ", " ORDER BY age DESC LIMIT 1"]
    said = [*(f"{words} " for words in (*ASKED.values(), *SAID.values())), " and ", "?\n", " > ", " < ", " = ", " != ", "sql("]
    return [*pieces, *said, BOX, BROKEN, sandbox.NOTHING, sandbox.ERROR, *invented_name(task.names, "sql_questions", task.world)]


_PLAYED = tool_environment(
    "sql",
    CALL,
    lambda problem, text: sandbox.run_sql(text, question_tables(problem), SQL_TOOL),
    prompt=question_prompt,
    answer=gold_query,
    name="sql_questions",
    generate=generate_question,
    solve=solve_question,
    loads=family.from_json(Question),
    structure=question_structure,
    vocabulary=question_vocabulary,
    expert=lambda problem: [f"sql({gold_query(problem)})", f"{BOX}{gold_query(problem)}}}"],
    tables=question_tables,
)
SQL_QUESTIONS = replace(_PLAYED, verify=verify_query, errors=("truncated", "query", "answer", "chance"))
