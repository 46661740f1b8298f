"""Members that papers of other fields have, in the form that text gives them."""

from dataclasses import replace

import numpy as np
import torch

from interplay.rl import edits
from interplay.rl.batch import take
from interplay.rl.sampler import Sampler
from interplay.tasks.verdict import Verdict

GOLD = Verdict(True, True, 1.0, "none")


def joined(batch, now):
    """The gold solution as one more member of each group, in its statistics (ViSurf, TempSamp-R1). What made it says it for sure,
    so that ratios are the policy's own probabilities."""
    members = []
    for group in batch.groups.unique().tolist():
        like = int((batch.groups == group).nonzero()[0, 0])
        text, tokens = now.gold(int(batch.ids[like]))
        one = take(batch, torch.tensor([like]))
        marks = {
            "tokens": torch.tensor([tokens]),
            "lengths": torch.tensor([len(tokens)]),
            "logprobs": torch.zeros(1, len(tokens)),
        }
        parts = {name: torch.ones(1, dtype=torch.float64) for name in batch.parts}
        gold = {"row": torch.tensor([-1]), "completions": [text], "verdicts": [GOLD], "right": torch.tensor([True])}
        gold |= {"truncated": torch.tensor([False]), "rewards": torch.ones(1, dtype=torch.float64), "parts": parts}
        members.append(replace(one, **marks, **gold, off_policy=torch.tensor([True])))
    marked = batch if batch.off_policy is not None else replace(batch, off_policy=torch.zeros(len(batch), dtype=torch.bool))
    return edits.join([marked, *members], now.pad, same_groups=True)


def softened(batch, advantage, bears, now, threshold=0.8, slope=3.0):
    """Advantages of gold members above the threshold grow by their logarithm alone (TempSamp-R1, asymmetric)."""
    above = (advantage - threshold).clamp(min=0)
    soft = torch.where(advantage > threshold, threshold + torch.log1p(slope * above) / slope, advantage)
    return batch, torch.where((batch.row < 0)[:, None], soft, advantage), bears


def positive(batch, advantage, bears, now):
    """Rows that another policy wrote are learnt where their advantage is positive alone (A2PR)."""
    return batch, advantage, bears & ((batch.row >= 0)[:, None] | (advantage > 0))


def progress(batch, now, weight=0.5):
    """Failures earn `weight` times the largest share of a success's steps of their group that they have, too (SRPO)."""
    steps = [set(text.partition("|")[2].partition("#")[0].split(",")) for text in batch.completions]
    found = torch.zeros(len(batch), dtype=torch.float64)
    for group in batch.groups.unique().tolist():
        here = (batch.groups == group).nonzero()[:, 0].tolist()
        right = [steps[i] for i in here if batch.right[i]]
        for i in here:
            if right and not batch.right[i]:
                found[i] = weight * max(len(steps[i] & other) / len(other) for other in right)
    return found


def wins(batch, now):
    """The reward becomes the share of the group that a completion is preferred to, a tie for half: right before wrong, then short
    before long (SPO)."""
    share = torch.zeros(len(batch), dtype=torch.float64)
    score = batch.rewards - batch.lengths.double() / (10 * now.max_completion_length)
    for group in batch.groups.unique().tolist():
        here = (batch.groups == group).nonzero()[:, 0]
        mine = score[here]
        beats = (mine[:, None] > mine[None]).double() + 0.5 * (mine[:, None] == mine[None]).double()
        share[here] = (beats.sum(1) - 0.5) / max(len(here) - 1, 1)
    return share - batch.rewards


def pessimistic(m, step, seed, tries, passes, width=1.0):
    """The prompts of the largest lower bound of their pass rate, where those never tried count as failed once."""
    tried = np.maximum(tries, 1)
    low = passes / tried - width * np.sqrt(np.log(max(step, 2)) / tried)
    shuffled = np.random.default_rng([seed, step]).permutation(len(tries))
    return shuffled[np.argsort(-low[shuffled], kind="stable")[:m]].tolist()


class Worst(Sampler):
    """A sequence of static problems (IWOCS): prompts are of the ops that are open, and after every `every` steps the closed op
    in which the policy's probes fail most is opened, too. A quarter of each step probes the closed ops."""

    STATE = ("open", "tries", "passes")

    def __init__(self, deck, every=8):
        self.every, self.deck = every, deck
        self.ops = np.array([row.op for row in deck.rows])
        self.open = [int(self.ops.min())]
        self.tries, self.passes = np.zeros(self.ops.max() + 1), np.zeros(self.ops.max() + 1)

    def select(self, m, step):
        """Prompts of open ops and probes of closed ones."""
        draw, inside = self.deck.random(step), np.isin(self.ops, self.open)
        probes = 0 if inside.all() else m // 4
        chosen = draw.choice(np.flatnonzero(inside), m - probes, replace=False)
        return [*chosen.tolist(), *(draw.choice(np.flatnonzero(~inside), probes, replace=False).tolist() if probes else [])]

    def observe(self, step, outcomes):
        """Pass rates by op; at the end of a round the worst closed op opens."""
        for one in outcomes:
            self.tries[self.ops[one.id]] += one.n
            self.passes[self.ops[one.id]] += one.strict
        closed = [op for op in set(self.ops.tolist()) - set(self.open) if self.tries[op]]
        if step % self.every == 0 and closed:
            self.open = [*self.open, min(closed, key=lambda op: self.passes[op] / self.tries[op])]
            self.tries[:], self.passes[:] = 0, 0


class Transfer(Sampler):
    """The next op to train on by a Gaussian process over what training on an op gave, less a price that is linear in the distance
    between ops (MBTL): the op whose upper bound, carried to all ops, promises most in addition to what is known."""

    STATE = ("at", "found", "tries", "passes", "seen")

    def __init__(self, deck, every=8, slope=0.1, scale=1.0):
        self.every, self.slope, self.scale, self.deck = every, slope, scale, deck
        self.ops = np.array([row.op for row in deck.rows])
        self.kinds = sorted(set(self.ops.tolist()))
        self.at, self.found, self.seen = self.kinds[len(self.kinds) // 2], [], []
        self.tries = self.passes = 0

    def select(self, m, step):
        """Prompts of the op that is trained on."""
        return self.deck.random(step).choice(np.flatnonzero(self.ops == self.at), m, replace=False).tolist()

    def observe(self, step, outcomes):
        """What the op gives; after a round the next op."""
        self.tries += sum(one.n for one in outcomes)
        self.passes += sum(one.strict for one in outcomes)
        if step % self.every:
            return
        self.seen, self.found = [*self.seen, self.at], [*self.found, self.passes / max(self.tries, 1)]
        self.tries = self.passes = 0
        ops, seen = np.array(self.kinds, float), np.array(self.seen, float)
        cross, own = (np.exp(-(((a[:, None] - seen[None]) / self.scale) ** 2) / 2) for a in (ops, seen))
        inverse = np.linalg.inv(own + 0.01 * np.eye(len(seen)))
        mean = cross @ inverse @ (np.array(self.found) - np.mean(self.found)) + np.mean(self.found)
        spread = np.sqrt(np.maximum(1 - np.einsum("ij,jk,ik->i", cross, inverse, cross), 0))
        known = np.max(np.array(self.found)[:, None] - self.slope * np.abs(seen[:, None] - ops[None]), axis=0)
        carried = (mean + spread)[:, None] - self.slope * np.abs(ops[:, None] - ops[None])
        self.at = self.kinds[int(np.argmax(np.maximum(carried - known[None], 0).sum(1)))]
