"""Questions with a short answer, mostly a number (GSM8K, arXiv:2110.14168, and its like): the worked solution is free text, the
final answer stands in a box and is checked with math-verify."""

from interplay.tasks.qa.problem import Problem, dumps, loads, render
from interplay.tasks.qa.verify import verify

__all__ = ["Problem", "dumps", "loads", "render", "verify"]
