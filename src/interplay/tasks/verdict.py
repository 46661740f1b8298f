"""What a completion is worth, whatever the family."""

from typing import NamedTuple


class Block(NamedTuple):
    """A part of a completion that is judged by itself, such as the answer to a subproblem."""

    start: int
    end: int
    """Characters start..end-1 of the completion."""
    right: bool


class Verdict(NamedTuple):
    """A completion against its problem's gold."""

    strict: bool
    """The answer and all that leads to it, as far as the family can judge that, are right."""
    answer: bool
    """The answer is right, whatever the steps."""
    score: float
    """How much of the process is right, in [0, 1]; what it counts is the family's to say."""
    error: str
    """`none` if strict, else the first that applies of the family's classes; `truncated` where there is no answer at all."""
    value_mismatches: int = 0
    """op_dag: necessary nodes with a wrong value; a node may count here and under dependency_mismatches."""
    dependency_mismatches: int = 0
    """op_dag: necessary nodes whose parents are wrong, unnamed, or valued later than they are."""
    missing: int = 0
    """op_dag: necessary nodes that no step gives a value."""
    extra: int = 0
    """op_dag: other names about which there are steps and that no necessary node goes through."""
    nodes: int = 1
    """op_dag: necessary nodes."""
    said: str = ""
    """The answer as it was read; empty where there is none."""
    blocks: tuple[Block, ...] = ()
    """Parts that are judged by themselves, in order; empty where the family has none or the format is broken."""
