"""A deep hierarchy whose facts enter the weights: recall by depth."""

from interplay.tasks.taxonomy.problem import Problem, dumps, generate, loads, shared, structure
from interplay.tasks.taxonomy.text import Rendered, alphabet, render, solve, verify, vocabulary

__all__ = [
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
