"""The graphs of prose solutions and problems, in the words of op_dag.novelty, so that one measure reads both surfaces."""

from typing import NamedTuple

from interplay.tasks.op_dag.graph import FORWARD, Form
from interplay.tasks.op_dag.novelty import Definition, Graph, closed
from interplay.tasks.op_dag_prose.graph import Node, Problem
from interplay.tasks.op_dag_prose.parse import Clause, Define, parse, read_on, split

_UNTOLD = Definition(numbers=((1, 0),))


class Meaning(NamedTuple):
    """What a letter stands for, intermediate results taken apart."""

    operators: frozenset[str]
    reads: tuple[str, ...]
    """Full names, in order."""
    numbers: tuple[Form, ...]


def stated(completion: str) -> Graph:
    """The graph that a completion states, right or not, by full names; what cannot be read states nothing. The first definition
    that reads something counts, another only where there is none. A letter bound to nothing stands for itself."""
    found: Graph = {}
    letters: dict[str, Meaning] = {}
    for text in split(completion)[0]:
        sentence = parse(text.strip())
        if isinstance(sentence, Define):
            for one in _definitions(sentence, letters):
                if sentence.name not in found or (one.reads and not found[sentence.name].reads):
                    found[sentence.name] = one
            letters[sentence.letter] = Meaning(frozenset(), (sentence.name,), ())
    return closed(found)


def gold(problem: Problem) -> Graph:
    """The graph that gold solutions state: the necessary nodes."""
    nodes = problem.nodes[: problem.necessary]
    return {node.name: _gold(node, [nodes[parent].name for parent in node.parents], problem.mode) for node in nodes}


def _gold(node: Node, reads: list[str], mode: str) -> Definition:
    if node.constant is None and not reads:
        return Definition() if mode == FORWARD else _UNTOLD
    joined = {"-"} if node.minus else {"+"} if len(reads) > 1 else set()
    operators = joined | ({node.operator} if node.operator else set())
    numbers: tuple[Form, ...] = () if node.constant is None else ((0, node.constant),)
    return Definition(tuple(sorted(operators)), tuple(reads), numbers)


def _definitions(sentence: Define, letters: dict[str, Meaning]) -> list[Definition]:
    """What a sentence says its node is, clause by clause; binds its intermediate letters."""
    said = [_UNTOLD] if sentence.untold else []
    for number, clause in enumerate(sentence.clauses):
        meaning = _meaning(clause, letters)
        if clause.letter != sentence.letter or read_on(sentence, number):
            letters[clause.letter] = meaning
        else:
            said.append(Definition(tuple(sorted(meaning.operators)), meaning.reads, meaning.numbers))
    return said


def _meaning(clause: Clause, letters: dict[str, Meaning]) -> Meaning:
    part = clause.sides[0].part
    read = [letters.get(letter, Meaning(frozenset(), (letter,), ())) for letter in part.letters]
    return Meaning(
        operators=part.operators.union(*[one.operators for one in read]),
        reads=tuple([name for one in read for name in one.reads]),
        numbers=tuple(sorted([*part.operands, *[number for one in read for number in one.numbers]])),
    )
