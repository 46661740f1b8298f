"""Verdicts on completions, rows of a problem set, pass@k, and the extraction and comparison of answers; the same for all
families."""

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, overload

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Block(NamedTuple):
    """A part of a completion that is judged separately, such as the answer to a subproblem."""

    start: int
    end: int
    """Characters start..end-1 of the completion."""
    right: bool


class Verdict(NamedTuple):
    """A completion against its problem's gold."""

    strict: bool
    """The answer and all steps are right, as far as the family can judge them."""
    answer: bool
    """The answer is right, with right or wrong steps."""
    score: float
    """The share of the process that is right, in [0, 1]; each family defines its own."""
    error: str
    """`none` if strict, else the first of the family's error classes that applies; `truncated` where there is no answer."""
    value_mismatches: int = 0
    """op_dag: necessary nodes with a wrong value; a node may count here and under dependency_mismatches."""
    dependency_mismatches: int = 0
    """op_dag: necessary nodes whose parents are wrong, unnamed, or valued after them."""
    missing: int = 0
    """op_dag: necessary nodes that no step values."""
    extra: int = 0
    """op_dag: other names that have steps and that no necessary node reads through."""
    nodes: int = 1
    """op_dag: necessary nodes."""
    said: str = ""
    """The extracted answer; empty where there is none."""
    blocks: tuple[Block, ...] = ()
    """Parts that are judged separately, in order; empty where the family has none or the format is invalid."""


def first_error(**classes: object) -> str:
    """The name of the first error class whose value is true, or `none`."""
    return next((name for name, found in classes.items() if found), "none")


# pass@k: the unbiased estimate from n samples of the probability that at least one of k passes.


@overload
def pass_at_k(n: int, c: int, k: int) -> float: ...
@overload
def pass_at_k(n: "NDArray[np.int64] | int", c: "NDArray[np.int64]", k: int) -> "NDArray[np.float64]": ...
def pass_at_k(n: "NDArray[np.int64] | int", c: "NDArray[np.int64] | int", k: int) -> "NDArray[np.float64] | float":
    """1 - C(n-c, k) / C(n, k) for c passes among n samples (Chen et al., arXiv:2107.03374, equation 1).

    n and c are counts or arrays of counts, broadcast together. Raises ValueError unless 0 <= c <= n and 1 <= k <= n everywhere.
    NumPy is imported here, since planning imports this module and no NumPy.
    """
    import numpy as np

    samples, passes = np.broadcast_arrays(np.asarray(n, dtype=np.int64), np.asarray(c, dtype=np.int64))
    if k < 1 or np.any(passes < 0) or np.any(passes > samples) or np.any(samples < k):
        raise ValueError(f"pass@k needs 0 <= c <= n and 1 <= k <= n everywhere (k={k})")
    drawn = np.arange(k)
    # The chance that the next sample fails, given that the earlier ones failed; 0 when no failures are left.
    fails = np.clip((samples - passes)[..., None] - drawn, 0, None) / (samples[..., None] - drawn)
    return 1.0 - np.prod(fails, axis=-1)


# Rows of a problem set.


UNFINISHED = "unfinished"
"""Mode of rows whose solution ends before the answer: in training they have no end token."""


@dataclass(frozen=True, slots=True)
class Row:
    """One problem, with its provenance."""

    set: int
    """Number of its problem set among those that are loaded together."""
    index: int
    """Its number in that set."""
    band: str
    op: int
    """Difficulty as the family counts it: operations, hops, levels."""
    mode: str
    """Form of the question, such as forward, reverse, keychain or four_choice."""
    prompt: str
    solution: str
    answer: str
    graph: str
    """The gold that the family's `loads` reads."""
    key: str
    """Structural key, hex; equal for problems that differ in names and order only."""
    family: str
    """The family that judges it (tasks.spec.FAMILIES)."""
    origin: str
    """`digest:index` of the original row; variants of one question share it."""
    transforms: tuple[str, ...] = ()
    """Names of the curation steps that changed it, in order."""
    rejected: str = ""
    """Of a pair: a finished completion that is worse than `solution`, which is then the chosen one; empty: no pair. Of a ranked
    list: all that are worse, best first, with tasks.transcripts.MARK between them."""
    rater: str = ""
    """Of a pair: who prefers it; empty: the verifier, or unknown."""


