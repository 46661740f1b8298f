"""Task families of other packages, each an extra: reasoning-gym's datasets (Stojanovski et al., arXiv:2505.24760), more than a
hundred generators of short questions with verifiers of their own.

A completion says its answer between `<answer>` and `</answer>`, as reasoning-gym's prompts for models ask; the last such pair
counts. What a verifier pays is the package's matter: `interplay audit` says what it pays to whom.

Nine verifiers of the package evaluate an answer as Python. An answer that is more than the value or formula that they ask for is
not given to them."""

import ast
import copy
import dataclasses
import json
import re
import string
from datetime import date, time
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

from interplay.core.model import UserError, nearest_name
from interplay.core.random import stream_key
from interplay.tasks.adapters import packages
from interplay.tasks.environments.spec import ReasoningGym
from interplay.tasks.family import Generator, Rendered, from_json
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Verdict, first_error

OPEN, CLOSE = "<answer>", "</answer>"
GOLDS = ("possible_answer", "example_answer", "example_correct_answer")
"""Keys of an entry's metadata that hold an answer where the entry itself has none."""
LISTS = {"string_insertion", "spiral_matrix", "binary_matrix", "n_queens"}
"""Datasets whose verifier calls `eval` of an answer, which may be a list."""
FORMULAS = {"polynomial_multiplication", "puzzle24", "countdown", "simple_integration", "intermediate_integration"}
"""Those that call sympy's `parse_expr`, which evaluates, too."""
FUNCTIONS = {"exp", "log", "ln", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "Abs"}
"""What a formula may call."""
FROM_FILES = {"arc_agi", "codeio", "figlet_font", "group_anagrams", "word_ladder"}
"""Datasets that take 0.1 to 1 second to be made, since they read files; their seed counts when an entry is read alone."""
DRAWS = 20
"""Entries that are drawn for one with an answer, at most."""
LARGEST = 100
"""Greatest exponent of a formula."""
LETTERS = re.compile(r"[\w \n+\-*/().,]*", re.ASCII)


class Puzzle(NamedTuple):
    """One entry of a dataset."""

    mode: str
    """The dataset's name."""
    settings: str
    """`op` and `config` of the task as JSON."""
    entry: str
    """Question, answer and metadata as JSON."""


def package(version: str | None) -> ModuleType:
    """reasoning-gym. Raises UserError where another version is installed, or none."""
    return packages.package("reasoning_gym", "reasoning-gym", version, "reasoning_gym")


def datasets(version: str | None = None) -> list[str]:
    """Names of all datasets, but for the mixture of several."""
    return [name for name in sorted(package(version).factory.DATASETS) if name != "composite"]


def check_dataset(task: ReasoningGym) -> None:
    """Raises UserError where the package is not here, or has no such dataset."""
    known = package(task.version).factory.DATASETS
    if task.dataset not in known:
        near = nearest_name(task.dataset, list(known))
        raise UserError(f"task reasoning_gym: dataset = {task.dataset}: reasoning-gym {task.version} has none such{near}")


def settings_of(dataset: str, op: int, config: dict[str, Any]) -> dict[str, Any]:
    """The configuration of a dataset at a level of its curriculum, op - 1 (of parameters with fewer levels the last), with values
    of its own in addition, in the types that the package gives them. Raises UserError for an unknown level, TypeError and
    ValueError for a value of another form."""
    factory = package(None).factory
    if dataset not in factory.CURRICULA:
        if op > 1:
            raise UserError(f"task reasoning_gym: op {op}: {dataset} has no curriculum, so that op is 1; set config")
        made = factory.DATASETS[dataset][1]()
    else:
        curriculum = factory.create_curriculum(dataset)
        levels = {name: len(attribute.levels) for name, attribute in curriculum.attributes.items()}
        if op > max(levels.values(), default=1):
            raise UserError(f"task reasoning_gym: op {op}: the curriculum of {dataset} has {max(levels.values())} levels")
        for name, count in levels.items():
            curriculum.set_attr_level(name, min(op, count) - 1)
        made = curriculum.generate_configuration()
    own = {field.name: getattr(made, field.name) for field in dataclasses.fields(made) if field.name not in ("seed", "size")}
    return {**own, **{name: in_type_of(own.get(name), value) for name, value in config.items()}}


