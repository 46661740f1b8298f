"""How facts and questions read, how they are parsed, judged and solved."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from interplay.core.random import stream_key
from interplay.tasks.bios.generate import Problem, Surface, dumps
from interplay.tasks.bios.spec import ATTRIBUTES, Bios
from interplay.tasks.bios.world import world
from interplay.tasks.facts import Fact, judge, judge_statement, walk
from interplay.tasks.multihop import family as multihop
from interplay.tasks.multihop.problem import Item, Paragraph
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import BOX, Verdict

# How facts and questions read, and how they are read again.
#
# Pieces are cut so that a name stands alone, without a blank, wherever it stands: `Ada`, `'s boss is `, `Bea`, `. `. A question
# is `Who is the boss of the mother of Ada?`; a solution states each fact and boxes the answer: `Ada's mother is Bea. Bea's boss
# is Cid. \boxed{Cid}`. Several questions follow each other on one line.


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


# Prompt, gold solution and answer of a problem; and its documents, where the context has all that the answer needs.


class Rendered(NamedTuple):
    """What the model reads and what it should write. The prompt ends where the solution begins; the solution ends in the
    answer."""

    prompt: str
    solution: str
    answer: str


def render(problem: Problem, task: Bios) -> Rendered:
    """Prompt, gold solution, and answer."""
    return written(problem)


def written(problem: Problem) -> Rendered:
    """Prompt, gold solution, and answer of a problem, which knows its own surface."""
    answer = problem.answer
    if problem.mode == "statement":
        return Rendered(stub(problem), f"{answer}.", answer)
    shown = [*_shown(problem), question(problem).removesuffix("?") + ASKED]
    steps = [*map(step, problem.hops), f"{BOX}{answer}}}"]
    return Rendered(" ".join(shown), " ".join(steps), answer)


def _shown(problem: Problem) -> list[str]:
    return [sentence(fact, problem.surface, problem.form + number) for number, fact in enumerate(problem.context)]


def item(problem: Problem) -> Item | None:
    """The question with a document for each person of the context; None where the context lacks a fact that the answer needs,
    or there is more than one question."""
    if problem.mode == "reading" or not problem.context or not set(problem.hops) <= set(problem.context):
        return None
    titles = list(dict.fromkeys(fact.subject for fact in problem.context))
    texts: dict[str, list[str]] = {title: [] for title in titles}
    places = {}
    for fact, text in zip(problem.context, _shown(problem), strict=True):
        places[fact] = (titles.index(fact.subject), len(texts[fact.subject]))
        texts[fact.subject].append(text)
    return Item(
        id=f"bios-{stream_key('bios', dumps(problem)):016x}",
        question=question(problem),
        answers=(problem.answer,),
        paragraphs=tuple(Paragraph(title, tuple(texts[title])) for title in titles),
        supporting=tuple(places[hop] for hop in problem.hops),
        hops=problem.op,
        type=problem.mode,
        steps=tuple(map(step, problem.hops)),
    )


# What a completion is worth.


def verify(problem: Problem, completion: str, options: Verify) -> Verdict:
    """Judge any text as a solution (tasks.facts.judge)."""
    if problem.mode == "statement":
        return judge_statement(problem.answer, completion)
    return judge(problem.hops, problem.context, completion, sentences, options)


# A solver that reads nothing but the prompt and the parametric facts: the oracle beside the generator.


def solve(prompt: str, task: Bios) -> str:
    """The answer to a prompt, of several questions to the last. Raises ValueError where it is no prompt of the task, or says two
    things."""
    facts = world(task).facts
    if stub := STUB.fullmatch(prompt):
        subject, relation, other, person = stub.groups()
        return walk(subject or person, [relation or other], facts)
    questions = [*QUESTION.finditer(prompt)]
    told = sentences(prompt[: questions[0].start()]) if questions else None
    if told is None:
        raise ValueError(f"not a prompt of bios: {prompt!r}")
    context = {fact[:2]: fact.object for fact in told}
    if len(context) < len(set(told)):
        raise ValueError(f"the context contradicts itself: {prompt!r}")
    asked = questions[-1]
    links = asked[1].removeprefix("the ").removesuffix(" of ").split(" of the ")
    return walk(asked[2], links[::-1], context, facts)
