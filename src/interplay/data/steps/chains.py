"""Chains of keys, and where their pairs stand (KeyChain, arXiv:2510.19363)."""

import itertools
import re
import uuid
from collections.abc import Sequence

import numpy as np

from interplay.schema.steps.chain import KeyFormat
from interplay.tasks.multihop.item import Paragraph
from interplay.tasks.multihop.problem import Chain, Spot, stops

LIKE = {"hex8": "[0-9a-f]{8}", "uuid4": "-".join(f"[0-9a-f]{{{n}}}" for n in (8, 4, 4, 4, 12))}
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def keys(form: KeyFormat, number: int, text: str, random: np.random.Generator) -> list[str]:
    """Distinct keys none of which occurs in the text. A short key is a letter and as few digits as leave so many."""
    if form == "short":
        return _short(number, text, random)
    found: dict[str, None] = {}
    present = _present(LIKE[form], text)
    while len(found) < number:
        drawn = random.bytes(16)
        key = str(uuid.UUID(bytes=drawn, version=4)) if form == "uuid4" else drawn[:4].hex()
        if key not in present:
            found[key] = None
    return list(found)


def _present(like: str, text: str) -> set[str]:
    """Whatever looks like a key in the text, also inside longer words. One pass, where a search for each key takes as many."""
    return set(re.findall(f"(?=({like}))", text))


def _short(number: int, text: str, random: np.random.Generator) -> list[str]:
    digits, found = 0, list[str]()
    while len(found) < number:
        digits += 1
        order = random.permutation(26 * 10**digits).tolist()
        present = _present(f"[A-Z][0-9]{{{digits}}}", text)
        free = (key for i in order if (key := f"{LETTERS[i % 26]}{i // 26:0{digits}}") not in present)
        found = list(itertools.islice(free, number))
    return found


def chains(form: KeyFormat, hops: int, questions: Sequence[str], text: str, random: np.random.Generator) -> tuple[Chain, ...]:
    """A chain of `hops` keys to each question; where it is empty, of one key and its value."""
    lengths = [hops if question else hops + 1 for question in questions]
    drawn = iter(keys(form, sum(lengths), text, random))
    return tuple(Chain(tuple(next(drawn) for _ in range(n)), question) for n, question in zip(lengths, questions, strict=True))


def spots(links: Sequence[Chain], documents: Sequence[Paragraph], random: np.random.Generator) -> tuple[Spot, ...] | None:
    """A place for each pair, all of them shuffled over distinct ends of sentences. None where there are too few."""
    ends = [(number, end) for number, document in enumerate(documents) for end in stops(document)]
    pairs = [(chain, link) for chain, found in enumerate(links) for link in range(len(found.pairs()))]
    if len(pairs) > len(ends):
        return None
    chosen = [ends[place] for place in random.permutation(len(ends))[: len(pairs)]]
    return tuple(sorted(Spot(place, end, *pair) for (place, end), pair in zip(chosen, pairs, strict=True)))
