"""Steps that compare rows with each other, or with the rows of other sets."""

from collections import Counter

from interplay.data import alike
from interplay.data.steps.step import Inputs, Made
from interplay.schema.base import PermanentError, plural
from interplay.schema.steps.sift import Alike, Contamination, Deduplicate
from interplay.tasks.row import Row


def deduplicate(spec: Deduplicate, rows: list[Row], inputs: Inputs) -> Made:
    """Rows that are like none before them that stayed. Counts: alike."""
    finders = alike.finders(spec.how, rows, spec.n, spec.threshold)
    kept = []
    for number, row in enumerate(rows):
        if all(finder.find(number) is None for finder in finders):
            kept.append(row)
            for finder in finders:
                finder.add(number)
    return Made(kept, {"alike": len(rows) - len(kept)})


def contamination(spec: Contamination, rows: list[Row], inputs: Inputs) -> Made:
    """Rows that are like none of the sets to compare with. Counts: rows that are, by the first way in which they are. Raises
    PermanentError when there are any and the step refuses them."""
    matches = matched(spec, rows, inputs.against)
    counts = Counter(how for how, _ in matches.values())
    if matches and spec.action == "refuse":
        number, (how, other) = min(matches.items())
        twin = inputs.against[other]
        ways = ", ".join(f"{how} {counts[how]}" for how in spec.how if counts[how])
        raise PermanentError(
            f"curate: step {inputs.number} (contamination): {plural(len(matches), 'row')} of {len(rows)} like rows that must not "
            f"be trained on ({ways}); the first: {inputs.name(rows[number])} is like {inputs.other(twin)} ({how}); mend the set, "
            "or drop such rows with action: drop"
        )
    return Made([row for number, row in enumerate(rows) if number not in matches], {how: counts[how] for how in spec.how})


def matched(spec: Contamination, rows: list[Row], others: list[Row]) -> dict[int, tuple[Alike, int]]:
    """Number of a row -> (the first way in which it is like one of the others, the number of that)."""
    found: dict[int, tuple[Alike, int]] = {}
    both = others + rows
    for how in spec.how:
        for finder in alike.finders(how, both, spec.n, spec.threshold):
            for number in range(len(others)):
                finder.add(number)
            for number in range(len(rows)):
                other = None if number in found else finder.find(len(others) + number)
                if other is not None:
                    found[number] = (how, other)
    return found
