"""Similarity of the graph of a solution to those of a training set, of either surface. arXiv:2512.07783 shows similarities of the
graphs of right solutions to the gold graphs of another context (Figure 5) and defines none; this one is our own.

A solution states a graph: for each name the operands, operators and numbers of its first definition. Colours (Weisfeiler and
Lehman) abstract from names: a node's first colour is its operators, numbers and number of operands, and each round adds the
colours of its operands and of its readers. A graph is the multiset of its nodes' colours of all rounds, and the similarity of two
graphs the Jaccard index of their multisets: 1 for graphs that are equal up to names (and, practically, for no others), 0 for
graphs without a node in common."""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from interplay.tasks.op_dag.dag import Form, Problem
from interplay.tasks.op_dag.terse import parse_step, split_steps

if TYPE_CHECKING:
    import numpy as np

ROUNDS = 3
"""Rounds of refinement."""


class Definition(NamedTuple):
    """The stated definition of a node."""

    operators: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    """Names, in order."""
    numbers: tuple[Form, ...] = ()


Graph = dict[str, Definition]
"""Name -> definition; a name that is read and never defined has an empty one."""
Palette = dict[tuple, int]
"""Meaning of a colour -> colour; graphs that are coloured with one palette can be compared."""
Features = Counter[int]
"""How often a graph has each colour."""


class Library(NamedTuple):
    """Distinct graphs to compare with, as an inverted index of their colours."""

    places: "dict[int, tuple[np.ndarray, np.ndarray]]"
    """Colour -> (graphs (k,), times in each (k,))."""
    sizes: "np.ndarray"
    """Number of colours of each graph (G,), with repeats."""


def stated_graph(completion: str, modulus: int | None) -> Graph:
    """The graph that a completion states, right or not; unreadable steps are ignored. The first definition of a name counts, and
    a bare number only where there is none."""
    found: Graph = {}
    for text in split_steps(completion)[0]:
        step = parse_step(text, modulus)
        if step is None or not step.name:
            continue
        if step.named is not None and not (step.name in found and found[step.name].reads):
            found[step.name] = Definition(tuple(sorted(step.named.operators)), step.named.letters, step.named.operands)
        elif step.value is not None and step.name not in found:
            found[step.name] = Definition(numbers=(step.value,))
    return with_all_names(found)


def gold_graph(problem: Problem) -> Graph:
    """The graph that gold solutions state: the necessary nodes."""
    nodes = problem.nodes[: problem.necessary]
    return {node.name: Definition(*_parts(problem, place)) for place, node in enumerate(nodes)}


def with_all_names(graph: Graph) -> Graph:
    """The graph with a node for each name that is read."""
    return {**{name: Definition() for one in graph.values() for name in one.reads}, **graph}


def features(graph: Graph, palette: Palette) -> Features:
    """The colours of all nodes in all rounds."""
    colours = {name: _colour(palette, (one.operators, one.numbers, len(one.reads))) for name, one in graph.items()}
    found = Counter(colours.values())
    for _ in range(ROUNDS):
        readers: dict[str, list[tuple[int, int]]] = {name: [] for name in graph}
        for name, one in graph.items():
            for place, other in enumerate(one.reads):
                readers[other].append((colours[name], place if "-" in one.operators else 0))
        colours = {
            name: _colour(palette, (colours[name], _operand_colours(one, colours), tuple(sorted(readers[name]))))
            for name, one in graph.items()
        }
        found.update(colours.values())
    return found


def similarity(one: Features, other: Features) -> float:
    """Jaccard index of two multisets, in [0, 1]; of two empty ones 1."""
    union = (one | other).total()
    return (one & other).total() / union if union else 1.0


def library(graphs: Iterable[Features]) -> Library:
    """The distinct ones of these graphs, indexed for `nearest`. NumPy is imported here, since planning imports this module and no
    NumPy."""
    import numpy as np

    distinct = [dict(items) for items in dict.fromkeys(tuple(sorted(graph.items())) for graph in graphs)]
    where: dict[int, list[tuple[int, int]]] = {}
    for place, graph in enumerate(distinct):
        for colour, times in graph.items():
            where.setdefault(colour, []).append((place, times))
    places = {colour: (np.array([p for p, _ in found]), np.array([n for _, n in found])) for colour, found in where.items()}
    return Library(places, np.array([sum(graph.values()) for graph in distinct], np.int64))


def nearest(graph: Features, known: Library) -> float:
    """Similarity to the most similar graph of the library, which must hold one."""
    import numpy as np

    common = np.zeros(len(known.sizes), np.int64)
    for colour, times in graph.items():
        if colour in known.places:
            places, counts = known.places[colour]
            common[places] += np.minimum(counts, times)
    return float((common / (known.sizes + graph.total() - common)).max())


def _parts(problem: Problem, place: int) -> tuple[tuple[str, ...], tuple[str, ...], tuple[Form, ...]]:
    node = problem.nodes[place]
    reads = tuple(problem.nodes[parent].name for parent in node.parents)
    unknown: Form = (1, 0)
    numbers: tuple[Form, ...] = ((0, node.constant),) if node.constant is not None else () if reads else (unknown,)
    return (node.operator,) if node.operator else (), reads, numbers


def _operand_colours(one: Definition, colours: dict[str, int]) -> tuple[int, ...]:
    """Colours of a node's operands; their order counts under a minus only."""
    read = [colours[name] for name in one.reads]
    return tuple(read if "-" in one.operators else sorted(read))


def _colour(palette: Palette, meaning: tuple) -> int:
    return palette.setdefault(meaning, len(palette))
