"""Skills: problems whose answer is a token or a few words. Three are of Physics of Language Models: Part 4.1 (Allen-Zhu,
arXiv:2512.17351), after the released generators: facebookresearch/PhysicsLM4 at 7580696, in data-synthetic-pretrain Mano/mano.py
lines 9-66, Depo/depo.py lines 9-80 and Brevo/brevo.py lines 9-325 (the others are Lano, in grammars.py, and Capo, in
facts/questions.py); one is of RULER (below).

As there: how expressions, words, cycles, hops, graphs and orders are drawn. Other than there: one question per problem (Depo asks
up to ten of a cycle), sizes of a chosen op where training there mixes all (a band of ops does), no second tokens of the same
meaning, and streams keyed by the problem; what else differs is said at each."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from string import ascii_lowercase
from typing import Any, NamedTuple, TypeVar

from interplay.core.random import Draw, draw_between, draw_sample, draw_shuffled, draw_some, stream, stream_key, sum_in_order
from interplay.tasks.family import Generator, Rendered, from_json
from interplay.tasks.spec import Brevo, Depo, Mano, Verify, WordCounts
from interplay.tasks.verdict import BOX, Verdict, extract_answer, first_error

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


# Counts of words (arXiv:2404.06654), after the generators of NVIDIA/RULER at c3f5e3b, scripts/data/synthetic:
# common_words_extraction.py lines 85-98, freq_words_extraction.py lines 74-107. As there: how often words occur, and the noise of
# the frequent ones. Other than there: invented words for the common ones, too, so many words and not so many tokens, a wording of
# our own, no example before the question, and a score that counts what is said in addition (F1 in place of recall).


NOISE = "..."
LISTED = re.compile(r"[a-z]+|\.\.\.")
PROSE = ("Count how often each word occurs here.", "Which {} words, other than dots, occur most often?")
"""Around the list."""


def generate_word_counts(task: WordCounts, seed: int, index: int, op: int) -> Asked:
    """The list keyed by (seed, index, op). The answer has common words as they first occur, frequent ones by their counts."""
    options = (task.counts, *task.repeats, task.others, task.words, task.letters, task.length)
    draw = stream("word_counts", *options, seed, index, op)
    if task.counts == "common":
        often, seldom = task.repeats
        counts = [often] * op + [seldom] * task.others
    else:
        counts = task.ranks()
    words = drawn_distinct(len(counts), lambda: "".join(chr(97 + draw() % task.letters) for _ in range(task.length)))
    names = words if task.counts == "common" else [NOISE, *words][: len(counts)]
    listed = draw_shuffled(draw, [name for name, count in zip(names, counts, strict=True) for _ in range(count)])
    return Asked(task.counts, _list_prompt(task, listed, op), " ".join(_most(listed, op)))


def _list_prompt(task: WordCounts, listed: list[str], op: int) -> str:
    if task.style == "terse":
        return f"{' '.join(listed)}|{op}="
    shown = [f"{n}. {word}" for n, word in enumerate(listed, 1)] if task.counts == "common" else listed
    return f"{PROSE[0]}\n{' '.join(shown)}\n{PROSE[1].format(op)}\n"


def _most(listed: list[str], op: int) -> list[str]:
    """The words that occur most often, of equal ones the first to occur."""
    return [word for word, _ in Counter(word for word in listed if word != NOISE).most_common(op)]


def solve_word_counts(prompt: str, task: WordCounts) -> str:
    """Count them."""
    if task.style == "terse":
        shown, _, asked = prompt.removesuffix("=").partition("|")
    else:
        _, shown, asked = prompt.strip().split("\n")
    return " ".join(_most(LISTED.findall(shown), int("".join(re.findall(r"\d", asked)))))


def verify_listed(problem: Asked, completion: str, options: Verify) -> Verdict:
    """Right are all words of the answer and no others, in any order, in the last box or in all of the text; the score is F1.
    Errors: `truncated` (no word), `answer`."""
    boxed = extract_answer(completion) if BOX in completion else completion
    said, gold = dict.fromkeys(LISTED.findall(boxed or "")), set(problem.answer.split())
    hits = len(gold.intersection(said))
    score = 2 * hits / (len(gold) + len(said))
    error = first_error(truncated=not said, answer=score < 1)
    return Verdict(error == "none", error == "none", score, error, said=" ".join(said)[:200])


def vocabulary_of_counts(task: WordCounts) -> list[str]:
    """Letters of words, digits and signs, and those of the question."""
    question = "|=" if task.style == "terse" else "".join(PROSE).replace("{}", "") + "\n"
    return list(dict.fromkeys(f"{ascii_lowercase[: task.letters]}0123456789 .{question}"))


WORD_COUNTS = Generator(
    name="word_counts",
    errors=("truncated", "answer"),
    loads=from_json(Asked),
    verify=verify_listed,
    generate=generate_word_counts,
    render=render_asked,
    solve=solve_word_counts,
    structure=structure_of,
    vocabulary=vocabulary_of_counts,
)
