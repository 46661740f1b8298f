"""Arithmetic over a dependency graph in sentences: the published surface of Interplay (arXiv:2512.07783, after GSM-Infinite), in
themes of places and types."""

from interplay.tasks.op_dag.structure import shared
from interplay.tasks.op_dag_prose.generate import generate
from interplay.tasks.op_dag_prose.graph import Node, Problem, dumps, loads
from interplay.tasks.op_dag_prose.render import Rendered, render
from interplay.tasks.op_dag_prose.solve import solve
from interplay.tasks.op_dag_prose.structure import structure
from interplay.tasks.op_dag_prose.verify import verify
from interplay.tasks.op_dag_prose.vocabulary import alphabet, vocabulary

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
