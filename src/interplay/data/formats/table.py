"""The table of formats: how a file is cut into objects, and how an object becomes a problem."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from interplay.data.formats import gsm8k, hotpotqa, jsonl, musique, twowiki
from interplay.data.formats.entry import Entry
from interplay.data.formats.files import Found, lines, members


class Reader(NamedTuple):
    """One format."""

    cut: Callable[[Path], Iterator[Found]]
    parse: Callable[[dict[str, Any], str], Entry]
    """Object and place -> problem; raises ItemError."""
    family: str
    """Who judges its rows."""


FORMATS: dict[str, Reader] = {
    "hotpotqa": Reader(members, hotpotqa.parse, "multihop"),
    "2wikimultihopqa": Reader(members, twowiki.parse, "multihop"),
    "musique": Reader(lines, musique.parse, "multihop"),
    "gsm8k": Reader(lines, gsm8k.parse, "qa"),
    "jsonl": Reader(lines, jsonl.parse, "qa"),
}
