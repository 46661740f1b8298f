"""Specs of curation steps that build prompts: long contexts, knowledge conflicts, decomposition, reformulation."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from interplay.core.model import Count, Model, Share, Since

# Base of the steps.


class StepModel(Model):
    """A curation step. Class attributes declare what it reads in addition to the rows, which the planner needs."""

    RUN: ClassVar[str]
    """`module:function` below data/steps: `function(spec, rows, inputs) -> StepResult` (data/curate.py)."""
    READS_TOKENIZER: ClassVar[bool] = False
    """Whether it counts tokens."""
    READS_SAMPLES: ClassVar[bool] = False
    """Whether it reads the samples of an evaluation of the rows."""
    COMPARES: ClassVar[bool] = False
    """Whether it compares the rows with other problem sets."""
    LEAVES_QUESTIONS: ClassVar[bool] = False
    """Whether the rows that it leaves ask what they asked before: only such a step may stand before one that reads samples, which
    are samples of the rows as they came."""

    WRITES_ANEW: ClassVar[bool] = False
    """Whether it writes prompts or solutions from the gold, or adds to them as if nothing stood around them: what `edits` says
    would be lost or broken."""

    @property
    def edits(self) -> bool:
        """Whether it alters a prompt or a solution in a way that the gold does not know of."""
        return False

    def samples(self) -> int:
        """Samples that each row needs, of a step that reads any."""
        return 1


# Steps that make long-context problems of multi-hop items (LoongRL, arXiv:2510.19363; RULER's needles; LongRLVR,
# arXiv:2603.02146). The documents and questions that they add come from the other rows of the stage.


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
    RUN: ClassVar[str] = "chain:make_long_contexts"
    name: Literal["long_context"] = "long_context"
    context_tokens: Count = 256
    """Tokens of the whole prompt."""
    tolerance: Share = 0.02
    """How far a prompt may be from that, as a share of it; a row that cannot come so near is dropped and counted."""


class Needle(ContextStep):
    """Ask for the value of a key among other pairs strewn over documents (key-value needle retrieval)."""

    READS_TOKENIZER: ClassVar[bool] = True
    RUN: ClassVar[str] = "chain:make_needles"
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
    RUN: ClassVar[str] = "chain:make_keychains"
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
    RUN: ClassVar[str] = "chain:make_citations"
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


# The step that sets contexts against what a model knows by heart (KnowPO, arXiv:2408.03297).


Facts = Annotated[int, Field(ge=1, le=64)]


class ConflictPairs(StepModel):
    """Each question about a fact that is learnt by heart (bios, level parametric) behind a context, as a pair. A contradicting
    context states another value and is to be followed; an irrelevant one does not say what is asked, and the answer is the one
    known by heart. What is rejected either answers by heart where the context says otherwise (contextual ignorance) or with
    another fact of the context (contextual over-inclusion). Other rows are dropped and counted. The band stays, the gold becomes
    the answer that is to be given, and the judge tells both errors by name: a set made by this step is an evaluation, too."""

    WRITES_ANEW: ClassVar[bool] = True
    RUN: ClassVar[str] = "conflict:make_conflict_pairs"
    name: Literal["conflict_pairs"] = "conflict_pairs"
    contradicting: Share = 0.5
    """Share of the rows whose context contradicts; the others' is irrelevant."""
    ignorance: Share = 0.5
    """Of the rows whose context contradicts the share whose rejected completion answers by heart; that of the others takes
    another fact of the context. Behind irrelevant contexts it always does."""
    context: tuple[Facts, Facts] = (2, 4)
    """Fewest and most facts of a context, the contradicting one included. The irrelevant ones are invented: first the same
    relation of somebody else, then another one of the same person, then another one of somebody else, and so on."""
    rewrite: bool = True
    """Whether an answer by heart is written as one from the context is, with the fact before the box. False: the box alone, so
    that its length tells where an answer comes from (the imbalance that the paper's rewriting takes away)."""

    @model_validator(mode="after")
    def _possible(self) -> "ConflictPairs":
        low, high = self.context
        if low > high:
            raise ValueError(f"context must be [low, high] with low <= high, not {list(self.context)}")
        if low < 2 and self.contradicting and self.ignorance < 1:
            raise ValueError("context must have 2 facts at least, one of which over-inclusion takes; or write ignorance: 1")
        return self

    @property
    def edits(self) -> bool:
        """The rows' own gold does not know the context."""
        return True


# Steps that take a solution apart: into subproblems, at its first wrong step, into single steps; and one that puts several
# attempts together. All of op_dag, whose gold graph says what each part is.


class Subproblems(StepModel):
    """Ask intermediate values, in order, within one completion (SCRL, arXiv:2605.22074). A question about fewer values than k
    asks all; one about a single value is dropped."""

    WRITES_ANEW: ClassVar[bool] = True
    RUN: ClassVar[str] = "decompose:make_subproblems"
    name: Literal["subproblems"] = "subproblems"
    k: Count | Literal["all"] = 4
    """Values that are asked, the question's own included."""


class Intervention(StepModel):
    """For wrong sampled solutions the right step in place of the first wrong one, as rows for SFT (InT, arXiv:2601.14209). A
    right step that gives the final value away is no intervention; neither are wrong answers without a wrong step."""

    READS_SAMPLES: ClassVar[bool] = True
    LEAVES_QUESTIONS: ClassVar[bool] = True
    WRITES_ANEW: ClassVar[bool] = True
    RUN: ClassVar[str] = "decompose:make_interventions"
    name: Literal["intervention"] = "intervention"
    per_problem: Count = 1
    """Interventions that a problem gives at most: the first of its wrong samples that differ."""
    prefix: bool = True
    """Whether a row's solution begins with what stood before the wrong step; false: the intervention alone."""
    suffix: bool = False
    """Whether the gold goes on after it. Without, the solution is unfinished and has no end token, so that nothing teaches the
    model to stop there."""

    @property
    def edits(self) -> bool:
        """An unfinished solution must stay so."""
        return not self.suffix


