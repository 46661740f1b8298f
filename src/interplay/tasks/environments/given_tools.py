"""Tools for the rows of any family that judges completions: the curation step `with_tools` makes rows of the family `with_tools`,
whose gold holds the original one, and the environment here replies to calls.

A call is `python(print(3+4))`, `sql(SELECT ...)` or `search(the boss of Ada)`; the episode's `action` says how a model writes it.
Any other action is the final answer, ends the episode, and is judged by the row's own family, as is an answer that was never
preceded by a call. What a tool replies is read by the policy alone: neither an answer nor a call in it counts."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from interplay.tasks import spec
from interplay.tasks.environments import sandbox
from interplay.tasks.environments.spec import Tools
from interplay.tasks.families import judge_family
from interplay.tasks.family import Environment, Family, Rendered, Step, Table, compact_json
from interplay.tasks.transcripts import UNANSWERED, play, policy_turns
from interplay.tasks.verdict import BOX, Row, Verdict

NAME = "with_tools"
ANSWERS = {"op_dag": "#{}", "op_dag_prose": " </solution> <answer> {} </answer>"}
"""How an answer without its process is written; other families have a box."""
DONE = Step("", done=True)
_TOOLS: TypeAdapter[list[Any]] = TypeAdapter(Tools)


class Given(NamedTuple):
    """A problem with tools."""

    family: str
    """Who judges it."""
    graph: str
    """The gold, as that family's `loads` reads it."""
    answer: str
    tools: str
    """Their options as JSON."""
    documents: tuple[sandbox.Document, ...] = ()
    """What search finds."""
    price: float | None = None
    """Of a call; None: turns are not paid."""
    mode: str = NAME

    @property
    def judge(self) -> Family[Any]:
        """The family."""
        return judge_family(self.family)

    @property
    def problem(self) -> Any:
        """The problem as the family knows it."""
        return _problem(self.family, self.graph)

    @property
    def named(self) -> dict[str, Any]:
        """Its tools by name."""
        return _tools(self.tools)


@lru_cache(maxsize=4096)
def _problem(family: str, graph: str) -> Any:
    return judge_family(family).loads(graph)


@lru_cache(maxsize=64)
def _tools(written: str) -> dict[str, Any]:
    return {tool.name: tool for tool in _TOOLS.validate_json(written)}


def loads(text: str) -> Given:
    """The inverse of `dumps`."""
    family, graph, answer, tools, documents, price = json.loads(text)
    return Given(family, graph, answer, tools, tuple(sandbox.Document(*one) for one in documents), price)


def dumps(given: Given) -> str:
    """JSON, one line."""
    return compact_json(given[:-1])


def call_of(given: Given, action: str) -> tuple[str, str] | None:
    """Tool and text of a call; None: the action is none."""
    name, bracket, rest = action.strip().partition("(")
    return (name, rest[:-1]) if bracket and name in given.named and rest.endswith(")") else None


def reply(given: Given, turns: list[str]) -> Step:
    """The tool's reply to the last turn, or the end."""
    call = call_of(given, turns[-1])
    if call is None:
        right = given.price is not None and judged(given, turns[-1], spec.Verify()).answer
        return DONE if given.price is None else DONE._replace(reward=float(right))
    name, text = call
    return Step(used(given, name, text, turns[:-1]), None if given.price is None else -given.price, tool=name)


def used(given: Given, name: str, text: str, before: Sequence[str]) -> str:
    """What a tool replies."""
    tool = given.named[name]
    if name == "search":
        return sandbox.run_search(text, given.documents, tool)
    if name == "sql":
        return sandbox.run_sql(text, tables_of(given), tool)
    earlier = [call[1] for turn in before if (call := call_of(given, turn)) and call[0] == name]
    return sandbox.run_python(text, earlier, tool)


def tables_of(given: Given) -> tuple[Table, ...]:
    """What SQL reads: the tables of the family, else the documents."""
    if given.judge.tables:
        return given.judge.tables(given.problem)
    return (Table("documents", ("title", "text"), given.documents),)


def judged(given: Given, text: str, options: spec.Verify) -> Verdict:
    """What the row's family says of a turn as an answer."""
    return given.judge.verify(given.problem, text, options)


def verify(given: Given, completion: str, options: spec.Verify) -> Verdict:
    """The verdict of the row's family on the last turn of a transcript, which is no answer where it is a call."""
    last = policy_turns(completion)[-1]
    return UNANSWERED if call_of(given, last) else judged(given, last, options)


def expert(given: Given) -> list[str]:
    """The calls with which the family finds the answer, with the first of the tools for which it has some, and the answer; none
    where it has none, or they do not lead to it."""
    known = given.judge.calls(given.problem) if given.judge.calls else {}
    item = given.judge.item(given.problem) if given.judge.item else None
    if item and "search" not in known:
        needed = dict.fromkeys(item.paragraphs[paragraph].title for paragraph, _ in item.supporting)
        known = {**known, "search": list(needed)}
    name = next((name for name in given.named if known.get(name)), None)
    if name is None:
        return []
    answer = ANSWERS[given.family].format(given.answer) if given.family in ANSWERS else f"{BOX}{given.answer}}}"
    turns = [*(f"{name}({text})" for text in known[name]), answer]
    replies = [reply(given, turns[: n + 1]).text for n in range(len(turns) - 1)]
    failing = any(text.startswith((sandbox.ERROR, sandbox.NOTHING)) for text in replies)
    return [] if failing or not verify(given, turns[-1], spec.Verify()).answer else turns


def transcript(given: Given) -> str:
    """The expert's transcript; empty where there is no expert."""
    turns = expert(given)
    return play(turns, lambda said: reply(given, said)) if turns else ""


def open_row(row: Row) -> Row:
    """The row of the question without tools, as far as its question goes."""
    given = loads(row.graph)
    return replace(row, family=given.family, graph=given.graph)


def _not_generated(*given: Any) -> Any:
    raise ValueError("rows with tools are made by the step with_tools")


WITH_TOOLS = Environment(
    name=NAME,
    errors=(),
    loads=loads,
    dumps=dumps,
    verify=verify,
    open_question=open_row,
    item=lambda given: given.judge.item(given.problem) if given.judge.item else None,
    reply=reply,
    expert=expert,
    generate=_not_generated,
    render=lambda given, task: Rendered("", transcript(given), given.answer),
    solve=None,
    structure=_not_generated,
    vocabulary=_not_generated,
)
"""Its error classes are those of the row's family."""
