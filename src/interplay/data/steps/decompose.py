"""Steps that take solutions apart: subproblems, interventions, atoms, units."""

from collections import Counter

import numpy as np

from interplay.data.spec import split_of
from interplay.data.steps import context_spec
from interplay.data.steps.context_spec import Units
from interplay.data.steps.step import Inputs, Made, changed
from interplay.tasks import subproblems
from interplay.tasks.op_dag import dag
from interplay.tasks.op_dag.dag import FORWARD, Node, Problem
from interplay.tasks.op_dag.spec import OpDag
from interplay.tasks.op_dag.terse import SECTION, render
from interplay.tasks.op_dag.terse_corruptions import Repair, repair, with_wrong_answer, with_wrong_operation
from interplay.tasks.verdict import UNFINISHED, Row

# Steps that take solutions of op_dag apart (data/steps/context_spec.py). Rows of other families, and of reverse problems, whose
# intermediate values are no plain numbers, are dropped and counted.


def parts(spec: context_spec.Subproblems, rows: list[Row], inputs: Inputs) -> Made:
    """Rows that ask K values in order."""
    kept, counts = [], Counter[str]()
    for row in rows:
        problem = forward(row, counts)
        if problem is None:
            continue
        asked = subproblems.asked_nodes(problem, None if spec.k == "all" else spec.k)
        if len(asked) < 2:
            counts["single_value"] += 1
            continue
        made = subproblems.Parts(problem, asked)
        prompt, solution = subproblems.render(made, row.prompt, goal_first(row))
        columns = {"prompt": prompt, "solution": solution, "graph": subproblems.dumps(made)}
        kept.append(changed(row, spec.name, mode="subproblems", family="subproblems", **columns))
    return Made(kept, dict(counts))


def intervention(spec: context_spec.Intervention, rows: list[Row], inputs: Inputs) -> Made:
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


def _solution(spec: context_spec.Intervention, made: Repair) -> str:
    return (made.prefix if spec.prefix else "") + made.step + (made.suffix if spec.suffix else "")


def atoms(spec: context_spec.Atoms, rows: list[Row], inputs: Inputs) -> Made:
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
            structure = dag.structure(atom)
            if split_of(structure) != split_of(row.key):
                counts["other_split"] += 1
                continue
            if spec.unique and structure in seen:
                counts["repeats"] += 1
                continue
            seen.add(structure)
            task = OpDag(trace="goal_first" if goal_first(row) else "leaf_first")
            prompt, solution, answer = render(atom, task)
            columns = {"prompt": prompt, "solution": solution, "answer": answer, "graph": dag.dumps(atom)}
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
    problem = dag.loads(row.graph)
    if problem.mode != FORWARD:
        counts["reverse"] += 1
        return None
    return problem


# The step that writes solutions of several units (data/steps/context_spec.py).


def units(spec: Units, rows: list[Row], inputs: Inputs) -> Made:
    """The rows in their order, their solutions in units. Counts: rows by number of units (units_1, ...), and of the attempts
    before the last those that err (wrong) and those that are right (redundant). Rows of other families, and of reverse problems,
    whose values are no plain numbers, are dropped and counted."""
    kept, counts = [], Counter[str]()
    for row in rows:
        problem = forward(row, counts)
        if problem is None:
            continue
        stream = inputs.random("units", row.origin, row.prompt)
        number = 1 + int(stream.choice(len(spec.shares), p=spec.shares))
        errs = [bool(stream.random() < spec.wrong) for _ in range(number - 1)]
        texts = [_wrong(problem, row, stream) if wrong else row.solution for wrong in errs]
        counts.update({f"units_{number}": 1, "wrong": sum(errs), "redundant": len(errs) - sum(errs)})
        kept.append(changed(row, spec.name, solution=spec.separator.join([*texts, row.solution])))
    return Made(kept, dict(+counts))


def _wrong(problem: Problem, row: Row, stream: np.random.Generator) -> str:
    """An attempt that errs in one operation; where there is none to err in, one that names another answer in the end."""

    def draw() -> int:
        return int(stream.integers(2**32))

    seen = with_wrong_operation(problem, draw)
    if seen is None:
        return with_wrong_answer(problem, row.solution, draw)
    return render(seen, OpDag(trace="goal_first" if goal_first(row) else "leaf_first")).solution
