"""Sentences of a context-free grammar: Lano of Physics of Language Models: Part 4.1 (Allen-Zhu, arXiv:2512.17351), after
facebookresearch/PhysicsLM4 at 7580696, data-synthetic-pretrain/Lano-cfg/data_cfg.py lines 43-52 and 164-241.

A problem asks for the rest of a sentence, such as `ccbbba` after `3:cabacb`. As there: how grammars and sentences are drawn.
Other than there: grammars are drawn by the released builder and not the nine drawn ones, sentences of lower levels are easier
problems, the prompt gives a share of the sentence (there 0 or 50 letters), and no divergence from the grammar's own distribution
is measured."""

from collections.abc import Sequence
from functools import cache
from string import ascii_lowercase
from typing import NamedTuple

from interplay.core.random import Draw, draw_between, draw_sample, stream
from interplay.tasks.family import Generator, from_json
from interplay.tasks.skills import render_asked, structure_of
from interplay.tasks.spec import Lano, Verify
from interplay.tasks.verdict import Verdict, first_error

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
