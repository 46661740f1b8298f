"""Skills of Physics of Language Models: Part 4.1 (Allen-Zhu, arXiv:2512.17351): problems whose answer is a token or a few words,
after the released generators: facebookresearch/PhysicsLM4 at 7580696, in data-synthetic-pretrain Mano/mano.py lines 9-66,
Depo/depo.py lines 9-80, Brevo/brevo.py lines 9-325 and Lano-cfg/data_cfg.py lines 43-52 and 164-241 (the fifth, Capo, is in
facts/questions.py).

As there: how expressions, words, cycles, hops, graphs and orders are drawn. Other than there: one question per problem (Depo asks
up to ten of a cycle), sizes of a chosen op where training there mixes all (a band of ops does), no second tokens of the same
meaning, and streams keyed by the problem; what else differs is said at each."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from string import ascii_lowercase
from typing import Any, NamedTuple, TypeVar

from interplay.core.random import Draw, draw_between, draw_sample, draw_shuffled, draw_some, stream, stream_key, sum_in_order
from interplay.tasks.family import Generator, Rendered, from_json
from interplay.tasks.spec import Brevo, Depo, Lano, Mano, Verify
from interplay.tasks.verdict import Verdict, first_error

Node = TypeVar("Node", int, str)


class Asked(NamedTuple):
    """A question and its answer."""

    mode: str
    prompt: str
    answer: str


def render_asked(problem: Any, task: object) -> Rendered:
    """Of a problem with a prompt and an answer, which is the solution."""
    return Rendered(problem.prompt, problem.answer, problem.answer)


def verify_asked(problem: Asked, completion: str, options: Verify) -> Verdict:
    """Right is the answer and nothing else. Errors: `truncated` (nothing), `answer`."""
    said = completion.strip()
    error = first_error(truncated=not said, answer=said != problem.answer)
    return Verdict(error == "none", error == "none", float(error == "none"), error, said=said[:80])


def structure_of(problem: Any) -> str:
    """A problem with a mode and a prompt is its prompt."""
    return f"{stream_key(problem.mode, problem.prompt):016x}"


def drawn_distinct(count: int, draw_one: Callable[[], str]) -> list[str]:
    """So many different texts, in the order in which they were drawn first."""
    found: dict[str, None] = {}
    while len(found) < count:
        found[draw_one()] = None
    return list(found)


# Mano: an expression in prefix notation modulo a prime, whose value is said without steps. `3:*+4 5 -2 9=`, with op operators.


TERMS = re.compile(r"[-+*]|\d+")


def drawn_expression(task: Mano, op: int, draw: Draw) -> list[str]:
    """The tokens of an expression of op operators; the operands of one share the rest in any split, drawn uniformly."""
    if op == 0:
        return [str(draw() % task.modulus)]
    operator, left = task.operators[draw() % len(task.operators)], draw() % op
    return [operator, *drawn_expression(task, left, draw), *drawn_expression(task, op - 1 - left, draw)]


def value_of(tokens: list[str], modulus: int) -> int:
    """The value of an expression in prefix notation."""
    stack: list[int] = []
    for token in reversed(tokens):
        if token.isdigit():
            stack.append(int(token))
            continue
        one, two = stack.pop(), stack.pop()
        stack.append((one + two if token == "+" else one - two if token == "-" else one * two) % modulus)
    return stack[0]


def generate_mano(task: Mano, seed: int, index: int, op: int) -> Asked:
    """The expression keyed by (seed, index, op)."""
    tokens = drawn_expression(task, op, stream("mano", task.modulus, task.operators, seed, index, op))
    return Asked("mano", f"{op}:{' '.join(tokens)}=", str(value_of(tokens, task.modulus)))


MANO = Generator(
    name="mano",
    errors=("truncated", "answer"),
    loads=from_json(Asked),
    verify=verify_asked,
    generate=generate_mano,
    render=render_asked,
    solve=lambda prompt, task: str(value_of(TERMS.findall(prompt.partition(":")[2]), task.modulus)),
    structure=structure_of,
    vocabulary=lambda task: [":", "=", " ", *task.operators, *map(str, range(max(task.modulus, 10)))],
)


# Depo: the successor, op hops on, of a word in a cycle that is given as pairs in random order. `abCcA|cAbB|...|2?abC=`; the last
# letter of a word is a capital.


WORD = re.compile(r"[a-z]*[A-Z]")


def drawn_words(letters: int, sizes: tuple[int, int], count: int, draw: Draw) -> list[str]:
    """Distinct words."""
    small = drawn_distinct(count, lambda: "".join(chr(97 + draw() % letters) for _ in range(draw_between(draw, sizes))))
    return [word[:-1] + word[-1].upper() for word in small]


def drawn_size(task: Depo, draw: Draw) -> int:
    """The length of a cycle: n with the weight 1 / (n + sqrt(N)), N the largest."""
    low, high = task.nodes
    weights = [1 / (n + math.sqrt(high)) for n in range(low, high + 1)]
    left = draw() / 2**32 * sum_in_order(weights)
    for n, weight in zip(range(low, high + 1), weights, strict=True):
        left -= weight
        if left < 0:
            return n
    return high


def generate_depo(task: Depo, seed: int, index: int, op: int) -> Asked:
    """The cycle and the question keyed by (seed, index, op)."""
    draw = stream("depo", *task.nodes, task.letters, *task.word, seed, index, op)
    count = drawn_size(task, draw)
    words = draw_shuffled(draw, drawn_words(task.letters, task.word, count, draw))
    pairs = [f"{words[at]}{words[(at + 1) % count]}" for at in draw_shuffled(draw, list(range(count)))]
    asked = draw() % count
    return Asked("depo", f"{'|'.join(pairs)}|{op}?{words[asked]}=", words[(asked + op) % count])


def solve_depo(prompt: str, task: Depo) -> str:
    """Follow the pairs."""
    *pairs, question = prompt.removesuffix("=").split("|")
    after = dict(WORD.findall(pair) for pair in pairs)
    hops, _, at = question.partition("?")
    for _ in range(int(hops)):
        at = after[at]
    return at


def signs_and_letters(count: int) -> list[str]:
    """Signs of a question, digits, and so many letters, small and capital."""
    letters = ascii_lowercase[:count]
    return [*"|?=0123456789", *letters, *letters.upper()]


DEPO = Generator(
    name="depo",
    errors=("truncated", "answer"),
    loads=from_json(Asked),
    verify=verify_asked,
    generate=generate_depo,
    render=render_asked,
    solve=solve_depo,
    structure=structure_of,
    vocabulary=lambda task: signs_and_letters(task.letters),
)


# Brevo: what a node of a graph depends on, and then the node, each after what it depends on. A pair is a node and one that
# depends on it: to `3 7|12 7|7 5|12 2?5=`, `12 3 7 5` is right, and `3 12 7 5`, too. Other than there: nodes are separated by
# blanks, and an answer that says a node twice is wrong, which the released check lets pass.


def drawn_graph(count: int, draw: Draw) -> list[list[int]]:
    """What each of the nodes 0..count-1 depends on: the leaves, at most a quarter, on nothing, any other on one to four earlier
    nodes, of those on which fewer than four depend."""
    leaves = 1 + draw() % ((count - 1) // 4 + 1)
    graph: list[list[int]] = [[] for _ in range(leaves)]
    used: Counter[int] = Counter()
    for at in range(leaves, count):
        free = [node for node in range(at) if used[node] < 4]
        graph.append(draw_some(free, 1 + draw() % min(len(free), 4), draw))
        used.update(graph[at])
    return graph


def drawn_order(graph: list[list[int]], draw: Draw) -> list[int]:
    """The last node and all that it depends on, from the back: any that nothing unsaid depends on is next, uniformly."""
    last = len(graph) - 1
    left = Counter(one for node in ancestors(dict(enumerate(graph)), last) for one in graph[node])
    ready, order = [last], []
    while ready:
        order.append(ready.pop(draw() % len(ready)))
        for one in graph[order[-1]]:
            left[one] -= 1
            if not left[one]:
                ready.append(one)
    return order[::-1]


def ancestors(graph: Mapping[Node, Sequence[Node]], node: Node) -> set[Node]:
    """A node and all that it depends on."""
    found, waiting = {node}, [node]
    while waiting:
        new = set(graph.get(waiting.pop(), ())) - found
        found |= new
        waiting += new
    return found


def generate_brevo(task: Brevo, seed: int, index: int, op: int) -> Asked:
    """The graph and an order keyed by (seed, index, op); the question is about the last node."""
    draw = stream("brevo", task.nodes, task.labels, seed, index, op)
    if task.labels == "numbers":
        labels = draw_sample(draw, [str(number) for number in range(1, task.nodes + 1)], op)
    else:
        labels = drawn_words(4, (2, 4), op, draw)
    graph = drawn_graph(op, draw)
    pairs = [f"{labels[one]} {labels[node]}" for node, needs in enumerate(graph) for one in needs]
    answer = " ".join(labels[node] for node in drawn_order(graph, draw))
    return Asked("brevo", f"{'|'.join(draw_shuffled(draw, pairs))}?{labels[-1]}=", answer)


def verify_brevo(problem: Asked, completion: str, options: Verify) -> Verdict:
    """Right is any order of the node and of all that it depends on, each said once and after what it depends on; the score is the
    share of them before the first error. Errors: `truncated` (nothing), `extra_node`, `order`, `missing_node`."""
    pairs, _, asked = problem.prompt.removesuffix("=").partition("?")
    graph: defaultdict[str, list[str]] = defaultdict(list)
    for one, node in map(str.split, pairs.split("|")):
        graph[node].append(one)
    needed, said = ancestors(graph, asked), completion.split()
    seen: set[str] = set()
    for node in said:
        if node not in needed or node in seen or not seen.issuperset(graph.get(node, ())):
            break
        seen.add(node)
    error = first_error(
        truncated=not said, extra_node=set(said) - needed, order=len(seen) < len(said), missing_node=len(seen) < len(needed)
    )
    return Verdict(error == "none", error == "none", len(seen) / len(needed), error, said=" ".join(said)[:200])


def vocabulary_of_brevo(task: Brevo) -> list[str]:
    """Signs, and numbers or letters."""
    if task.labels == "words":
        return [*signs_and_letters(4), " "]
    return ["|", "?", "=", " ", *map(str, range(max(task.nodes + 1, 10)))]


BREVO = Generator(
    name="brevo",
    errors=("truncated", "extra_node", "order", "missing_node"),
    loads=from_json(Asked),
    verify=verify_brevo,
    generate=generate_brevo,
    render=render_asked,
    solve=None,
    structure=structure_of,
    vocabulary=vocabulary_of_brevo,
)


# Lano: the rest of a sentence of a context-free grammar, such as `ccbbba` after `3:cabacb`. As there: how grammars and sentences
# are drawn. Other than there: grammars are drawn by the released builder and not the nine drawn ones, sentences of lower levels
# are easier problems, the prompt gives a share of the sentence (there 0 or 50 letters), and no divergence from the grammar's own
# distribution is measured.


Side = tuple[int, ...]
"""What a rule writes: symbols of the next level."""


class Sentence(NamedTuple):
    """A sentence of which a part is given."""

    mode: str
    prompt: str
    answer: str
    grammar: tuple[int, ...]
    """The arguments of `grammar_of`."""
    op: int


@cache
def grammar_of(
    key: int, depth: int, symbols: int, fewest: int, most: int, shortest: int, longest: int, repeats: int
) -> list[list[list[Side]]]:
    """What the rules of each symbol of each level write, the root first, which is alone on its level. No two rules of a level
    write the same."""
    draw = stream("lano", "grammar", key, depth, symbols, fewest, most, shortest, longest, repeats)
    levels = []
    for level in range(depth):
        seen: dict[Side, None] = {}
        ends = []
        for _ in range(symbols if level else 1):
            wanted = len(seen) + draw_between(draw, (fewest, most))
            while len(seen) < wanted:
                size = draw_between(draw, (shortest, longest))
                drawn = [draw() % symbols for _ in range(size)] if repeats else draw_sample(draw, list(range(symbols)), size)
                seen[tuple(drawn)] = None
            ends.append(wanted)
        sides = list(seen)
        levels.append([sides[low:high] for low, high in zip([0, *ends], ends, strict=False)])
    return levels


def drawn_sentence(levels: Sequence[list[list[Side]]], symbol: int, draw: Draw) -> list[int]:
    """What a symbol of the first of these levels derives, each rule with the same chance."""
    if not levels:
        return [symbol]
    sides = levels[0][symbol]
    return [letter for one in sides[draw() % len(sides)] for letter in drawn_sentence(levels[1:], one, draw)]


def derives(levels: Sequence[list[list[Side]]], sentence: Sequence[int]) -> bool:
    """Whether the first symbol of the first level derives the letters, by dynamic programming over spans: for each symbol and
    start the ends of what it derives, as the bits of a number."""
    size = len(sentence)
    ends = [[(letter == symbol) << at + 1 for at, letter in enumerate(sentence)] for symbol in range(max(sentence) + 1)]
    for rules in reversed(levels):
        above = []
        for sides in rules:
            found = [0] * size
            for side in sides:
                for at in range(size):
                    found[at] |= _reached(ends, side, at)
            above.append(found)
        ends = above
    return bool(ends[0][0] >> size & 1)


def _reached(ends: list[list[int]], side: Side, at: int) -> int:
    """Where what a rule writes may end, as bits, if it begins there."""
    reached = 1 << at
    for symbol in side:
        before, reached = reached, 0
        while before and symbol < len(ends):
            here = before.bit_length() - 1
            before ^= 1 << here
            reached |= ends[symbol][here] if here < len(ends[symbol]) else 0
    return reached


def generate_lano(task: Lano, seed: int, index: int, op: int) -> Sentence:
    """The sentence keyed by (seed, index, op)."""
    grammar = (task.grammar, task.depth, task.symbols, *task.rules, *task.length, int(task.repeats))
    draw = stream("lano", *grammar, seed, index, op)
    letters = "".join(ascii_lowercase[one] for one in drawn_sentence(grammar_of(*grammar)[-op:], 0, draw))
    given = max(1, int(task.given * len(letters)))
    return Sentence("lano", f"{op}:{letters[:given]}", letters[given:], grammar, op)


def verify_lano(problem: Sentence, completion: str, options: Verify) -> Verdict:
    """Right is any text that makes a sentence of what is given. Errors: `truncated` (nothing), `parse` (other characters than
    letters of the language), `answer` (no sentence)."""
    said, levels = completion.strip(), grammar_of(*problem.grammar)[-problem.op :]
    letters = [ascii_lowercase.find(letter) for letter in problem.prompt.partition(":")[2] + said]
    parsed = 0 <= min(letters) <= max(letters) < problem.grammar[2]
    error = first_error(truncated=not said, parse=not parsed, answer=not (parsed and derives(levels, letters)))
    return Verdict(error == "none", error == "none", float(error == "none"), error, said=said[:200])


LANO = Generator(
    name="lano",
    errors=("truncated", "parse", "answer"),
    loads=from_json(Sentence),
    verify=verify_lano,
    generate=generate_lano,
    render=render_asked,
    solve=None,
    structure=structure_of,
    vocabulary=lambda task: [*":0123456789", *ascii_lowercase[: task.symbols]],
)
