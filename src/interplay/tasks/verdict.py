"""What a completion is worth, whatever the family: verdicts, rows of a problem set, pass@k, and how answers are extracted
and compared."""

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, overload

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# What a completion is worth, whatever the family.


class Block(NamedTuple):
    """A part of a completion that is judged by itself, such as the answer to a subproblem."""

    start: int
    end: int
    """Characters start..end-1 of the completion."""
    right: bool


class Verdict(NamedTuple):
    """A completion against its problem's gold."""

    strict: bool
    """The answer and all that leads to it, as far as the family can judge that, are right."""
    answer: bool
    """The answer is right, whatever the steps."""
    score: float
    """How much of the process is right, in [0, 1]; what it counts is the family's to say."""
    error: str
    """`none` if strict, else the first that applies of the family's classes; `truncated` where there is no answer at all."""
    value_mismatches: int = 0
    """op_dag: necessary nodes with a wrong value; a node may count here and under dependency_mismatches."""
    dependency_mismatches: int = 0
    """op_dag: necessary nodes whose parents are wrong, unnamed, or valued later than they are."""
    missing: int = 0
    """op_dag: necessary nodes that no step gives a value."""
    extra: int = 0
    """op_dag: other names about which there are steps and that no necessary node goes through."""
    nodes: int = 1
    """op_dag: necessary nodes."""
    said: str = ""
    """The answer as it was read; empty where there is none."""
    blocks: tuple[Block, ...] = ()
    """Parts that are judged by themselves, in order; empty where the family has none or the format is broken."""


# pass@k arithmetic: the chance that at least one of k samples passes, estimated without bias from n samples.


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
    # The chance that the next sample drawn fails, given that those before it failed; 0 once the failures are used up.
    fails = np.clip((samples - passes)[..., None] - drawn, 0, None) / (samples[..., None] - drawn)
    return 1.0 - np.prod(fails, axis=-1)


# One row of a problem set, as everybody who reads one sees it.


UNFINISHED = "unfinished"
"""Mode of rows whose solution breaks off before it answers: as supervision they have no end token."""


@dataclass(frozen=True, slots=True)
class Row:
    """One problem, with where it comes from."""

    set: int
    """Number of its problem set among those that are read together."""
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
    """Structural key, hex; equal for problems that are the same but for names and order."""
    family: str
    """Whose `verify` judges it (tasks.families)."""
    origin: str
    """`digest:index` of the row that it was first made as; variants of one question share it."""
    transforms: tuple[str, ...] = ()
    """Names of the curation steps that changed it since, in order."""
    rejected: str = ""
    """Of a pair: a finished completion that is worse than `solution`, which is then the chosen one; empty: no pair."""
    rater: str = ""
    """Of a pair: whose taste says so; empty: the verifier's, or nobody's."""


# Answers in words: normalised as SQuAD and HotpotQA do, and compared in the ways of their scorers and of LoongRL.
#
# All scorers take what was said and the acceptable answers, and give the best over the latter. An answer that normalises to
# nothing never scores: it would be part of everything.


EXACT_ONLY = {"yes", "no", "noanswer"}
"""Normalised answers that count only as themselves: `no` is inside `unknown` and `yes` inside `eyes`."""
SHORTEST = 3
"""Characters that a normalised answer must have to be found inside another, or another in it."""
EXTRA_WORDS = 2
"""Words that an answer may have beside the gold. A list of four options, however short they are, has at least three."""
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


def substring(said: str, golds: Sequence[str], extra: int = EXTRA_WORDS) -> bool:
    """LoongRL's two-way substring with guards: one of the two normalised texts stands in the other as whole words. Guards:

    - yes, no and what has under three characters count only as themselves;
    - what is said has at most `extra` words beside the gold, so that no list of options and no answer dumped twenty times counts;
    - it has at least half of the gold's words, so that no `and` counts for all that it joins."""
    given = normalise(said)
    return bool(given) and any(_guarded(given, normalise(gold), extra) for gold in golds)


def _guarded(given: str, gold: str, extra: int) -> bool:
    if given == gold:
        return True
    if {given, gold} & EXACT_ONLY or min(len(given), len(gold)) < SHORTEST:
        return False
    ours, theirs = len(given.split()), len(gold.split())
    if ours > theirs + extra or 2 * ours < theirs:
        return False
    inner, outer = (given, gold) if ours <= theirs else (gold, given)
    return f" {inner} " in f" {outer} "


def substring_published(said: str, golds: Sequence[str]) -> bool:
    """The rule as released (arXiv:2510.19363): either normalised text is part of the other, character by character. Pays an empty
    answer, `no` for `unknown`, and a list of everything; kept to measure what the guards are worth."""
    given = normalise(said)
    return any(given in normalise(gold) or normalise(gold) in given for gold in golds)


# The final answer of a completion: what stands in its last `\boxed{}`, else after its last `#`.


BOX = "\\boxed{"
MARK = "#"
MOST_BOXES = 4
"""Boxes that a completion may hold; whoever fills more of them names answers instead of giving one."""


def extract_answer(completion: str) -> str | None:
    r"""The text of the last `\boxed{...}` (braces balanced), else what follows the last `#`; None where there is neither or the
    box never closes. Surrounding blanks are dropped; nothing else is normalised."""
    start = completion.rfind(BOX)
    if start < 0:
        return completion.rpartition(MARK)[2].strip() if MARK in completion else None
    end = closing_brace(completion, start + len(BOX))
    return None if end < 0 else completion[start + len(BOX) : end].strip()


def closing_brace(text: str, start: int) -> int:
    """Where the brace stands that closes the one right before `start`; -1 where none does."""
    depth = 1
    for end in range(start, len(text)):
        depth += (text[end] == "{") - (text[end] == "}")
        if not depth:
            return end
    return -1


def is_answer_dump(completion: str) -> bool:
    """Whether a completion names too many final answers for its last one to count."""
    return completion.count(BOX) > MOST_BOXES


# Completions of several units (MinD, arXiv:2505.19788): whole attempts, each of which ends in an answer, with a separator
# between them. Whoever stops after a unit has its answer.


def split_units(completion: str, separator: str) -> list[str]:
    """The units of a completion, one at least; an empty separator separates nothing. A separator at the end begins an empty
    unit."""
    return completion.split(separator) if separator else [completion]


def last_unit(completion: str, separator: str) -> str:
    """The last unit of a completion."""
    return split_units(completion, separator)[-1]
