"""Prompt, gold solution and answer of a problem; and its documents, where the context has all that the answer needs."""

from typing import NamedTuple

from interplay.schema.bios import Bios
from interplay.store.random import key
from interplay.tasks.answer import BOX
from interplay.tasks.bios.problem import Problem, dumps
from interplay.tasks.bios.text import ASKED, question, sentence, step, stub
from interplay.tasks.multihop.item import Item, Paragraph


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
        id=f"bios-{key('bios', dumps(problem)):016x}",
        question=question(problem),
        answers=(problem.answer,),
        paragraphs=tuple(Paragraph(title, tuple(texts[title])) for title in titles),
        supporting=tuple(places[hop] for hop in problem.hops),
        hops=problem.op,
        type=problem.mode,
        steps=tuple(map(step, problem.hops)),
    )