def in_type_of(example: Any, value: Any) -> Any:
    """A value of JSON as the value that it replaces: keys of a dataclass replace its own, dates and times are read, lists are
    tuples."""
    if dataclasses.is_dataclass(example) and not isinstance(example, type) and isinstance(value, dict):
        return dataclasses.replace(example, **value)
    if isinstance(example, date | time) and isinstance(value, str):
        return type(example).fromisoformat(value)
    return as_tuples(value) if isinstance(example, tuple) else value


def generate_puzzle(task: ReasoningGym, seed: int, index: int, op: int) -> Puzzle:
    """The entry keyed by (seed, index, op). One whose answer is empty, as of a cube that is solved already, is drawn again.
    Raises UserError where the configuration is refused, or entries have no answer."""
    check_dataset(task)
    settings = as_json({"op": op, "config": task.config})
    for attempt in range(DRAWS):
        key = stream_key("reasoning_gym", task.dataset, seed, index, op, *filter(None, [attempt])) % 2**31
        try:
            with packages.quiet():
                entry = _seeded_dataset(task.dataset, settings, key)[0]
        except (AssertionError, TypeError, ValueError) as error:
            raise UserError(f"task reasoning_gym: {task.dataset} at op {op} refuses its config: {error}") from None
        if entry["answer"] is None:
            entry["answer"] = next((entry["metadata"][name] for name in GOLDS if name in entry["metadata"]), None)
        if entry["answer"] is None:
            break
        if entry["answer"] != "":
            return Puzzle(task.dataset, settings, as_json(entry))
    raise UserError(
        f"task reasoning_gym: {task.dataset} at op {op} gives questions without an answer; take another dataset or op"
    )


def _seeded_dataset(dataset: str, settings: str, key: int) -> Any:
    if dataset not in FROM_FILES:
        return made_dataset(dataset, settings, key)
    made = copy.copy(first_dataset(dataset, settings))
    made.seed = key
    if dataset == "codeio":
        type(made)._jsonl_data = made.entries
    return made


def made_dataset(dataset: str, settings: str, seed: int) -> Any:
    """A dataset of one entry with the `settings` of a puzzle."""
    return package(None).create_dataset(dataset, **settings_of(dataset, **json.loads(settings)), seed=seed, size=1)


@cache
def first_dataset(dataset: str, settings: str) -> Any:
    """The dataset of which those of FROM_FILES are copies, and whose `score_answer` judges."""
    made = made_dataset(dataset, settings, 0)
    if dataset == "codeio":  # which keeps the entries of the difficulty that was made last in its class
        made.entries = type(made)._jsonl_data
    return made


def as_json(value: Any) -> str:
    """One line of JSON; arrays as lists, what JSON has not as text."""
    return json.dumps(value, default=lambda odd: odd.tolist() if hasattr(odd, "tolist") else str(odd))


def as_tuples(value: Any) -> Any:
    """A value of JSON with tuples in place of lists: grids that some verifiers compare by equality."""
    return tuple(map(as_tuples, value)) if isinstance(value, list) else value


def answer_of(problem: Puzzle) -> str:
    """The gold answer."""
    answer = json.loads(problem.entry)["answer"]
    return answer if isinstance(answer, str) else as_json(answer)


def render_puzzle(problem: Puzzle, task: ReasoningGym) -> Rendered:
    """The question; the gold answer between its marks."""
    answer = answer_of(problem)
    return Rendered(f"{json.loads(problem.entry)['question'].strip()}\n", f"{OPEN}{answer}{CLOSE}", answer)


