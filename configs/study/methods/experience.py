"""Locks whose codes hold from one problem to the next, so that what was tried once is worth knowing, and rows that teach to read
notes and to write them."""

import json
import random

from interplay.tasks.family import Step
from interplay.tasks.transcripts import MARK

NAMES, ROOMS, CODES = "abcdefghijklmnop", "01234", "01234567"


class Locks:
    """`op` locks in a row, each read with its name and a room, which says nothing; a guess opens it, or it is read again. Each
    pays its share. In a `world` a name has the same code in every problem; without one each problem has codes of its own, so
    that nothing but its context tells them."""

    target = 0.999

    def __init__(self, world=None):
        """Key of the codes."""
        self.world = world

    def generate(self, rng, op):
        """Name, room and code of each."""
        names = rng.sample(NAMES, op)
        codes = [rng if self.world is None else random.Random(f"{self.world} {name}") for name in names]
        return [[name, rng.choice(ROOMS), code.choice(CODES)] for name, code in zip(names, codes, strict=True)]

    def shown(self):
        """What is read of the next lock."""
        name, room, _ = self.locks[self.at]
        return f"?{room} {name}"

    def reset(self, problem, seed):
        """Begin; the first lock."""
        self.locks, self.at = problem, 0
        return self.shown()

    def step(self, action):
        """A guess."""
        right = action.strip() == self.locks[self.at][2]
        self.at += right
        over = self.at == len(self.locks)
        return Step("" if over else self.shown(), reward=right / len(self.locks), done=over)

    def expert(self, problem):
        """The codes."""
        return [code for _, _, code in problem]

    def answer(self, problem):
        """All codes."""
        return "".join(self.expert(problem))

    def structure(self, problem):
        """What may not be in two splits."""
        return json.dumps(problem)

    def vocabulary(self):
        """Of names, rooms and notes."""
        return [*NAMES, *"0123456789", *" ?#\n"]


def turns(rows):
    """Each turn of the experts' transcripts: its row, what is read before it, and the code. One in four is a second guess."""
    for row in rows:
        parts, draw = row["solution"].split(MARK), random.Random(row["key"])
        for place in range(0, len(parts), 2):
            before = [row["prompt"], *parts[:place]]
            if draw.random() < 0.25:
                before += [draw.choice([code for code in CODES if code != parts[place]]), before[-1]]
            yield {**row, "prompt": MARK.join(before), "solution": parts[place]}, before[-1], parts[place], draw


def told(rows, missing=0.1):
    """Each turn behind 1 to 12 entries, whole ones or notes, in any order; the lock's own is among them, but for a share."""
    made = []
    for row, lock, code, draw in turns(rows):
        others = draw.sample([name for name in NAMES if name != lock[-1]], draw.randrange(12))
        pairs = [(f"?{draw.choice(ROOMS)} {name}", draw.choice(CODES)) for name in others]
        pairs += [(f"?{draw.choice(ROOMS)} {lock[-1]}", code)] * (draw.random() >= missing)
        draw.shuffle(pairs)
        write = draw.choice([note, "{}{}\n".format])
        made.append({**row, "prompt": "".join(write(*pair) for pair in pairs) + row["prompt"]})
    return made


def note(lock, code):
    """What is worth keeping of a turn: the name and the code, without the room."""
    return f"{lock[-1]}{code}\n"


def reflected(rows):
    """The note behind each turn."""
    return [{**row, "prompt": f"{lock}{code}\n#", "solution": note(lock, code)[:-1]} for row, lock, code, _ in turns(rows)]
