"""The op_dag family: arithmetic over a dependency graph."""

from typing import Annotated, Literal

from pydantic import field_validator, model_validator

from interplay.core.model import Count, Model, Natural, Since
from interplay.core.references import check_mix

Range = tuple[Natural, Natural]
LARGEST_PRIME = 1_000_000


class OpDag(Model):
    """Arithmetic over a dependency graph. Difficulty `op` = edges of the necessary graph, a constant counting as one
    (Interplay, arXiv:2512.07783, section 2; GSM-Infinite)."""

    name: Literal["op_dag"] = "op_dag"
    modulus: int | None = 7
    """Values are integers modulo this prime; null for plain integers."""
    operators: str = "+-*"
    """Operators that definitions may use, any of + - *."""
    letters: int = 26
    """Size of the alphabet that names nodes, at most 52 (a-z, then A-Z)."""
    contexts: Annotated[Count, Since(1)] = 1
    """Contexts: disjoint alphabets of `letters` letters each, at most 52 letters in all. A tokenizer of the task has the letters
    of all contexts, so that sets of one study in different contexts share it."""
    context: Annotated[Natural, Since(0)] = 0
    """The context whose alphabet names the nodes, counted from 0. At one (seed, index, op) the problems of two contexts differ in
    names only and count as the same problem: they belong to the same split, and steps that compare by `renamed` or
    `structural` treat them as duplicates. Sets that should not be translations of each other need different seeds."""
    trace: Literal["goal_first", "leaf_first"] = "goal_first"
    """Order of the gold solution: unfold the goal down to the leaves and then evaluate upwards, or evaluate from the leaves
    (as published)."""
    modes: dict[Literal["forward", "reverse"], float] = {"forward": 1.0}
    """Share of problems that ask the value of the goal (forward) or of an unknown leaf, given the goal's value (reverse)."""
    max_parents: Count = 2
    """Most parents that one definition reads."""
    branching: float = 0.3
    """Tendency to open a new leaf rather than extend a chain, in [0, 1]: 0 gives chains, 1 wide trees."""
    copies: float = 0.15
    """Tendency of a bare copy (one edge, no operator), in [0, 1]: with copies, the number of nodes and the depth vary at equal
    op. At 0 a copy occurs only where the exact op needs it."""
    constants: Range = (1, 4)
    """Constants are drawn uniformly from this closed range (leaf values, addends, factors)."""
    max_value: Count = 1000
    """Without a modulus, no value of a necessary node leaves [0, max_value]."""
    distractors: Range = (0, 4)
    """Closed range of the number of definitions that the goal does not need, drawn independently of op."""
    filler: Range = (0, 0)
    """Closed range of the number of neutral characters between definitions, drawn independently of op. It varies the prompt
    length, so that no op has an unseen prompt shape."""

    @field_validator("modulus")
    @classmethod
    def _prime(cls, value: int | None) -> int | None:
        if value is not None and (not 2 <= value <= LARGEST_PRIME or any(value % k == 0 for k in range(2, int(value**0.5) + 1))):
            raise ValueError(f"must be a prime up to {LARGEST_PRIME}, or null for integers")
        return value

    @field_validator("operators")
    @classmethod
    def _known_operators(cls, value: str) -> str:
        if not value or set(value) - set("+-*"):
            raise ValueError("must be made of + - *")
        return value

    @field_validator("modes")
    @classmethod
    def _modes_sum(cls, value: dict) -> dict:
        return check_mix(value, "modes")

    @model_validator(mode="after")
    def _ranges(self) -> "OpDag":
        for name in ("constants", "distractors", "filler"):
            low, high = getattr(self, name)
            if not 0 <= low <= high:
                raise ValueError(f"{name} must be [low, high] with 0 <= low <= high, not {[low, high]}")
        low, high = self.constants
        if self.modulus is not None and high >= self.modulus:
            raise ValueError(f"constants must be residues below the modulus {self.modulus}, not up to {high}")
        if self.modulus is None and low > self.max_value:
            raise ValueError(f"constants start at {low}, above max_value {self.max_value}")
        for name in ("branching", "copies"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie in [0, 1], not {getattr(self, name)}")
        if not 1 <= self.letters <= 52:
            raise ValueError(f"letters must lie in 1..52, not {self.letters}")
        if self.letters * self.contexts > 52:
            raise ValueError(f"contexts: {self.contexts} alphabets of {self.letters} letters; there are 52 letters in all")
        if self.context >= self.contexts:
            raise ValueError(f"context = {self.context}: contexts = {self.contexts}, so it must lie in 0..{self.contexts - 1}")
        return self

    def ops(self) -> Range:
        """Smallest and largest op that the alphabet can name: at worst one node per edge (chains of copies are never drawn)."""
        return (1, self.letters - self.distractors[1])
