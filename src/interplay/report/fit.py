"""Text cut to the width of a box. There is no font to measure by where a page is written, so widths are those of a wide one, and
what fits in it fits in others.

    label("grpo[learning_rate=0.003]/rl", 10.5)   # grpo[l…=0.003]/rl: arms of a grid differ in their values, so these stay"""

import re
from collections.abc import Iterator

NARROW, LEAN, BROAD, WIDE = "ijlI.,:;|!'()[]/ -", 'ftr_*"`', "ABCDEFGHKLNOPQRSTUVXYZ=+<>#~^?×", "mwMW%@&…"
EMS = {**dict.fromkeys(NARROW, 0.46), **dict.fromkeys(LEAN, 0.53), **dict.fromkeys(BROAD, 0.86), **dict.fromkeys(WIDE, 1.11)}
"""Of DejaVu Sans in bold, rounded up."""
USUAL, FOREIGN = 0.72, 1.11
LEAST = 3
"""Characters that a group keeps as long as its axes have names."""


def ems(text: str) -> float:
    """Width in units of the size of type."""
    return sum(EMS.get(character, USUAL if character.isascii() else FOREIGN) for character in text)


def label(text: str, room: float) -> str:
    """The name of a stage in so many ems. Axes of a grid lose letters of their names first, then the group does, then the axes
    lose their names, and last the stage gives way, which the kind tells; where that does not help, or there are no axes, the
    middle is left out."""
    return next((one for one in [text, *_shorter(text)] if ems(one) <= room), _cut(text, room))


def under(kind: str, rest: str, room: float) -> str:
    """What stands beneath a name: of the kind, which the colour tells as well, as much as fits beside the rest."""
    starts = [kind, *(f"{kind[:letters]}…" for letters in range(len(kind) - 2, 0, -1)), ""] if rest else [kind]
    lines = (f"{start} {rest}".strip() for start in starts)
    return next((line for line in lines if ems(line) <= room), _cut(rest or kind, room))


def _shorter(text: str) -> Iterator[str]:
    found = re.fullmatch(r"([^\[]*)\[(.*)\]([^\]]*)", text, re.DOTALL)
    if not found:
        return
    group, inside, stage = found.groups()
    axes = [axis.rpartition("=")[::2] for axis in inside.split(",")]
    longest = max(len(name) for name, _ in axes)
    groups = [group, *(_middle(group, letters) for letters in range(len(group) - 2, 0, -1))]
    yield from (f"{group}[{_values(axes, letters)}]{stage}" for letters in range(longest - 1, 0, -1))
    yield from (f"{short}[{_values(axes, 1)}]{stage}" for short in groups if len(short) > LEAST)
    yield from (f"{short}[{_values(axes, 0)}]{end}" for end in (stage, "") for short in groups)


def _values(axes: list[tuple[str, str]], letters: int) -> str:
    """The axes with so many letters of their names."""
    return ",".join(f"{_start(name, letters)}={value}" if name and letters else value for name, value in axes)


def _start(name: str, letters: int) -> str:
    return name if len(name) <= letters + 1 else f"{name[:letters]}…"


def _cut(text: str, room: float) -> str:
    """Without as much of the middle as needed."""
    return next((short for letters in range(len(text) - 1, 0, -1) if ems(short := _middle(text, letters)) <= room), "…")


def _middle(text: str, letters: int) -> str:
    """So many of its characters from both ends."""
    last = letters // 2
    return f"{text[: letters - last]}…{text[len(text) - last :]}"
