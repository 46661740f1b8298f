"""A problem of op_dag asked in parts (SCRL, arXiv:2605.22074): one completion answers K nodes of the graph, in blocks."""

import json
from dataclasses import replace
from typing import NamedTuple

from interplay.tasks.op_dag import graph
from interplay.tasks.op_dag.graph import FORWARD, Problem, unfolding
from interplay.tasks.op_dag.render import ANSWER, SECTION, STEP, sentences
from interplay.tasks.op_dag.verify import verify as verify_steps
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Block, Row, Verdict

# A problem of op_dag asked in parts (SCRL, arXiv:2605.22074): one completion answers K nodes in order, each in a block of its
# own, and the last of them is the problem's own question.


__all__ = ["Parts", "asked", "dumps", "loads", "render", "split", "verify"]


# Which nodes are asked, and how prompt and gold solution read.
#
# Of the problem `s0,a6,ca*b,ba+3?c|` the prompt with K = 2 is `s0,a6,ca*b,ba+3?b,c|`. A block holds what its node needs and no
# earlier block has, written as the problem's own solution is, then `#` and the node's value; blocks stand between `|`:
# goal_first `ba+3,a6|a6,b6+3=2#2|ca*b|c6*2=5#5`, leaf_first `a6,ba+3=6+3=2#2|ca*b=6*2=5#5`.


class Parts(NamedTuple):
    """A problem and the nodes that are asked."""

    problem: Problem
    """Forward: its nodes have plain values."""
    asked: tuple[int, ...]
    """K necessary nodes, in the order asked; the goal last."""


def dumps(parts: Parts) -> str:
    """JSON, one line."""
    return json.dumps({"problem": graph.dumps(parts.problem), "asked": parts.asked}, separators=(",", ":"))


def loads(text: str) -> Parts:
    """The parts of `dumps`."""
    raw = json.loads(text)
    return Parts(graph.loads(raw["problem"]), tuple(raw["asked"]))


def asked(problem: Problem, k: int | None) -> tuple[int, ...]:
    """K nodes, evenly spaced over the gold order of evaluation, in that order, the goal last; all, where there are fewer or k is
    None. Empty for a problem that is not forward."""
    if problem.mode != FORWARD:
        return ()
    order = unfolding(problem)[::-1]
    count = min(k or len(order), len(order))
    return tuple(order[(number + 1) * len(order) // count - 1] for number in range(count))


def blocks_of(parts: Parts) -> list[list[int]]:
    """For each asked node the nodes that it needs and that no earlier block holds, itself included, in order of evaluation."""
    order = unfolding(parts.problem)[::-1]
    done: set[int] = set()
    blocks = []
    for place in parts.asked:
        needed = _needed(parts.problem, place) - done
        blocks.append([node for node in order if node in needed])
        done |= needed
    return blocks


def render(parts: Parts, prompt: str, goal_first: bool) -> tuple[str, str]:
    """Prompt and gold solution, of the prompt of the problem as it stands."""
    texts = sentences(parts.problem)
    names = [parts.problem.nodes[place].name for place in parts.asked]
    blocks = []
    for place, nodes in zip(parts.asked, blocks_of(parts), strict=True):
        if goal_first:
            definitions = STEP.join(texts.definitions[node] for node in reversed(nodes))
            steps = definitions + SECTION + STEP.join(texts.evaluations[node] for node in nodes)
        else:
            steps = STEP.join(texts.whole[node] for node in nodes)
        blocks.append(f"{steps}{ANSWER}{parts.problem.values[place]}")
    head = prompt.removesuffix(SECTION).removesuffix(names[-1])
    return head + STEP.join(names) + SECTION, SECTION.join(blocks)


def whole_problem(row: Row) -> Row:
    """The row of the problem that was taken apart, as far as its question goes."""
    parts = loads(row.graph)
    names = [parts.problem.nodes[place].name for place in parts.asked]
    head = row.prompt.removesuffix(SECTION).removesuffix(STEP.join(names))
    return replace(row, family="op_dag", graph=graph.dumps(parts.problem), prompt=head + names[-1] + SECTION)


def _needed(problem: Problem, place: int) -> set[int]:
    """The node and all that it is made of."""
    found: set[int] = set()
    stack = [place]
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += problem.nodes[node].parents
    return found


# Judges a completion in blocks. There must be exactly K of them and nothing after the last, each with steps and one answer;
# else the format is broken and no block counts.


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
