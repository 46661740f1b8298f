"""Questions over documents that take several facts to answer: plain, hidden behind chains of keys, or with citations."""

from interplay.tasks.multihop.problem import Problem, dumps, loads, plain

__all__ = ["Problem", "dumps", "loads", "plain"]
