"""Tasks that take two: a planner names the key that an executor looks up; a user says what is wanted when it is asked.
Facts are told twice, in another order, so that pre-training on all tokens teaches to copy within few of them."""

from interplay.tasks.family import Step

KEYS, VALUES = "abcdefgh", "0123456789"


class Asked:
    """`op` keys with their values: `a3 c1 b7 c1 b7 a3 `. The pair of one is asked for (`c1`), and a user alone knows which."""

    def generate(self, rng, op):
        """What is told, what is asked for, the answer, and what a teacher of half a mind says."""
        facts = [[key, rng.choice(VALUES)] for key in rng.sample(KEYS, op)]
        key, value = rng.choice(facts)
        told = [key + value for key, value in facts]
        return [told + rng.sample(told, op), key, key + value, rng.choice(["?", rng.choice(told)])]

    def prompt(self, problem):
        """What is told."""
        return f"{' '.join(problem[0])} "

    def answer(self, problem):
        """The pair."""
        return problem[2]

    def solution(self, problem):
        """The same, without a box."""
        return problem[2]

    def verify(self, problem, completion):
        """Whether it is all that is said."""
        return completion.strip() == problem[2]

    def structure(self, problem):
        """What may not be in two splits."""
        return self.prompt(problem) + problem[1]

    def vocabulary(self):
        """That of all, so that one model can learn them."""
        return [*KEYS, *VALUES, *" ?.\n"]


class Chain(Asked):
    """`op` pairs of links, from a key to another and from that to a value, twice: `ac c5 c5 ac a`. Asked for is the last link of
    the chain that the last key begins (`c5`). `part: plan` asks for the key between (`c`), which its teacher names in half of
    the problems, and otherwise any; `execute` names that key and asks for its link."""

    def __init__(self, part="whole"):
        self.part = part

    def generate(self, rng, op):
        """Links, the key that is asked for, the answer, the key between, and the one that the teacher names."""
        keys = rng.sample(KEYS, 2 * op)
        values = {key: rng.choice(VALUES) for key in keys[op:]}
        links = [a + b for a, b in zip(keys[:op], keys[op:], strict=True)] + [key + value for key, value in values.items()]
        links = [*rng.sample(links, 2 * op), *rng.sample(links, 2 * op)]
        asked = rng.randrange(op)
        between = keys[op + asked]
        return [links, keys[asked], between + values[between], between, rng.choice([between, rng.choice(keys[op:])])]

    def prompt(self, problem):
        """Links and a key; for the executor what the planner said of it."""
        links, asked, _, _, named = problem
        return f"{' '.join(links)} {asked}" + f"{named}\n" * (self.part == "execute")

    def answer(self, problem):
        """What the part is to say."""
        links, _, pair, _, named = problem
        return {"plan": named, "execute": next(link for link in links if link[0] == named), "whole": pair}[self.part]

    def solution(self, problem):
        """The same, without a box."""
        return self.answer(problem)

    def verify(self, problem, completion):
        """Whether it is all that is said."""
        return completion.strip() == self.answer(problem)


class Talk(Asked):
    """The same dialogue as a world: `?` is answered with the key. Its expert asks in half of the problems, else it guesses."""

    target = 0.0  # so that guesses are taught, too

    def reset(self, problem, seed):
        """Begin; what is told, and the user's first word."""
        self.problem = problem
        return f"{self.prompt(problem)}.\n"

    def step(self, action):
        """A question, or an answer."""
        if action.strip() == "?":
            return Step(f"{self.problem[1]}\n")
        return Step("", reward=float(action.strip() == self.problem[2]), done=True)

    def expert(self, problem):
        """Its turns."""
        return ["?", problem[2]] if problem[3] == "?" else [problem[3]]


class User:
    """Who says what is wanted when it is asked; or, `mute`, never."""

    def __init__(self, mute=False):
        self.mute = mute

    def reset(self, problem, seed):
        """Begin."""
        self.wanted = problem[1]

    def act(self, read):
        """The key, or a word that says nothing."""
        return self.wanted if read.strip() == "?" and not self.mute else "."
