"""One row of a problem set, as everybody who reads one sees it."""

from dataclasses import dataclass

UNFINISHED = "unfinished"
"""Mode of rows whose solution breaks off before it answers: as supervision they have no end token."""


@dataclass(frozen=True, slots=True)
class Row:
    """One problem, with where it comes from."""

    set: int
    """Number of its problem set among those that are read together."""
    index: int
    """Its number in that set."""
    band: str
    op: int
    """Difficulty as the family counts it: operations, hops, levels."""
    mode: str
    """Form of the question, such as forward, reverse, keychain or four_choice."""
    prompt: str
    solution: str
    answer: str
    graph: str
    """The gold that the family's `loads` reads."""
    key: str
    """Structural key, hex; equal for problems that are the same but for names and order."""
    family: str
    """Whose `verify` judges it (tasks.table)."""
    origin: str
    """`digest:index` of the row that it was first made as; variants of one question share it."""
    transforms: tuple[str, ...] = ()
    """Names of the curation steps that changed it since, in order."""
    rejected: str = ""
    """Of a pair: a finished completion that is worse than `solution`, which is then the chosen one; empty: no pair."""
    rater: str = ""
    """Of a pair: whose taste says so; empty: the verifier's, or nobody's."""
