"""Completions of several units (MinD, arXiv:2505.19788): whole attempts, each of which ends in an answer, with a separator
between them. Whoever stops after a unit has its answer."""


def split(completion: str, separator: str) -> list[str]:
    """The units of a completion, one at least; an empty separator separates nothing. A separator at the end begins an empty
    unit."""
    return completion.split(separator) if separator else [completion]


def last(completion: str, separator: str) -> str:
    """The last unit of a completion."""
    return split(completion, separator)[-1]
