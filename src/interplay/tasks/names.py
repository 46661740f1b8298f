"""Names that nobody bears: pronounceable, one token each with a tokenizer of words."""

from interplay.tasks.op_dag.stream import Draw, stream

FIRST = "BDFGHKLMNPRSTVZ"
MIDDLE = "bdfgklmnprstvz"
VOWELS = "aeiou"
PAIRS = len(FIRST) * len(MIDDLE) * len(VOWELS) ** 2


def invented(count: int, *label: int | str) -> tuple[str, ...]:
    """`count` different names such as Bela or Tomiru, the same for the same label on every machine, in random order. Of two
    syllables while a third of these suffice, else of three."""
    draw = stream("names", *label)
    syllables = 2 if count <= PAIRS // 3 else 3
    found: dict[str, None] = {}
    while len(found) < count:
        found[_name(draw, syllables)] = None
    return tuple(found)


def _name(draw: Draw, syllables: int) -> str:
    starts = [FIRST, *[MIDDLE] * (syllables - 1)]
    return "".join(start[draw() % len(start)] + VOWELS[draw() % len(VOWELS)] for start in starts)
