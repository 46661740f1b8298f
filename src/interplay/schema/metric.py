"""What tables, figures and claims can show of an evaluation, by name."""

import re

from interplay.schema.base import nearest

PASS = r"^(strict|answer)_pass@[1-9][0-9]*$"
CAPPED = r"^(strict|answer)_cap@[1-9][0-9]*$"
UNITS = "units"
"""Mean number of units of a sample: no share."""
SCORE = "score"
"""Mean over samples of what the family's judge gives, such as F1 or a share of steps."""
NLL = "nll"
"""Mean negative log-likelihood per token of the gold solutions, in nats: no share, and lower is better."""
HACKED = "hacked"
"""Share of samples whose answer is right and whose process is not: answer_pass@1 - strict_pass@1."""
HACKED_OF_RIGHT = "hacked_of_right"
"""The same as a share of the samples whose answer is right."""
ERROR = "error"
"""All error classes (a cell of a table, a figure's y); `error:CLASS` is the share of samples of one."""
COUNTED = "error_"
"""What stands before a class of errors in the name of the column of `prompts.parquet` that counts it."""
ERRORS = (
    *("none", "value", "operator", "dependency", "missing_node", "extra_node"),
    *("wrong_hop", "missing_hop", "order", "extra", "chain", "step", "citation", "subproblem", "format"),
    *("ignorance", "over_inclusion"),
    *("answer", "unboxed", "dumped", "parse", "truncated"),
)
"""Classes of the task families in the order in which they are drawn: right, wrong in a step, wrong in the answer or its form."""
SINGLE = {
    SCORE: "a score is a mean over samples",
    NLL: "nll is one number per prompt",
    HACKED: "hacked is a mean over samples",
}
"""Metrics of which there is one, whatever the number of samples, and why."""
UNBOUNDED = (NLL, UNITS)
"""Metrics that are no shares."""


def check_column(value: str) -> str:
    """A band, or `op:N` for a single op."""
    if value.startswith("op:") and not value.removeprefix("op:").isdecimal():
        raise ValueError(f"'{value}' is not a column; write a band or op:N with N a number")
    return value


def is_metric(value: str) -> bool:
    """Whether this names a pass rate, `strict_pass@k` or `answer_pass@k`."""
    return re.match(PASS, value) is not None


def is_capped(value: str) -> bool:
    """Whether this names a share of samples that are right when stopped after K units, `strict_cap@K` or `answer_cap@K`."""
    return re.match(CAPPED, value) is not None


def capped(kind: str, cap: int) -> str:
    """The metric of that name: ("strict", 2) -> `strict_cap@2`."""
    return f"{kind}_cap@{cap}"


def caps_needed(value: str) -> int:
    """Units up to which an evaluation must judge by cap for a metric; 0 where it need not."""
    return int(value.split("@")[1]) if is_capped(value) else int(value == UNITS)


def is_error(value: str) -> bool:
    """Whether this names error classes: `error`, or `error:CLASS`."""
    return value == ERROR or value.startswith(f"{ERROR}:")


def of_evaluations(value: str) -> bool:
    """Whether only evaluations can tell it, and no training log."""
    return is_metric(value) or value in (NLL, HACKED, HACKED_OF_RIGHT) or is_error(value) or caps_needed(value) > 0


def samples_needed(value: str) -> int:
    """Samples per prompt that a metric needs."""
    return int(value.split("@")[1]) if is_metric(value) else 1


def is_known(value: str) -> bool:
    """Whether evaluations tell it."""
    return is_metric(value) or is_error(value) or value in (SCORE, NLL, HACKED, HACKED_OF_RIGHT) or caps_needed(value) > 0


def lower_is_better(value: str) -> bool:
    """Whether less of it is what a study hopes for."""
    return value in (NLL, HACKED, HACKED_OF_RIGHT, UNITS) or (is_error(value) and value != f"{ERROR}:none")


def check_metric(value: str) -> str:
    """`strict_pass@k` (every step and the answer right), `answer_pass@k` (the answer right), the same as `_cap@K` when samples
    are stopped after K units, `units`, `score`, `nll`, `hacked`, `hacked_of_right`, or `error:CLASS`."""
    if is_known(value) and not is_error(value):
        return value
    if value.startswith(f"{ERROR}:"):
        name = value.removeprefix(f"{ERROR}:")
        if name not in ERRORS:
            raise ValueError(f"'{name}' is not a class of errors{nearest(name, ERRORS)}")
        return value
    for bare, what in SINGLE.items():
        if value.startswith(bare):
            raise ValueError(f"'{value}' is not a metric: {what} and has no pass@k; write {bare}")
    raise ValueError(
        f"'{value}' is not a metric; write strict_pass@K, answer_pass@K or score (or nll, hacked, hacked_of_right, error:CLASS, "
        "strict_cap@K, answer_cap@K, units)"
    )


def check_cell(value: str) -> str:
    """A metric, or `error` for one cell per class of errors that occurred."""
    return value if value == ERROR else check_metric(value)
