r"""Questions about a memorised fact with a context that contradicts it or is irrelevant (KnowPO, arXiv:2408.03297): `Bea's boss
is Cid. Ada's boss is Dov. Who is the boss of Ada?` where Ada's boss is known to be Eva. The gold answer is the context's value
where it has one, else the memorised one."""

import json
from typing import NamedTuple

from interplay.core.random import stream_key
from interplay.tasks.bios.people import BIOS, Problem
from interplay.tasks.facts import ERRORS, Fact
from interplay.tasks.family import Family, compact_json
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Verdict

CONTRADICTING, IRRELEVANT = "contradicting", "irrelevant"
IGNORANCE, OVER_INCLUSION = "ignorance", "over_inclusion"


class Conflict(NamedTuple):
    """A question with its context, and the memorised fact."""

    problem: Problem
    """One hop, whose object is the gold answer, and the facts of the context."""
    known: Fact
    """The fact of pre-training about the same person and relation."""

    @property
    def mode(self) -> str:
        """contradicting or irrelevant."""
        return IRRELEVANT if self.problem.hops[0] == self.known else CONTRADICTING


def dumps(conflict: Conflict) -> str:
    """JSON, one line."""
    return compact_json([BIOS.dumps(conflict.problem), conflict.known])


def loads(text: str) -> Conflict:
    """The inverse of `dumps`."""
    problem, known = json.loads(text)
    return Conflict(BIOS.loads(problem), Fact(*known))


def verify(conflict: Conflict, completion: str, options: Verify) -> Verdict:
    """The verdict of bios; the error of a wrong answer names its source: `ignorance` is the memorised value against the context,
    `over_inclusion` the value of another fact of the context."""
    verdict = BIOS.verify(conflict.problem, completion, options)
    if verdict.answer or not verdict.said:
        return verdict
    if verdict.said == conflict.known.object:
        return verdict._replace(error=IGNORANCE)
    if verdict.said in {fact.object for fact in conflict.problem.context}:
        return verdict._replace(error=OVER_INCLUSION)
    return verdict


def structure(conflict: Conflict) -> str:
    """16 hex digits, equal for conflicts over one memorised fact whose contexts are equal up to names."""
    return f"{stream_key('conflicts', *conflict.known, BIOS.structure(conflict.problem)):016x}"


CONFLICTS = Family(name="conflicts", errors=(*ERRORS, IGNORANCE, OVER_INCLUSION), loads=loads, verify=verify)
