"""Long-context problems from multi-hop items: chains of keys (KeyChain, arXiv:2510.19363), needles, citations."""

import itertools
import re
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from interplay.data.curate import StepInputs, StepResult, transform_row
from interplay.data.steps.context_spec import Citation, ContextStep, Keychain, KeyFormat, LongContext, Needle
from interplay.data.steps.documents import Entry, FillerQueue, Library, build_library, draw_places
from interplay.tasks import family, multihop, verdict

# Chains of keys, and the places of their pairs (KeyChain, arXiv:2510.19363).


KEY_PATTERNS = {"hex8": "[0-9a-f]{8}", "uuid4": "-".join(f"[0-9a-f]{{{n}}}" for n in (8, 4, 4, 4, 12))}
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def draw_keys(form: KeyFormat, number: int, text: str, random: np.random.Generator) -> list[str]:
    """Distinct keys that do not occur in the text. A short key is a letter and the fewest digits that give enough keys."""
    if form == "short":
        return _short_keys(number, text, random)
    found: dict[str, None] = {}
    present = _keys_in_text(KEY_PATTERNS[form], text)
    while missing := number - len(found):
        drawn = random.bytes(16 * missing)  # the same bytes as in draws of 16
        for start in range(0, len(drawn), 16):
            one = drawn[start : start + 16]
            key = str(uuid.UUID(bytes=one, version=4)) if form == "uuid4" else one[:4].hex()
            if key not in present:
                found[key] = None
    return list(found)


def _keys_in_text(pattern: str, text: str) -> set[str]:
    """All matches of a key pattern in the text, also inside longer words. One pass, in place of one search per key."""
    return set(re.findall(f"(?=({pattern}))", text))


def _short_keys(number: int, text: str, random: np.random.Generator) -> list[str]:
    digits, found = 0, list[str]()
    while len(found) < number:
        digits += 1
        order = random.permutation(26 * 10**digits).tolist()
        present = _keys_in_text(f"[A-Z][0-9]{{{digits}}}", text)
        free = (key for i in order if (key := f"{LETTERS[i % 26]}{i // 26:0{digits}}") not in present)
        found = list(itertools.islice(free, number))
    return found


def build_chains(
    form: KeyFormat, hops: int, questions: Sequence[str], text: str, random: np.random.Generator
) -> tuple[multihop.Chain, ...]:
    """A chain of `hops` keys to each question; for an empty question, a chain of `hops` keys and a value."""
    lengths = [hops if question else hops + 1 for question in questions]
    drawn = iter(draw_keys(form, sum(lengths), text, random))
    return tuple(
        multihop.Chain(tuple(next(drawn) for _ in range(n)), question) for n, question in zip(lengths, questions, strict=True)
    )


def place_pairs(
    chains: Sequence[multihop.Chain],
    documents: Sequence[family.Paragraph],
    random: np.random.Generator,
    mode: multihop.Mode = "keychain",
    target: tuple[int, float] | None = None,
) -> tuple[multihop.Spot, ...] | None:
    """A random sentence end for each pair of the chains, all distinct; of `target`, a chain and a share of the text, its first
    pair at the end nearest to that. None where there are too few."""
    ends = [(number, end) for number, document in enumerate(documents) for end in multihop.sentence_ends(document)]
    pairs = [(chain, link) for chain, found in enumerate(chains) for link in range(len(found.pairs(mode)))]
    if len(pairs) > len(ends):
        return None
    order = random.permutation(len(ends)).tolist()
    if target:
        starts = np.cumsum([0, *(len(document.text) for document in documents)])
        wanted = min(range(len(ends)), key=lambda at: abs(starts[ends[at][0]] + ends[at][1] - target[1] * starts[-1]))
        order.remove(wanted)
        order.insert(pairs.index((target[0], 0)), wanted)
    chosen = [ends[place] for place in order[: len(pairs)]]
    return tuple(sorted(multihop.Spot(place, end, *pair) for (place, end), pair in zip(chosen, pairs, strict=True)))


# The steps: first what is hidden, then a context of the requested length around it.


FilledStep = Keychain | Needle | LongContext
ROUNDS = 6
"""Attempts to fill a context whose exact length differs from the sum over its parts."""


class SkipError(Exception):
    """The reason why a row cannot be made; the row is dropped and counted under it."""


