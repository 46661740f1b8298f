"""What specs of curation steps have in common; those of steps that build prompts: long contexts, knowledge conflicts,
decomposition, reformulation."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from interplay.core.keys import ORDERED, Mix
from interplay.core.model import Count, Model, Share, Since


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
    """Whether it leaves the questions unchanged: only such a step may precede one that reads samples, which are samples of the
    input rows."""

    WRITES_ANEW: ClassVar[bool] = False
    """Whether it rewrites prompts or solutions from the gold, or extends them without regard to the surrounding text, so that
    earlier edits would be lost or broken."""
    EDITS: ClassVar[bool] = False
    """Whether its rows have a prompt or a solution that the gold does not give, such as a sampled or a corrupted one."""

    def samples(self) -> int:
        """Samples per row that the step needs, where it reads samples."""
        return 1

    def edits(self) -> bool:
        """`EDITS`, with the step's options as they are."""
        return self.EDITS


class SampledStep(StepModel):
    """Common options of steps that read judged samples of the rows."""

    READS_SAMPLES: ClassVar[bool] = True
    LEAVES_QUESTIONS: ClassVar[bool] = True
    by: Literal["strict", "answer"] = "strict"
    """What counts as right: process and answer, or the answer alone, by any process."""


class SampledSolutions(SampledStep):
    """Common options of steps whose rows have sampled solutions."""

    WRITES_ANEW: ClassVar[bool] = True
    EDITS: ClassVar[bool] = True
    per_prompt: Count = 1
    """Solutions or pairs that a row gives at most, each a row of its own. Samples whose texts are equal count once."""


# Steps that make long-context problems of multi-hop items (LoongRL, arXiv:2510.19363; RULER's needles; LongRLVR,
# arXiv:2603.02146). Added documents and questions come from the other rows of the stage.


KeyFormat = Literal["uuid4", "hex8", "short"]
LEAST_PAIR = 4
"""Least tokens of a key-value pair."""


class ContextStep(StepModel):
    """Common options of long-context steps."""

    WRITES_ANEW: ClassVar[bool] = True
    RUN: ClassVar[str] = "chain:make_contexts"
    style: Literal["published", "terse"] = "published"
    """published: numbered passages and an instruction in prose; terse: the sentences alone and a question line, for tiny
    models."""
    documents: Literal["all", "needed"] = "all"
    """All documents of every item, or only those that its answer needs: then the item's own documents cannot be distinguished
    from those of answerable distractors."""
    placement: Literal["uniform", "gaussian", "start", "end", "spread"] = "uniform"
    """Places of the item's own documents. gaussian: around the middle, as in the published core version; spread: at equal
    distances."""


class FilledStep(ContextStep):
    """Common options of steps that fill a context up to a length, with documents of other items."""

    READS_TOKENIZER: ClassVar[bool] = True
    context_tokens: Count = 256
    """Tokens of the whole prompt, pairs and instruction included."""
    tolerance: Share = 0.02
    """Largest deviation from that length, as a share of it; a row beyond it is dropped and counted."""


class LongContext(FilledStep):
    """Extend each item's documents with documents of other items; the question is unchanged."""

    name: Literal["long_context"] = "long_context"


