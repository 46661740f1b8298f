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
    end = closing(completion, start + len(BOX))
    return None if end < 0 else completion[start + len(BOX) : end].strip()


def closing(text: str, start: int) -> int:
    """Where the brace stands that closes the one right before `start`; -1 where none does."""
    depth = 1
    for end in range(start, len(text)):
        depth += (text[end] == "{") - (text[end] == "}")
        if not depth:
            return end
    return -1


def dumped(completion: str) -> bool:
    """Whether a completion names too many final answers for its last one to count."""
    return completion.count(BOX) > MOST_BOXES
