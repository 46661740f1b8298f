"""The steps that make long-context problems of multi-hop items: what is hidden, then a context of the asked length around
it."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from interplay.data.steps.chains import chains, spots
from interplay.data.steps.documents import Entry, Library, library
from interplay.data.steps.fill import Shelf, slots
from interplay.data.steps.step import Inputs, Made, changed
from interplay.schema.steps.chain import Citation, ContextStep, Keychain, KeyFormat, LongContext, Needle
from interplay.tasks.multihop import dumps
from interplay.tasks.multihop.item import Paragraph
from interplay.tasks.multihop.problem import Chain, Mode, Problem
from interplay.tasks.multihop.render import Style, ask, frame, pair, prompt, render
from interplay.tasks.row import Row

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
        prompt, solution, answer = render(problem, spec.style, tagged)
        columns = {"prompt": prompt, "solution": solution, "answer": answer, "graph": dumps(problem)}
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
        exact = count(prompt(problem, spec.style))
        if abs(exact - spec.context_tokens) <= margin:
            return problem
        room = fill.tokens + spec.context_tokens - exact
    raise SkipError("length_not_met" if shelf.left else "too_few_documents")


def _size(document: Paragraph, count: Callable[[str], int], mode: Mode, style: Style) -> int:
    """Tokens of a document as shown; where another one follows, if blanks before it could merge with its beginning."""
    shown = frame(1, document, document.text, mode, style)
    return count(shown) if style == "terse" else count(shown + "P") - count("P")


def _around(hidden: Hidden, entry: Entry, style: Style, inputs: Inputs) -> int:
    """Tokens of what is not a document: the pairs, and the lines that ask."""
    links = _links(hidden, "", entry, inputs)
    problem = Problem(hidden.mode, entry.item, (), (), links, hidden.true, head=hidden.head)
    pairs = "".join(pair(key, value) for chain in links for key, value in chain.pairs())
    return inputs.count_tokens(pairs) + inputs.count_tokens(ask(problem, style))


def _links(hidden: Hidden, text: str, entry: Entry, inputs: Inputs) -> tuple[Chain, ...]:
    """The chains, with keys that do not occur in the text: always the same ones, but for those that would."""
    return chains(hidden.form, hidden.hops, hidden.questions, text, inputs.random(entry.row.origin, "keys"))


def _whole(spec: ContextStep, hidden: Hidden, entry: Entry, fillers: list[Paragraph], inputs: Inputs) -> Problem:
    """Documents laid out, and pairs strewn over them."""
    problem = _laid_out(hidden.mode, spec.placement, entry, fillers, inputs.random(entry.row.origin, "layout"))
    if not hidden.questions:
        return problem
    texts = [text for document in problem.documents for text in (document.title, document.text)]
    links = _links(hidden, "\n".join([*texts, entry.item.question, *hidden.questions]), entry, inputs)
    places = spots(links, problem.documents, inputs.random(entry.row.origin, "spots"))
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
