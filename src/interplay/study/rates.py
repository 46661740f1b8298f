"""What generating, tokenising and packing problems takes where nothing was measured: rates and sizes by family, as measured with
bench/corpus_scale.py at small ops (docs/log.md). Harder problems take longer in proportion to their length."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from interplay.schema.run import Run
from interplay.store.artifact import split_ref

FEW = 10
"""A finished stage with so many times fewer problems tells no pace: most of its time was the start."""


class Rate(NamedTuple):
    """Of one family, per problem."""

    made: float
    """Problems generated, rendered, solved and written a second by one thread."""
    packed: float
    """Problems tokenised and packed a second by one thread."""
    set_bytes: float
    """Bytes of a problem set."""
    corpus_bytes: float
    """Bytes of a corpus: five a token."""


RATES = {
    "op_dag": Rate(2300, 40000, 130, 470),
    "op_dag_prose": Rate(950, 3500, 416, 1470),
    "bios": Rate(2200, 28000, 120, 185),
    "taxonomy": Rate(6300, 35000, 18, 113),
}
"""By the name of the task."""


def family(stage: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]]) -> str:
    """The family of the problems of a generated set, or of the first one that a set or a corpus is made of; empty where they come
    from a file."""
    if stage["kind"] == "problems":
        return str(stage["spec"]["task"]["name"])
    inputs = [known.get(split_ref(ref)[0]) for role, ref in sorted(stage["deps"].items()) if role.startswith("data.")]
    return next((found for one in inputs if one is not None and (found := family(one, known))), "")


def seconds(stage: Mapping[str, Any], problems: float, of: str) -> float | None:
    """What so many problems of the family take at the stated rates; None where none are stated."""
    rate = RATES.get(of)
    if rate is None or stage["kind"] not in ("problems", "corpus"):
        return None
    threads = Run(**stage["run"]).threads if stage["kind"] == "problems" else 1  # a corpus is packed by one
    return problems / ((rate.made if stage["kind"] == "problems" else rate.packed) * threads)


def size(stage: Mapping[str, Any], problems: float, of: str) -> float | None:
    """The bytes of so many problems of the family; None where none are stated."""
    rate = RATES.get(of)
    if rate is None or stage["kind"] not in ("problems", "corpus"):
        return None
    return problems * (rate.set_bytes if stage["kind"] == "problems" else rate.corpus_bytes)