class Hidden(NamedTuple):
    """What is hidden in a context."""

    mode: multihop.Mode
    hops: int = 0
    form: KeyFormat = "hex8"
    questions: tuple[str, ...] = ()
    """The questions at the ends of the chains; empty texts for needles."""
    true: int = 0
    head: bool = True
    needed: tuple[int, ...] = ()
    """Documents that the fillers must include."""
    banned: frozenset[int] = frozenset()
    """Documents that the fillers must not include."""
    depth: int | None = None
    """Of the target, in percent; None: at random."""


def make_contexts(spec: FilledStep | Citation, rows: list[verdict.Row], inputs: StepInputs) -> StepResult:
    """Make every row that has an item. Counts: rows by mode, and dropped rows by reason."""
    found, without = build_library(rows, spec.documents == "needed")
    counts, made = Counter({"dropped_without_documents": without} if without else {}), list[verdict.Row]()
    for entry in found.entries:
        depth = spec.depths[len(made) % len(spec.depths)] if isinstance(spec, Needle) and spec.depths else None
        try:
            problem = MAKERS[spec.name](spec, found, entry, inputs, *([] if depth is None else [depth]))
        except SkipError as reason:
            counts[f"dropped_{reason}"] += 1
            continue
        tagged = isinstance(spec, Citation) and spec.tagged_steps
        prompt, solution, answer = multihop.render(problem, spec.style, tagged)
        columns: dict[str, Any] = {"prompt": prompt, "solution": solution, "answer": answer, "graph": multihop.dumps(problem)}
        columns |= {} if depth is None else {"op": depth}
        made.append(transform_row(entry.row, spec.name, family="multihop", mode=problem.mode, **columns))
        counts[problem.mode] += 1
    return StepResult(made, dict(counts))


def _keychain(spec: Keychain, found: Library, entry: Entry, inputs: StepInputs) -> multihop.Problem:
    """The question at the end of a chain of keys; with a chance of 1 - `prevalence`, plainly in a context of equal length."""
    random = inputs.random(entry.row.origin, "hidden")
    chained = random.random() < spec.prevalence
    hidden = _hide_question(spec, found, entry, random) if chained else Hidden("long")
    return _fill_context(spec, hidden, found, entry, inputs)


def _needle(spec: Needle, found: Library, entry: Entry, inputs: StepInputs, depth: int | None = None) -> multihop.Problem:
    """A question for the value of a key, or for a list, over the row's documents and fillers."""
    true = int(inputs.random(entry.row.origin, "hidden").integers(spec.n_needles))
    mode: multihop.Mode = "needle" if spec.asks == "value" else spec.asks
    links = {"needle": 1, "multi_query": 2 * spec.n_asked - 1}.get(mode, spec.n_asked)
    hidden = Hidden(mode, links, spec.key_format, ("",) * spec.n_needles, true, depth=depth)
    return _fill_context(spec, hidden, found, entry, inputs)


def _citation(spec: Citation, found: Library, entry: Entry, inputs: StepInputs) -> multihop.Problem:
    """The question over `n_chunks` tagged chunks: the row's documents and fillers."""
    missing = spec.n_chunks - len(entry.documents)
    order = found.fillers(entry, frozenset(entry.documents), inputs.random(entry.row.origin, "fillers"))
    fillers = [found.documents[number] for _, number in zip(range(missing), order, strict=False)]
    if len(fillers) != missing:
        raise SkipError("too_many_documents" if missing < 0 else "too_few_documents")
    return _arrange_documents("citation", spec.placement, entry, fillers, inputs.random(entry.row.origin, "layout"))


MAKERS: dict[str, Callable[..., multihop.Problem]] = {
    "keychain": _keychain,
    "needle": _needle,
    "long_context": lambda spec, *given: _fill_context(spec, Hidden("long"), *given),
    "citation": _citation,
}


def _hide_question(spec: Keychain, found: Library, entry: Entry, random: np.random.Generator) -> Hidden:
    """The true question at a random place among those of the distractors."""
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


