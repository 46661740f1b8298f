"""Steps that make long-context problems of multi-hop items (LoongRL, arXiv:2510.19363; RULER's needles; LongRLVR,
arXiv:2603.02146). The documents and questions that they add come from the other rows of the stage."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from interplay.schema.base import Count, Share, Since
from interplay.schema.steps.step import StepModel

KeyFormat = Literal["uuid4", "hex8", "short"]
LEAST_PAIR = 4
"""Tokens that no pair of a key and a value is shorter than."""


class ContextStep(StepModel):
    """What all of them choose."""

    WRITES_ANEW: ClassVar[bool] = True
    style: Literal["published", "terse"] = "published"
    """published: numbered passages and an instruction in prose; terse: the sentences alone and a line that asks, for tiny
    models."""
    documents: Literal["all", "needed"] = "all"
    """Of every item all its documents, or only those that its answer needs: then nothing tells the item's own documents from
    those of the distractors that can be answered."""
    placement: Literal["uniform", "gaussian", "start", "end", "spread"] = "uniform"
    """Where the item's own documents stand. gaussian: around the middle, as in the published core version; spread: at equal
    distances."""


class LongContext(ContextStep):
    """Fill each item's documents up with documents of other items; the question is asked plainly."""

    READS_TOKENIZER: ClassVar[bool] = True
    name: Literal["long_context"] = "long_context"
    context_tokens: Count = 256
    """Tokens of the whole prompt."""
    tolerance: Share = 0.02
    """How far a prompt may be from that, as a share of it; a row that cannot come so near is dropped and counted."""


class Needle(ContextStep):
    """Ask for the value of a key among other pairs strewn over documents (key-value needle retrieval)."""

    READS_TOKENIZER: ClassVar[bool] = True
    name: Literal["needle"] = "needle"
    context_tokens: Count = 256
    """Tokens of the whole prompt."""
    tolerance: Share = 0.02
    """How far a prompt may be from that, as a share of it."""
    n_needles: Count = 8
    """Pairs in the context, the one asked for included."""
    key_format: KeyFormat = "hex8"
    """What keys and values look like, as for keychain."""

    @model_validator(mode="after")
    def _fits(self) -> "Needle":
        check_room("n_needles", self.n_needles, 1, self.context_tokens)
        return self


class Keychain(ContextStep):
    """Hide each item's question at the end of a chain of keys among distractor chains and documents (KeyChain,
    arXiv:2510.19363)."""

    READS_TOKENIZER: ClassVar[bool] = True
    name: Literal["keychain"] = "keychain"
    context_tokens: Count = 256
    """Tokens of the whole prompt, pairs and instruction included: filled up with documents of other items."""
    tolerance: Share = 0.02
    """How far a prompt may be from that, as a share of it; a row that cannot come so near is dropped and counted."""
    chains: Literal["published_4_per_1024_hex8", "published_1_per_1024_uuid4"] | None = None
    """The published rules for the number of chains and the form of keys: four chains per 1,024 tokens (the final pipeline) or
    one (the earlier). n_chains and key_format override them."""
    n_chains: Count | None = None
    """Chains in the context, the true one included; null: what `chains` says, else 8."""
    n_hops: Count = 4
    """Keys of a chain, head included; each is the key of one pair, and the last one leads to a question."""
    key_format: KeyFormat | None = None
    """uuid4: 36 characters; hex8: 8 hexadecimal digits; short: a letter and as few digits as keep all keys apart; null: what
    `chains` says, else hex8."""
    distractor_answerable: bool = False
    """Whether the context also holds what the questions of the distractor chains need; without that, the one question that can
    be answered gives itself away."""
    head: bool = True
    """Whether the prompt names the head of the true chain; false: a control that cannot be traced."""
    prevalence: Share = 1.0
    """Share of the rows that become chains; the others get a context of the same length without them, and their question
    plainly."""

    @property
    def chain_count(self) -> int:
        """Chains, whoever says how many."""
        if self.n_chains is not None or self.chains is None:
            return self.n_chains or 8
        return max(1, {"4": 4, "1": 1}[self.chains.split("_")[1]] * self.context_tokens // 1024)

    @property
    def keys(self) -> KeyFormat:
        """The form of keys, whoever says which."""
        return self.key_format or ("uuid4" if self.chains == "published_1_per_1024_uuid4" else "hex8")

    @model_validator(mode="after")
    def _possible(self) -> "Keychain":
        check_room("chains", self.chain_count, self.n_hops, self.context_tokens)
        if self.distractor_answerable and self.chain_count == 1:
            raise ValueError("distractor_answerable needs distractor chains; raise n_chains above 1")
        return self


class Citation(ContextStep):
    """Tag the documents as chunks and ask for those that the answer needs beside it (LongRLVR, arXiv:2603.02146)."""

    VERSION: ClassVar[int] = 2
    """2: in terse style a tag stands behind its chunk."""
    name: Literal["citation"] = "citation"
    n_chunks: Annotated[int, Field(ge=2, le=128)] = 16
    """Chunks, each one document: the item's own, and documents of other items (16 to 128 as published)."""
    tagged_steps: Annotated[bool, Since(False)] = False
    """Whether the gold reasoning names the chunk of each fact behind the fact: what a small model can learn, as it reads on from
    the fact to the tag of the chunk that ends there, and copies the list from its own reasoning."""


def check_room(what: str, number: int, hops: int, tokens: int) -> None:
    """Refuse more pairs than a context can hold, whatever the tokenizer. Raises ValueError."""
    least = number * hops * LEAST_PAIR
    if least > tokens:
        raise ValueError(
            f"{number} {what} of {hops} pairs take {least} tokens or more; raise context_tokens above {tokens} or ask for fewer"
        )
