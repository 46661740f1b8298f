"""Steps that take solutions of op_dag apart (schema/steps/decompose.py). Rows of other families, and of reverse problems, whose
intermediate values are no plain numbers, are dropped and counted."""

from collections import Counter

import numpy as np

from interplay.data.steps.step import Inputs, Made, changed
from interplay.schema.data import split_of
from interplay.schema.op_dag import OpDag
from interplay.schema.steps import decompose as schema
from interplay.tasks import op_dag, subproblems
from interplay.tasks.op_dag.graph import FORWARD, Node, Problem
from interplay.tasks.op_dag.render import SECTION, render
from interplay.tasks.op_dag.repair import Repair, repair
from interplay.tasks.row import UNFINISHED, Row


def parts(spec: schema.Subproblems, rows: list[Row], inputs: Inputs) -> Made:
    """Rows that ask K values in order."""
    kept, counts = [], Counter[str]()
    for row in rows:
        problem = forward(row, counts)
        if problem is None:
            continue
        asked = subproblems.asked(problem, None if spec.k == "all" else spec.k)
        if len(asked) < 2:
            counts["single_value"] += 1
            continue
        made = subproblems.Parts(problem, asked)
        prompt, solution = subproblems.render(made, row.prompt, goal_first(row))
        columns = {"prompt": prompt, "solution": solution, "graph": subproblems.dumps(made)}
        kept.append(changed(row, spec.name, mode="subproblems", family="subproblems", **columns))
    return Made(kept, dict(counts))


def intervention(spec: schema.Intervention, rows: list[Row], inputs: Inputs) -> Made:
    """Rows whose solution is a sampled one up to its first wrong step, and the right step; without `suffix` their mode is
    UNFINISHED, which data.corpus reads: no end token follows."""
    kept, counts = [], Counter[str]()
    for row in rows:
        problem = forward(row, counts)
        if problem is None:
            continue
        wrong = [sample["completion"] for sample in inputs.samples.get((row.set, row.index), []) if not sample["answer"]]
        counts["wrong_samples"] += len(wrong)
        found: list[str] = []
        for completion in dict.fromkeys(wrong):
            repaired = repair(problem, completion, goal_first(row))
            reason = "no_wrong_step" if repaired is None else "gives_the_answer" if repaired.answers else ""
            if reason or repaired is None:
                counts[reason] += 1
            elif (text := _solution(spec, repaired)) not in found:
                found.append(text)
            if len(found) == spec.per_problem:
                break
        counts["without_intervention"] += not found
        mode = row.mode if spec.suffix else UNFINISHED
        kept += [changed(row, spec.name, solution=text, mode=mode) for text in found]
    return Made(kept, dict(+counts))


def _solution(spec: schema.Intervention, made: Repair) -> str:
    return (made.prefix if spec.prefix else "") + made.step + (made.suffix if spec.suffix else "")


def atoms(spec: schema.Atoms, rows: list[Row], inputs: Inputs) -> Made:
    """For each necessary node with parents a problem that gives their values and asks its own. One that belongs to
    another split than the problem that it is a part of is dropped: a set of that split may hold it."""
    kept, counts, seen = [], Counter[str](), set[str]()
    for row in rows:
        problem = forward(row, counts)
        if problem is None:
            continue
        for place in range(problem.necessary):
            atom = _atom(problem, place, inputs.random("atoms", row.origin, place))
            if atom is None:
                continue
            structure = op_dag.structure(atom)
            if split_of(structure) != split_of(row.key):
                counts["other_split"] += 1
                continue
            if spec.unique and structure in seen:
                counts["repeats"] += 1
                continue
            seen.add(structure)
            task = OpDag(trace="goal_first" if goal_first(row) else "leaf_first")
            prompt, solution, answer = render(atom, task)
            columns = {"prompt": prompt, "solution": solution, "answer": answer, "graph": op_dag.dumps(atom)}
            kept.append(changed(row, spec.name, op=atom.op, key=structure, **columns))
    return Made(kept, dict(counts))


def _atom(problem: Problem, place: int, rng: np.random.Generator) -> Problem | None:
    """The definition of one node over leaves that hold its parents' values; None for a leaf."""
    node = problem.nodes[place]
    if not node.parents:
        return None
    leaves = tuple(Node(problem.nodes[parent].name, "", (), problem.values[parent]) for parent in node.parents)
    nodes = (*leaves, node._replace(parents=tuple(range(len(leaves)))))
    values = (*(problem.values[parent] for parent in node.parents), problem.values[place])
    order = tuple(rng.permutation(len(nodes)).tolist())
    return Problem(FORWARD, problem.modulus, nodes, len(nodes), values, (0,) * len(nodes), order, filler=(0,) * (len(nodes) + 1))


def goal_first(row: Row) -> bool:
    """Whether a forward row's gold solution unfolds the goal before it evaluates."""
    return SECTION in row.solution


def forward(row: Row, counts: Counter[str]) -> Problem | None:
    """The problem of a row; None, and counted, where it is no forward problem of op_dag."""
    if row.family != "op_dag":
        counts["not_op_dag"] += 1
        return None
    problem = op_dag.loads(row.graph)
    if problem.mode != FORWARD:
        counts["reverse"] += 1
        return None
    return problem
