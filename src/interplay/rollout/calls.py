"""Actions: how the call of a turn is written and read, and how similar calls are to those of the gold solution."""

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor

from interplay.kernels import exact
from interplay.rollout.spec import Action
from interplay.tasks import family, verdict

# What a turn does: its action, where `Action` says that it is.


class Call(NamedTuple):
    """What a turn does."""

    text: str | None
    """The action; None: what was meant cannot be read."""
    tool: str = ""
    """Name of the tool; empty: none, or unknown."""
    why: str = ""
    """Why it cannot be read."""


def named_call(value: Any) -> str | None:
    """The JSON object of a call, with `name` and `arguments`, as text: `name(value)` of one argument, else `name(a=1, b="x")`;
    None: it is no such object."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    given = value.get("arguments", value.get("parameters", {}))
    try:
        given = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        return None
    if not isinstance(given, dict) or not family.is_encodable([value["name"], given]):
        return None
    if len(given) == 1 and isinstance(only := next(iter(given.values())), str):
        return f"{value['name']}({only})"
    values = [json.dumps(one) for one in given.values()]
    named = values if len(given) == 1 else [f"{key}={one}" for key, one in zip(given, values, strict=True)]
    return f"{value['name']}({', '.join(named)})"


def read_action(action: Action, turn: str) -> Call:
    """The action of a turn."""
    if action.form == "whole":
        return Call(turn)
    begun, found = FORMS[action.form](action, turn)
    if found is None:
        return Call(None, why=begun) if begun else Call(turn)
    name, text, around = found
    if not (text or action.named):
        return Call(None, why="an empty call")
    if action.tools and name not in action.tools:
        return Call(None, why=f"no tool '{name[:40]}'; there is {', '.join(action.tools)}")
    if not action.thought and turn.replace(around, "", 1).strip():
        return Call(None, why="text next to the call")
    return Call(f"{name}({text.strip()})" if action.named else text, name)


Marked = tuple[str, tuple[str, str, str] | None]
"""Why a call that begins cannot be read, empty where none begins; and its name, its text and all that it takes of the turn."""


def _tagged(action: Action, turn: str) -> Marked:
    tag = max(action.tools, key=lambda name: turn.rfind(f"<{name}>")) if action.named else action.tag
    opened, closing = f"<{tag}>", f"</{tag}>"
    start = turn.rfind(opened)
    end = turn.find(closing, start)
    if start < 0 or end < 0:
        return f"{opened} without {closing}" if start >= 0 else "", None
    text = turn[start + len(opened) : end].strip()
    if action.named:
        return "", (tag, text, turn[start : end + len(closing)])
    with suppress(ValueError, RecursionError):
        text = named_call(json.loads(text)) or text
    return "", (text.partition("(")[0].strip(), text, turn[start : end + len(closing)])


def _json_object(action: Action, turn: str) -> Marked:
    found, at, decoder = None, turn.find("{"), json.JSONDecoder()
    while at >= 0:
        end = at + 1
        with suppress(ValueError, RecursionError):
            value, end = decoder.raw_decode(turn, at)
            if call := named_call(value):
                found = (value["name"], call, turn[at:end])
        at = turn.find("{", end)
    return 'no JSON object with "name" and "arguments"' if re.search(r"\{\s*\"", turn) else "", found


def _fenced(action: Action, turn: str) -> Marked:
    blocks = [*re.finditer(r"```(\w*)[ \t]*\n(.*?)```", turn, re.DOTALL)]
    if not blocks:
        return "a code block is not closed" if "```" in turn else "", None
    return "", (blocks[-1][1], blocks[-1][2], blocks[-1][0])


def _named_tool(action: Action, turn: str) -> Marked:
    begun = [*re.finditer(rf"\b({'|'.join(map(re.escape, action.tools))})\(", turn)]
    if not begun:
        return "", None
    depth, start = 0, begun[-1].start()
    for place in range(begun[-1].end() - 1, len(turn)):
        depth += (turn[place] == "(") - (turn[place] == ")")
        if not depth:
            return "", (begun[-1][1], turn[start : place + 1], turn[start : place + 1])
    return f"{begun[-1][0]} without )", None


FORMS: dict[str, Callable[[Action, str], Marked]] = {"tag": _tagged, "json": _json_object, "fence": _fenced, "call": _named_tool}


# Calls against the gold calls of a problem (MatchTIR).


class Called(NamedTuple):
    """A call: its name, and its parameters by name, or by place where they have none."""

    name: str
    given: dict[str, str]


CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)


def read_call(action: str) -> Called | None:
    """`name(a, b=c)`, or words, of which the first is the name; None: an answer, or nothing."""
    if verdict.BOX in action or not action.strip():
        return None
    found = CALL.fullmatch(action)
    name, *words = [found[1], *re.split(r",(?![^()\[\]{}]*[)\]}])", found[2])] if found else action.split()
    pairs = [word.partition("=") if found and re.match(r"\s*\w+=", word) else (str(i), "", word) for i, word in enumerate(words)]
    return Called(name, {key.strip(): value.strip() for key, _, value in pairs if value.strip()})


def similarity(call: Called, gold: Called) -> float:
    """0 for another name; else 1, plus the Jaccard index of the parameters' names, plus how many values are equal, over the most
    that this can be (MatchTIR's released `tool_similarity`)."""
    if call.name.lower() != gold.name.lower():
        return 0.0
    shared, both = call.given.keys() & gold.given.keys(), call.given.keys() | gold.given.keys()
    names = len(shared) / len(both) if both else 1.0
    equal = sum(call.given[key] == gold.given[key] for key in shared)
    return (1.0 + names + equal) / (2.0 + len(gold.given))


def matched(calls: Sequence[Called], golds: Sequence[Called], soft: bool, by: exact.Functions) -> list[float]:
    """What each call is worth against the gold calls."""
    if not (calls and golds):
        return [0.0] * len(calls)
    scores = [[similarity(call, gold) for gold in golds] for call in calls]
    if soft:
        table = torch.tensor(scores, dtype=torch.float64)
        return by.summed(transported(table, 0.1, by) * table, 1).tolist()
    found, taken = [0.0] * len(calls), set[int]()
    pairs = sorted((-scores[i][j], i, j) for i in range(len(calls)) for j in range(len(golds)))
    for score, i, j in pairs:
        if score and not found[i] and j not in taken:
            found[i] = -score
            taken.add(j)
    return found


def transported(scores: Tensor, regularisation: float, by: exact.Functions) -> Tensor:
    """(P,G) mass between P calls and G gold calls of equal masses that transports most similarity, with entropic regularisation
    (Sinkhorn's algorithm, 1,000 rounds at most)."""
    kernel = by.exp(scores / regularisation)
    rows, columns = (torch.full((n,), 1.0 / n, dtype=torch.float64) for n in scores.shape)
    left, right = torch.ones_like(rows), torch.ones_like(columns)
    for _ in range(1000):
        before = left
        right = columns / by.summed(kernel * left[:, None], 0)
        left = rows / by.summed(kernel * right, 1)
        if bool(((left - before).abs() <= 1e-12 * left).all()):
            break
    return left[:, None] * kernel * right
