r"""A question about a fact that is known by heart, behind a context that contradicts it or has nothing to do with it (KnowPO,
arXiv:2408.03297): `Bea's boss is Cid. Ada's boss is Dov. Who is the boss of Ada?` where Ada's boss is known to be Eva. The gold
is what is to be answered: the context's value where it has one, else the one that is known."""

import json
from typing import NamedTuple

from interplay.core.random import stream_key
from interplay.tasks.bios import family as bios
from interplay.tasks.bios.generate import Problem
from interplay.tasks.facts import Fact
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Verdict

CONTRADICTING, IRRELEVANT = "contradicting", "irrelevant"
IGNORANCE, OVER_INCLUSION = "ignorance", "over_inclusion"


class Conflict(NamedTuple):
    """A question with its context, and what is known by heart."""

    problem: Problem
    """One hop, which is to be answered, and the facts shown."""
    known: Fact
    """What pre-training said of the same person and relation."""

    @property
    def mode(self) -> str:
        """contradicting or irrelevant."""
        return IRRELEVANT if self.problem.hops[0] == self.known else CONTRADICTING


def dumps(conflict: Conflict) -> str:
    """JSON, one line."""
    return json.dumps([bios.dumps(conflict.problem), conflict.known], separators=(",", ":"))


def loads(text: str) -> Conflict:
    """The conflict that `dumps` wrote."""
    problem, known = json.loads(text)
    return Conflict(bios.loads(problem), Fact(*known))


def verify(conflict: Conflict, completion: str, options: Verify) -> Verdict:
    """As bios judges it; of a wrong answer the error says whose it is: `ignorance` is the one known by heart in spite of the
    context, `over_inclusion` that of another fact of the context."""
    verdict = bios.verify(conflict.problem, completion, options)
    if verdict.answer or not verdict.said:
        return verdict
    if verdict.said == conflict.known.object:
        return verdict._replace(error=IGNORANCE)
    if verdict.said in {fact.object for fact in conflict.problem.context}:
        return verdict._replace(error=OVER_INCLUSION)
    return verdict


def structure(conflict: Conflict) -> str:
    """16 hex digits. Conflicts over one known fact share them where their contexts are alike up to names."""
    return f"{stream_key('conflicts', *conflict.known, bios.structure(conflict.problem)):016x}"
