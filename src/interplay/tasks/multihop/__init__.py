"""Questions over documents that take several facts to answer: plain, hidden behind chains of keys, or with citations."""

from interplay.tasks.multihop.citation import baseline
from interplay.tasks.multihop.problem import Problem, dumps, item, loads, plain
from interplay.tasks.multihop.render import Rendered, pieces, render
from interplay.tasks.multihop.verify import verify

__all__ = ["Problem", "Rendered", "baseline", "dumps", "item", "loads", "pieces", "plain", "render", "verify"]
