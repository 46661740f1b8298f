"""Tools for policies: Python, SQL and search. Each is a function from the text of a call to the text that the policy reads, in a
sandbox: what a model writes reaches no file, no network and no process of ours, and costs a bounded time.

Python is the interpreter of pydantic-monty (extra `python`), which has no way to the host and runs in a worker process. SQL is
sqlite3 over tables in memory, which an authorizer lets SELECT read and nothing else do. Search is BM25 of bm25s (extra `search`).

A reply is a function of the call, the calls before it in the episode and the tables or documents, with one exception: whether a
program or a query ends within its time limit. Its text is plain: characters that would steer a terminal or a page, or that
separate turns, are escaped, as are, of Python and SQL, those that the tokenizer of a small model lacks."""

import atexit
import importlib.metadata
import os
import re
import sqlite3
import time
import unicodedata
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing, suppress
from datetime import datetime
from functools import cache, lru_cache
from typing import Any, NamedTuple

from interplay.core.model import UserError
from interplay.tasks.environments.spec import PythonTool, SearchTool, SqlTool
from interplay.tasks.family import Table

ERROR = "error: "
"""Begins a reply to a call that failed."""
NOTHING = "nothing\n"
"""The reply of a call that gives nothing."""
CUT = "..."
"""Ends a reply that is cut at its limit."""
STEERING = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories of characters that are no text: controls, formats such as directions of writing, surrogates."""


def plain(text: str, limit: int, keep: frozenset[str] | None = None) -> str:
    r"""The text without what steers: each character of STEERING but newline and tab is written as its escape (`\x1b`), as is one
    outside ASCII that `keep` lacks (None: all are kept). At most `limit` characters, and a newline behind them."""
    shown = "".join(_escaped(c, keep) for c in text[: limit + 1])
    short = shown if len(shown) <= limit else shown[:limit] + CUT
    return short if short.endswith("\n") else f"{short}\n"


def _escaped(character: str, keep: frozenset[str] | None) -> str:
    if " " <= character <= "~" or character in "\n\t":
        return character
    if unicodedata.category(character) not in STEERING and (keep is None or character in keep):
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


def failed(why: str, limit: int) -> str:
    """The reply to a call that failed, one line."""
    return plain(ERROR + why.strip().partition("\n")[0], limit, frozenset())


PACKAGES = {"python": ("pydantic-monty", "1.4.0"), "search": ("bm25s", "0.3.16")}
"""Tool -> the distribution that it needs, an extra of the tool's name, and its version, since replies are part of results."""


@cache
def check_tool(name: str) -> None:
    """Raises UserError where the package of a tool is not installed, or in another version."""
    needed, version = PACKAGES.get(name, ("", ""))
    remedy = f"pip install 'interplay[{name}]'"
    try:
        found = importlib.metadata.version(needed) if needed else version
    except importlib.metadata.PackageNotFoundError:
        raise UserError(f"{name}: {needed} is not installed; {remedy}") from None
    if found != version:
        raise UserError(f"{name} needs {needed} {version}, and {found} is installed; {remedy}")


# Python.


SLOW, LARGE, DEAD = "TimeoutError: time limit", "MemoryError: memory limit", "the interpreter ended"
"""What a policy reads of a program that was stopped. What it printed before is not shown, nor is its state kept."""
EPOCH = datetime(2000, 1, 1)
ECHOED = "_ = (\n{}\n)\nif _ is not None:\n    print(repr(_))"
"""An expression as an interactive interpreter takes it."""


class Ran(NamedTuple):
    """What a program did."""

    said: str
    """What it printed."""
    error: str = ""
    """How it ended; empty: well."""
    stopped: bool = False
    """Whether a limit stopped it, after which nothing is left of its state."""


@cache
def monty() -> Any:
    """The package of the interpreter. Raises UserError where it is not installed."""
    check_tool("python")
    import pydantic_monty

    return pydantic_monty


@cache
def _workers() -> tuple[int, Any]:
    """This process, and its pool of one worker."""
    stack, process = ExitStack(), os.getpid()
    atexit.register(lambda: stack.close() if os.getpid() == process else None)
    return process, stack.enter_context(monty().Monty(max_processes=1, request_timeout=60))


def workers() -> Any:
    """The pool of this process. Raises UserError in a fork of a process that has one, whose threads the fork lacks."""
    process, pool = _workers()
    if process != os.getpid():
        raise UserError("tools: python: this process is a fork of one that ran programs; start processes by spawn")
    return pool


