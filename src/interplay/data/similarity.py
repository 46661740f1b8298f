"""Similarity of rows: near-duplicate detection by an exact Jaccard join of n-gram sets, by text, names, structure or origin; and
the novelty of the graphs of sampled solutions against a problem set."""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from interplay.core import model, random
from interplay.data import sets
from interplay.data.steps.spec import Criterion
from interplay.tasks import qa, verdict
from interplay.tasks.families import judge_family, multihop_item, open_question
from interplay.tasks.op_dag import prose_parser, terse

# Exact join of n-gram sets (shingles) by Jaccard similarity, with prefix filtering (Bayardo, Ma and Srikant, WWW 2007) in the
# order of PPJoin: two sets above the threshold share one of their rarest members.


NAME = 1 << 32
"""Tokens from here on are names: within an n-gram a name is replaced by the position of its first occurrence."""
CHUNK = 1 << 20
"""Tokens whose n-grams are computed at once."""
EPSILON = 1e-9


class Shingles(NamedTuple):
    """The distinct n-grams of each of T texts, rarest first."""

    ranks: np.ndarray
    """(S,) int64: n-grams of all texts, concatenated, as ranks by rarity over all texts."""
    starts: np.ndarray
    """(T+1,) int64: the n-grams of text t are ranks[starts[t]:starts[t+1]]."""

    def of(self, text: int) -> np.ndarray:
        """The n-grams of one text."""
        return self.ranks[self.starts[text] : self.starts[text + 1]]


def shingle_texts(texts: Sequence[Sequence[int]], n: int) -> Shingles:
    """N-grams of texts given as tokens (small integers above 0; names from NAME on). A text of fewer than n tokens is one
    n-gram."""
    parts = [_hash_ngrams(texts[low:high], low, n) for low, high in _chunks(texts)]
    hashes = np.concatenate([part[0] for part in parts] or [np.zeros(0, np.uint64)])
    owners = np.concatenate([part[1] for part in parts] or [np.zeros(0, np.int64)])
    known, inverse, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    rank_of = np.empty(len(known), np.int64)
    rank_of[np.lexsort((known, counts))] = np.arange(len(known))
    ranks = rank_of[inverse]
    order = np.lexsort((ranks, owners))
    return Shingles(ranks[order], np.searchsorted(owners[order], np.arange(len(texts) + 1)))


