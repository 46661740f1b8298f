"""A document that is opened page by page, or read whole."""

import random

from interplay.tasks.family import Step

KEYS, VALUES = "abcdefgh", "0123456789"


class Pages:
    """`op` pages with the values of two keys each; which keys a page has is told, and the value of one is asked for. An action
    opens a page (`p2`, read as `c5d1`) or answers with the key and its value (`=c5`). The answer pays `answer`; to open the
    right page pays `action`, with `ranked` over the pages opened by then; each opening costs `price`. `whole`: the prompt holds
    all values, twice, so that nothing need be opened, and pre-training on all tokens teaches to copy; `half`: it does in every
    other problem. The expert of `wander` opens pages by chance until it has the one that it needs, and one where it needs none
    in half of the problems."""

    target = 0.499

    def __init__(self, answer=1.0, action=0.0, ranked=False, price=0.0, whole=False, half=False, wander=False):
        """Pays, what the prompt holds, and how the expert opens."""
        self.worth, self.action, self.ranked, self.price, self.whole, self.half = answer, action, ranked, price, whole, half
        self.wander = wander

    def told(self, problem):
        """Whether the prompt holds all values."""
        return self.whole or (self.half and int(problem[0][0][1]) % 2 == 0)

    def generate(self, rng, op):
        """Values of all keys, and the one that is asked for."""
        keys = rng.sample(KEYS, 2 * op)
        return [[[key, rng.choice(VALUES)] for key in keys], rng.choice(keys)]

    def reset(self, problem, seed):
        """Begin; what is where."""
        self.facts, self.asked = problem
        self.opened = []
        shown = self.facts if self.told(problem) else [[key, ""] for key, _ in self.facts]
        pages = ["".join(f"{key}{value}" for key, value in shown[at : at + 2]) for at in range(0, len(shown), 2)]
        return f"{' '.join(pages * (1 + self.told(problem)))} {self.asked}?"

    def place(self):
        """The page that has the key."""
        return next(at for at, (key, _) in enumerate(self.facts) if key == self.asked) // 2

    def step(self, action):
        """Open a page, or answer."""
        said, pair = action.strip(), self.asked + dict(self.facts)[self.asked]
        if said[:1] == "=":
            return Step("", reward=self.worth * (said[1:] == pair), done=True)
        page = int(said[1:]) if said[:1] == "p" and said[1:].isdecimal() else -1
        if not 0 <= page < len(self.facts) // 2:
            return Step("?", reward=-self.price)
        first = page == self.place() and page not in self.opened
        self.opened.append(page)
        text = "".join(f"{key}{value}" for key, value in self.facts[2 * page : 2 * page + 2])
        return Step(f"{text}?", reward=self.action * first / (len(self.opened) if self.ranked else 1) - self.price)

    def expert(self, problem):
        """The right page, or all until that one, then its value."""
        self.reset(problem, 0)
        value, told, draw = f"={self.asked}{dict(self.facts)[self.asked]}", self.told(problem), random.Random(str(problem))
        pages = draw.sample(range(len(self.facts) // 2), len(self.facts) // 2) if self.wander else [self.place()]
        opened = pages[: draw.randrange(2) * self.wander] if told else pages[: pages.index(self.place()) + 1]
        return [*(f"p{page}" for page in opened), value]

    def structure(self, problem):
        """What may not be in two splits."""
        return str(problem)

    def vocabulary(self):
        """Keys, values and signs."""
        return [*KEYS, *VALUES, *"p=? \n"]