# Answers in words: normalised as in SQuAD and HotpotQA, and compared as by their scorers and LoongRL's.
#
# All scorers take an answer and the acceptable answers, and return the best score over the latter. An answer that is empty after
# normalisation never scores: it would be part of every text.


EXACT_ONLY = {"yes", "no", "noanswer"}
"""Normalised answers that count only as themselves: `no` is inside `unknown` and `yes` inside `eyes`."""
SHORTEST = 3
"""Fewest characters of a normalised answer that may be part of another, or contain another."""
EXTRA_WORDS = 2
"""Words that an answer may have in addition to the gold. A list of four options, however short, has at least three."""
FRAME = frozenset(
    ["it", "is", "was", "were", "in", "on", "at", "of", "by", "to", "from", "as", "year", "city", "mr", "mrs", "ms", "dr"]
)
"""Words that may be around an answer and name nothing themselves."""
LISTING = frozenset(
    ["not", "no", "nor", "never", "neither", "either", "or", "and", "both", "but", "except", "without", "cannot", "isnt", "wasnt"]
)
"""Words that take an answer back, or join it to another; never allowed in addition to the gold."""
_CLAUSE = re.compile(r"[.,;:?!()\"\n]+")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalise(text: str) -> str:
    """Lower case, no ASCII punctuation, no articles, single blanks (SQuAD's evaluate-v1.1.py, in its order)."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(said: str, golds: Sequence[str]) -> bool:
    """Equal to one of the answers once normalised."""
    given = normalise(said)
    return bool(given) and any(given == normalise(gold) for gold in golds)


def f1(said: str, golds: Sequence[str]) -> float:
    """Harmonic mean of precision and recall over normalised words, counted with repetition; 0 between a yes or no and anything
    else (HotpotQA's hotpot_evaluate_v1.py)."""
    return max((_f1(normalise(said), normalise(gold)) for gold in golds), default=0.0)


def _f1(given: str, gold: str) -> float:
    if given != gold and (given in EXACT_ONLY or gold in EXACT_ONLY):
        return 0.0
    ours, theirs = given.split(), gold.split()
    common = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * common / (len(ours) + len(theirs)) if common else 0.0


def clauses(text: str) -> list[str]:
    """The parts of a text between marks of punctuation, normalised, each between blanks."""
    return [f" {normalise(part)} " for part in _CLAUSE.split(text)]


def names_more(said: str, gold: str, extra: int = EXTRA_WORDS, known: Sequence[str] = ()) -> bool:
    """Whether an answer may name more than the gold, or take it back: it has more than `extra` words in addition, or one of them
    is of LISTING, or one is not of FRAME and none of the `known` clauses of the documents has the answer as it is (as
    `President Chirac` may be there for Chirac)."""
    given, wanted = normalise(said).split(), normalise(gold).split()
    more = (Counter(given) - Counter(wanted)).keys()
    if len(given) > len(wanted) + extra or more & LISTING:
        return True
    return not more <= FRAME and not any(f" {' '.join(given)} " in clause for clause in known)


def substring(said: str, golds: Sequence[str], extra: int = EXTRA_WORDS, known: Sequence[str] = ()) -> bool:
    """LoongRL's two-way substring with guards: one of the two normalised texts occurs in the other as whole words. Guards:

    - yes, no and texts under three characters have to be equal;
    - what the answer has in addition to the gold names nothing else (`names_more`), so that lists of options, negations and
      repeated answers do not count;
    - a shorter answer has at least half of the gold's words, all of its numbers, and no joining word at either end, so that
      `and` does not count for a conjunction, nor the half of a range or a date."""
    given = normalise(said)
    return bool(given) and any(_guarded(given, normalise(gold), extra, known) for gold in golds)


def _guarded(given: str, gold: str, extra: int, known: Sequence[str]) -> bool:
    if given == gold:
        return True
    if {given, gold} & EXACT_ONLY or min(len(given), len(gold)) < SHORTEST:
        return False
    ours, theirs = given.split(), gold.split()
    if len(ours) > len(theirs):
        return f" {gold} " in f" {given} " and not names_more(given, gold, extra, known)
    left = Counter(theirs) - Counter(ours)
    half = 2 * len(ours) >= len(theirs) and not {ours[0], ours[-1]} & (FRAME | LISTING)
    return half and not any(c.isdigit() for word in left for c in word) and f" {given} " in f" {gold} "


def substring_published(said: str, golds: Sequence[str]) -> bool:
    """The rule as released (arXiv:2510.19363): either normalised text is part of the other, character by character. Accepts an
    empty answer, `no` for `unknown`, and a list of everything; kept to measure the effect of the guards."""
    given = normalise(said)
    return any(given in normalise(gold) or normalise(gold) in given for gold in golds)


# The final answer of a completion: in its last `\boxed{}`, else after its last `#`.


BOX = "\\boxed{"
MARK = "#"
MOST_BOXES = 4
"""Most boxes of a completion; one with more lists answers instead of giving one."""


def extract_answer(completion: str) -> str | None:
    r"""The text of the last `\boxed{...}` (braces balanced), else the text after the last `#`; None where there is neither or the
    box is not closed. Enclosing blanks are dropped; nothing else is normalised."""
    start = completion.rfind(BOX)
    if start < 0:
        return completion.rpartition(MARK)[2].strip() if MARK in completion else None
    end = closing_brace(completion, start + len(BOX))
    return None if end < 0 else completion[start + len(BOX) : end].strip()


def closing_brace(text: str, start: int) -> int:
    """The offset of the brace that closes the one directly before `start`; -1 where there is none."""
    depth = 1
    for end in range(start, len(text)):
        depth += (text[end] == "{") - (text[end] == "}")
        if not depth:
            return end
    return -1


def is_answer_dump(completion: str) -> bool:
    """Whether a completion has too many final answers for its last one to count."""
    return completion.count(BOX) > MOST_BOXES


# Completions of several units (MinD, arXiv:2505.19788): complete attempts, each with an answer, and a separator between them, so
# that sampling can stop after any unit.


def split_units(completion: str, separator: str) -> list[str]:
    """The units of a completion, at least one; with an empty separator exactly one. A separator at the end begins an empty
    unit."""
    return completion.split(separator) if separator else [completion]


def last_unit(completion: str, separator: str) -> str:
    """The last unit of a completion."""
    return split_units(completion, separator)[-1]


# Behaviours of a trace, counted on what it states: plans, retrievals, checks and corrections.


class Statement(NamedTuple):
    """One statement of a trace about something that the problem knows: a node, a link of a chain, a fact, the question."""

    subject: str
    value: str | None
    """None: what the subject is made of, or that it is next, and not yet its value."""
    given: bool = False
    """Whether the prompt, or memory, gives the value, so that nothing is computed."""


def count_behaviours(statements: Iterable[Statement]) -> dict[str, int]:
    """plans: statements without a value; retrievals: first values that are given; rechecks: a value stated again; backtracks:
    another value than the subject had before."""
    counts, held = {"plans": 0, "retrievals": 0, "rechecks": 0, "backtracks": 0}, dict[str, str]()
    for subject, value, given in statements:
        if value is None:
            counts["plans"] += 1
            continue
        if subject not in held:
            counts["retrievals"] += given
        else:
            counts["rechecks" if held[subject] == value else "backtracks"] += 1
        held[subject] = value
    return counts


VERB = re.compile(r" (?:is|was|are|were) ")
SENTENCE = re.compile(r"(?<=[.?!:])\s+")


def fact_statements(steps: Sequence[str], question: str, completion: str) -> list[Statement]:
    """What a completion states of the facts that an answer needs (`steps`, one sentence each), and the question where it repeats
    it, up to the answer's box."""
    known = {cut for step in map(_plain, steps) if (cut := _subject(step))}
    found = []
    for sentence in map(_plain, SENTENCE.split(completion.partition(BOX)[0])):
        subject = _subject(sentence)
        if question and sentence == _plain(question):
            found.append(Statement(sentence, None))
        elif subject in known:
            found.append(Statement(subject, sentence[len(subject) :], True))
    return found


def _plain(sentence: str) -> str:
    return " ".join(sentence.lower().split()).rstrip(".?!")


def _subject(sentence: str) -> str:
    """A sentence up to its verb; empty where it has none that is known."""
    verb = VERB.search(sentence)
    return sentence[: verb.end()] if verb else ""
