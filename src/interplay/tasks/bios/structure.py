"""A key of a problem up to what does not matter in it."""

from collections.abc import Iterable

from interplay.store.random import key
from interplay.tasks.bios.problem import Problem
from interplay.tasks.facts import Fact

ROUNDS = 2


def structure(problem: Problem) -> str:
    """16 hex digits. Problems that ask the same share the key: order and wording of the context do not count, and people and
    values may be renamed unless a parametric fact names them, since then the name is what is asked. Colours are refined
    (Weisfeiler and Lehman) along the facts of context and chain, so that other problems practically never share it. A statement
    asks nothing and shares no key with a question."""
    context = set(problem.context)
    facts = [*context, *(hop for hop in problem.hops if hop not in context)]
    named = {name for hop in problem.hops if hop not in context for name in (hop.subject, hop.object)}
    colours = {name: key("name", name if name in named else "") for fact in facts for name in (fact.subject, fact.object)}
    colours[problem.hops[0].subject] = key("start", colours[problem.hops[0].subject])
    for _ in range(ROUNDS):
        colours = _refined(colours, facts)
    path = " ".join(hop.relation for hop in problem.hops)
    asked = [colours[problem.hops[0].subject], *(colours[hop.object] for hop in problem.hops)]
    statement = problem.mode == "statement"
    return f"{key('bios', statement, path, *asked, *sorted(colours.values())):016x}"


def _refined(colours: dict[str, int], facts: Iterable[Fact]) -> dict[str, int]:
    """Each colour with those of its neighbours by relation and direction."""
    beside: dict[str, list[str]] = {name: [] for name in colours}
    for subject, relation, there in facts:
        beside[subject].append(f"{relation}>{colours[there]}")
        beside[there].append(f"{relation}<{colours[subject]}")
    return {name: key(colour, *sorted(beside[name])) for name, colour in colours.items()}


def shared(problem: Problem) -> bool:
    """Whether the problem belongs to every split alike: facts to be learnt by heart do, and questions that ask one of them."""
    return problem.mode in ("statement", "parametric")
