"""Steps that split solutions of op_dag: subproblems, interventions, atoms, units."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from interplay.core.random import integers_of
from interplay.data.curate import StepInputs, StepResult, transform_row
from interplay.data.spec import split_of
from interplay.data.steps import context_spec as context
from interplay.tasks import subproblems
from interplay.tasks.op_dag import dag, terse, terse_corruptions
from interplay.tasks.op_dag.spec import OpDag
from interplay.tasks.verdict import UNFINISHED, Row

# All of them drop and count rows of other families, and of reverse problems, whose intermediate values are not plain numbers.


def make_subproblems(spec: context.Subproblems, rows: list[Row], inputs: StepInputs) -> StepResult:
    """Rows that ask for K values in order."""
    kept, counts = [], Counter[str]()
    for row, problem in forward_problems(rows, counts):
        asked = subproblems.asked_nodes(problem, None if spec.k == "all" else spec.k)
        if len(asked) < 2:
            counts["single_value"] += 1
            continue
        made = subproblems.Parts(problem, asked)
        prompt, solution = subproblems.render(made, row.prompt, is_goal_first(row))
        columns = {"prompt": prompt, "solution": solution, "graph": subproblems.dumps(made)}
        kept.append(transform_row(row, spec.name, mode="subproblems", family="subproblems", **columns))
    return StepResult(kept, dict(counts))


def make_interventions(spec: context.Intervention, rows: list[Row], inputs: StepInputs) -> StepResult:
    """Rows whose solution is a sampled one up to its first wrong step, then the right step; without `suffix` their mode is
    UNFINISHED, for which data.corpus adds no end token."""
    kept, counts = [], Counter[str]()
    for row, problem in forward_problems(rows, counts):
        wrong = [sample["completion"] for sample in inputs.samples.get((row.set, row.index), []) if not sample["answer"]]
        counts["wrong_samples"] += len(wrong)
        found: list[str] = []
        for completion in dict.fromkeys(wrong):
            repaired = terse_corruptions.repair(problem, completion, is_goal_first(row))
            reason = "no_wrong_step" if repaired is None else "gives_the_answer" if repaired.answers else ""
            if reason or repaired is None:
                counts[reason] += 1
            elif (text := _intervention_text(spec, repaired)) not in found:
                found.append(text)
            if len(found) == spec.per_problem:
                break
        counts["without_intervention"] += not found
        mode = row.mode if spec.suffix else UNFINISHED
        kept += [transform_row(row, spec.name, solution=text, mode=mode) for text in found]
    return StepResult(kept, dict(+counts))


def _intervention_text(spec: context.Intervention, made: terse_corruptions.Repair) -> str:
    return (made.prefix if spec.prefix else "") + made.step + (made.suffix if spec.suffix else "")


def make_atoms(spec: context.Atoms, rows: list[Row], inputs: StepInputs) -> StepResult:
    """For each necessary node with parents, a problem that gives the values of the parents and asks for its own. An atom of
    another split than that of its problem is dropped, since a set of that split may contain it."""
    kept, counts, seen = [], Counter[str](), set[str]()
    for row, problem in forward_problems(rows, counts):
        for place in range(problem.necessary):
            atom = _make_atom(problem, place, inputs.random("atoms", row.origin, place))
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
            prompt, solution, answer = terse.render(atom, _task_of(row))
            columns = {"prompt": prompt, "solution": solution, "answer": answer, "graph": dag.dumps(atom)}
            kept.append(transform_row(row, spec.name, op=atom.op, key=structure, **columns))
    return StepResult(kept, dict(counts))


def _make_atom(problem: dag.Problem, place: int, rng: np.random.Generator) -> dag.Problem | None:
    """The definition of one node over leaves that hold its parents' values; None for a leaf."""
    node = problem.nodes[place]
    if not node.parents:
        return None
    leaves = tuple(dag.Node(problem.nodes[parent].name, "", (), problem.values[parent]) for parent in node.parents)
    nodes = (*leaves, node._replace(parents=tuple(range(len(leaves)))))
    values = (*(problem.values[parent] for parent in node.parents), problem.values[place])
    order = tuple(rng.permutation(len(nodes)).tolist())
    return dag.Problem(
        dag.FORWARD, problem.modulus, nodes, len(nodes), values, (0,) * len(nodes), order, filler=(0,) * (len(nodes) + 1)
    )


def is_goal_first(row: Row) -> bool:
    """Whether the gold solution of a forward row unfolds the goal before it evaluates."""
    return terse.SECTION in row.solution


def _task_of(row: Row) -> OpDag:
    """A task with the trace order of the row."""
    return OpDag(trace="goal_first" if is_goal_first(row) else "leaf_first")


def forward_problems(rows: list[Row], counts: Counter[str]) -> Iterator[tuple[Row, dag.Problem]]:
    """The rows of forward problems of op_dag, with their problems; other rows are counted by the reason."""
    for row in rows:
        problem = dag.loads(row.graph) if row.family == "op_dag" else None
        if problem is None or problem.mode != dag.FORWARD:
            counts["not_op_dag" if problem is None else "reverse"] += 1
        else:
            yield row, problem


# Solutions of several units.


def make_units(spec: context.Units, rows: list[Row], inputs: StepInputs) -> StepResult:
    """The rows in order, with solutions of several units. Counts: rows by number of units (units_1, ...), and wrong and right
    (redundant) attempts before the last one."""
    kept, counts = [], Counter[str]()
    for row, problem in forward_problems(rows, counts):
        stream = inputs.random("units", row.origin, row.prompt)
        number = 1 + int(stream.choice(len(spec.shares), p=spec.shares))
        wrong = [bool(stream.random() < spec.wrong) for _ in range(number - 1)]
        texts = [_wrong_attempt(problem, row, stream) if is_wrong else row.solution for is_wrong in wrong]
        counts.update({f"units_{number}": 1, "wrong": sum(wrong), "redundant": len(wrong) - sum(wrong)})
        kept.append(transform_row(row, spec.name, solution=spec.separator.join([*texts, row.solution])))
    return StepResult(kept, dict(+counts))


def _wrong_attempt(problem: dag.Problem, row: Row, stream: np.random.Generator) -> str:
    """An attempt with an error in one operation; where there is no operation, one that ends in another answer."""
    draw = integers_of(stream)
    seen = terse_corruptions.with_wrong_operation(problem, draw)
    if seen is None:
        return terse_corruptions.with_wrong_answer(problem, row.solution, draw)
    return terse.render(seen, _task_of(row)).solution