def _chunks(texts: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Ranges of texts of about CHUNK tokens."""
    ends = np.cumsum([len(text) for text in texts])
    cuts = np.flatnonzero(np.diff(ends // CHUNK)) + 1
    bounds = [0, *cuts.tolist(), len(texts)]
    return [(low, high) for low, high in pairwise(bounds) if low < high]


def _hash_ngrams(texts: Sequence[Sequence[int]], first: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """(hash, number of its text) of every distinct n-gram of each text, both (S,); the first text has number `first`."""
    lengths = np.array([max(len(text), n) for text in texts])
    flat = np.zeros(int(lengths.sum()), np.int64)
    begins = np.cumsum(lengths) - lengths
    for begin, text in zip(begins.tolist(), texts, strict=True):
        flat[begin : begin + len(text)] = text
    counts = lengths - n + 1
    owners = np.repeat(np.arange(len(texts)), counts)
    at = np.repeat(begins - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))
    made = np.zeros(len(at), np.uint64)
    for place in range(n):
        token = flat[at + place]
        value = token.copy()
        if token.size and token.max() >= NAME:
            for before in range(place, -1, -1):
                value[(token >= NAME) & (flat[at + before] == token)] = NAME + before
        made = random.mix_words(made * np.uint64(0x9E3779B97F4A7C15) + value.astype(np.uint64) + np.uint64(1))
    order = np.lexsort((made, owners))
    made, owners = made[order], owners[order]
    fresh = np.ones(len(made), bool)
    fresh[1:] = (made[1:] != made[:-1]) | (owners[1:] != owners[:-1])
    return made[fresh], owners[fresh] + first


class JaccardIndex:
    """An index of texts for look-up by Jaccard similarity of n-grams."""

    def __init__(self, grams: Shingles, threshold: float) -> None:
        self.grams, self.threshold = grams, threshold
        self.sizes: list[int] = np.diff(grams.starts).tolist()
        self.postings: dict[int, list[int]] = {}
        """N-gram -> the added texts whose prefix (rarest n-grams) has it, in order."""
        self.sets: dict[int, frozenset[int]] = {}
        """N-grams of compared texts, cached."""

    def add(self, text: int) -> None:
        """Add a text to the index."""
        for rank in self._prefix(text):
            self.postings.setdefault(rank, []).append(text)

    def find(self, text: int) -> int | None:
        """The earliest added text, other than this one, whose similarity is at least the threshold."""
        candidates = {other for rank in self._prefix(text) for other in self.postings.get(rank, ()) if other != text}
        least, most = self.threshold * self.sizes[text] - EPSILON, self.sizes[text] / self.threshold + EPSILON
        fitting = sorted(other for other in candidates if least <= self.sizes[other] <= most)
        return next((other for other in fitting if self._is_similar(text, other)), None)

    def _prefix(self, text: int) -> list[int]:
        """Its rarest n-grams, so many that a text with none of them cannot reach the threshold."""
        mine = self.grams.of(text)
        return mine[: len(mine) - ceil(self.threshold * len(mine) - EPSILON) + 1].tolist()

    def _set(self, text: int) -> frozenset[int]:
        if text not in self.sets:
            self.sets[text] = frozenset(self.grams.of(text).tolist())
        return self.sets[text]

    def _is_similar(self, text: int, other: int) -> bool:
        common = len(self._set(text) & self._set(other))
        return common >= self.threshold * (self.sizes[text] + self.sizes[other] - common) - EPSILON


# Duplicate rows: by text, by n-grams, by text up to names, by structure, by origin.


LETTERS = re.compile(r"[A-Za-z]|\d+|[^\s.A-Za-z\d]")
"""Tokens of op_dag's terse prompts: letters, numbers and signs, without meaningless dots."""
WORDS = re.compile(r"[^\W\d_]+|\d+(?:[.,]\d+)*|[+\-*/^=<>]")
"""Tokens of prose, without punctuation but with the signs of arithmetic: 12 + 3 and 12 - 3 are two questions."""
NAMES = re.compile(r"[A-ZÀ-ÖØ-Þ]\w*(?:[ -][A-ZÀ-ÖØ-Þ]\w*)*|\d+(?:[.,]\d+)*|[^\W\d_]+|[+\-*/^=<>]")
"""Tokens of prose with a run of capitalised words as one name, a heuristic without knowledge of the language. The first word of a
sentence may be taken for a name, equally in every copy."""


class KeyIndex:
    """Duplicates are rows with equal keys."""

    def __init__(self, keys: Sequence[Hashable]) -> None:
        self.keys = keys
        self.first: dict[Hashable, int] = {}

    def add(self, row: int) -> None:
        """Add a row to the index."""
        self.first.setdefault(self.keys[row], row)

    def find(self, row: int) -> int | None:
        """The earliest added row with the same key."""
        return self.first.get(self.keys[row])


def duplicate_indexes(how: Criterion, rows: Sequence[verdict.Row], n: int, threshold: float) -> Sequence[KeyIndex | JaccardIndex]:
    """Indexes over all of `rows` that find duplicates by this criterion; a row is a duplicate when any of them finds one. A
    reformulated question is compared as the open question, since its options are random."""
    rows = [open_question(row) for row in rows]
    if how == "ngram":
        return [JaccardIndex(shingle_texts(_numbered(rows, plain_tokens), n), threshold)]
    if how == "renamed":
        tokens = _numbered(rows, named_tokens)
        whole = [canonical_names(one) for one in tokens]
        known: dict[tuple[int, ...], int] = {}
        # A terse problem with one sign changed is another problem, so only the whole text is compared.
        parts = [
            [known.setdefault(all_, len(known) + 1)] if row.family == "op_dag" else one
            for row, one, all_ in zip(rows, tokens, whole, strict=True)
        ]
        return [KeyIndex(whole), JaccardIndex(shingle_texts(parts, n), threshold)]
    return [KeyIndex([KEYS[how](row) for row in rows])]


def question_text(row: verdict.Row) -> str:
    """The text by which a row is compared: of a question over documents, the question and its supporting facts; of a plain
    question, the question without instructions; of a document or a chat, all of it; of any other row, the prompt."""
    if row.family == "qa":
        return qa.loads(row.graph).question
    if row.family == "text":
        return row.prompt + row.solution
    found = multihop_item(row)
    if found is None:
        return row.prompt
    facts = (found.paragraphs[paragraph].sentences[sentence] for paragraph, sentence in found.supporting)
    return " ".join([found.question, *facts])


KEYS: dict[str, Callable[[verdict.Row], Hashable]] = {
    "exact": lambda row: " ".join(question_text(row).split()),
    "structural": lambda row: row.key,
    "origin": lambda row: row.origin,
}


def plain_tokens(row: verdict.Row) -> list[tuple[str, bool]]:
    """(token, False) of the question: characters of op_dag, words of prose in lower case."""
    if row.family == "op_dag":
        return [(token, False) for token in LETTERS.findall(row.prompt)]
    return [(token.lower(), False) for token in WORDS.findall(question_text(row))]


def named_tokens(row: verdict.Row) -> list[tuple[str, bool]]:
    """(token, whether it is a name) of the question: letters of op_dag; capitalised words and numbers of prose."""
    if row.family == "op_dag":
        return [(token, token.isalpha()) for token in LETTERS.findall(row.prompt)]
    return [(token, token[0].isupper() or token[0].isdigit()) for token in NAMES.findall(question_text(row))]


def canonical_names(tokens: Sequence[int]) -> tuple[int, ...]:
    """Tokens with each name numbered by its first appearance."""
    first: dict[int, int] = {}
    return tuple(NAME + first.setdefault(token, len(first)) if token >= NAME else token for token in tokens)


def _numbered(rows: Sequence[verdict.Row], tokens: Callable[[verdict.Row], list[tuple[str, bool]]]) -> list[list[int]]:
    """Each row's tokens as integers from 1 on, names from NAME on."""
    known: dict[tuple[str, bool], int] = {}
    return [[known.setdefault(token, len(known) + 1 + NAME * token[1]) for token in tokens(row)] for row in rows]


# Similarity of the graph of a solution to those of a training set, of either surface. arXiv:2512.07783 shows similarities of the
# graphs of right solutions to the gold graphs of another context (Figure 5) and defines none; this one is our own.
#
# Colours (Weisfeiler and Lehman) abstract from names: a node's first colour is its operators, numbers and number of operands, and
# each round adds the colours of its operands and of its readers. A graph is the multiset of its nodes' colours of all rounds,
# and the similarity of two graphs the Jaccard index of their multisets: 1 for graphs that are equal up to names (in practice,
# for no others), 0 for graphs without a node in common.


ROUNDS = 3
"""Rounds of refinement."""
Palette = dict[tuple, int]
"""Meaning of a colour -> colour; graphs that are coloured with one palette can be compared."""
Features = Counter[int]
"""How often a graph has each colour."""


class Library(NamedTuple):
    """Distinct graphs to compare with, as an inverted index of their colours."""

    places: dict[int, tuple[np.ndarray, np.ndarray]]
    """Colour -> (graphs (k,), times in each (k,))."""
    sizes: np.ndarray
    """Number of colours of each graph (G,), with repeats."""


def features(graph: terse.Graph, palette: Palette) -> Features:
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
    """The distinct ones of these graphs, indexed for `nearest`."""
    distinct = [dict(items) for items in dict.fromkeys(tuple(sorted(graph.items())) for graph in graphs)]
    where: dict[int, list[tuple[int, int]]] = {}
    for place, graph in enumerate(distinct):
        for colour, times in graph.items():
            where.setdefault(colour, []).append((place, times))
    places = {colour: (np.array([p for p, _ in found]), np.array([n for _, n in found])) for colour, found in where.items()}
    return Library(places, np.array([sum(graph.values()) for graph in distinct], np.int64))


def nearest(graph: Features, known: Library) -> float:
    """Similarity to the most similar graph of the library, which must hold one."""
    common = np.zeros(len(known.sizes), np.int64)
    for colour, times in graph.items():
        if colour in known.places:
            places, counts = known.places[colour]
            common[places] += np.minimum(counts, times)
    return float((common / (known.sizes + graph.total() - common)).max())


def _operand_colours(one: terse.Definition, colours: dict[str, int]) -> tuple[int, ...]:
    """Colours of a node's operands; their order counts under a minus only."""
    read = [colours[name] for name in one.reads]
    return tuple(read if "-" in one.operators else sorted(read))


def _colour(palette: Palette, meaning: tuple) -> int:
    return palette.setdefault(meaning, len(palette))


# Novelty of the graphs of right solutions against a problem set, by band.


class Surface(NamedTuple):
    """How graphs of a family are parsed."""

    gold: Callable[[Any], terse.Graph]
    stated: Callable[[str, Any], terse.Graph]
    """The graph that a completion of the problem states."""


SURFACES = {
    "op_dag": Surface(terse.gold_graph, lambda text, problem: terse.stated_graph(text, problem.modulus)),
    "op_dag_prose": Surface(prose_parser.gold_graph, lambda text, problem: prose_parser.stated_graph(text)),
}


class Novelty(NamedTuple):
    """Novelty of the right solutions of one band."""

    band: str
    right: int
    """Right samples whose op occurs in the set; the fields below are of these."""
    graphs: int
    """Distinct graphs among them."""
    copied: float
    """Share of them whose graph is one of the set."""
    expected: float
    """Share of them whose problem's gold graph is one of the set, as `copied` is where solutions state just that graph: only a
    difference between the two is the model's."""
    nearest: float
    """Mean similarity to the nearest graph of the set of the same op."""
    without: int
    """Right samples of ops that do not occur in the set."""


def novelty_by_band(samples: Path, tested: Path, against: Path, by: Literal["strict", "answer"] = "strict") -> list[Novelty]:
    """`samples`: folder of an evaluation of the set `tested`; `against`: the set to compare with. Bands without a right sample
    are omitted. Raises UserError where a set has no problem of a family with graphs."""
    palette: Palette = {}
    known = _libraries(against, palette)
    problems = _problems(tested)
    found: dict[str, list[tuple[Features, float, bool]]] = {}
    without: Counter[str] = Counter()
    in_set: dict[int, bool] = {}
    for sample in pq.read_table(samples / "samples.parquet", columns=["index", "band", "op", "completion", by]).to_pylist():
        if not sample[by] or sample["index"] not in problems:
            continue
        surface, problem = problems[sample["index"]]
        graphs = found.setdefault(sample["band"], [])
        if sample["op"] not in known:
            without[sample["band"]] += 1
            continue
        graph = features(surface.stated(sample["completion"], problem), palette)
        if sample["index"] not in in_set:
            in_set[sample["index"]] = nearest(features(surface.gold(problem), palette), known[sample["op"]]) == 1
        graphs.append((graph, nearest(graph, known[sample["op"]]), in_set[sample["index"]]))
    return [_of_band(band, graphs, without[band]) for band, graphs in found.items()]


def _of_band(band: str, graphs: list[tuple[Features, float, bool]], without: int) -> Novelty:
    near = [similar for _, similar, _ in graphs]
    distinct = {tuple(sorted(graph.items())) for graph, _, _ in graphs}
    copied, expected = sum(one == 1 for one in near), sum(of_set for _, _, of_set in graphs)
    count = max(1, len(near))
    return Novelty(band, len(near), len(distinct), copied / count, expected / count, sum(near) / count, without)


def _libraries(folder: Path, palette: Palette) -> dict[int, Library]:
    """The gold graphs of a set by op."""
    graphs: dict[int, list[Features]] = {}
    for surface, problem in _problems(folder).values():
        graphs.setdefault(problem.op, []).append(features(surface.gold(problem), palette))
    return {op: library(of_op) for op, of_op in graphs.items()}


def _problems(folder: Path) -> dict[int, tuple[Surface, Any]]:
    """Problems of these families by index, each with its surface."""
    table = sets.read_table(folder, ["index", "family", "graph"])
    rows = zip(*(table[name].to_pylist() for name in ("index", "family", "graph")), strict=True)
    found = {i: (SURFACES[name], judge_family(name).loads(graph)) for i, name, graph in rows if name in SURFACES}
    if not found:
        families = " or ".join(SURFACES)
        raise model.UserError(f"novelty: {folder.name} has no problems of {families}; name a set whose solutions state graphs")
    return found
