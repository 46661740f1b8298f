"""Long-context problems from multi-hop items: chains of keys (KeyChain, arXiv:2510.19363), needles, citations."""

import itertools
import re
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from interplay.data.steps.context_spec import Citation, ContextStep, Keychain, KeyFormat, LongContext, Needle
from interplay.data.steps.documents import Entry, Library, Shelf, library, slots
from interplay.data.steps.step import Inputs, Made, changed
from interplay.tasks import multihop
from interplay.tasks.family import Paragraph
from interplay.tasks.multihop import Chain, Mode, Problem, Spot, Style
from interplay.tasks.verdict import Row

# Chains of keys, and where their pairs stand (KeyChain, arXiv:2510.19363).


LIKE = {"hex8": "[0-9a-f]{8}", "uuid4": "-".join(f"[0-9a-f]{{{n}}}" for n in (8, 4, 4, 4, 12))}
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def draw_keys(form: KeyFormat, number: int, text: str, random: np.random.Generator) -> list[str]:
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


def build_chains(
    form: KeyFormat, hops: int, questions: Sequence[str], text: str, random: np.random.Generator
) -> tuple[Chain, ...]:
    """A chain of `hops` keys to each question; where it is empty, of one key and its value."""
    lengths = [hops if question else hops + 1 for question in questions]
    drawn = iter(draw_keys(form, sum(lengths), text, random))
    return tuple(Chain(tuple(next(drawn) for _ in range(n)), question) for n, question in zip(lengths, questions, strict=True))


def place_pairs(links: Sequence[Chain], documents: Sequence[Paragraph], random: np.random.Generator) -> tuple[Spot, ...] | None:
    """A place for each pair, all of them shuffled over distinct ends of sentences. None where there are too few."""
    ends = [(number, end) for number, document in enumerate(documents) for end in multihop.sentence_ends(document)]
    pairs = [(chain, link) for chain, found in enumerate(links) for link in range(len(found.pairs()))]
    if len(pairs) > len(ends):
        return None
    chosen = [ends[place] for place in random.permutation(len(ends))[: len(pairs)]]
    return tuple(sorted(Spot(place, end, *pair) for (place, end), pair in zip(chosen, pairs, strict=True)))


# The steps that make long-context problems of multi-hop items: what is hidden, then a context of the asked length around it.


Filled = Keychain | Needle | LongContext
ROUNDS = 6
"""Times that a context is filled anew because its exact length was not what its parts foretold."""


class SkipError(Exception):
    """Why a row cannot be made; the row is dropped and counted under this name."""


class Hidden(NamedTuple):
    """What a context is made around."""

    mode: Mode
    hops: int = 0
    form: KeyFormat = "hex8"
    questions: tuple[str, ...] = ()
    """What the chains lead to; empty texts for needles."""
    true: int = 0
    head: bool = True
    needed: tuple[int, ...] = ()
    """Documents that must be among the fillers."""
    banned: frozenset[int] = frozenset()
    """Documents that must not."""


def keychain(spec: Keychain, rows: list[Row], inputs: Inputs) -> Made:
    """Each row's question at the end of a chain of keys; or, for what `prevalence` leaves, plainly in a context as long."""

    def make(found: Library, entry: Entry) -> Problem:
        random = inputs.random(entry.row.origin, "hidden")
        chained = random.random() < spec.prevalence
        hidden = _chained(spec, found, entry, random) if chained else Hidden("long")
        return _filled(spec, hidden, found, entry, inputs)

    return _each(spec, make, rows)


def needle(spec: Needle, rows: list[Row], inputs: Inputs) -> Made:
    """The value of a key, asked over each row's documents and fillers."""

    def make(found: Library, entry: Entry) -> Problem:
        true = int(inputs.random(entry.row.origin, "hidden").integers(spec.n_needles))
        return _filled(spec, Hidden("needle", 1, spec.key_format, ("",) * spec.n_needles, true), found, entry, inputs)

    return _each(spec, make, rows)


def long_context(spec: LongContext, rows: list[Row], inputs: Inputs) -> Made:
    """Each row's question over its documents and fillers."""
    return _each(spec, lambda found, entry: _filled(spec, Hidden("long"), found, entry, inputs), rows)


def citation(spec: Citation, rows: list[Row], inputs: Inputs) -> Made:
    """Each row's question over tagged chunks: its documents and fillers, as many as asked for."""

    def make(found: Library, entry: Entry) -> Problem:
        missing = spec.n_chunks - len(entry.documents)
        order = found.fillers(entry, frozenset(entry.documents), inputs.random(entry.row.origin, "fillers"))
        fillers = [found.documents[number] for _, number in zip(range(missing), order, strict=False)]
        if len(fillers) != missing:
            raise SkipError("too_many_documents" if missing < 0 else "too_few_documents")
        return _laid_out("citation", spec.placement, entry, fillers, inputs.random(entry.row.origin, "layout"))

    return _each(spec, make, rows, spec.tagged_steps)


def _each(spec: Filled | Citation, make: Callable[[Library, Entry], Problem], rows: list[Row], tagged: bool = False) -> Made:
    """Make every row that has an item; count the others by reason, and the forms that were made. `tagged`: see `render`."""
    found, without = library(rows, spec.documents == "needed")
    counts, made = Counter({"dropped_without_documents": without} if without else {}), []
    for entry in found.entries:
        try:
            problem = make(found, entry)
        except SkipError as reason:
            counts[f"dropped_{reason}"] += 1
            continue
        prompt, solution, answer = multihop.render(problem, spec.style, tagged)
        columns = {"prompt": prompt, "solution": solution, "answer": answer, "graph": multihop.dumps(problem)}
        made.append(changed(entry.row, spec.name, family="multihop", mode=problem.mode, **columns))
        counts[problem.mode] += 1
    return Made(made, dict(counts))


