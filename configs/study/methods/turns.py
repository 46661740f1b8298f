"""A world of turns, with an expert and a pay for each turn, and what papers have that no member of the package is."""

import json

import torch

from interplay.tasks.family import Step


class Safe:
    """A code of `op` digits, found one after the other: each guess reads whether it is right, too low or too high, and each digit
    that is found pays its share. The expert halves what is left. With `patience` an episode ends after so many wrong guesses at
    a digit (ActiveVLN); with `patched` it goes on as if the expert had guessed, whose guesses pay (UI-S1)."""

    target = 0.999

    def __init__(self, digits=6, patience=0, patched=False):
        """Digits are those below `digits`."""
        self.digits, self.patience, self.patched = digits, patience, patched

    def generate(self, rng, op):
        """A code."""
        return [rng.randrange(self.digits) for _ in range(op)]

    def reset(self, code, seed):
        """Begin; how many digits there are."""
        self.code, self.at, self.wrong = code, 0, 0
        self.gold = self.expert(code) if self.patched else []
        return f"{len(code)}?"

    def step(self, action):
        """A guess at the next digit."""
        said, share = action.strip(), 1 / len(self.code)
        if self.patched:
            said, share, same = self.gold[0], 1 / len(self.expert(self.code)), said == self.gold[0]
            self.gold = self.gold[1:]
        guess = int(said) if len(said) == 1 and said.isdecimal() else -1
        right = guess == self.code[self.at]
        text = "=" if right else "<" if guess < self.code[self.at] else ">"
        self.at, self.wrong = self.at + right, 0 if right else self.wrong + 1
        over = self.at == len(self.code) or self.wrong == self.patience > 0
        return Step(text, reward=share * (same if self.patched else right), done=over)

    def expert(self, code):
        """Guesses in the middle of what is left."""
        actions = []
        for digit in code:
            low, high = 0, self.digits - 1
            while True:
                guess = (low + high) // 2
                actions.append(str(guess))
                if guess == digit:
                    break
                low, high = (guess + 1, high) if guess < digit else (low, guess - 1)
        return actions

    def answer(self, code):
        """The code."""
        return "".join(map(str, code))

    def structure(self, code):
        """What may not be in two splits."""
        return json.dumps(code)

    def vocabulary(self):
        """Digits and replies."""
        return [*map(str, range(10)), *"?=<>\\boxed{}\n "]


def numbers(batch):
    """(N,) float64: turns of each row's episode."""
    return torch.tensor([len(spans) for spans in batch.spans or []], dtype=torch.float64)


def priced(batch, now, price=0.05):
    """A price on each turn of an episode that is right (TGRL, A^2FM)."""
    return -price * numbers(batch) * batch.right


def discounted(batch, now, gamma=0.9):
    """The reward times gamma to the power of the turns before the last (IterResearch's EAPO)."""
    return batch.rewards * (gamma ** (numbers(batch) - 1).clamp(min=0) - 1)


def no_void(batch, advantage, bears, now):
    """Episodes with a turn that is no action bear no loss (SimpleTIR)."""
    said = [[one.text.strip() for one in row if one.kind == "action"] for row in batch.segments or []]
    sound = torch.tensor([all(len(text) == 1 and text.isdecimal() for text in row) for row in said])
    return batch, advantage, bears & sound[:, None]


def smoothed(batch, advantage, bears, now, weight=0.1, low=0.8, high=1.2, keep=0.9):
    """Tokens whose surprise lies outside a band around its moving average over the run are drawn back towards it (EPO): surprise
    is what the policy's entropy is the mean of."""
    surprise = -batch.logprobs.double()
    before = now.memory.notes.get("turns.surprise")
    mean = float(surprise[bears].mean()) if bool(bears.any()) else 0.0
    now.memory.notes["turns.surprise"] = mean if before is None else keep * before + (1 - keep) * mean
    if before is None:
        return batch, advantage, bears
    beyond = (surprise - high * before).clamp(min=0) - (low * before - surprise).clamp(min=0)
    return batch, advantage + weight * (beyond * bears).to(advantage.dtype), bears


def direct(rows):
    """Problems of the calculator whose solution is the answer alone, without a call."""
    return [{**row, "solution": f"\\boxed{{{row['answer']}}}"} for row in rows]


def calls(batch, now, price=0.1):
    """A price on each call of a tool, whatever it was good for (TGRL, A^2FM)."""
    each = [sum(bool(one.tool) for one in row if one.kind == "action") for row in batch.segments or []]
    return -price * torch.tensor(each, dtype=torch.float64)
