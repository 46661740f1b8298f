"""Numbers as people write them in answers: with commas, units, currency signs and signs, as fractions and percentages."""

import re
from fractions import Fraction

LONGEST = 60
"""Characters of a text that is looked at as a number."""
SCALES = {"hundred", "thousand", "million", "billion", "trillion", "dozen", "half", "third", "quarter", "pi", "sqrt"}
"""Words that change a number's value, and so are no units."""
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+"
NUMBER = re.compile(rf"(?<![\w.])-?[$€£]?(?:{_DIGITS})(?:/[1-9]\d*(?![\d.]))?(?!\w)")
"""A number inside running text. A dash right after a word or number is no sign."""
_ANSWER = re.compile(
    rf"""(?:[A-Za-z]\w{{0,9}}\s*=\s*)?            # x =
    (?P<sign>[-+]?)\s*[$€£]?\s*(?:
      (?:(?P<whole>\d+)\s)?(?P<over>\d+)/(?P<under>\d+)
      |(?P<number>{_DIGITS})
    )\s*(?P<unit>%|[A-Za-z°]{{1,20}}(?:[ /-][A-Za-z]{{1,20}}){{0,3}})?""",
    re.VERBOSE,
)
_FRACTION = re.compile(r"\\[dt]?frac\{(-?\d+)\}\{(-?\d+)\}")
_WRAPPED = re.compile(r"\\(?:text|mathrm|textbf|mathbf)\{([^{}]*)\}")
_NOTHING = re.compile(r"\\[,!;:()\[\]]|\\left|\\right|\$(?=\s*$)|^\$(?=.*\$$)")


def plain(text: str) -> str:
    """The text without LaTeX's dress: `\\text{}`, thin spaces, dollar signs around it, escaped signs, a stop at its end."""
    text = _NOTHING.sub("", _WRAPPED.sub(r" \1", text.strip()))
    text = (
        text.replace("{,}", ",")
        .replace("\\%", "%")
        .replace("\\$", "$")
        .replace("\u2212", "-")
        .replace("^\\circ", "°")
        .replace("$-", "-$")
    )
    return " ".join(text.removesuffix(".").split())


def values(text: str) -> set[Fraction]:
    """What a text that is one number and nothing else may mean: one value, for a percentage two (50% is 50 and 1/2); none for any
    other text. A unit is not looked at, but a word that scales, such as million, makes it no plain number."""
    if len(text) > LONGEST:
        return set()
    flat = plain(_FRACTION.sub(r" \1/\2", text))
    found = _ANSWER.fullmatch(flat.replace("- ", "-").replace("/-", "/"))
    if not found or flat.count("/-"):
        return set()
    unit = (found["unit"] or "").lower()
    words = set(re.split(r"[ /-]", unit))
    if words & (SCALES | {word + "s" for word in SCALES}) or (len(unit) == 1 and unit not in "%mglsh°"):
        return set()
    if found["under"]:
        if not int(found["under"]):
            return set()
        value = Fraction(int(found["over"]), int(found["under"])) + int(found["whole"] or 0)
    else:
        value = Fraction(found["number"].replace(",", ""))
    value = -value if found["sign"] == "-" else value
    return {value, value / 100} if unit.startswith(("%", "percent")) else {value}


def last(text: str) -> str:
    """The last number that a text mentions, as written; empty where it mentions none."""
    found = NUMBER.findall(text)
    return found[-1] if found else ""
