"""Judges a completion in blocks. There must be exactly K of them and nothing after the last, each with steps and one answer; else
the format is broken and no block counts."""

from interplay.schema.verify import Verify
from interplay.tasks.op_dag.render import ANSWER, SECTION, STEP
from interplay.tasks.op_dag.verify import verify as verify_steps
from interplay.tasks.subproblems.parts import Parts
from interplay.tasks.verdict import Block, Verdict


def verify(parts: Parts, completion: str, options: Verify) -> Verdict:
    """Answer: the format holds and the last block's answer is right, whatever the others. Strict: also all other blocks' answers
    and, as op_dag judges them, all steps of all blocks. Score: op_dag's, of the steps. Error: `truncated` without any answer,
    `format`, then op_dag's own, then `subproblem` where only an earlier block's answer is wrong."""
    found = split(completion)
    said = completion.rpartition(ANSWER)[2].strip() if ANSWER in completion else ""
    steps = STEP.join(steps for _, _, steps, _ in found)
    inner = verify_steps(parts.problem, f"{steps}{ANSWER}{found[-1][3] if found else said}", options)
    if len(found) != len(parts.asked):
        error = "format" if ANSWER in completion else "truncated"
        return inner._replace(strict=False, answer=False, error=error, said=said)
    values = [str(parts.problem.values[place]) for place in parts.asked]
    blocks = tuple(Block(start, end, value == gold) for (start, end, _, value), gold in zip(found, values, strict=True))
    whole = all(block.right for block in blocks)
    error = "subproblem" if inner.strict and not whole else inner.error
    return inner._replace(strict=inner.strict and whole, error=error, said=said, blocks=blocks)


def split(completion: str) -> list[tuple[int, int, str, str]]:
    """(start, end, steps, answer) of each block, as characters start..end-1 of the completion; empty where something stands that
    is in no block, or where a block lacks its steps or its answer."""
    found = []
    start = 0
    while start <= len(completion):
        mark = completion.find(ANSWER, start)
        if mark < 0:
            return []
        stop = completion.find(SECTION, mark)
        end = len(completion) if stop < 0 else stop
        steps, value = completion[start:mark], completion[mark + 1 : end]
        if not steps or not value or ANSWER in value:
            return []
        found.append((start, end, steps, value))
        if stop < 0:
            return found
        start = stop + 1
    return []