def run_python(code: str, before: Sequence[str], tool: PythonTool) -> str:
    """The reply to a program. With `state` those `before` it in the episode have run first."""
    if len(code) > tool.longest:
        return failed(f"a program has at most {tool.longest} characters", tool.output)
    earlier = tuple(one for one in before if len(one) <= tool.longest) if tool.state else ()
    found = _ran((*earlier, code), tool)[-1]
    if found.error and not found.said:
        return failed(found.error, tool.output)
    said = plain(found.said, tool.output, frozenset()) if found.said else ""
    return said + failed(found.error, tool.output) if found.error else said or NOTHING


@lru_cache(maxsize=1024)
def _ran(programs: tuple[str, ...], tool: PythonTool) -> tuple[Ran, ...]:
    """What each of these programs does, all run one after the other in one state. A session is not kept between calls: to run
    a program again takes less than to keep a worker for each episode."""
    before = _ran(programs[:-1], tool) if len(programs) > 1 else ()
    alive = max((n + 1 for n, ran in enumerate(before) if ran.stopped), default=0)
    try:
        with interpreter(tool) as session:
            for one in programs[alive:-1]:
                _feed(session, one, tool.output)
            return (*before, _feed(session, programs[-1], tool.output))
    except monty().MontyError:
        return (*before, Ran("", DEAD, stopped=True))


def interpreter(tool: PythonTool) -> Any:
    """A fresh state within the tool's limits, as a context."""
    limits = {
        "max_feed_duration_secs": tool.seconds,
        "max_memory": tool.megabytes << 20,
        "max_recursion_depth": tool.depth,
        "max_suspensions": 100,
        "max_total_sleep_secs": 0.0,
    }
    host = {"datetime": EPOCH, "timezone": "utc", "sleep": "zero", "random_start": {"seed": 0}}
    return workers().checkout(limits=limits, os_policy=host)


def _feed(session: Any, code: str, limit: int) -> Ran:
    """Run a program; where it is one expression, its value is printed."""
    said = list[str]()

    def keep(stream: str, text: str) -> None:
        if sum(map(len, said)) <= limit:
            said.append(text)

    library = monty()
    try:
        for form in (ECHOED, "{}\nNone"):  # no value leaves the sandbox, where it could be one that is endless to hash
            with suppress(library.MontySyntaxError):
                session.feed_run(form.format(code), print_callback=keep)
                return Ran("".join(said))
        session.feed_run(code, print_callback=keep)
    except (library.MontyRuntimeError, library.MontySyntaxError) as error:
        why = error.display("type-msg")
        for name, reported in (("TimeoutError: feed time limit", SLOW), ("MemoryError: ", LARGE)):
            if why.startswith(name):
                return Ran("", reported, stopped=True)
        return Ran("".join(said), why)
    except library.MontyError:
        return Ran("", DEAD, stopped=True)
    except (ValueError, RecursionError, UnicodeError) as error:  # a value that cannot be reported from outside
        return Ran("".join(said), type(error).__name__)
    return Ran("".join(said))


# SQL.


