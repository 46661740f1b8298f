"""Synthetic people over a relation graph (From Atomic to Composite, arXiv:2512.01970): parametric facts to be learnt by heart,
contextual ones to be read, and questions that chain both."""

from interplay.tasks.bios.generate import generate
from interplay.tasks.bios.problem import Problem, dumps, loads
from interplay.tasks.bios.render import Rendered, item, render
from interplay.tasks.bios.solve import solve
from interplay.tasks.bios.structure import shared, structure
from interplay.tasks.bios.text import alphabet, vocabulary
from interplay.tasks.bios.verify import verify

__all__ = [
    "Problem",
    "Rendered",
    "alphabet",
    "dumps",
    "generate",
    "item",
    "loads",
    "render",
    "shared",
    "solve",
    "structure",
    "verify",
    "vocabulary",
]
