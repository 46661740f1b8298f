"""The gold graph of a problem, its structure key, and the verdict from the bits of its nodes; shared by both surfaces of op_dag.

A graph has the definitions, their operands and values, and the order of the prompt."""

import zlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from interplay.core import extension
from interplay.tasks import family, spec, verdict

Form = tuple[int, int]
"""A linear form (a, b): a times the unknown plus b. A plain number is (0, b)."""

FORWARD = "forward"
REVERSE = "reverse"


P = TypeVar("P")
T = TypeVar("T")
MOST_KEPT = 1024


def keep_by_identity(make: Callable[[P], T]) -> Callable[[P], T]:
    """`make` with a cache of its last results by the identity of the problem, which they must keep alive: to hash a problem takes
    as long as to judge a step."""
    kept: dict[int, T] = {}

    def of(problem: P) -> T:
        found = kept.get(id(problem))
        if found is None:
            if len(kept) >= MOST_KEPT:
                kept.pop(next(iter(kept)), None)
            found = kept[id(problem)] = make(problem)
        return found

    return of


def count_edges(nodes: Sequence[Any]) -> int:
    """In-edges of nodes of either surface, constants counting one; an unknown leaf replaces a constant and has one, too."""
    return sum(max(1, len(node.parents) + (node.constant is not None)) for node in nodes)


class GoldGraph:
    """A problem of either surface: has `mode`, `nodes`, `necessary` and `values`."""

    __slots__ = ()

    @property
    def op(self: Any) -> int:
        """Edges of the necessary graph, constants counting one."""
        return count_edges(self.nodes[: self.necessary])

    @property
    def goal(self: Any) -> int:
        """The place of the goal among the nodes."""
        return int(self.necessary) - 1

    @property
    def answer(self: Any) -> int:
        """The value of the question."""
        return int(self.values[0] if self.mode == REVERSE else self.values[-1])


class Node(NamedTuple):
    """One definition: `operator` over its parents, in order, and then its constant. The unknown has neither parents nor
    constant."""

    name: str
    operator: str
    """One of + - *, or empty where there is one operand only."""
    parents: tuple[int, ...]
    """Places in `Problem.nodes`, all before the node's own where the node is necessary."""
    constant: int | None


class _ProblemFields(NamedTuple):
    mode: str
    """`forward`: the question is about the goal's value. `reverse`: about the value of nodes[0], given the goal's."""
    modulus: int | None
    nodes: tuple[Node, ...]
    necessary: int
    """The number of necessary nodes; those after them are distractors."""
    values: tuple[int, ...]
    """Value of each necessary node, at the true value of the unknown."""
    slopes: tuple[int, ...]
    """Coefficient of the unknown in each necessary node's linear form; all 0 in forward mode."""
    order: tuple[int, ...]
    """Nodes in the order in which the prompt defines them."""
    filler: tuple[int, ...]
    """Neutral characters before the first definition and after each."""


class Problem(_ProblemFields, GoldGraph):
    """A problem with its gold graph. Necessary nodes come first in topological order, the goal last among them."""

    __slots__ = ()


def calls(problem: Any) -> dict[str, list[str]]:
    """For Python the program of a forward problem of either surface: a line for each necessary node, then the value of the
    goal. A reverse problem has none."""
    if problem.mode == REVERSE:
        return {}
    names = [node.name if len(node.name) == 1 else f"v{place}" for place, node in enumerate(problem.nodes)]
    lines = []
    for name, node in zip(names, problem.nodes[: problem.necessary], strict=False):
        terms, minus = [names[parent] for parent in node.parents], getattr(node, "minus", None)
        if minus is None:  # terse: the operator is between all terms, the constant last
            made = node.operator.join([*terms, *([] if node.constant is None else [str(node.constant)])])
        else:
            whole = ("-" if minus else "+").join(terms)
            parts = [] if node.constant is None else [str(node.constant)]
            made = node.operator.join([*parts, *([f"({whole})" if parts and len(terms) > 1 else whole] if terms else [])])
        lines.append(f"{name}={made}")
    modulus = f"%{problem.modulus}" if problem.modulus else ""
    return {"python": ["\n".join([*lines, f"print({names[problem.goal]}{modulus})"])]}


def forms(problem: Any) -> list[Form]:
    """The linear form of each necessary node of a problem of either surface: b = value - a * unknown, modulo p where there is a
    modulus."""
    if problem.mode == FORWARD:
        return [(0, value) for value in problem.values]
    unknown, modulus = problem.values[0], problem.modulus
    pairs = [(a, value - a * unknown) for a, value in zip(problem.slopes, problem.values, strict=True)]
    return [(a, b % modulus) for a, b in pairs] if modulus else pairs


