"""A problem of op_dag asked in parts (SCRL, arXiv:2605.22074): one completion answers K nodes in order, each in a block of its
own, and the last of them is the problem's own question."""

from interplay.tasks.subproblems.parts import Parts, asked, dumps, loads, render
from interplay.tasks.subproblems.verify import split, verify

__all__ = ["Parts", "asked", "dumps", "loads", "render", "split", "verify"]
