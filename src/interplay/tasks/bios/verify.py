"""What a completion is worth."""

from interplay.schema.verify import Verify
from interplay.tasks.answer import BOX, extract
from interplay.tasks.bios.problem import Problem
from interplay.tasks.bios.text import sentences
from interplay.tasks.facts import judge
from interplay.tasks.verdict import Verdict


def verify(problem: Problem, completion: str, options: Verify) -> Verdict:
    """Judge any text as a solution (tasks.facts.judge): what stands before the last box must be facts. A statement is right where
    it goes on with the object and a stop, and no more. Never raises on account of the text."""
    if problem.mode == "statement":
        said, stop, rest = completion.partition(".")
        right = said == problem.answer and bool(stop)
        error = "truncated" if not stop else "answer" if not right else "parse" if rest.strip() else "none"
        return Verdict(error == "none", right, float(right), error, value_mismatches=int(bool(stop) and not right), said=said)
    boxed = extract(completion)
    if BOX not in completion:
        boxed = None
    return judge(problem.hops, problem.context, sentences(completion.rpartition(BOX)[0]), boxed, options)
