"""Specs of the curation steps of data/steps/turns.py: rows of logged trajectories, libraries of what episodes did, prompts that
begin with entries of them, and rows with tools."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from interplay.core.keys import holds_once
from interplay.core.model import Count, Exact, Natural
from interplay.data.steps.context_spec import SampledSolutions, StepModel
from interplay.tasks.environments.spec import Tools

# Steps that make rows of logged trajectories.


class LoggedTurns(SampledSolutions):
    """Common options of these steps."""

    WRITES_ANEW: ClassVar[bool] = False
    LEAVES_QUESTIONS: ClassVar[bool] = False
    per_prompt: Count = 1
    """Samples of a row that are used, the first; such as differ."""
    keep: Literal["right", "wrong", "all"] = "right"
    """Which of them."""


class ByTurn(LoggedTurns):
    """Each turn of an episode as a row, whose prompt is what came before it: turns to be filtered, weighed or learnt one by one
    (early experience, arXiv:2510.08558, without its reflections)."""

    RUN: ClassVar[str] = "turns:by_turn"
    name: Literal["by_turn"] = "by_turn"


class ToPrompts(LoggedTurns):
    """Episodes cut after a turn and what was read then, as prompts of one turn: multi-turn RL as a bandit over logged contexts
    (Cobalt, in docs/papers.md). For families that judge a completion by itself, in episodes such as retry."""

    RUN: ClassVar[str] = "turns:to_prompts"
    name: Literal["to_prompts"] = "to_prompts"
    keep: Literal["right", "wrong", "all"] = "all"
    cut: Literal["each", "last"] = "each"
    """After each turn but the last, or before the last turn alone."""


class Relabel(LoggedTurns):
    """Samples as solutions of a prompt that says what they came to, right or wrong: hindsight relabelling (arXiv:2302.05206), so
    that failures teach, too, and the right one can be asked for."""

    RUN: ClassVar[str] = "turns:relabel"
    name: Literal["relabel"] = "relabel"
    keep: Literal["right", "wrong", "all"] = "all"
    template: str = Field(default="{reached}{prompt}", pattern=r"\{prompt\}")
    """The prompt; {reached} is one of the words below. In characters that the tokenizer has."""
    right: str = "1"
    """Of a right sample."""
    wrong: str = "0"
    """Of a wrong one."""


class EntryForm(StepModel):
    """Common options of steps whose rows are the entries of a library. The prompt of an entry is the text that it is found by,
    its solution the text that is shown. `entries.parquet` names for each what it was made of."""

    unit: Literal["episode", "turn"] = "episode"
    """episode: one entry of each, found by its prompt; turn: one of each turn, found by what was read before it, which before the
    first is the prompt."""
    entry: Annotated[str, Field(pattern=r"\{said\}|\{last\}")] = "{read}{said}\n"
    """The text, with the fields {read} (what it is found by), {said} (the turn, or all that follows the prompt), {last} (the last
    turn), {prompt}, {answer} (of the row) and {outcome}, one of the words below."""
    right: str = "right"
    """Of a right episode, or of a turn that was paid; of rows without samples."""
    wrong: str = "wrong"
    """Of others."""
    unique: Literal["entry", "text"] = "entry"
    """What counts once: the same text found by the same; or the same text, found by the first of what it was found by."""
    size: Count = 1000
    """Entries at most: those that the most episodes gave; of equally many the first in the order of their texts."""
    shuffled: bool = False
    """Whether each entry is found by what another one is found by, a control: a permutation drawn from the stage's seed."""


class Library(EntryForm):
    """Rows as a library of what their solutions do: of an expert, of a model that wrote them, or of samples that an earlier step
    kept."""

    RUN: ClassVar[str] = "turns:library_of_rows"
    name: Literal["library"] = "library"


class Experience(EntryForm, LoggedTurns):
    """Sampled episodes as a library: what a model did on these rows, filtered by what it came to (the experience of Doctor-R1,
    SLEA-RL and ACE, in docs/papers.md)."""

    RUN: ClassVar[str] = "turns:library_of_samples"
    name: Literal["experience"] = "experience"
    turns: Literal["all", "paid", "unpaid"] = "all"
    """Of unit: turn, which turns of the episodes: all, or those that the environment paid, or did not."""

    @model_validator(mode="after")
    def _paid_turns(self) -> "Experience":
        if self.turns != "all" and self.unit == "episode":
            raise ValueError(f"turns: {self.turns} goes with unit: turn; write unit: turn, or turns: all")
        return self


# Entries of libraries, as prompts begin with them: the same for steps and for contexts of episodes.


LIBRARY = "library"
"""Role of the library that the context of an episode finds entries in."""


class Retrieval(Exact):
    """Which entries of a library a prompt begins with."""

    k: Count = 2
    """Entries at most: as many as are found. A library of fewer is refused."""
    by: Literal["bm25", "key", "random", "first"] = "bm25"
    """bm25: the nearest, by the words of what they are found by (bm25s, the extra `search`); key: those found by the very text;
    random: any, drawn by a key of the text: a control; first: the library's first ones, regardless of the text."""
    shown: Annotated[str, holds_once("{entries}")] = "{entries}"
    """Text before the prompt, with the field {entries}: their texts, the nearest one last, next to the prompt; of `first` in the
    library's order. In characters that the tokenizer has."""
    own: bool = False
    """Whether entries of the row's own problem are shown, too (one of the same structural key)."""
    seed: Natural = 0
    """Key of the draws of by: random."""


class WithEntries(StepModel, Retrieval):
    """Each prompt begins with entries of a library: for models that are to learn to read entries, and for episodes of one turn.
    They are found by the prompt; of a prompt with turns by what was read last. Key `against`: the libraries, read as one in the
    order of their roles."""

    COMPARES: ClassVar[bool] = True
    EDITS: ClassVar[bool] = True
    RUN: ClassVar[str] = "turns:show_entries"
    name: Literal["with_entries"] = "with_entries"


# Tools.


class WithTools(StepModel):
    """Each row with tools (docs/guide/tools.md): an episode `environment` replies to its calls, and the row's own family judges
    its last turn. The solution becomes the transcript of an expert, where the family has one for a tool of the list: op_dag and
    GSM8K for python, bios for sql, questions over documents for search. Rows of text (format text) are documents for the others
    and no questions."""

    WRITES_ANEW: ClassVar[bool] = True
    EDITS: ClassVar[bool] = True
    RUN: ClassVar[str] = "turns:give_tools"
    name: Literal["with_tools"] = "with_tools"
    tools: Tools
    """The tools. The first for which the family has an expert is the one that transcripts use."""
    prompt: Literal["whole", "question"] = "whole"
    """question: without the documents of a question over documents, which are to be searched."""
    instruction: str = ""
    """Begins each prompt: for a model that is to know its tools."""
    price: Annotated[float | None, Field(ge=0, le=1)] = None
    """Each call costs this, and a right answer pays 1, by the turn, for the reward `environment`; null: turns are not paid."""
    without_expert: Literal["keep", "drop"] = "keep"
    """A row without an expert's transcript keeps its own solution, which calls no tool, or is dropped."""
