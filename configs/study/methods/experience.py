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
    """Each turn of the experts' transcripts: its row, what is read before it, and the code. One in two is a second guess."""
    for row in rows:
        parts, draw = row["solution"].split(MARK), random.Random(row["key"])
        for place in range(0, len(parts), 2):
            before = [row["prompt"], *parts[:place]]
            if draw.random() < 0.5:
                before += [draw.choice([code for code in CODES if code != parts[place]]), before[-1]]
            yield {**row, "prompt": MARK.join(before), "solution": parts[place]}, before[-1], parts[place], draw


def entries(own, draw, missing=0.1):
    """Entries, whole ones or notes, in any order: those of the locks, but for a share, and of others, up to 12."""
    others = [name for name in NAMES if name not in {name for name, _ in own}]
    pairs = [(name, draw.choice(CODES)) for name in draw.sample(others, draw.randrange(13 - len(own)))]
    pairs += [pair for pair in own if draw.random() >= missing]
    draw.shuffle(pairs)
    whole = draw.random() < 0.5
    return "".join(f"?{draw.choice(ROOMS)} {name}{code}\n" if whole else f"{name}{code}\n" for name, code in pairs)


def told(rows):
    """Episodes behind entries."""
    made = []
    for row in rows:
        locks, codes = [row["prompt"], *row["solution"].split(MARK)[1::2]], row["solution"].split(MARK)[::2]
        own = [(lock[-1], code) for lock, code in zip(locks, codes, strict=True)]
        made.append({**row, "prompt": entries(own, random.Random(f"told {row['key']}")) + row["prompt"]})
    return made


def told_turns(rows):
    """Turns behind entries of their own lock and of others."""
    return [{**row, "prompt": entries([(lock[-1], code)], draw) + row["prompt"]} for row, lock, code, draw in turns(rows)]


def note(lock, code):
    """What is worth keeping of a turn: the name and the code, without the room."""
    return f"{lock[-1]}{code}\n"


def reflected(rows):
    """The note behind each turn."""
    return [{**row, "prompt": f"{lock}{code}\n#", "solution": note(lock, code)[:-1]} for row, lock, code, _ in turns(rows)]
