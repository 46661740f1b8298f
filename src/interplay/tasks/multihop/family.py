"""Multi-hop questions: the verifier and the citation of chunks (LongRLVR, arXiv:2603.02146)."""

import re
from collections.abc import Sequence
from functools import lru_cache

from interplay.tasks import verdict
from interplay.tasks.multihop.problem import Problem, dumps, item, loads, plain
from interplay.tasks.multihop.render import CITE, CITED, Rendered, pieces, render
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import BOX, Verdict, extract_answer, is_answer_dump

# Questions over documents that take several facts to answer: plain, hidden behind chains of keys, or with citations.


__all__ = ["Problem", "Rendered", "baseline", "dumps", "item", "loads", "pieces", "plain", "render", "verify"]


# Citations of chunks (LongRLVR, arXiv:2603.02146): which documents a completion names as useful, and what that is worth.
#
# F_beta(Z, G) = (1 + beta^2) P R / (beta^2 P + R) of the list Z against the useful set G. Precision divides by the length of
# the raw list, so that naming a document twice costs; recall counts the set.


BETA = 2.0
NUMBER = re.compile(r"\d+")
MOST_DIGITS, NO_CHUNK = 9, -1


def cited_chunks(completion: str) -> list[int] | None:
    """The numbers in the list of a completion, repeats included; NO_CHUNK for one that is longer than any chunk's. None where a
    tag is missing or there twice, or where list and answer do not stand in this order: such a completion is worth nothing."""
    if any(completion.count(mark) != 1 for mark in (CITE, CITED, BOX)):
        return None
    start, end = completion.index(CITE) + len(CITE), completion.index(CITED)
    if not start <= end < completion.index(BOX):
        return None
    return [_number(digits.lstrip("0")) for digits in NUMBER.findall(completion[start:end])]


def _number(digits: str) -> int:
    """A model writes digits without end, and Python's `int` refuses more than a few thousand."""
    return int(digits or "0") if len(digits) <= MOST_DIGITS else NO_CHUNK


def f_beta(said: Sequence[int], useful: Sequence[int], beta: float = BETA) -> float:
    """F_beta of a list against the useful documents; 0 where they share nothing."""
    hits = len(set(said) & set(useful))
    if not hits:
        return 0.0
    precision, recall = hits / len(said), hits / len(set(useful))
    return (1 + beta**2) * precision * recall / (beta**2 * precision + recall)


def baseline(problem: Problem) -> float:
    """The score of a policy that cites every chunk; 0 in modes without citations."""
    return f_beta(range(len(problem.documents)), problem.useful) if problem.mode == "citation" else 0.0


# What a completion of a multi-hop question is worth.


WORD = re.compile(r"[0-9A-Za-z]+(?:-[0-9A-Za-z]+)*")
VERB = re.compile(r" (?:is|was|are|were) ")


def verify(problem: Problem, completion: str, options: Verify) -> Verdict:
    """Answer: exact match after normalisation. Strict: also all keys of the true chain in order and of no other chain, every
    hop of the gold reasoning stated and none contradicted, and in citation mode exactly the useful chunks, once each. Score: F1
    of the answer; in citation mode F_2 of the citations, and nothing counts where their format is broken. Error: the first of
    `truncated` (no answer, or too many), `chain`, `step`, `citation`, `answer`."""
    said = None if is_answer_dump(completion) else extract_answer(completion)
    if said is None:
        return Verdict(False, False, 0.0, "truncated")
    reasoning = completion.rpartition(BOX)[0]
    right = verdict.exact_match(said, problem.answers)
    listed = cited_chunks(completion) if problem.mode == "citation" else []
    if listed is None:
        return Verdict(False, False, 0.0, "citation", said=said)
    score = f_beta(listed, problem.useful) if problem.mode == "citation" else verdict.f1(said, problem.answers)
    checks = {
        "chain": traced(problem, reasoning),
        "step": stated(problem.steps, reasoning),
        "citation": problem.mode != "citation" or sorted(listed) == sorted(problem.useful),
        "answer": right,
    }
    error = next((name for name, passed in checks.items() if not passed), "none")
    return Verdict(error == "none", right, score, error, said=said)


def traced(problem: Problem, reasoning: str) -> bool:
    """Whether the keys of the true chain are named in order, and none of another: naming all there are traces nothing."""
    known = {key for chain in problem.chains for key in chain.keys}
    named = [word for word in WORD.findall(reasoning) if word in known]
    left = iter(named)
    return set(named) <= set(problem.keys) and all(key in left for key in problem.keys)


def stated(steps: tuple[str, ...], reasoning: str) -> bool:
    """Whether every hop is stated and nothing said that contradicts one."""
    said = plain_text(reasoning)
    return all(_said(plain_text(step), said) for step in steps) and not contradicts(steps, said)


def contradicts(steps: tuple[str, ...], said: str) -> bool:
    """Whether a text, as `plain` gives it, says something that begins as one of these sentences does, up to its verb, and goes
    on otherwise."""
    return any(not _always(stem, rest, said) for stem, rest in _cut(steps))


@lru_cache(maxsize=1024)
def _cut(steps: tuple[str, ...]) -> list[tuple[str, str]]:
    """Each sentence cut behind its verb; where it has none that is known, before its last word. Without sentences that another
    one of them would contradict: files hold such reasoning, as `what is`, asked twice."""
    found, gold = [], plain_text(" ".join(steps))
    for step in map(plain_text, steps):
        verb = VERB.search(step)
        end = verb.end() if verb else step.rfind(" ") + 1
        found += [(step[:end], step[end:])] if end else []
    return [(stem, rest) for stem, rest in found if _always(stem, rest, gold)]


def _always(stem: str, rest: str, said: str) -> bool:
    """Whether a text goes on with `rest` wherever it has the stem."""
    return stem not in said or all(_goes_on(said, place, rest) for place in _behind(stem, said))


def _said(step: str, said: str) -> bool:
    return step in said and any(_goes_on(said, place, "") for place in _behind(step, said))


def _behind(part: str, said: str) -> list[int]:
    """Where the occurrences of a part that begin a word end."""
    return [match.end() for match in re.finditer(rf"(?<!\w){re.escape(part)}", said)]


def _goes_on(said: str, place: int, rest: str) -> bool:
    end = place + len(rest)
    return said[place:end] == rest and not said[end : end + 1].isalnum()


def plain_text(words: str) -> str:
    """Lower case, single blanks, no stop at the end."""
    return " ".join(words.lower().split()).rstrip(".?!")
