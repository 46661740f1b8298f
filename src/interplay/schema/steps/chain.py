"""Steps that make long-context problems of multi-hop items (LoongRL, arXiv:2510.19363; RULER's needles)."""

from typing import ClassVar, Literal

from interplay.schema.base import Count, Share
from interplay.schema.steps.step import StepModel


class Keychain(StepModel):
    """Hide each item's question at the end of a chain of keys among distractor chains and documents (KeyChain,
    arXiv:2510.19363)."""

    READS_TOKENIZER: ClassVar[bool] = True
    name: Literal["keychain"] = "keychain"
    n_chains: Count = 8
    """Chains in the context, the true one included."""
    n_hops: Count = 2
    """Keys of a chain, head included; the last one leads to a question."""
    context_tokens: Count = 256
    """Length that the context is filled up to with documents of other items."""
    key_format: Literal["uuid4", "hex8", "short"] = "hex8"
    """uuid4: 36 characters; hex8: 8 hexadecimal digits; short: as few letters and digits as keep all keys apart."""
    distractor_answerable: bool = False
    """Whether the context also holds what the questions of the distractor chains need; without that, the one question that can be
    answered gives itself away."""
    head: bool = True
    """Whether the prompt names the head of the true chain; false: a control that cannot be traced."""
    prevalence: Share = 1.0
    """Share of the rows that become chains; the others get the same context without them."""
