"""Whether two answers mean the same: as numbers where both are numbers, else as words."""

from fractions import Fraction

from interplay.tasks.text import normalise

LONGEST = 40
"""Characters of a number; what is longer is read as words."""


def number(text: str) -> Fraction | None:
    """The number that a text is (`12`, `-3`, `1,200`, `12.0`, `24/2`, `$5`, `50%`), or None."""
    plain = text.strip().lstrip("$").rstrip("%").replace(",", "")
    if len(plain) > LONGEST or "e" in plain.lower() or "_" in plain:
        return None
    try:
        return Fraction(plain)
    except (ValueError, ZeroDivisionError):
        return None


def same(one: str, other: str, modulus: int | None = None) -> bool:
    """Equal in meaning; numbers are equal modulo `modulus` where there is one."""
    ours, theirs = number(one), number(other)
    if ours is not None and theirs is not None:
        return (ours - theirs) % modulus == 0 if modulus else ours == theirs
    if ours is not None or theirs is not None:
        return False
    return one.strip() == other.strip() or (bool(normalise(one)) and normalise(one) == normalise(other))
