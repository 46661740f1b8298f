"""Variants of problems on the terse surface. Corrupted prompts and solutions (wrong answers, one wrong operation propagated,
conflicting or irrelevant definitions) and the repair of the first wrong step, the graph staying the truth that completions are
judged against; and problems that are asked in parts."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple, TypeVar

from interplay.core.random import Draw
from interplay.tasks import family, spec, verdict
from interplay.tasks.op_dag import dag, terse, terse_verifier
from interplay.tasks.op_dag.terse import ANSWER, ASK, FILLER, SECTION, STEP, gold_sentences

T = TypeVar("T")
ATTEMPTS = 32
"""Most wrong operations that are drawn until one changes the answer."""
NEAR = [n for n in range(-9, 10) if n]


def with_wrong_answer(problem: dag.Problem, solution: str, draw: Draw) -> str:
    """The solution with another number after its mark: a residue where there is a modulus, else one within 9 of the answer."""
    answer = problem.answer
    others = [n for n in (range(problem.modulus) if problem.modulus else range(max(0, answer - 9), answer + 10)) if n != answer]
    return f"{solution.rpartition(ANSWER)[0]}{ANSWER}{_pick(others, draw)}"


def with_wrong_operation(problem: dag.Problem, draw: Draw) -> dag.Problem | None:
    """The forward problem with the value of one operation corrupted and the error propagated to its dependents and the answer. A
    residue becomes another residue, a number one within 9 of it. None where there is no operation, or no drawn error changes the
    answer without a value below 0."""
    places = [place for place, node in enumerate(problem.nodes[: problem.necessary]) if node.operator]
    for _ in range(ATTEMPTS if places else 0):
        place = _pick(places, draw)
        wrong = problem.values[place] + (1 + draw() % (problem.modulus - 1) if problem.modulus else _pick(NEAR, draw))
        values = _propagated(problem, place, wrong % problem.modulus if problem.modulus else wrong)
        if values[-1] != problem.values[-1] and min(values) >= 0:
            return problem._replace(values=values)
    return None


def _propagated(problem: dag.Problem, corrupted: int, wrong: int) -> tuple[int, ...]:
    """The values of the necessary nodes where one of them is replaced."""
    values: list[int] = []
    for place, node in enumerate(problem.nodes[: problem.necessary]):
        operands = [values[parent] for parent in node.parents]
        if node.constant is not None:
            operands.append(node.constant)
        worked = (
            prod(operands) if node.operator == "*"
            else 2 * operands[0] - sum(operands) if node.operator == "-"
            else sum(operands)
        )  # fmt: skip
        values.append(wrong if place == corrupted else worked % problem.modulus if problem.modulus else worked)
    return tuple(values)


def with_conflict(problem: dag.Problem, prompt: str, true_first: bool, draw: Draw) -> str | None:
    """The prompt with a second definition of a necessary node, with another constant; `true_first`: after the true definition,
    else before it. None where no necessary node has a constant."""
    places = [place for place, node in enumerate(problem.nodes[: problem.necessary]) if node.constant is not None]
    if not places:
        return None
    place = _pick(places, draw)
    node = problem.nodes[place]
    most = problem.modulus or max(10, *(other.constant or 0 for other in problem.nodes)) + 1
    constant = _pick([n for n in range(0 if most == 2 else 1, most) if n != node.constant], draw)
    nodes = (*problem.nodes[:place], node._replace(constant=constant), *problem.nodes[place + 1 :])
    false = gold_sentences(problem._replace(nodes=nodes)).definitions[place]
    definitions, question = _split(prompt)
    true = [text.strip(FILLER) for text in definitions].index(gold_sentences(problem).definitions[place])
    return _joined(definitions, false, range(true + 1, len(definitions) + 1) if true_first else range(true + 1), question, draw)


def with_irrelevant(problem: dag.Problem, prompt: str, letters: str, draw: Draw) -> str | None:
    """The prompt with a leaf that no definition reads, named by one of the `letters` that it does not use. None where it uses
    all."""
    free = [letter for letter in letters if letter not in {node.name for node in problem.nodes}]
    constants = sorted({node.constant for node in problem.nodes if node.constant is not None})
    if not free or not constants:
        return None
    definitions, question = _split(prompt)
    text = f"{_pick(free, draw)}{_pick(constants, draw)}"
    return _joined(definitions, text, range(len(definitions) + 1), question, draw)


def used_letters(prompts: list[str]) -> str:
    """The letters of these prompts in alphabetical order, all of which a tokenizer of the prompts has."""
    used = set().union(*prompts)
    return "".join(letter for letter in terse.LETTERS if letter in used)


def _split(prompt: str) -> tuple[list[str], str]:
    body, _, question = prompt.rpartition(ASK)
    return body.split(STEP), question


def _joined(definitions: list[str], text: str, gaps: range, question: str, draw: Draw) -> str:
    """The definitions with another one in one of the gaps (gap g is before definition g)."""
    gap = _pick(list(gaps), draw)
    return STEP.join([*definitions[:gap], text, *definitions[gap:]]) + ASK + question


def _pick(items: Sequence[T], draw: Draw) -> T:
    return items[draw() % len(items)]


# The first wrong step of a solution, its correction, and the gold continuation.


class Repair(NamedTuple):
    """The correction of a solution at its first wrong step."""

    prefix: str
    """The text before the wrong step, with its last separator."""
    step: str
    """The right step."""
    suffix: str
    """The gold continuation, up to the answer."""
    answers: bool
    """Whether the right step values the goal, and so reveals the answer."""


class Progress(NamedTuple):
    """The state of a solution before a step."""

    defined: set[int]
    """Nodes that a goal_first solution has unfolded; all of them in a leaf_first one."""
    valued: set[int]
    """Nodes that were valued, after all were unfolded."""


def repair(problem: dag.Problem, completion: str, goal_first: bool) -> Repair | None:
    """The repair of a completion of a forward problem, of its first wrong step; None where it has none."""
    wrong = first_wrong(problem, completion, goal_first)
    if wrong is None:
        return None
    start, about, progress = wrong
    return _corrected(problem, completion[:start], about, progress, goal_first)


def first_wrong(problem: dag.Problem, completion: str, goal_first: bool) -> tuple[int, int, Progress] | None:
    """The first wrong step before the answer: the offset of its first character, the place of its node, and the state before it;
    None where there is none, where an earlier step has a name that is no node of the
    problem (intermediate names are not followed here), and in reverse problems.

    A step is wrong if it is unreadable, is about a node that the goal does not need or that had its step, has a wrong value or
    wrong parents, values a node before its parents, or values one with parents before the goal is unfolded. So is one that does
    not name the node's parents where this is due: in the unfolding, and in every step of a leaf_first solution."""
    if problem.mode != dag.FORWARD:
        return None
    progress = Progress(set() if goal_first else set(range(problem.necessary)), set())
    for start, text in repair_steps(completion):
        effect = _effect(problem, text)
        if effect is None:
            return None
        unfolded = len(progress.defined) == problem.necessary
        if _wrong(problem, effect, progress, unfolded, goal_first):
            return start, effect[0], progress
        (progress.valued if unfolded else progress.defined).add(effect[0])
    return None


