r"""How facts and questions read, how they are judged, and a solver.

A question says one link for each level, `What is the kind of the kind of Nomi?`, so that a depth that no stage trained has no
token of its own; its solution climbs, `Nomi is a Bela. Bela is a Toru. \boxed{Toru}`."""

import re
from typing import NamedTuple

from interplay.schema.taxonomy import Taxonomy
from interplay.schema.verify import Verify
from interplay.tasks.answer import BOX
from interplay.tasks.facts import Fact, judge, judge_statement, walk
from interplay.tasks.taxonomy.problem import IS, Problem, tree
from interplay.tasks.verdict import Verdict

ASKED = "?\n"
SENTENCE = re.compile(r"\s*(\w+) is a (\w+)\.")
STUB = re.compile(r"(\w+) is a ")
LINK = "the kind of "
QUESTION = re.compile(rf"What is ((?:{LINK})+)(\w+)\?\n")


class Rendered(NamedTuple):
    """What the model reads and what it should write. The prompt ends where the solution begins; the solution ends in the
    answer."""

    prompt: str
    solution: str
    answer: str


def render(problem: Problem, task: Taxonomy) -> Rendered:
    """Prompt, gold solution, and answer."""
    start, answer = problem.hops[0].subject, problem.answer
    if problem.mode == "statement":
        return Rendered(f"{start} {IS} ", f"{answer}.", answer)
    steps = "".join(f"{hop.subject} {IS} {hop.object}. " for hop in problem.hops)
    return Rendered(f"What is {LINK * problem.op}{start}{ASKED}", f"{steps}{BOX}{answer}}}", answer)


def solve(prompt: str, task: Taxonomy) -> str:
    """The answer to a prompt, by the facts of the tree. Raises ValueError where it is no prompt of the task."""
    names = tree(task)
    above = {(name, IS): names[number // task.branching] for number, name in enumerate(names[1:])}
    if stub := STUB.fullmatch(prompt):
        return walk(stub[1], [IS], above)
    asked = QUESTION.fullmatch(prompt)
    if asked is None:
        raise ValueError(f"not a prompt of taxonomy: {prompt!r}")
    return walk(asked[2], [IS] * asked[1].count(LINK), above)


def verify(problem: Problem, completion: str, options: Verify) -> Verdict:
    """Judge any text as a solution (tasks.facts.judge)."""
    if problem.mode == "statement":
        return judge_statement(problem.answer, completion)
    return judge(problem.hops, (), completion, sentences, options)


def sentences(text: str) -> list[Fact] | None:
    """The facts that a text states, in order; None where it holds anything else."""
    found, place = [], 0
    while match := SENTENCE.match(text, place):
        found.append(Fact(match[1], IS, match[2]))
        place = match.end()
    return None if text[place:].strip() else found


def alphabet(task: Taxonomy) -> str:
    """All characters of the task, in a fixed order."""
    return "".join(sorted(set("".join(vocabulary(task)))))


def vocabulary(task: Taxonomy) -> list[str]:
    """The pieces of a tokenizer of words, the same for both levels. The stop is a token of its own: positions may jump there."""
    return ["What is ", f" {IS} ", " ", ".", BOX, "}", LINK, ASKED, *tree(task)]
