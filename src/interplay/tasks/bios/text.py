r"""How facts and questions read, and how they are read again.

Pieces are cut so that a name stands alone, without a blank, wherever it stands: `Ada`, `'s boss is `, `Bea`, `. `. A question is
`Who is the boss of the mother of Ada?`; a solution states each fact and boxes the answer:
`Ada's mother is Bea. Bea's boss is Cid. \boxed{Cid}`. Several questions follow each other on one line."""

import re
from collections.abc import Sequence

from interplay.schema.bios import ATTRIBUTES, Bios
from interplay.tasks import multihop
from interplay.tasks.answer import BOX
from interplay.tasks.bios.problem import Problem, Surface
from interplay.tasks.bios.world import world
from interplay.tasks.facts import Fact

ASKED = "?\n"
"""Ends a prompt."""
SENTENCE = re.compile(r"\s*(?:(\w+)'s (\w+) is (\w+)|The (\w+) of (\w+) is (\w+)|(\w+) is the (\w+) of (\w+))\.")
QUESTION = re.compile(r"(?:Who|What) is ((?:the \w+ of )+)(\w+)\?(?: (?=Wh)|\n)")
STUB = re.compile(r"(?:(\w+)'s (\w+)|The (\w+) of (\w+)) is ")


def sentence(fact: Fact, surface: Surface, form: int) -> str:
    """A fact in one of the forms of its surface; terse has one."""
    subject, relation, there = fact
    if surface == "prose" and form % 3 == 1:
        return f"The {relation} of {subject} is {there}."
    if surface == "prose" and form % 3 == 2:
        return f"{there} is the {relation} of {subject}."
    return f"{subject}'s {relation} is {there}."


def step(fact: Fact) -> str:
    """A fact as solutions state it."""
    return sentence(fact, "terse", 0)


def question(problem: Problem) -> str:
    """The question about the end of the chain; of mode reading, the questions about each fact."""
    return " ".join(_question([hop]) for hop in problem.hops) if problem.mode == "reading" else _question(problem.hops)


def _question(hops: Sequence[Fact]) -> str:
    links = "".join(f"the {hop.relation} of " for hop in reversed(hops))
    return f"{'What' if hops[-1].relation in ATTRIBUTES else 'Who'} is {links}{hops[0].subject}?"


def stub(problem: Problem) -> str:
    """The prompt of a statement: the fact up to its object. A form that begins with the object is told in the other order."""
    (fact,) = problem.hops
    form = problem.form if problem.form % 3 < 2 else 0
    return sentence(fact, problem.surface, form).removesuffix(f"{fact.object}.")


def sentences(text: str) -> list[Fact] | None:
    """The facts that a text states, in order; None where it holds anything else."""
    found: list[Fact] = []
    place = 0
    while match := SENTENCE.match(text, place):
        a, r, b, r1, a1, b1, b2, r2, a2 = match.groups()
        found.append(Fact(a, r, b) if a else Fact(a1, r1, b1) if a1 else Fact(a2, r2, b2))
        place = match.end()
    return None if text[place:].strip() else found


def alphabet(task: Bios) -> str:
    """All characters of the task, in a fixed order."""
    return "".join(sorted(set("".join(vocabulary(task)))))


def vocabulary(task: Bios) -> list[str]:
    """The pieces of a tokenizer of words. Which relations are parametric or held out does not alter them. Those of in_context can
    become multi-hop problems, and bring the pieces of these."""
    known = world(task)
    names = [*known.people, *(value for values in known.values.values() for value in values)]
    frame = ["Who is ", "What is ", ASKED, "?", ". ", ".", BOX, "}", *(["? "] if task.level == "reading" else [])]
    relations = [piece for name in task.all_relations() for piece in (f"'s {name} is ", f"the {name} of ")]
    if task.surface == "prose":
        relations += [piece for name in task.all_relations() for piece in (f"The {name} of ", f" is the {name} of ")] + [" is "]
    return [*frame, *relations, *names, *(multihop.pieces() if task.level == "in_context" else [])]
