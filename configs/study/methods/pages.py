"""A document that is opened page by page, or read whole."""

from interplay.tasks.family import Step

KEYS, VALUES = "abcdefgh", "0123456789"


class Pages:
    """`op` pages with the values of two keys each; which keys a page has is told, and the value of one is asked for. An action
    opens a page (`p2`, read as `c5d1`) or answers (`=5`). The answer pays `answer`; to open the right page pays `action`, with
    `ranked` over the pages opened by then; each opening costs `price`. `whole`: the prompt holds all values, so
    that nothing need be opened; `half`: it does in every other problem."""

    target = 0.499

    def __init__(self, answer=1.0, action=0.0, ranked=False, price=0.0, whole=False, half=False):
        """Pays, and what the prompt holds."""
        self.worth, self.action, self.ranked, self.price, self.whole, self.half = answer, action, ranked, price, whole, half

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
        return f"{' '.join(pages)} {self.asked}?"

    def place(self):
        """The page that has the key."""
        return next(at for at, (key, _) in enumerate(self.facts) if key == self.asked) // 2

    def step(self, action):
        """Open a page, or answer."""
        said, value = action.strip(), dict(self.facts)[self.asked]
        if said[:1] == "=":
            return Step("", reward=self.worth * (said[1:] == value), done=True)
        page = int(said[1:]) if said[:1] == "p" and said[1:].isdecimal() else -1
        if not 0 <= page < len(self.facts) // 2:
            return Step("?", reward=-self.price)
        first = page == self.place() and page not in self.opened
        self.opened.append(page)
        text = "".join(f"{key}{value}" for key, value in self.facts[2 * page : 2 * page + 2])
        return Step(f"{text}?", reward=self.action * first / (len(self.opened) if self.ranked else 1) - self.price)

    def expert(self, problem):
        """The right page, then its value."""
        self.reset(problem, 0)
        value = f"={dict(self.facts)[self.asked]}"
        return [value] if self.told(problem) else [f"p{self.place()}", value]

    def structure(self, problem):
        """What may not be in two splits."""
        return str(problem)

    def vocabulary(self):
        """Keys, values and signs."""
        return [*KEYS, *VALUES, *"p=? \n"]