def linear_root(slope: int, rest: int, modulus: int | None) -> int:
    """The x with slope * x = rest, over the integers or modulo a prime. Raises ValueError where there is none or more than
    one."""
    if modulus:
        return rest * pow(slope, -1, modulus) % modulus
    if not slope or rest % slope:
        raise ValueError(f"{slope} * x = {rest} has no unique integer solution")
    return rest // slope


def dependencies(parents: Sequence[Sequence[int]], start: int) -> set[int]:
    """The places that a place depends on, itself included; `parents` of each place."""
    found: set[int] = set()
    waiting = [start]
    while waiting:
        place = waiting.pop()
        if place not in found:
            found.add(place)
            waiting += parents[place]
    return found


def unfolding(problem: Problem) -> list[int]:
    """Necessary nodes from the goal down, each once and after all the necessary nodes that read it. Reversed, an order of
    evaluation.

    Kahn's order, last in first out: an operand is followed to its leaves before the next one, from left to right, so that most
    lines follow from the line before."""
    readers = [0] * problem.necessary
    for node in problem.nodes[: problem.necessary]:
        for parent in node.parents:
            readers[parent] += 1
    order = []
    stack = [problem.goal]
    while stack:
        place = stack.pop()
        order.append(place)
        for parent in reversed(problem.nodes[place].parents):
            readers[parent] -= 1
            if not readers[parent]:
                stack.append(parent)
    return order


def restated(problem: Any, steps: list[str], between: int, written: int, length: tuple[int, int]) -> list[str]:
    """The steps of a gold solution of either surface, some of them several times in a row, until the solution has a length out of
    the closed range: it has `written` characters without, and `between` separate two steps. The problem decides which, so that it
    has one gold solution."""
    state = mix_hash(zlib.crc32(repr(tuple(problem)).encode()))
    room = length[0] + state % (length[1] - length[0] + 1) - written
    times = dict.fromkeys(steps, 1)
    while fitting := [step for step in steps if len(step) + between <= room]:
        state = mix_hash(state)
        step = fitting[state % len(fitting)]
        times[step] += 1
        room -= len(step) + between
    return [step for step in steps for _ in range(times[step])]


def dumps(problem: Problem) -> str:
    """The problem as JSON, one line."""
    return family.compact_json(problem._asdict())


loads = family.from_json(Problem)
"""The inverse of `dumps`."""


# The structure key: equal for problems that differ in names, the order of definitions and of commuting operands, and filler.


_MASK = 2**64 - 1
_OPERATORS = {"": 1, "+": 2, "-": 3, "*": 4}


def structure(problem: Problem) -> str:
    """`structure_in_python`, from compiled code where that covers the problem."""
    key = compiled("structure_key", problem, False)
    return structure_in_python(problem) if key is None else f"{key:016x}"


def structure_in_python(problem: Problem) -> str:
    """16 hex digits. Isomorphic problems share the key; colours are refined (Weisfeiler and Lehman) down and up the graph, twice,
    so that others practically never do. Integer arithmetic only: the key is the same on every machine and version of Python."""
    colours, goal = [], problem.goal
    for place, node in enumerate(problem.nodes):
        constant = 0 if node.constant is None else node.constant + 2
        unknown = node.constant is None and not node.parents
        colours.append(mix_hash((((constant * 8 + _OPERATORS[node.operator]) * 2 + (place == goal)) * 2 + unknown) + 1))
    return structure_key(problem, colours, [node.operator == "-" for node in problem.nodes], problem.modulus or 0)


def structure_key(problem: Any, colours: list[int], ordered: Sequence[bool], modulus: int = 0) -> str:
    """The key of a problem of either surface whose nodes have these colours (which are altered); `ordered`: whether the order of
    a node's parents counts."""
    given = problem.values[-1] + 1 if problem.mode == REVERSE else 0
    goal = problem.goal
    colours[goal] = mix_hash(colours[goal] + given * 131 + modulus)
    reads = [node.parents for node in problem.nodes]
    for _ in range(2):
        _refine_down(reads, ordered, colours)
        _refine_up(reads, ordered, colours)
    return f"{mix_hash(sum(colours)):016x}"


def _refine_down(reads: Sequence[tuple[int, ...]], ordered: Sequence[bool], colours: list[int]) -> None:
    """Each node's colour from its own and its parents', which precede it; the order of parents counts where `ordered` says so."""
    for place, parents in enumerate(reads):
        mixed = [mix_hash(colours[parent] + number * ordered[place]) for number, parent in enumerate(parents)]
        colours[place] = mix_hash(colours[place] * 3 + sum(mixed))


