"""Multi-turn conversations of the Berkeley Function-Calling Leaderboard (Patil et al., ICML 2025; package bfcl-eval): a user has
several requests for work in file systems, ticket desks, trading and travel accounts, whose state the policy's calls change.

The package evaluates what a model writes as Python. Here a turn is parsed instead: only functions of the conversation are called,
and only with literal arguments."""

import ast
import copy
import decimal
import inspect
import json
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from interplay.core.model import UserError
from interplay.tasks.adapters.packages import PackageWorld, package, package_family
from interplay.tasks.environments.spec import Bfcl
from interplay.tasks.family import Step

REMEDY = (
    "its dependencies are at odds with those of this package: pip install --no-deps bfcl-eval==2026.3.23, and mpmath"
    " (docs/guide/adapters.md)"
)
DONE = "done"
"""The expert's turn that ends a request."""
MORE = "More functions are available now. What about now?"
"""What the user says where functions that were held back are given, which has no words in the data."""
SLOW, SIZES, LARGEST = ("power", "logarithm", "square_root", "round_number"), ("exponent", "precision", "decimal_places"), 1000
"""Functions whose last argument is an exponent or a number of digits, its names, and the most it may be, so that no call runs for
long."""
INTERFACES = "bfcl_eval.constants.executable_backend_config"
CHECKER = "bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker"


def module(name: str, version: str | None = None) -> Any:
    """A module of the package. Raises UserError where it is not here."""
    return package("bfcl", "bfcl-eval", version, name, REMEDY)


@cache
def conversations(category: str) -> dict[str, dict[str, Any]]:
    """Id of a conversation -> what the package has of it, with its gold calls by request."""
    data = Path(module("bfcl_eval").__file__).parent / "data"
    name = f"BFCL_v4_multi_turn_{category}.json"
    entries, golds = (
        [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]
        for folder in (data, data / "possible_answer")
    )
    return {entry["id"]: {**entry, "gold": gold["ground_truth"]} for entry, gold in zip(entries, golds, strict=True)}


@cache
def documents(interface: str) -> list[dict[str, Any]]:
    """The functions of an interface, as they are described."""
    file = module(INTERFACES).MULTI_TURN_FUNC_DOC_FILE_MAPPING[interface]
    lines = (Path(module("bfcl_eval").__file__).parent / "data" / "multi_turn_func_doc" / file).read_text(encoding="utf-8")
    return [json.loads(line) for line in lines.splitlines()]


def shown_function(function: dict[str, Any], full: bool) -> str:
    """A function as the policy reads of it."""
    if full:
        return json.dumps({key: function[key] for key in ("name", "description", "parameters")})
    needed, named = function["parameters"].get("required", []), function["parameters"]["properties"]
    return f"{function['name']}({', '.join(name if name in needed else f'{name}=' for name in named)})"


def parsed(text: str) -> list[ast.Call] | None:
    """The calls of a turn, one a line or in a list; None where it is none."""
    try:
        body = ast.parse(text.strip(), mode="exec").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    calls = list[ast.expr]()
    for line in body:
        if not isinstance(line, ast.Expr):
            return None
        calls += line.value.elts if isinstance(line.value, ast.List) else [line.value]
    found = [call for call in calls if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)]
    return found if found and len(found) == len(calls) else None


class Interfaces:
    """The stateful interfaces of a conversation."""

    def __init__(self, entry: dict[str, Any]) -> None:
        table, long = module(INTERFACES), "long_context" in entry["id"]
        self.made: dict[str, Any] = {}
        for name in entry["involved_classes"]:
            self.made[name] = getattr(module(table.CLASS_FILE_PATH_MAPPING[name]), name)()
            if name not in table.STATELESS_CLASSES:
                given = copy.deepcopy(entry["initial_config"].get(name, {}))
                self.made[name]._load_scenario(given, long_context=long)

    def functions(self) -> Iterator[tuple[str, Any]]:
        """Their public functions, by name."""
        for made in self.made.values():
            yield from ((name, one) for name, one in inspect.getmembers(made, inspect.ismethod) if not name.startswith("_"))

    def call(self, call: ast.Call) -> str:
        """The result of a call as text; of one that fails why."""
        name = getattr(call.func, "id", "")
        try:
            function = dict(self.functions())[name]
            given = [ast.literal_eval(one) for one in call.args]
            named = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
            size = next((named[key] for key in SIZES if key in named), given[-1] if given else 0)
            if name in SLOW and isinstance(size, int | float) and abs(size) > LARGEST:
                raise ValueError(f"more than {LARGEST} is too large here")
            with decimal.localcontext():  # whose precision the interfaces set
                made = function(*given, **named)
        except KeyError:
            return f"Error during execution: name {name!r} is not defined"
        except Exception as error:  # an interface may raise anything
            return f"Error during execution: {error}"
        if isinstance(made, str):
            return made
        try:
            return json.dumps(made) if isinstance(made, dict) else str(made)
        except TypeError:
            return str(made)


