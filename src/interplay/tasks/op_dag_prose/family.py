"""Arithmetic over a dependency graph in sentences: the published surface of Interplay (arXiv:2512.07783, after GSM-Infinite), in
themes of places and types."""

from interplay.tasks.op_dag.graph import shared
from interplay.tasks.op_dag_prose.generate import generate
from interplay.tasks.op_dag_prose.graph import Node, Problem, dumps, loads, structure
from interplay.tasks.op_dag_prose.read import solve
from interplay.tasks.op_dag_prose.render import Rendered, alphabet, render, vocabulary
from interplay.tasks.op_dag_prose.verify import verify

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