_FUNCTIONS = """abs avg coalesce count ifnull iif instr length like lower max min nullif replace round substr substring sum total
trim ltrim rtrim upper row_number rank dense_rank lag lead first_value last_value ntile"""
FUNCTIONS = frozenset(_FUNCTIONS.split())
"""What a query may call: functions whose value and size are given by their arguments."""
LONGEST_VALUE = 4000
"""Bytes of a value or row that a query makes, at most, where no row of the tables is longer: what one step takes follows it."""
SECONDS = 2.0
"""Time of a query, on the clock. Its steps end long before, unless each does as much as it can."""
BOUNDS = (
    (sqlite3.SQLITE_LIMIT_COLUMN, 64),
    (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 64),
    (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 16),
    (sqlite3.SQLITE_LIMIT_FUNCTION_ARG, 8),
    (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
    (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 100),
    (sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 0),
)
STEPS_PER_CALL = 100
"""Steps of sqlite's machine between two looks at the limit."""


def database(tables: Iterable[Table]) -> sqlite3.Connection:
    """The tables, in memory."""
    made = sqlite3.connect(":memory:")
    for table in tables:
        columns, marks = (", ".join(f'"{name}"' for name in table.columns), ", ".join("?" * len(table.columns)))
        made.execute(f'CREATE TABLE "{table.name}" ({columns})')
        made.executemany(f'INSERT INTO "{table.name}" VALUES ({marks})', table.rows)
    return made


def guard(made: sqlite3.Connection, tables: Sequence[Table], steps: int, longest: int) -> None:
    """From here on the connection reads these tables with FUNCTIONS, for so many steps, and does nothing else. Where rows
    are longer than LONGEST_VALUE it takes as many times fewer steps."""
    known = {table.name for table in tables}
    rows = [sum(len(str(value).encode(errors="replace")) for value in row) for table in tables for row in table.rows]
    length = max([LONGEST_VALUE, *(2 * row for row in rows)])
    left, until = [steps // STEPS_PER_CALL * LONGEST_VALUE // length + 1], time.monotonic() + SECONDS

    def allowed(action: int, one: str | None, other: str | None, schema: str | None, trigger: str | None) -> int:
        fine = (
            action == sqlite3.SQLITE_SELECT
            or (action == sqlite3.SQLITE_READ and schema != "temp" and (one in known or not other))
            or (action == sqlite3.SQLITE_FUNCTION and (other or "").lower() in FUNCTIONS)
        )
        return sqlite3.SQLITE_OK if fine else sqlite3.SQLITE_DENY

    def over() -> bool:
        left[0] -= 1
        return left[0] < 0 or time.monotonic() > until

    made.execute("PRAGMA temp_store = MEMORY")  # what is sorted goes into no file
    made.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, longest)
    made.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, length)
    for bound, most in BOUNDS:
        made.setlimit(bound, most)
    made.set_authorizer(allowed)
    made.set_progress_handler(over, STEPS_PER_CALL)


def query(text: str, tables: Sequence[Table], tool: SqlTool) -> tuple[list[tuple[Any, ...]], str]:
    """The rows of one SELECT, one more than `tool.rows` where there are more, and why there are none; empty: it is done."""
    with closing(database(tables)) as made:
        guard(made, tables, tool.steps, tool.longest)
        try:
            return made.execute(text).fetchmany(tool.rows + 1), ""
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
            why = "step limit" if str(error) == "interrupted" else str(error)
            return [], "no text" if isinstance(error, UnicodeError) else why
        except MemoryError:
            return [], "too large"


def run_sql(text: str, tables: tuple[Table, ...], tool: SqlTool) -> str:
    """The reply to a query: a line for each row, values separated by `|`."""
    rows, why = query(text, tables, tool)
    if why:
        return failed(why, tool.output)
    lines = [" | ".join("NULL" if value is None else str(value) for value in row) for row in rows[: tool.rows]]
    return plain("\n".join([*lines, *[CUT] * (len(rows) > tool.rows)]), tool.output, _letters(tables)) if lines else NOTHING


@lru_cache(maxsize=64)
def _letters(tables: tuple[Table, ...]) -> frozenset[str]:
    """All characters of the tables."""
    return frozenset("".join(str(value) for table in tables for row in table.rows for value in row))


# Search.


class Document(NamedTuple):
    """What search can find."""

    title: str
    text: str


WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """The words of a text as search compares them: lower case, without punctuation."""
    return WORD.findall(text.lower())


@lru_cache(maxsize=256)
def index(documents: tuple[Document, ...]) -> Any:
    """The BM25 index of documents. Raises UserError where bm25s is not installed."""
    check_tool("search")
    import bm25s

    made = bm25s.BM25()
    made.index([words(f"{one.title} {one.text}") or ["-"] for one in documents], show_progress=False)
    return made


def ranked(text: str, documents: tuple[Document, ...]) -> list[int]:
    """The numbers of the documents that have a word of the query, best first; of equal ones the first comes first."""
    return rank(text, index(documents)) if documents else []


def rank(text: str, found_in: Any) -> list[int]:
    """The same of an index."""
    asked = words(text)
    if not asked:
        return []
    scores = found_in.get_scores(asked)
    order = (-scores).argsort(kind="stable")
    return order[scores[order] > 0].tolist()


def run_search(text: str, documents: tuple[Document, ...], tool: SearchTool) -> str:
    """The reply to a query: the best documents, a line for each."""
    found = [documents[n] for n in ranked(text[: tool.longest], documents)[: tool.k]]
    each = [plain(" ".join((f"{one.title}: {one.text}" if one.title else one.text).split()), tool.output) for one in found]
    return "".join(each) or NOTHING