def is_value(text: str) -> bool:
    """Whether `eval` of a text gives lists, numbers, strings and names, or nothing since it is no expression."""
    try:
        nodes = list(ast.walk(ast.parse(text.strip(), mode="eval").body))
    except (SyntaxError, ValueError):
        return True
    except (MemoryError, RecursionError):
        return False
    plain = (ast.List, ast.Tuple, ast.Constant, ast.Name, ast.UnaryOp, ast.unaryop, ast.Load)
    return all(isinstance(node, plain) for node in nodes)


def is_formula(text: str) -> bool:
    """Whether a text is a formula of numbers, names, + - * / **, and FUNCTIONS, without large powers."""
    try:
        return bool(LETTERS.fullmatch(text)) and _is_formula(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False


def _is_formula(node: ast.expr, powers: int = 0) -> bool:
    """Of a part, within so many powers."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        constants = [one.value for one in ast.walk(node.right) if isinstance(one, ast.Constant)]
        small = all(isinstance(value, int | float) and abs(value) <= LARGEST for value in constants)
        plain = not any(isinstance(one, ast.Call | ast.Add | ast.Mult | ast.Pow) for one in ast.walk(node.right))
        return powers < 2 and small and plain and all(_is_formula(one, powers + 1) for one in (node.left, node.right))
    if isinstance(node, ast.BinOp):
        fine = isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div)
        return fine and _is_formula(node.left, powers) and _is_formula(node.right, powers)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub | ast.UAdd) and _is_formula(node.operand, powers)
    if isinstance(node, ast.Call):
        known = isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS and len(node.args) == 1 and not node.keywords
        return known and _is_formula(node.args[0], powers)
    return isinstance(node, ast.Name) or (isinstance(node, ast.Constant) and type(node.value) in (int, float))


def verify_puzzle(problem: Puzzle, completion: str, options: Verify) -> Verdict:
    """The package's score of the last answer between the marks; right: a score of 1. Errors: `truncated` (no answer), `raised`
    (its verifier raised an exception, or would have run the answer as a program), `answer`."""
    said = completion.rpartition(OPEN)[2].partition(CLOSE)[0].strip() if OPEN in completion else None
    entry = json.loads(problem.entry)
    if problem.mode in ("arc_agi", "rearc"):
        entry["metadata"] = {name: as_tuples(value) for name, value in entry["metadata"].items()}
    of = {problem.mode, entry["metadata"].get("source_dataset")}  # the second of one that mixes several
    plain = said and (not of & LISTS or is_value(said)) and (not of & FORMULAS or is_formula(said))
    score, raised = 0.0, bool(said and not plain)
    if said and plain:
        try:
            with packages.quiet():
                score = min(1.0, max(0.0, float(first_dataset(problem.mode, problem.settings).score_answer(said, entry))))
        except Exception:  # a verifier of theirs may raise anything
            raised = True
    right = score >= 1
    error = first_error(truncated=not said, raised=raised, answer=not right)
    return Verdict(right, right, score if said else 0.0, error, said=(said or "")[:80])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Puzzles(Generator[Puzzle, ReasoningGym]):
    """A family without a solver: the gold is the package's own."""

    def answer(self, task: ReasoningGym, problem: Puzzle, prompt: str) -> str:
        """The gold answer."""
        return answer_of(problem)


def _unsolved(prompt: str, task: ReasoningGym) -> str:
    raise ValueError(f"reasoning_gym has no solver: {prompt[:80]!r}")


REASONING_GYM = Puzzles(
    name="reasoning_gym",
    errors=("truncated", "raised", "answer"),
    check=check_dataset,
    loads=from_json(Puzzle),
    verify=verify_puzzle,
    generate=generate_puzzle,
    render=render_puzzle,
    solve=_unsolved,
    structure=lambda problem: f"{stream_key('reasoning_gym', problem.mode, json.loads(problem.entry)['question']):016x}",
    vocabulary=lambda task: [OPEN, CLOSE, *string.printable],
    characters=lambda task: string.printable,
)