class Conversation(PackageWorld[Bfcl]):
    """An episode of a conversation."""

    def check(self, task: Bfcl) -> None:
        """Raises UserError where the package is not here."""
        module("bfcl_eval", task.version)
        module(CHECKER, task.version)

    def draw(self, task: Bfcl, draw: random.Random, op: int) -> dict[str, Any]:
        """One of the conversations with `op` requests, and its gold calls, one a turn."""
        entries = [entry for entry in conversations(task.category).values() if len(entry["question"]) == op]
        if not entries:
            numbers = sorted({len(entry["question"]) for entry in conversations(task.category).values()})
            raise UserError(f"task bfcl: op {op}: conversations of {task.category} have {numbers[0]} to {numbers[-1]} requests")
        entry = draw.choice(entries)
        gold = [turn for request in entry["gold"] for turn in (*request, DONE)]
        return {"category": task.category, "id": entry["id"], "full": task.documented == "full", "gold": gold}

    def structure(self, problem: dict[str, Any]) -> str:
        """A conversation is in one split, in each category: they are made from the same two hundred."""
        return str(problem["id"]).rpartition("_")[2]

    def begin(self, problem: dict[str, Any], seed: int) -> str:
        """The functions and the first request."""
        self.entry = conversations(problem["category"])[problem["id"]]
        self.own, self.golden, self.at = Interfaces(self.entry), Interfaces(self.entry), 0
        self.results, self.called = list[str](), False
        later = [name for names in self.entry.get("missed_function", {}).values() for name in names]
        hidden = {*self.entry.get("excluded_function", ()), *later}  # that can be called all the same, as in the package
        functions = [one for name in self.entry["involved_classes"] for one in documents(name) if one["name"] not in hidden]
        return "\n".join([*(shown_function(one, problem["full"]) for one in functions), self.request()])

    def request(self) -> str:
        """What the user says, and functions that are given with it."""
        given = self.entry.get("missed_function", {}).get(str(self.at), [])
        described = [one for name in self.entry["involved_classes"] for one in documents(name) if one["name"] in given]
        said = [message["content"] for message in self.entry["question"][self.at]] or [MORE]
        return "\n".join([*(shown_function(one, self.problem["full"]) for one in described), "user: " + "\n".join(said)])

    def act(self, action: str) -> Step:
        """The results of calls, a line each; or the end of a request: right, the next one; wrong, the end of the conversation."""
        if calls := parsed(action):
            made = list(map(self.own.call, calls))
            self.results, self.called = [*self.results, *made], True
            return Step("\n".join(made), tool=getattr(calls[0].func, "id", ""))
        gold, right = self.entry["gold"][self.at], self.is_right()
        counted = sum(bool(request) for request in self.entry["gold"])
        self.at, self.called = self.at + 1, False
        paid = float(right) / counted if gold else 0.0
        if not right or self.at == len(self.entry["question"]):
            return Step("", paid, True, info={"requests": self.at})
        return Step(self.request(), paid)

    def is_right(self) -> bool:
        """Whether the state is that of the gold calls, and their results are among those so far: the package's own checks."""
        gold, checker = self.entry["gold"][self.at], module(CHECKER)
        expected = [self.golden.call(call) for line in gold for call in parsed(line) or ()]
        if not gold:
            return True
        if not self.called:
            return False
        same = checker.state_checker(self.own.made, self.golden.made)["valid"]
        return bool(same and checker.response_checker(self.results, expected, self.at)["valid"])


BFCL = package_family("bfcl", Conversation)
