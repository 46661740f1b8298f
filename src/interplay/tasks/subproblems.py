"""A problem of op_dag asked in parts (SCRL, arXiv:2605.22074): one completion answers K nodes of the graph in order, each in a
block of its own; the last of them is the goal."""

import json
import re
from dataclasses import replace
from typing import NamedTuple

from interplay.tasks import family, spec, verdict
from interplay.tasks.op_dag import dag, terse_verifier
from interplay.tasks.op_dag.terse import ANSWER, SECTION, STEP, gold_sentences

# Prompt and gold solution.
#
# Of the problem `s0,a6,ca*b,ba+3?c|` the prompt with K = 2 is `s0,a6,ca*b,ba+3?b,c|`. A block has the steps that its node
# needs and no earlier block has, as in the problem's own solution, then `#` and the node's value; blocks are separated by `|`:
# goal_first `ba+3,a6|a6,b6+3=2#2|ca*b|c6*2=5#5`, leaf_first `a6,ba+3=6+3=2#2|ca*b=6*2=5#5`.


class Parts(NamedTuple):
    """A problem and the nodes of its questions."""

    problem: dag.Problem
    """Forward: its nodes have plain values."""
    asked: tuple[int, ...]
    """K necessary nodes, in the order of the questions; the goal last."""


def dumps(parts: Parts) -> str:
    """JSON, one line."""
    return family.compact_json({"problem": dag.dumps(parts.problem), "asked": parts.asked})


def loads(text: str) -> Parts:
    """The inverse of `dumps`."""
    raw = json.loads(text)
    return Parts(dag.loads(raw["problem"]), tuple(raw["asked"]))


def asked_nodes(problem: dag.Problem, k: int | None) -> tuple[int, ...]:
    """K nodes of a forward problem, evenly spaced over the gold order of evaluation, in that order, the goal last; all, if there
    are fewer or k is None."""
    order = dag.unfolding(problem)[::-1]
    count = min(k or len(order), len(order))
    return tuple(order[(number + 1) * len(order) // count - 1] for number in range(count))


def blocks_of(parts: Parts) -> list[list[int]]:
    """For each asked node its dependencies that no earlier block has, itself included, in order of evaluation."""
    order = dag.unfolding(parts.problem)[::-1]
    done: set[int] = set()
    blocks = []
    parents = [node.parents for node in parts.problem.nodes]
    for place in parts.asked:
        needed = dag.dependencies(parents, place) - done
        blocks.append([node for node in order if node in needed])
        done |= needed
    return blocks


def render(parts: Parts, prompt: str, goal_first: bool) -> tuple[str, str]:
    """Prompt and gold solution, made of the problem's own prompt."""
    texts = gold_sentences(parts.problem)
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


def original_row(row: verdict.Row) -> verdict.Row:
    """The row of the original problem, as far as its question goes."""
    parts = loads(row.graph)
    names = [parts.problem.nodes[place].name for place in parts.asked]
    head = row.prompt.removesuffix(SECTION).removesuffix(STEP.join(names))
    return replace(row, family="op_dag", graph=dag.dumps(parts.problem), prompt=head + names[-1] + SECTION)


# The verifier. There must be exactly K blocks and nothing after the last, each with steps and one answer; else the format is
# invalid and no block counts.


def verify(parts: Parts, completion: str, options: spec.Verify) -> verdict.Verdict:
    """Answer: the format is valid and the last block's answer is right. Strict: also all other blocks' answers and, by the
    verifier of op_dag, all steps of all blocks. Score: op_dag's, of the steps. Error: `truncated` without any answer,
    `format`, then those of op_dag, then `subproblem` where only an earlier block's answer is wrong."""
    found = split_blocks(completion)
    said = completion.rpartition(ANSWER)[2].strip() if ANSWER in completion else ""
    steps = STEP.join(steps for _, _, steps, _ in found)
    inner = terse_verifier.verify(parts.problem, f"{steps}{ANSWER}{found[-1][3] if found else said}", options)
    if len(found) != len(parts.asked):
        error = "format" if ANSWER in completion else "truncated"
        return inner._replace(strict=False, answer=False, error=error, said=said)
    values = [str(parts.problem.values[place]) for place in parts.asked]
    blocks = tuple(verdict.Block(start, end, value == gold) for (start, end, _, value), gold in zip(found, values, strict=True))
    all_right = all(block.right for block in blocks)
    error = "subproblem" if inner.strict and not all_right else inner.error
    return inner._replace(strict=inner.strict and all_right, error=error, said=said, blocks=blocks)


BLOCK = re.compile(rf"([^{ANSWER}]+){ANSWER}([^{ANSWER}{SECTION}]+)(?:[{SECTION}]|\Z)")
"""Steps and answer."""
BLOCKS = re.compile(rf"(?:[^{ANSWER}]+{ANSWER}[^{ANSWER}{SECTION}]+[{SECTION}])*[^{ANSWER}]+{ANSWER}[^{ANSWER}{SECTION}]+")


def split_blocks(completion: str) -> list[tuple[int, int, str, str]]:
    """(start, end, steps, answer) of each block, as characters start..end-1 of the completion; empty where there is text outside
    blocks, or where a block lacks its steps or its answer."""
    found = BLOCK.finditer(completion) if BLOCKS.fullmatch(completion) else ()
    return [(match.start(), match.end(2), match[1], match[2]) for match in found]


SUBPROBLEMS = family.Family(
    name="subproblems", errors=(*dag.ERRORS, "format", "subproblem"), loads=loads, verify=verify, open_question=original_row
)
