"""An engine that says what a test tells it to, one character a token, and episodes played with it."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from interplay.data.corpus import Encoded
from interplay.model.decoder import Decoder
from interplay.rollout.request import Request, Rollouts, Sampling, join
from interplay.rollout.turns import Setting
from interplay.tasks.verdict import Row, Verdict

END = "$"
"""Stands for the end token."""
Says = Callable[[str, int], str]
"""What is written behind a text by sample number so and so; without END it is cut."""


def encode(texts: Sequence[str], special: bool = True) -> list[list[int]]:
    return [[ord(c) for c in text] for text in texts]


def decode(tokens: Sequence[Sequence[int]]) -> list[str]:
    return ["".join(map(chr, row)).replace(END, "") for row in tokens]


class ScriptedEngine:
    """An engine whose completions are those of the function `says`; it keeps the requests."""

    def __init__(self, says: Says) -> None:
        self.says, self.asked = says, []

    def generate(self, requests: list[Request], sampling: Sampling) -> Rollouts:
        self.asked.append((requests, sampling.seed))
        parts = []
        for number, request in enumerate(requests):
            for sample in range(request.first, request.first + request.count):
                text = self.says("".join(map(chr, request.prompt)), sample)
                tokens = torch.tensor([encode([text])[0]])
                n = tokens.shape[1]
                one = torch.tensor([number]), torch.tensor([sample]), tokens, torch.tensor([n]), -torch.ones(1, n)
                parts.append(Rollouts(*one, torch.tensor([not text.endswith(END)])))
        return join(parts, sampling)


def row(prompt: str, answer: str, family: str = "op_dag", graph: str = "") -> Row:
    return Row(0, 0, "b", 1, "m", prompt, "", answer, graph, "0", family, "")


def verify(of: Row, text: str) -> Verdict:
    right = text == of.answer
    return Verdict(right, right, float(right), "none" if right else "answer", said=text)


def setting(says: Says, rows: Sequence[Row], seed: int = 0) -> Setting:
    return Setting(ScriptedEngine(says), Sampling(1.0, 1.0, 0, 9, seed, ord(END), 0), encode, decode, rows, verify)


def asked(rows: Sequence[Row], count: int = 1) -> list[Request]:
    return [Request(tokens, 10 + i, 0, count) for i, tokens in enumerate(encode([r.prompt for r in rows]))]


def teach(decoder: Decoder, lessons: Encoded, steps: int) -> None:
    """Train on what the policy writes of each lesson, all of them at each step."""
    count, width = len(lessons.lengths), int(lessons.lengths.max())
    ids = torch.zeros(count, width, dtype=torch.int64)
    for i, tokens in enumerate(np.split(lessons.tokens.astype(np.int64), np.cumsum(lessons.lengths)[:-1])):
        ids[i, : len(tokens)] = torch.from_numpy(tokens)
    places = torch.arange(width)[None]
    own = (places >= torch.from_numpy(lessons.prompts)[:, None]) & (places < torch.from_numpy(lessons.lengths)[:, None])
    adam = torch.optim.Adam(decoder.parameters(), lr=1e-2)
    for _ in range(steps):
        hidden = decoder.hidden(ids, places)
        row, column = own.nonzero(as_tuple=True)
        loss = torch.nn.functional.cross_entropy(decoder.logits(hidden[row, column - 1]), ids[row, column])
        adam.zero_grad()
        loss.backward()
        adam.step()
