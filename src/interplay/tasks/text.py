"""Answers in words: normalised as SQuAD and HotpotQA do, and compared in the ways of their scorers and of LoongRL.

All scorers take what was said and the acceptable answers, and give the best over the latter. An answer that normalises to
nothing never scores: it would be part of everything."""

import re
import string
from collections import Counter
from collections.abc import Sequence

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
