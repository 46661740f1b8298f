"""Tasks and problems for tests of the families about facts."""

from hypothesis import strategies as st

from interplay.tasks.facts.chains import Fact
from interplay.tasks.facts.people import Problem
from interplay.tasks.facts.spec import Bios

LEVELS = ("statement", "parametric", "contextual", "reading", "iid", "composition", "zero_shot", "in_context", "by_heart")
SMALL = {"people": 12, "relations": 6, "attributes": 2, "values": 4, "zero_shot": 2}

MOTHER = Fact("Ada", "mother", "Bea")
BOSS = Fact("Bea", "boss", "Cid")
CHAIN = Problem("iid", "terse", 0, (MOTHER, BOSS), (BOSS, Fact("Bea", "friend", "Dov"), Fact("Dov", "boss", "Ada")))
"""Who is the boss of the mother of Ada? The mother is parametric, the boss stands in the context."""
LOOKUP = Problem("contextual", "terse", 0, (BOSS,), (Fact("Ada", "boss", "Dov"), BOSS))


@st.composite
def tasks(draw: st.DrawFn, level: str | None = None, but: str = "") -> Bios:
    """Worlds of many sizes, of one level or of any but one."""
    low = draw(st.integers(0, 4))
    return Bios(
        world=draw(st.integers(0, 50)),
        people=draw(st.integers(12, 60)),
        relations=draw(st.integers(8, 16)),
        attributes=draw(st.integers(0, 8)),
        values=draw(st.integers(1, 12)),
        parametric=draw(st.sampled_from([0.4, 0.5, 0.6])),
        zero_shot=draw(st.integers(1, 2)),
        held_out=draw(st.floats(0.01, 0.5)),
        distractors=(low, low + draw(st.integers(0, 4))),
        surface=draw(st.sampled_from(["terse", "prose"])),
        level=level or draw(st.sampled_from([each for each in LEVELS if each != but])),
    )


@st.composite
def places(draw: st.DrawFn, task: Bios) -> tuple[int, int, int]:
    """seed, index and op of a problem of the task."""
    low, high = task.ops()
    return draw(st.integers(0, 9)), draw(st.integers(0, 10**6)), draw(st.integers(low, min(high, 3)))
