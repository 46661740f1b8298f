"""How completions are judged."""

from typing import Literal

from interplay.schema.base import Model


class Verify(Model):
    """How a completion is judged against the gold graph."""

    operator: bool = False
    """Also demand the gold operator in each step (the published verifier compares parents and value only)."""
    extra_nodes: Literal["free", "penalised"] = "free"
    """Whether steps for nodes that the goal does not need forfeit strictness (the published evaluator forgives them, the released
    reward does not)."""
