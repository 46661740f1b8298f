"""How completions are judged."""

from typing import Annotated, Literal

from interplay.schema.base import Model, Since


class Verify(Model):
    """How a completion is judged against the gold graph."""

    operator: bool = False
    """Also demand the gold operator in each step (the published verifier compares parents and value only)."""
    extra_nodes: Literal["free", "penalised"] = "free"
    """Whether steps for nodes that the goal does not need forfeit strictness (the published evaluator forgives them, the released
    reward does not)."""
    separator: Annotated[str, Since("")] = ""
    """Text between the units of a completion, each a whole attempt with an answer (MinD, arXiv:2505.19788): the last one is
    judged, as if nothing stood before it. Empty: a completion is one attempt."""
