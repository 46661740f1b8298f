"""From what was said about each node to a verdict; shared by the surfaces of op_dag."""

from interplay.schema.verify import Verify
from interplay.tasks.op_dag.judge import BAD_OPERATOR, BAD_PARENTS, BAD_VALUE, NAMED, VALUED
from interplay.tasks.verdict import Verdict

_OPERATOR_FREE = ~BAD_OPERATOR


def tally(
    state: list[int], expected: list[int], options: Verify, readable: bool, extra: int, answer: str | None, gold: int
) -> Verdict:
    """The verdict on a completion: `state` and `expected` hold the bits of each necessary node (op_dag.judge), said and right;
    `readable` is whether all of it could be read, `extra` the number of other names, `answer` the answer (None: there is
    none)."""
    nodes = len(expected)
    right, said = answer == str(gold), answer or ""
    penalised = extra > 0 and options.extra_nodes == "penalised"
    if state == expected and readable and right and not penalised:
        return Verdict(True, True, 1.0, "none", 0, 0, 0, extra, nodes, said)
    if not options.operator:
        state = [bits & _OPERATOR_FREE for bits in state]
    missing = value = dependency = operator = correct = 0
    for bits, wanted in zip(state, expected, strict=True):
        if bits == wanted:
            correct += 1
        elif not bits & VALUED:
            missing += 1
        else:
            value += bool(bits & BAD_VALUE)
            dependency += bool(bits & BAD_PARENTS or wanted & NAMED & ~bits)
            operator += bool(bits & BAD_OPERATOR)
    error = (
        "truncated" if answer is None
        else "parse" if not readable
        else "missing_node" if missing
        else "dependency" if dependency
        else "operator" if operator
        else "value" if value
        else "extra_node" if penalised
        else "answer" if not right
        else "none"
    )  # fmt: skip
    return Verdict(error == "none", right, correct / nodes, error, value, dependency, missing, extra, nodes, said)
