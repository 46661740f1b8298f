"""Small multi-hop rows, and a tokenizer that reads them."""

from functools import lru_cache
from pathlib import Path

from interplay.data import tokenizer
from interplay.data.curate import StepInputs
from interplay.tasks import multihop
from interplay.tasks.family import Item, Paragraph
from interplay.tasks.verdict import Row

PEOPLE = ["Ada", "Bea", "Cid", "Dan", "Eve", "Fay", "Gus", "Hal", "Ida", "Jon", "Kit", "Lea", "Max", "Ned", "Oda", "Pip"]
CITIES = ["Rome", "Oslo", "Lima", "Cairo", "Paris"]


def name(number: int) -> str:
    """Of a person; numbers below 16 * 26 give different ones."""
    return PEOPLE[number % 16] + (chr(97 + number // 16) if number >= 16 else "")


def item(number: int, shift: int = 0) -> Item:
    """Who is the boss of person 2n, and where does that one live? With an unneeded sentence behind each fact."""
    first, second, city = name(2 * number), name(2 * number + 1), CITIES[(number + shift) % 5]
    steps = (f"{first}'s boss is {second}.", f"{second}'s city is {city}.")
    documents = (
        Paragraph(first, (steps[0], f"Nobody asks about {first}.")),
        Paragraph(second, (steps[1], "It is said so.")),
    )
    question = f"What is the city of the boss of {first}?"
    return Item(f"item-{number}", question, (city,), documents, ((0, 0), (1, 0)), 2, "bridge", steps)


def row_of(asked: Item, index: int) -> Row:
    """As the source of the item would have it."""
    problem = multihop.plain_problem(asked)
    shown = multihop.render(problem, "published")
    return Row(0, index, "all", 2, "plain", *shown, multihop.dumps(problem), f"{index:016x}", "multihop", f"{'a' * 12}:{index}")


def rows(number: int) -> list[Row]:
    """So many different items."""
    return [row_of(item(i), i) for i in range(number)]


@lru_cache(maxsize=1)
def words() -> tokenizer.Tokenizer:
    """A tokenizer of words for these items."""
    return tokenizer.word_tokenizer([*multihop.terse_pieces(), *map(name, range(400)), *CITIES, "'s boss is ", "'s city is "])


def inputs(folder: Path, seed: int = 0) -> StepInputs:
    """StepInputs of a step with that tokenizer."""
    if not (folder / "tokenizer").exists():
        tokenizer.save(words(), folder / "tokenizer")
    return StepInputs(0, {"tokenizer": folder}, seed)
