"""Synthetic people over a relation graph (From Atomic to Composite, arXiv:2512.01970): parametric facts to be learnt by heart,
contextual ones to be read, and questions that chain both."""

from interplay.tasks.bios.generate import Problem, dumps, generate, loads, shared, structure
from interplay.tasks.bios.text import Rendered, alphabet, item, render, solve, verify, vocabulary

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