def repair_steps(completion: str) -> list[tuple[int, str]]:
    """(offset of its first character, text) of every step before the answer."""
    found, start = [], 0
    for text in completion.partition(ANSWER)[0].replace(SECTION, STEP).split(STEP):
        if text:
            found.append((start, text))
        start += len(text) + 1
    return found


def _effect(problem: dag.Problem, text: str) -> terse_verifier.Effect | None:
    """The effect of a step; None where it has names that are no nodes."""
    step, plan = terse.parse_step(text, problem.modulus), terse_verifier.gold(problem)
    if step is None:
        return problem.necessary, dag.UNREADABLE
    return terse_verifier.judge_step(plan, step) if step.letters.union(step.name) <= plan.places.keys() else None


def _wrong(problem: dag.Problem, effect: terse_verifier.Effect, progress: Progress, unfolded: bool, goal_first: bool) -> bool:
    place, bits = effect
    if place >= problem.necessary or bits & (dag.UNREADABLE | dag.EXTRA | dag.BAD_VALUE | dag.BAD_PARENTS):
        return True
    parents = set(problem.nodes[place].parents)
    if parents and not bits & dag.NAMED and not (unfolded and goal_first):
        return True
    if not unfolded:  # the definition of a leaf is its value
        return place in progress.defined or bool(bits & dag.VALUED and parents)
    return not bits & dag.VALUED or place in progress.valued or not parents <= progress.valued


def _corrected(problem: dag.Problem, before: str, about: int, progress: Progress, goal_first: bool) -> Repair:
    """The right step is the gold step of the same node, where it is due; else the first gold step that is due. The separator
    before it is the gold's, too: a section that begins too early is part of the wrong step."""
    texts, order = gold_sentences(problem), dag.unfolding(problem)
    unfolded = len(progress.defined) == problem.necessary
    here, done = (order[::-1], progress.valued) if unfolded else (order, progress.defined)
    wording = texts.definitions if not unfolded else texts.evaluations if goal_first else texts.whole
    left = [place for place in here if place not in done]
    due = [place for place in left if not unfolded or progress.valued.issuperset(problem.nodes[place].parents)]
    if not due:
        return Repair(before, "", f"{ANSWER}{problem.answer}", True)
    place = about if about in due else due[0]
    head = before.rstrip(STEP + SECTION)
    first = unfolded and goal_first and not progress.valued
    prefix = head + (SECTION if first else STEP) if head else ""
    suffix = "".join(STEP + wording[other] for other in left if other != place)
    if not unfolded:
        suffix += SECTION + STEP.join(texts.evaluations[other] for other in reversed(order))
    return Repair(prefix, wording[place], f"{suffix}{ANSWER}{problem.answer}", unfolded and place == problem.goal)


# A problem asked in parts (SCRL, arXiv:2605.22074): one completion answers K nodes of the graph in order, each in a block of its
# own; the last of them is the goal.
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
