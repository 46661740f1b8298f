"""Two worlds that pay turns, for fights over credit: a search along relations, and a walk over a grid."""

import json
from itertools import pairwise

from interplay.tasks.family import Step

PEOPLE, RELATIONS = "akmostuy", "bh"
MOVES = {"n": (0, -1), "s": (0, 1), "e": (1, 0), "w": (-1, 0)}


class Search:
    """Documents, one a person, say who is that person's boss and heir; the question is a path of `op` such relations. `find k`
    reads k's document and the relation that is asked of it, `bm ho h?`; the first reading of each person on the path pays `pays`.
    `=o` answers, which pays 1 and ends the episode. A reader who takes the wrong relation has to come back."""

    target = 0.999

    def __init__(self, people=6, pays=0.1):
        """How many people, the first of PEOPLE, and the pay for each one on the path."""
        self.people, self.pays = PEOPLE[:people], pays

    def generate(self, rng, op):
        """The documents, the relations, and where the path begins."""
        while True:
            about = {one: rng.sample([other for other in self.people if other != one], 2) for one in self.people}
            problem = [about, "".join(rng.choice(RELATIONS) for _ in range(op)), rng.choice(self.people)]
            if len(set(self.path(problem))) == op + 1:
                return problem

    def path(self, problem):
        """Everyone on it, the answer last."""
        about, relations, here = problem
        path = [here]
        for relation in relations:
            path.append(about[path[-1]][RELATIONS.index(relation)])
        return path

    def reset(self, problem, seed):
        """Begin; who is found first."""
        self.problem, self.way, self.read = problem, self.path(problem), 0
        return f"{problem[2]}?"

    def step(self, action):
        """Find somebody, or answer."""
        said = action.strip()
        if said[:1] == "=":
            return Step("", reward=float(said[1:] == self.way[-1]), done=True)
        if said[:1] != "f" or said[1:] not in self.problem[0]:
            return Step("?", reward=0.0)
        new = self.read < len(self.way) - 1 and said[1:] == self.way[self.read]
        self.read += new
        boss, heir = self.problem[0][said[1:]]
        at = self.way.index(said[1:]) if said[1:] in self.way[:-1] else -1
        return Step(f"b{boss} h{heir} {self.problem[1][at] if at >= 0 else '-'}?", reward=self.pays * new)

    def expert(self, problem):
        """Everybody on the path, then the answer."""
        *way, end = self.path(problem)
        return [*(f"f{one}" for one in way), f"={end}"]

    def answer(self, problem):
        """The end of the path."""
        return self.path(problem)[-1]

    def structure(self, problem):
        """What may not be in two splits."""
        return json.dumps(problem)

    def vocabulary(self):
        """People, relations and signs."""
        return [*self.people, *RELATIONS, *"f=-? \n", *"\\boxed{}"]


class Grid:
    """A walk over a grid of `side` by `side` places to one goal and then to another, `op` moves in all. What is read is the place
    and the goal that is next, `03>21?`; a move pays its share of the way where it comes nearer to that goal than ever before.
    Beyond the edge one stays."""

    target = 0.999

    def __init__(self, side=6):
        """Places in a row."""
        self.side = side

    def generate(self, rng, op):
        """A start and two goals."""
        while True:
            stops = [[rng.randrange(self.side), rng.randrange(self.side)] for _ in range(3)]
            legs = [far(one, other) for one, other in pairwise(stops)]
            if sum(legs) == op and min(legs) > 0:
                return stops

    def seen(self):
        """The place and the next goal."""
        return f"{self.here[0]}{self.here[1]}>{self.goals[0][0]}{self.goals[0][1]}?"

    def reset(self, problem, seed):
        """Begin; the start and the first goal."""
        self.here, *self.goals = problem
        self.nearest = far(self.here, self.goals[0])
        self.whole = self.nearest + far(*self.goals)
        return self.seen()

    def step(self, action):
        """A move."""
        by = MOVES.get(action.strip())
        if by is None:
            return Step("?", reward=0.0)
        self.here = [min(max(at + d, 0), self.side - 1) for at, d in zip(self.here, by, strict=True)]
        now = far(self.here, self.goals[0])
        nearer, self.nearest = now < self.nearest, min(now, self.nearest)
        if not now:
            self.goals = self.goals[1:]
            if not self.goals:
                return Step("", reward=1 / self.whole, done=True)
            self.nearest = far(self.here, self.goals[0])
        return Step(self.seen(), reward=nearer / self.whole)

    def expert(self, problem):
        """To each goal along the first coordinate, then along the second."""
        moves = []
        for (x, y), (u, v) in pairwise(problem):
            moves += ["e" if u > x else "w"] * abs(u - x) + ["s" if v > y else "n"] * abs(v - y)
        return moves

    def answer(self, problem):
        """The moves of the expert."""
        return "".join(self.expert(problem))

    def structure(self, problem):
        """What may not be in two splits."""
        return json.dumps(problem)

    def vocabulary(self):
        """Digits, moves and signs."""
        return [*map(str, range(10)), *"nsew>?\n ", *"\\boxd{}"]


def far(one, other):
    """Moves between two places."""
    return sum(abs(a - b) for a, b in zip(one, other, strict=True))
