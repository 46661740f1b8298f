"""Arithmetic over a dependency graph (Interplay, arXiv:2512.07783, section 2, after GSM-Infinite): the number of operations is
the difficulty, and every step of a solution can be judged."""

from interplay.tasks.op_dag.generate import generate
from interplay.tasks.op_dag.graph import Node, Problem, dumps, loads, shared, structure
from interplay.tasks.op_dag.posed import solve
from interplay.tasks.op_dag.render import Rendered, alphabet, render, vocabulary
from interplay.tasks.op_dag.verify import verify

__all__ = [
    "Node",
    "Problem",
    "Rendered",
    "alphabet",
    "dumps",
    "generate",
    "loads",
    "render",
    "shared",
    "solve",
    "structure",
    "verify",
    "vocabulary",
]