class Atoms(StepModel):
    """Each step of a solution as a problem of its own, whose givens are the values that the step reads. One that belongs to
    another split than the whole problem is dropped and counted."""

    VERSION: ClassVar[int] = 2
    WRITES_ANEW: ClassVar[bool] = True
    RUN: ClassVar[str] = "decompose:make_atoms"
    name: Literal["atoms"] = "atoms"
    unique: bool = True
    """Leave out steps that an earlier row's is equal to, up to names."""


class Units(StepModel):
    """Solutions made of units: whole attempts, each of which ends in an answer, the last of them the gold solution (MinD,
    arXiv:2505.19788). The program writes the attempts before it, where the paper has a language model take long chains of thought
    apart: some err in one operation and go on from there, the others are right already, so that what follows only repeats them.
    Who judges such solutions names the separator, too (`verify.separator`)."""

    LEAVES_QUESTIONS: ClassVar[bool] = True
    WRITES_ANEW: ClassVar[bool] = True
    RUN: ClassVar[str] = "decompose:make_units"
    name: Literal["units"] = "units"
    shares: Annotated[list[Share], Field(min_length=1, max_length=16)] = [0.4, 0.4, 0.2]
    """Share of the rows whose solution has one unit, two, and so on; sums to 1."""
    wrong: Share = 0.5
    """Of the units before the last one the share that err; the others give the right answer already."""
    separator: Annotated[str, Field(min_length=1)] = "?"
    """Text between units, which the tokenizer knows and no solution holds: `?` stands in the prompts of op_dag alone."""

    @field_validator("shares")
    @classmethod
    def _whole(cls, value: list[float]) -> list[float]:
        if abs(sum(value) - 1) > 1e-6:
            raise ValueError(f"must sum to 1, not {sum(value):g}")
        return value

    @property
    def edits(self) -> bool:
        """The rows' own gold has one unit."""
        return True


# Steps that put a question into another form (Cog-DRIFT, arXiv:2604.04767). The stored answer stays the gold value, but for
# true_false; an instance that is not valid is drawn again a few times, and what stays invalid is dropped and counted.


Distractors = Literal["same_set", "near"]
Format = Literal["four_choice", "ten_choice", "cloze", "true_false", "open"]


class Choice(StepModel):
    """An open question as multiple choice. Each key is right equally often over the set."""

    VERSION: ClassVar[int] = 2
    WRITES_ANEW: ClassVar[bool] = True
    RUN: ClassVar[str] = "reformulate:make_choices"
    name: Literal["choice"] = "choice"
    options: Literal[4, 10] = 4
    """Options of a question, the right one included."""
    distractors: Distractors = "same_set"
    """same_set: answers of other rows; near: other residues where there is a modulus, else whole numbers nearby, at random gaps,
    the right one equally often at each rank as far as no number below 0 is needed. Never one that means the same as the gold."""
    attempts: Count = 8
    """Draws before a row counts as having no valid instance."""


class Cloze(StepModel):
    """An open question with part of its answer shown: digits of a number, letters and digits of words."""

    WRITES_ANEW: ClassVar[bool] = True
    RUN: ClassVar[str] = "reformulate:make_clozes"
    name: Literal["cloze"] = "cloze"
    masked: tuple[Share, Share] = (0.5, 0.8)
    """Smallest and largest share of the characters that are hidden; at least one is hidden and at least one is visible."""
    attempts: Count = 8
    """Draws before a row counts as having no valid instance."""

    @model_validator(mode="after")
    def _ordered(self) -> "Cloze":
        if self.masked[0] > self.masked[1] or not self.masked[1]:
            raise ValueError(f"masked must be [low, high] with low <= high and 0 < high, not {list(self.masked)}")
        return self


class TrueFalse(StepModel):
    """An open question as a statement to judge; half of the statements hold."""

    VERSION: ClassVar[int] = 2
    WRITES_ANEW: ClassVar[bool] = True
    RUN: ClassVar[str] = "reformulate:make_statements"
    name: Literal["true_false"] = "true_false"
    distractors: Distractors = "same_set"
    """Where the answer of a statement that does not hold comes from, as in `choice`."""
    attempts: Count = 8
    """Draws before a row counts as having no valid instance."""


class Ladder(StepModel):
    """Each question in each format that is valid for it, easiest first: what the format_ladder sampler climbs."""

    VERSION: ClassVar[int] = 2
    WRITES_ANEW: ClassVar[bool] = True
    RUN: ClassVar[str] = "reformulate:make_ladders"
    name: Literal["ladder"] = "ladder"
    formats: Annotated[list[Format], Field(min_length=1)] = ["four_choice", "ten_choice", "cloze", "open"]
    """From easy to hard, each once."""
    distractors: Distractors = "same_set"
    """As in `choice`."""
    masked: tuple[Share, Share] = (0.5, 0.8)
    """As in `cloze`."""
    attempts: Count = 8
    """Draws before a row counts as having no valid instance."""

    @model_validator(mode="after")
    def _once(self) -> "Ladder":
        if len(set(self.formats)) != len(self.formats):
            raise ValueError(f"formats must name each format once, not {self.formats}")
        Cloze(masked=self.masked)
        return self
