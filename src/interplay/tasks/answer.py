r"""The final answer of a completion: what stands in its last `\boxed{}`, else after its last `#`."""

BOX = "\\boxed{"
MARK = "#"
MOST_BOXES = 4
"""Boxes that a completion may hold; whoever fills more of them names answers instead of giving one."""


def extract(completion: str) -> str | None:
    r"""The text of the last `\boxed{...}` (braces balanced), else what follows the last `#`; None where there is neither or the
    box never closes. Surrounding blanks are dropped; nothing else is normalised."""
    start = completion.rfind(BOX)
    if start < 0:
        return completion.rpartition(MARK)[2].strip() if MARK in completion else None
    depth = 1
    for end in range(start + len(BOX), len(completion)):
        depth += (completion[end] == "{") - (completion[end] == "}")
        if not depth:
            return completion[start + len(BOX) : end].strip()
    return None


def dumped(completion: str) -> bool:
    """Whether a completion names too many final answers for its last one to count."""
    return completion.count(BOX) > MOST_BOXES