class Needle(FilledStep):
    """Ask for the value of a key among other pairs distributed over documents (key-value needle retrieval), or for a list, as in
    RULER (arXiv:2404.06654)."""

    name: Literal["needle"] = "needle"
    n_needles: Count = 8
    """Needles in the context, the target included, each a pair or the pairs of a list: 1 is RULER's single needle, more its
    several keys."""
    key_format: KeyFormat = "hex8"
    """Format of keys and values, as for keychain."""
    asks: Annotated[Literal["value", "multi_value", "multi_query", "variables"], Since("value")] = "value"
    """value: the value of a key; multi_value: all values of one; multi_query: the values of several; variables: all variables
    that have a value, where each after the first is assigned the one before it (RULER's variable tracking). A list is right in
    any order; its score is F1."""
    n_asked: Annotated[Count, Since(4)] = 4
    """Length of a list."""
    depths: Annotated[list[Annotated[int, Field(ge=0, le=100)]], Since([])] = []
    """Depths of the target in percent of the documents' text: it is at the sentence end nearest to that. Rows take them in
    turn, and their op becomes the depth, so that tables have columns op:50 and heat maps x: depth. Empty: at random."""

    @model_validator(mode="after")
    def _fits(self) -> "Needle":
        check_room("n_needles", self.n_needles, 1 if self.asks == "value" else self.n_asked, self.context_tokens)
        if self.depths and self.asks != "value":
            raise ValueError("depths: the pairs of a list are at several places; write asks: value, or take depths away")
        return self


