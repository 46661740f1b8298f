"""Tasks that can be solved from their context alone: fresh bindings, histories of random bandits, and bandits that are played."""

import json
import random

from interplay.tasks.family import Step

SYMBOLS, LABELS, ARMS = "abcdefgh", "0123", "xyz"


class Bindings:
    """`op` pairs of a symbol and its label, then a symbol that was among them. Each problem has a table of its own; with `tables`
    there are so many in all, which can be learnt by heart; `unlinked` draws the label that is asked for anew."""

    def __init__(self, tables=0, unlinked=False):
        self.tables, self.unlinked = tables, unlinked

    def generate(self, rng, op):
        """A problem."""
        draw = random.Random(f"table {rng.randrange(self.tables)}") if self.tables else rng
        table = {symbol: draw.choice(LABELS) for symbol in SYMBOLS}
        shown = [rng.choice(SYMBOLS) for _ in range(op)]
        asked = rng.choice(shown)
        return ["".join(f"{one}{table[one]}" for one in shown), asked, rng.choice(LABELS) if self.unlinked else table[asked]]

    def prompt(self, problem):
        """What is read."""
        return f"{problem[0]} {problem[1]}?"

    def answer(self, problem):
        """The label or the arm."""
        return problem[2]

    def solution(self, problem):
        """The same, without a box."""
        return problem[2]

    def verify(self, problem, completion):
        """Whether it is all that is said."""
        return completion.strip() == problem[2]

    def structure(self, problem):
        """What may not be in two splits."""
        return problem[0]

    def vocabulary(self):
        """That of all three, so that one model can learn them."""
        return [*SYMBOLS, *LABELS, *ARMS, *" ?\n"]


class Histories(Bindings):
    """`op` random pulls of a bandit's arms with what they paid; the answer is the arm that pays best (DPT)."""

    def generate(self, rng, op):
        """A problem."""
        best = rng.choice(ARMS)
        pulls = [rng.choice(ARMS) for _ in range(op)]
        paid = [int(rng.random() < (0.8 if arm == best else 0.2)) for arm in pulls]
        return [
            "".join(f"{arm}{pay}" for arm, pay in zip(pulls, paid, strict=True)),
            "",
            rng.choice(ARMS) if self.unlinked else best,
        ]

    def prompt(self, problem):
        """What is read."""
        return f"{problem[0]}?"


class Bandit:
    """A bandit of three arms, `op` pulls: one pays with 0.8, the others with 0.2. The expert is UCB, or pulls by chance."""

    def __init__(self, expert="ucb"):
        self.teacher = expert

    def generate(self, rng, op):
        """A problem."""
        return [op, rng.randrange(3), rng.randrange(1 << 30)]

    def reset(self, problem, seed):
        """Begin; the prompt."""
        (self.left, self.best, self.key), self.pulls = problem, 0
        return "?"

    def pay(self, arm):
        """What the next pull of an arm pays; keyed by the problem and the number of the pull."""
        chance = 0.8 if ARMS.index(arm) == self.best else 0.2
        return int(random.Random(f"{self.key} {self.pulls} {arm}").random() < chance)

    def step(self, action):
        """A pull, and what it paid."""
        arm = action.strip()
        paid = self.pay(arm) if len(arm) == 1 and arm in ARMS else 0
        self.pulls += 1
        return Step(f"{paid}?", reward=paid / self.left, done=self.pulls == self.left)

    def expert(self, problem):
        """The teacher's pulls."""
        self.reset(problem, 0)
        draw, counts, sums, actions = random.Random(f"{problem[2]} expert"), [0] * 3, [0] * 3, []
        for _ in range(problem[0]):
            order = draw.sample(range(3), 3)
            value = [sums[i] / counts[i] + (0.5 / counts[i]) ** 0.5 if counts[i] else 9.0 for i in range(3)]
            arm = draw.randrange(3) if self.teacher == "chance" else max(order, key=lambda i: value[i])
            actions.append(ARMS[arm])
            sums[arm] += self.pay(ARMS[arm])
            counts[arm] += 1
            self.pulls += 1
        return actions

    def structure(self, problem):
        """What may not be in two splits."""
        return str(problem)

    def vocabulary(self):
        """That of all three, so that one model can learn them."""
        return [*SYMBOLS, *LABELS, *ARMS, *" ?\n"]

    target = 0.0  # a game is no answer, so all that end are right, of a teacher without luck, too; regret is what counts


def regret(row, completion, verdict):
    """Pulls of a worse arm, each 0.6 worse in expectation than the best one."""
    pulls, best, _ = json.loads(row.graph)
    return 0.6 * (pulls - completion.count(ARMS[best]))