def _refine_up(reads: Sequence[tuple[int, ...]], ordered: Sequence[bool], colours: list[int]) -> None:
    """Each node's colour from its own and its readers', which follow it."""
    totals = [colour * 5 for colour in colours]
    for place in reversed(range(len(colours))):
        colours[place] = mix_hash(totals[place])
        for number, parent in enumerate(reads[place]):
            totals[parent] += mix_hash(colours[place] + number * ordered[place] + 7)


def mix_hash(number: int) -> int:
    """A 64-bit finaliser (Stafford's variant 13 of MurmurHash3's)."""
    number &= _MASK
    number = ((number ^ number >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ number >> 27) * 0x94D049BB133111EB) & _MASK
    return number ^ number >> 31


# The verdict on a completion, from its statements about each node.


BITS = VALUED, NAMED, BAD_VALUE, BAD_PARENTS, BAD_OPERATOR, EXTRA, UNREADABLE = (1, 2, 4, 8, 16, 32, 64)
"""Bits of a node: it has a value; its parents are named; and what is wrong."""
STATED = 128
"""Bit of the goal of a reverse problem: the equation is stated, its form equal to its given value."""
UNWORKED = 256
"""Bit of a node with an operator that a step of the terse surface values without the numbers that it is worked out from."""
ERRORS = ("truncated", "parse", "missing_node", "dependency", "operator", "value", "extra_node", "answer")
"""Error classes of `tally`."""


Counts = tuple[int, int, int, int, int, int, int, str | None]
"""Of a completion: right, missing, dependency, operator and value errors among necessary nodes; other names; whether all of it
could be parsed; and the answer, None where there is none."""


def tally(state: list[int], expected: list[int], options: spec.Verify, readable: bool, extra: int, answer: str | None) -> Counts:
    """The counts of a completion: `state` and `expected` hold the bits of each necessary node, as stated and if right."""
    ignored = (0 if options.operator else BAD_OPERATOR) | (0 if options.arithmetic else UNWORKED)
    state = [bits & ~ignored for bits in state]
    missing = value = dependency = operator = correct = 0
    for bits, wanted in zip(state, expected, strict=True):
        if bits == wanted:
            correct += 1
        elif not bits & VALUED:
            missing += 1
        else:
            value += bool(bits & (BAD_VALUE | UNWORKED) or wanted & STATED & ~bits)
            dependency += bool(bits & BAD_PARENTS or wanted & NAMED & ~bits)
            operator += bool(bits & BAD_OPERATOR)
    return correct, missing, dependency, operator, value, extra, int(readable), answer


def asked_for(options: spec.Verify) -> int:
    """What the compiled verifiers are asked for, as bits."""
    return options.operator + 2 * options.arithmetic


def conclude(counts: Counts, problem: Any, options: spec.Verify) -> verdict.Verdict:
    """The verdict on a completion with these counts."""
    correct, missing, dependency, operator, value, extra, readable, answer = counts
    nodes, right = problem.necessary, answer == str(problem.answer)
    penalised = extra > 0 and options.extra_nodes == "penalised"
    if correct == nodes and readable and right and not penalised:
        return verdict.Verdict(True, True, 1.0, "none", 0, 0, 0, extra, nodes, answer or "")
    error = verdict.first_error(
        truncated=answer is None, parse=not readable, missing_node=missing, dependency=dependency, operator=operator, value=value,
        extra_node=penalised, answer=not right,
    )  # fmt: skip
    return verdict.Verdict(error == "none", right, correct / nodes, error, value, dependency, missing, extra, nodes, answer or "")


# Compiled code: the C files in this folder find what its Python finds, or nothing.


_FUNCTIONS = {"judge_prose": "oobi", "judge_terse": "ooi", "structure_key": "oi", "render_prose": "oo"}
"""Name -> arguments: o for an object, b for bytes, i for an integer."""


@cache
def _library() -> Any:
    """The functions by name; none where there is no compiler."""
    import ctypes

    loss = "problems and solutions of op_dag are written and judged in Python, several times slower"
    found = extension.load_library(ctypes.PyDLL, Path(__file__).parent, ("-std=gnu11", "-O2", "-fPIC"), loss)
    types = {"o": ctypes.py_object, "b": ctypes.c_char_p, "i": ctypes.c_int}
    functions = {name: getattr(found, name) for name in _FUNCTIONS} if found else {}
    for name, function in functions.items():
        function.argtypes, function.restype = [types[each] for each in _FUNCTIONS[name]], ctypes.py_object
    return functions


def compiled(name: str, *arguments: object) -> Any:
    """What a function of the C files finds; None where it leaves the case to Python, or there is no compiler."""
    function = _library().get(name)
    return function(*arguments) if function else None