class Keychain(FilledStep):
    """Hide each item's question at the end of a chain of keys among distractor chains and documents (KeyChain,
    arXiv:2510.19363)."""

    name: Literal["keychain"] = "keychain"
    chains: Literal["published_4_per_1024_hex8", "published_1_per_1024_uuid4"] | None = None
    """The published rules for the number of chains and the form of keys: four chains per 1,024 tokens (the final pipeline) or
    one (the earlier). n_chains and key_format override them."""
    n_chains: Count | None = None
    """Chains in the context, the true one included; null: as in `chains`, else 8."""
    n_hops: Count = 4
    """Keys of a chain, head included; each is the key of one pair, and the last one leads to a question."""
    key_format: KeyFormat | None = None
    """uuid4: 36 characters; hex8: 8 hexadecimal digits; short: a letter and the fewest digits that give distinct keys; null: as
    in `chains`, else hex8."""
    distractor_answerable: bool = False
    """Whether the context also has the documents that the questions of the distractor chains need; without them, the only
    answerable question gives itself away."""
    head: bool = True
    """Whether the prompt names the head of the true chain; false: a control that cannot be traced."""
    prevalence: Share = 1.0
    """Share of the rows that become chains; the others get a context of the same length without chains, and their plain
    question."""

    @property
    def chain_count(self) -> int:
        """Number of chains, from n_chains or `chains`."""
        if self.n_chains is not None or self.chains is None:
            return self.n_chains or 8
        return max(1, {"4": 4, "1": 1}[self.chains.split("_")[1]] * self.context_tokens // 1024)

    @property
    def keys(self) -> KeyFormat:
        """Format of keys, from key_format or `chains`."""
        return self.key_format or ("uuid4" if self.chains == "published_1_per_1024_uuid4" else "hex8")

    @model_validator(mode="after")
    def _possible(self) -> "Keychain":
        check_room("chains", self.chain_count, self.n_hops, self.context_tokens)
        if self.distractor_answerable and self.chain_count == 1:
            raise ValueError("distractor_answerable needs distractor chains; raise n_chains above 1")
        return self


class Citation(ContextStep):
    """Tag the documents as chunks and ask for the answer and the chunks that it needs (LongRLVR, arXiv:2603.02146)."""

    VERSION: ClassVar[int] = 2
    """2: in terse style a tag follows its chunk."""
    name: Literal["citation"] = "citation"
    n_chunks: Annotated[int, Field(ge=2, le=128)] = 16
    """Chunks, each one document: the item's own, and documents of other items (16 to 128 as published)."""
    tagged_steps: Annotated[bool, Since(False)] = False
    """Whether the gold reasoning names the chunk of each fact after the fact, which a small model can learn: it attends from the
    fact to the tag at the end of its chunk, and copies the list from its own reasoning."""


def check_room(what: str, number: int, hops: int, tokens: int) -> None:
    """Raises ValueError where pairs exceed the context under any tokenizer."""
    least = number * hops * LEAST_PAIR
    if least > tokens:
        raise ValueError(
            f"{number} {what} of {hops} pairs take {least} tokens or more; raise context_tokens above {tokens} or lower {what}"
        )


# Conflicts between a context and memorised facts (KnowPO, arXiv:2408.03297).


Facts = Annotated[int, Field(ge=1, le=64)]


class ConflictPairs(StepModel):
    """Each question about a memorised fact (bios, level parametric) after a context, as a pair. A contradicting context states
    another value, which is the answer; an irrelevant one does not contain the answer, which is then the memorised one. The
    rejected completion gives the memorised answer against the context (contextual ignorance) or another fact of the context
    (contextual over-inclusion). Other rows are dropped and counted. The band is kept, the gold becomes the answer given the
    context, and the verifier names both errors, so a set of this step can be evaluated, too."""

    WRITES_ANEW: ClassVar[bool] = True
    EDITS: ClassVar[bool] = True
    RUN: ClassVar[str] = "conflict:make_conflict_pairs"
    name: Literal["conflict_pairs"] = "conflict_pairs"
    contradicting: Share = 0.5
    """Share of the rows whose context contradicts; the contexts of the others are irrelevant."""
    ignorance: Share = 0.5
    """Of the rows with a contradicting context the share whose rejected completion gives the memorised answer; for the others,
    and for irrelevant contexts, it gives another fact of the context."""
    context: Annotated[tuple[Facts, Facts], ORDERED] = (2, 4)
    """Fewest and most facts of a context, the contradicting one included. Irrelevant facts are invented: in turn the same
    relation of another person, another relation of the same person, and another relation of another person."""
    rewrite: bool = True
    """Whether a memorised answer is written like one from the context, with the fact before the box. False: the box alone, so
    that its length reveals the source of an answer (the imbalance that the paper's rewriting removes)."""

    @model_validator(mode="after")
    def _possible(self) -> "ConflictPairs":
        if self.context[0] < 2 and self.contradicting and self.ignorance < 1:
            raise ValueError("context must have at least 2 facts, one for over-inclusion; or write ignorance: 1")
        return self


# Steps that split a solution: into subproblems, at its first wrong step, into single steps; and one that concatenates several
# attempts. All are of op_dag, whose gold graph defines the parts.


class Subproblems(StepModel):
    """Ask for intermediate values, in order, within one completion (SCRL, arXiv:2605.22074). A question with fewer values than k
    asks for all; one with a single value is dropped."""

    WRITES_ANEW: ClassVar[bool] = True
    RUN: ClassVar[str] = "reformulate:make_subproblems"
    name: Literal["subproblems"] = "subproblems"
    k: Count | Literal["all"] = 4
    """Values to ask for, including the question's own."""


class Intervention(StepModel):
    """For wrong sampled solutions the right step in place of the first wrong one, as rows for SFT (InT, arXiv:2601.14209).
    Excluded are right steps that reveal the final value, and wrong answers without a wrong step."""

    VERSION: ClassVar[int] = 2
    """2: a step that is due to name parents and does not is wrong."""
    READS_SAMPLES: ClassVar[bool] = True
    LEAVES_QUESTIONS: ClassVar[bool] = True
    WRITES_ANEW: ClassVar[bool] = True
    RUN: ClassVar[str] = "reformulate:make_interventions"
    name: Literal["intervention"] = "intervention"
    per_problem: Count = 1
    """Most interventions per problem: the first distinct ones of its wrong samples."""
    prefix: bool = True
    """Whether a row's solution begins with the text before the wrong step; false: the intervention alone."""
    suffix: bool = False
    """Whether the gold continues after it. Without, the solution is unfinished and has no end token, so that the model is not
    trained to stop there."""

    def edits(self) -> bool:
        """An unfinished solution must stay unfinished."""
        return not self.suffix


class Atoms(StepModel):
    """Each step of a solution as a separate problem, whose givens are the inputs of the step. An atom of another split than the
    problem's is dropped and counted."""

    VERSION: ClassVar[int] = 2
    WRITES_ANEW: ClassVar[bool] = True
    RUN: ClassVar[str] = "reformulate:make_atoms"
    name: Literal["atoms"] = "atoms"
    unique: bool = True
    """Drop steps that repeat an earlier one up to names."""


class Units(StepModel):
    """Solutions made of units: whole attempts, each of which ends in an answer, the last of them the gold solution (MinD,
    arXiv:2505.19788). The program writes the attempts before it, where the paper has a language model split long chains of
    thought: some have an error in one operation and continue from it, the others are right already, so that later units repeat
    them. Stages that judge such solutions set the separator, too (`verify.separator`)."""

    LEAVES_QUESTIONS: ClassVar[bool] = True
    WRITES_ANEW: ClassVar[bool] = True
    EDITS: ClassVar[bool] = True
    RUN: ClassVar[str] = "reformulate:make_units"
    name: Literal["units"] = "units"
    shares: Annotated[Mix, Field(min_length=1, max_length=16)] = [0.4, 0.4, 0.2]
    """Share of the rows whose solution has one unit, two, and so on; sums to 1."""
    wrong: Share = 0.5
    """Share of wrong units among those before the last one; the others give the right answer already."""
    separator: Annotated[str, Field(min_length=1)] = "?"
    """Text between units, which the tokenizer encodes and no solution contains: `?` occurs only in prompts of op_dag."""


# Steps that reformulate a question (Cog-DRIFT, arXiv:2604.04767). The stored answer remains the gold value, except for
# true_false; an invalid instance is redrawn a few times, and a row without a valid one is dropped and counted.


Distractors = Literal["same_set", "near"]
Format = Literal["four_choice", "ten_choice", "cloze", "true_false", "open"]


Masked = Annotated[tuple[Share, Annotated[Share, Field(gt=0)]], ORDERED]


class Reformulation(StepModel):
    """Common options of the steps that reformulate a question."""

    WRITES_ANEW: ClassVar[bool] = True
    RUN: ClassVar[str] = "reformulate:reformulate_rows"
    attempts: Count = 8
    """Draws before a row counts as having no valid instance."""


class Choice(Reformulation):
    """An open question as multiple choice. Keys are balanced over the set."""

    VERSION: ClassVar[int] = 2
    name: Literal["choice"] = "choice"
    options: Literal[4, 10] = 4
    """Options of a question, including the right one."""
    distractors: Distractors = "same_set"
    """same_set: answers of other rows; near: other residues where there is a modulus, else whole numbers nearby, at random gaps,
    with balanced ranks of the right one unless that needs a negative number. Never one equal in meaning to the gold."""


class Cloze(Reformulation):
    """An open question with part of its answer shown: digits of a number, letters and digits of words."""

    name: Literal["cloze"] = "cloze"
    masked: Masked = (0.5, 0.8)
    """Smallest and largest share of the characters that are hidden; at least one is hidden and one visible."""


class TrueFalse(Reformulation):
    """An open question as a statement to judge; half of the statements are true."""

    VERSION: ClassVar[int] = 2
    name: Literal["true_false"] = "true_false"
    distractors: Distractors = "same_set"
    """Source of the answer of a false statement, as in `choice`."""


class Ladder(Reformulation):
    """Each question in each format that is valid for it, easiest first, for the sampler format_ladder."""

    VERSION: ClassVar[int] = 2
    name: Literal["ladder"] = "ladder"
    formats: Annotated[list[Format], Field(min_length=1)] = ["four_choice", "ten_choice", "cloze", "open"]
    """From easy to hard, each once."""
    distractors: Distractors = "same_set"
    """As in `choice`."""
    masked: Masked = (0.5, 0.8)
    """As in `cloze`."""

    @model_validator(mode="after")
    def _once(self) -> "Ladder":
        if len(set(self.formats)) != len(self.formats):
            raise ValueError(f"formats must name each format once, not {self.formats}")
        return self