def _fill_context(spec: FilledStep, hidden: Hidden, found: Library, entry: Entry, inputs: StepInputs) -> multihop.Problem:
    """The problem with fillers up to the requested prompt length. Tokens are first counted part by part; then the whole prompt is
    counted, and the difference corrects the next attempt."""
    count, margin = inputs.count_tokens, spec.tolerance * spec.context_tokens
    size = partial(_document_tokens, count=count, mode=hidden.mode, style=spec.style, following=count(FOLLOWING))
    taken = hidden.banned.union(hidden.needed, entry.documents)
    queue = FillerQueue(found, found.fillers(entry, taken, inputs.random(entry.row.origin, "fillers")), size)
    needed = [found.documents[number] for number in hidden.needed]
    fixed = sum(found.count_tokens(number, size) for number in (*entry.documents, *hidden.needed))
    room = float(spec.context_tokens - fixed - _fixed_tokens(hidden, entry, spec.style, inputs))
    if room < -margin:
        raise SkipError("context_too_short")
    for attempt in range(ROUNDS):
        fill = queue.fill(room, margin if attempt % 2 else margin / 2)
        if fill is None:
            continue
        problem = _place_hidden(spec, hidden, entry, [*needed, *fill.documents], inputs)
        exact = count(multihop.prompt_text(problem, spec.style))
        if abs(exact - spec.context_tokens) <= margin:
            return problem
        room = fill.tokens + spec.context_tokens - exact
    raise SkipError("length_not_met" if queue.left else "too_few_documents")


FOLLOWING = "P"
"""The beginning of another document."""


def _document_tokens(
    document: family.Paragraph, count: Callable[[str], int], mode: multihop.Mode, style: multihop.Style, following: int
) -> int:
    """Tokens of a document as rendered, with another document after it where blanks could merge with its beginning, which has
    `following` tokens."""
    shown = multihop.document_frame(1, document, document.text, mode, style)
    return count(shown) if style == "terse" else count(shown + FOLLOWING) - following


def _fixed_tokens(hidden: Hidden, entry: Entry, style: multihop.Style, inputs: StepInputs) -> int:
    """Tokens outside documents: the pairs and the question lines."""
    chains = _make_chains(hidden, "", entry, inputs)
    problem = multihop.Problem(hidden.mode, entry.item, (), (), chains, hidden.true, head=hidden.head)
    pairs = "".join(multihop.key_pair(key, value) for chain in chains for key, value in chain.pairs(hidden.mode))
    return inputs.count_tokens(pairs) + inputs.count_tokens(multihop.question_text(problem, style))


def _make_chains(hidden: Hidden, text: str, entry: Entry, inputs: StepInputs) -> tuple[multihop.Chain, ...]:
    """The chains, with keys that do not occur in the text; all other keys are the same for every text."""
    return build_chains(hidden.form, hidden.hops, hidden.questions, text, inputs.random(entry.row.origin, "keys"))


def _place_hidden(
    spec: ContextStep, hidden: Hidden, entry: Entry, fillers: list[family.Paragraph], inputs: StepInputs
) -> multihop.Problem:
    """The documents in order, with the pairs distributed over them."""
    problem = _arrange_documents(hidden.mode, spec.placement, entry, fillers, inputs.random(entry.row.origin, "layout"))
    if not hidden.questions:
        return problem
    texts = [text for document in problem.documents for text in (document.title, document.text)]
    chains = _make_chains(hidden, "\n".join([*texts, entry.item.question, *hidden.questions]), entry, inputs)
    target = None if hidden.depth is None else (hidden.true, hidden.depth / 100)
    places = place_pairs(chains, problem.documents, inputs.random(entry.row.origin, "spots"), hidden.mode, target)
    if places is None:
        raise SkipError("too_few_sentences")
    return problem._replace(chains=chains, true=hidden.true, spots=places, head=hidden.head)


def _arrange_documents(
    mode: multihop.Mode, placement: str, entry: Entry, fillers: list[family.Paragraph], random: np.random.Generator
) -> multihop.Problem:
    """The item's documents at their places, and the fillers in random order at the others."""
    own = entry.item.paragraphs
    total = len(own) + len(fillers)
    places = draw_places(placement, len(own), total, random)
    documents = dict(zip(places, own, strict=True))
    free = [place for place in range(total) if place not in documents]
    documents |= {place: fillers[i] for place, i in zip(free, random.permutation(len(fillers)), strict=True)}
    return multihop.Problem(mode, entry.item, tuple(documents[place] for place in range(total)), tuple(places))
