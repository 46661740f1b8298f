"""What a completion is worth."""

from interplay.schema.verify import Verify
from interplay.tasks.bios.problem import Problem
from interplay.tasks.bios.text import sentences
from interplay.tasks.facts import judge, judge_statement
from interplay.tasks.verdict import Verdict


def verify(problem: Problem, completion: str, options: Verify) -> Verdict:
    """Judge any text as a solution (tasks.facts.judge)."""
    if problem.mode == "statement":
        return judge_statement(problem.answer, completion)
    return judge(problem.hops, problem.context, completion, sentences, options)