def _chained(spec: Keychain, found: Library, entry: Entry, random: np.random.Generator) -> Hidden:
    """The true question at a random place among the distractors'."""
    if any(entry.plain in found.texts[number] for number in entry.documents):
        raise SkipError("question_in_documents")
    others: list[Entry] = []
    titles: dict[str, int] = {}
    for other in found.distractors(entry, random):
        if len(others) == spec.chain_count - 1:
            break
        named = {found.titles[number]: number for number in other.needed if found.titles[number]}
        if not spec.distractor_answerable or (
            found.fit(entry, other.needed) and all(titles.get(title, number) == number for title, number in named.items())
        ):
            others.append(other)
            titles |= named
    if len(others) < spec.chain_count - 1:
        raise SkipError("too_few_questions")
    true = int(random.integers(spec.chain_count))
    questions = [other.item.question for other in others]
    questions.insert(true, entry.item.question)
    needed = dict.fromkeys(number for other in others for number in sorted(other.needed - set(entry.documents)))
    hidden = Hidden("keychain", spec.n_hops, spec.keys, tuple(questions), true, spec.head)
    return hidden._replace(needed=tuple(needed)) if spec.distractor_answerable else hidden._replace(banned=frozenset(needed))


def _filled(spec: Filled, hidden: Hidden, found: Library, entry: Entry, inputs: Inputs) -> Problem:
    """The problem with as many fillers as bring its prompt to the asked length. Tokens are counted part by part; then the whole
    prompt is counted, and what that differs is made good."""
    count, margin = inputs.count_tokens, spec.tolerance * spec.context_tokens
    size = partial(_size, count=count, mode=hidden.mode, style=spec.style)
    taken = hidden.banned.union(hidden.needed, entry.documents)
    shelf = Shelf(found, found.fillers(entry, taken, inputs.random(entry.row.origin, "fillers")), size)
    needed = [found.documents[number] for number in hidden.needed]
    fixed = sum(found.size(number, size) for number in (*entry.documents, *hidden.needed))
    room = float(spec.context_tokens - fixed - _around(hidden, entry, spec.style, inputs))
    if room < -margin:
        raise SkipError("context_too_short")
    for attempt in range(ROUNDS):
        fill = shelf.fill(room, margin if attempt % 2 else margin / 2)
        if fill is None:
            continue
        problem = _whole(spec, hidden, entry, [*needed, *fill.documents], inputs)
        exact = count(multihop.prompt_text(problem, spec.style))
        if abs(exact - spec.context_tokens) <= margin:
            return problem
        room = fill.tokens + spec.context_tokens - exact
    raise SkipError("length_not_met" if shelf.left else "too_few_documents")


def _size(document: Paragraph, count: Callable[[str], int], mode: Mode, style: Style) -> int:
    """Tokens of a document as shown; where another one follows, if blanks before it could merge with its beginning."""
    shown = multihop.document_frame(1, document, document.text, mode, style)
    return count(shown) if style == "terse" else count(shown + "P") - count("P")


def _around(hidden: Hidden, entry: Entry, style: Style, inputs: Inputs) -> int:
    """Tokens of what is not a document: the pairs, and the lines that ask."""
    links = _links(hidden, "", entry, inputs)
    problem = Problem(hidden.mode, entry.item, (), (), links, hidden.true, head=hidden.head)
    pairs = "".join(multihop.key_pair(key, value) for chain in links for key, value in chain.pairs())
    return inputs.count_tokens(pairs) + inputs.count_tokens(multihop.question_text(problem, style))


def _links(hidden: Hidden, text: str, entry: Entry, inputs: Inputs) -> tuple[Chain, ...]:
    """The chains, with keys that do not occur in the text: always the same ones, but for those that would."""
    return build_chains(hidden.form, hidden.hops, hidden.questions, text, inputs.random(entry.row.origin, "keys"))


def _whole(spec: ContextStep, hidden: Hidden, entry: Entry, fillers: list[Paragraph], inputs: Inputs) -> Problem:
    """Documents laid out, and pairs strewn over them."""
    problem = _laid_out(hidden.mode, spec.placement, entry, fillers, inputs.random(entry.row.origin, "layout"))
    if not hidden.questions:
        return problem
    texts = [text for document in problem.documents for text in (document.title, document.text)]
    links = _links(hidden, "\n".join([*texts, entry.item.question, *hidden.questions]), entry, inputs)
    places = place_pairs(links, problem.documents, inputs.random(entry.row.origin, "spots"))
    if places is None:
        raise SkipError("too_few_sentences")
    return problem._replace(chains=links, true=hidden.true, spots=places, head=hidden.head)


def _laid_out(mode: Mode, placement: str, entry: Entry, fillers: list[Paragraph], random: np.random.Generator) -> Problem:
    """The item's documents at their places, and the fillers in random order around them."""
    own = entry.item.paragraphs
    total = len(own) + len(fillers)
    places = slots(placement, len(own), total, random)
    documents = dict(zip(places, own, strict=True))
    free = [place for place in range(total) if place not in documents]
    documents |= {place: fillers[i] for place, i in zip(free, random.permutation(len(fillers)), strict=True)}
    return Problem(mode, entry.item, tuple(documents[place] for place in range(total)), tuple(places))
