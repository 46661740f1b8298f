"""Randomised positions: jumps of the position ids that keep a model from reading the length of a trace off its positions."""

import numpy as np
from tokenizers import Tokenizer

from interplay.schema.train import PositionJumps
from interplay.store.generator import generator


def jumping_tokens(spec: PositionJumps, tokenizer: Tokenizer) -> np.ndarray:
    """Ids of the tokens that may come with a jump; characters that the tokenizer does not know are passed over."""
    ids = [tokenizer.token_to_id(character) for character in spec.characters]
    return np.array([token for token in ids if token is not None], dtype=np.int64)


def jumps(spec: PositionJumps, tokens: np.ndarray, jumping: np.ndarray, seed: int, step: int, steps: int) -> np.ndarray | None:
    """How far positions jump at each of tokens (rows, T) in step 1..steps; None before `start` and where jumps are off.

    A function of seed and step, so that a resumed run draws the same ones."""
    if not spec.probability or step <= spec.start * steps:
        return None
    random = generator("jumps", seed, step)
    hit = np.isin(tokens, jumping) & (random.random(tokens.shape) < spec.probability)
    return hit * random.integers(1, spec.largest + 1, tokens.shape)
