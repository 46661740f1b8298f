"""Batches of rollouts, and what else a member of a seam reads: the step, its progress, and state kept from earlier steps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.functional import pad

from interplay.core.random import generator
from interplay.data.trajectory import Segment
from interplay.kernels import exact
from interplay.rl import advantage_spec, edit_spec, request_spec
from interplay.rl.spec import Method
from interplay.rollout.request import select_rows, unpadded
from interplay.tasks.verdict import Row, Verdict

# Parts of completions with rewards of their own: in characters as the judge of a completion knows them, in tokens as the policy
# learns from them.


class Span(NamedTuple):
    """A part of one completion, start..end-1, in characters or in tokens. An empty one earns its value and credits no token:
    where the format of a completion is broken, its spans count as wrong among those of the group."""

    start: int
    end: int
    position: int
    """Which of the things asked for it answers; only spans of one position are comparable."""
    value: float


WHOLE = 1 << 30
"""End of a span that holds the end token, too."""


def to_tokens(tokenizer: Tokenizer, tokens: Sequence[int], text: str, spans: Sequence[Span]) -> list[Span]:
    """The spans of a completion in tokens: a token belongs to the span that its first character lies in. `tokens` decode to
    `text`; an end token, which decodes to nothing, follows the last character."""
    starts = offsets(tokenizer, tokens, text)
    made = []
    for span in spans:
        inside = [place for place, start in enumerate(starts) if span.start <= start < span.end]
        made.append(span._replace(start=inside[0] if inside else 0, end=inside[-1] + 1 if inside else 0))
    return made


def offsets(tokenizer: Tokenizer, tokens: Sequence[int], text: str) -> list[int]:
    """First character of each token. Exact where the texts of single tokens add up to the whole; else by decoding every prefix,
    where a character of several tokens counts to the last of them."""
    pieces = tokenizer.decode_batch([[token] for token in tokens])
    if "".join(pieces) != text:
        pieces = _increments(tokenizer, tokens)
    starts, place = [], 0
    for piece in pieces:
        starts.append(place)
        place += len(piece)
    return starts


def _increments(tokenizer: Tokenizer, tokens: Sequence[int]) -> list[str]:
    """What each token adds to the text of those before it."""
    texts = tokenizer.decode_batch([list(tokens[: n + 1]) for n in range(len(tokens))])
    lengths = [0, *(len(text.rstrip("\N{REPLACEMENT CHARACTER}")) for text in texts)]
    return [text[low:high] for text, low, high in zip(texts, lengths, lengths[1:], strict=False)]


# What one step works on: N completions in groups, with their verdicts and rewards, as arrays over rows.


@dataclass(frozen=True)
class Batch:
    """N rows; T is the length of the longest completion."""

    row: Tensor
    """(N,) int64: number of the row among all that the step drew, before edits dropped any; -1: an edit added it."""
    ids: Tensor
    """(N,) int64: prompt, as a row of the problem sets joined in the order of their roles."""
    groups: Tensor
    """(N,) int64: rows with one number were drawn from one prompt and are compared with each other."""
    prompts: list[list[int]]
    """N token lists: what the completions are credited to."""
    tokens: Tensor
    """(N,T) int64: completions with their end token, padded; of several turns, all of them and what was read between them."""
    lengths: Tensor
    """(N,) int64: tokens of each row."""
    logprobs: Tensor
    """(N,T) float32: of each token under the policy that sampled it; 0 of what was read."""
    truncated: Tensor
    """(N,) bool: the length limit cut it."""
    completions: list[str]
    """N texts; of several turns, all that was written and read."""
    verdicts: list[Verdict]
    """N judgements."""
    right: Tensor
    """(N,) bool: right by the verdict that the run's reward is about, strict or answer (reward_spec.RewardMember)."""
    rewards: Tensor
    """(N,) float64: how much each is worth, which never says what is right."""
    parts: dict[str, Tensor]
    """What the rewards were made of, each (N,) float64."""
    spans: list[list[Span]] | None = None
    """For each row its parts that have rewards of their own, in tokens; None where the reward judges whole completions. Where
    episodes have turns, these are the parts: each with its number as its position."""
    off_policy: Tensor | None = None
    """(N,) bool: rows that another policy made, or that were sampled from another text than they are credited to; None: none.
    Their `logprobs` are those of what made them."""
    excluded: Tensor | None = None
    """(N,) bool: rows whose rewards stay out of the statistics of their group; None: none."""
    values: Tensor | None = None
    """(N,T) float32: what the critic says of the state before each token; None: there is none."""
    unfinished: Tensor | None = None
    """(N,) bool: rows that a later step goes on with, whose rewards are not known yet; None: none."""
    expected: Tensor | None = None
    """(N,) float64: the pass rate that the sampler expected of the prompt before it saw this group; None: it expects nothing."""
    observed: Tensor | None = None
    """(N,T) bool: tokens that the policy read and did not write; None: it wrote all."""
    turns: list[list[Verdict | None]] | None = None
    """For each row what its turns are worth, one for each of its spans, None for a turn that answers nothing; None: episodes have
    one turn."""
    segments: list[tuple[Segment, ...]] | None = None
    """For each row its episode, segment by segment; None: episodes have one turn."""
    shown: Tensor | None = None
    """(N,) float64: the reward of the own attempt that a row's prompt shows last, NaN where it shows none; None: none does."""
    seats: Tensor | None = None
    """(N,) int64: whose turns a row holds in a game; None: there is one seat."""
    steps: Tensor | None = None
    """(N,T) int64: number of the step of its row that a token belongs to; None: rows are not cut into steps."""
    shaped: Tensor | None = None
    """(N,T) float64: what shapings added, at the tokens that it came with: a term of a whole completion at its last one. It is
    part of `rewards`, and of what turns are worth. None: nothing."""
    teacher: list[list[int]] | None = None
    """N token lists: what a teacher reads before each completion, the row's own prompt where it has nothing to say; None: there
    is no teacher."""

    def __len__(self) -> int:
        return len(self.row)

    def mask(self) -> Tensor:
        """(N,T) bool: the places that hold a token that the policy wrote."""
        inside = torch.arange(self.tokens.shape[1]) < self.lengths[:, None]
        return inside if self.observed is None else inside & ~self.observed

    def written(self) -> list[list[int]]:
        """Tokens of each row without what pads it."""
        return unpadded(self.tokens, self.lengths)

    def last(self) -> Tensor:
        """(N,) int64: the place of the last token that the policy wrote."""
        return (self.mask() * torch.arange(1, self.tokens.shape[1] + 1)).argmax(1)

    def num_action_tokens(self) -> Tensor:
        """(N,) int64: tokens that the policy wrote."""
        return self.lengths if self.observed is None else self.mask().sum(1)

    def sampled_now(self) -> Tensor:
        """(N,) bool: rows that the policy itself wrote in this step, from the text that they are credited to."""
        own = self.row >= 0
        return own if self.off_policy is None else own & ~self.off_policy

    def finished(self) -> Tensor:
        """(N,) bool: rows whose rewards are known."""
        return torch.ones(len(self), dtype=torch.bool) if self.unfinished is None else ~self.unfinished

    def baseline_mask(self) -> Tensor:
        """(N,) bool: rows whose rewards count in the statistics of their group."""
        return torch.ones(len(self), dtype=torch.bool) if self.excluded is None else ~self.excluded


def has_teacher(batch: Batch) -> Tensor:
    """(N,) bool: rows of which a teacher has something to say."""
    if batch.teacher is None:
        return torch.zeros(len(batch), dtype=torch.bool)
    return torch.tensor([t != p for t, p in zip(batch.teacher, batch.prompts, strict=True)], dtype=torch.bool)


def first_turns(batch: Batch) -> Tensor:
    """(N,T) bool: tokens of an episode's first turn; all that was written where episodes have one."""
    if batch.turns is None or batch.spans is None:
        return batch.mask()
    found = torch.zeros(batch.tokens.shape, dtype=torch.bool)
    for row, spans in enumerate(batch.spans):
        for span in spans:
            if span.position == 0:
                found[row, span.start : span.end] = True
    return found


def numbered_turns(batch: Batch) -> Tensor:
    """(N,T) int64: the number of the turn that a token belongs to; 0 of what was read."""
    found = torch.zeros(batch.tokens.shape, dtype=torch.int64)
    for row, spans in enumerate(batch.spans or []):
        for span in spans:
            found[row, span.start : span.end] = span.position
    return found


def take(batch: Batch, rows: Tensor) -> Batch:
    """The given rows (M,) int64, in that order."""
    return Batch(**{field.name: select_rows(getattr(batch, field.name), rows) for field in fields(Batch)})


def join(batches: Sequence[Batch], pad_token: int, same_groups: bool = False) -> Batch:
    """All rows one after another. Groups of different batches stay different, unless `same_groups` says that equal numbers mean
    one group."""
    longest = max(batch.tokens.shape[1] for batch in batches)
    starts = torch.tensor([0] + [int(batch.groups.max()) + 1 if len(batch) else 0 for batch in batches[:-1]]).cumsum(0)

    def all_of(name: str) -> Any:
        values = [getattr(batch, name) for batch in batches]
        if name == "groups" and not same_groups:
            return torch.cat([value + start for value, start in zip(values, starts, strict=True)])
        if name in _UNSET and any(value is not None for value in values):
            shapes = [batch.tokens.shape if name in ("observed", "shaped") else (len(batch),) for batch in batches]
            values = [torch.full(shape, _UNSET[name]) if v is None else v for shape, v in zip(shapes, values, strict=True)]
        return _joined(values, longest, pad_token if name == "tokens" else 0)

    return Batch(**{field.name: all_of(field.name) for field in fields(Batch)})


_UNSET = {
    "observed": False,
    "shaped": 0.0,
    "off_policy": False,
    "excluded": False,
    "unfinished": False,
    "expected": float("nan"),
    "shown": float("nan"),
    "seats": 0,
}
"""What a row holds where its batch says nothing and another does."""


def _joined(values: list[Any], longest: int, filler: int) -> Any:
    """Fields of several batches as one; those over places are filled up to the longest. What one of them does not say is said of
    none."""
    first = values[0]
    if any(value is None for value in values):
        return None
    if isinstance(first, dict):
        return {name: torch.cat([value[name] for value in values]) for name in first}
    if isinstance(first, list):
        return [item for value in values for item in value]
    if first.dim() == 2:
        return torch.cat([pad(value, (0, longest - value.shape[1]), value=filler) for value in values])
    return torch.cat(values)


# What a loss reads of it.


class MicroBatch(NamedTuple):
    """What a loss sees of a micro-batch: n rows, T places. All but `mask` are 0 or anything where that is False."""

    logp: Tensor
    """(n,T) float32 under the policy that is trained, with its gradient."""
    old_logp: Tensor
    """(n,T) under the policy before the first update of this batch; for rows of another policy or text, under that."""
    advantage: Tensor
    """(n,T)."""
    mask: Tensor
    """(n,T) bool: tokens that bear loss."""
    reference: Tensor | None = None
    """(n,T) under the reference model, where there is one; the weighted mean of several."""
    prepared: Mapping[str, Tensor] = MappingProxyType({})
    """What the loss read off the whole optimiser step, (n,T) each."""
    divergence: Tensor | None = None
    """(n,T) of the policy from its teacher, with its gradient, 0 where that says nothing; there where the loss has a teacher."""
    sampled: Tensor | None = None
    """(n,T) as the engine reported it where it sampled the row in this step, elsewhere `old_logp`; None: `old_logp`
    everywhere."""
    by: exact.Functions = exact.FAST
    """What it is computed with."""
    references: Sequence[tuple[float, Tensor]] = ()
    """For each reference its weight and (n,T) under it."""


class FullBatch(NamedTuple):
    """All that one optimiser step trains on, before it is cut: what a loss reads whose weight of a token depends on other tokens
    or rows. N rows, T places, without gradients."""

    logp: Tensor
    """(N,T) under the present policy."""
    old_logp: Tensor
    """(N,T), as in `MicroBatch`."""
    entropy: Tensor
    """(N,T) in nats of the distribution that each token came from."""
    advantage: Tensor
    """(N,T)."""
    mask: Tensor
    """(N,T) bool."""
    groups: Tensor
    """(N,) int64."""
    right: Tensor
    """(N,) bool."""
    noise: Tensor
    """(N,T) float64 in [0, 1), by seed and step: what is drawn at random is drawn by this."""
    by: exact.Functions = exact.FAST


# What a member reads in addition to the batch.


class Memory:
    """What members keep from step to step: tensors and JSON data by name, saved with every checkpoint. A name begins with that
    of its member, so that no two share one by chance."""

    def __init__(self, prompts: int) -> None:
        self.prompts = prompts
        """How many rows the problem sets have; an id is less than this."""
        self.tensors: dict[str, Tensor] = {}
        self.notes: dict[str, Any] = {}
        """JSON data; keys of mappings are strings."""

    def per_prompt(self, name: str, start: float) -> Tensor:
        """(P,) float64, one value for each prompt, `start` before anything was written; writing to it is remembered."""
        if name not in self.tensors:
            self.tensors[name] = torch.full((self.prompts,), start, dtype=torch.float64)
        return self.tensors[name]

    def load(self, notes: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go on where both were taken."""
        self.notes, self.tensors = notes, {name: tensor.clone() for name, tensor in tensors.items()}


def _not_here(*_: Any) -> Any:
    raise RuntimeError("this seam is asked where there is nothing to draw from or to pass forward")


class Seams(NamedTuple):
    """The members of a method that a step reads next to the loss, which the learner alone has."""

    allocation: request_spec.Allocation
    prompting: request_spec.Prompting
    continuation: request_spec.Continuation
    shaping: list[edit_spec.Shaping]
    edits: list[edit_spec.Edit]
    advantage: advantage_spec.Advantage


def seams_of(method: Method) -> Seams:
    """Those of a method."""
    return Seams(*(getattr(method, name) for name in Seams._fields))


@dataclass(frozen=True)
class StepContext:
    """A step of the run."""

    method: Seams
    memory: Memory
    step: int = 1
    progress: float = 0.0
    """0 at the first step and 1 at the last."""
    max_completion_length: int = 1
    pad: int = 0
    """Token that fills rows up."""
    draw: Callable[[int], Batch] = field(default=_not_here)
    """Samples and scores the groups of so many fresh prompts."""
    gold: Callable[[int], tuple[str, list[int]]] = field(default=_not_here)
    """Text and tokens, end token included, of the gold solution of a prompt."""
    continued: Callable[[Batch, Sequence[tuple[int, int]], int], Tensor] = field(default=_not_here)
    """(M,) float64: the mean reward of so many completions of each place, a row of a batch and how many of its tokens are kept;
    0: of its greedy completion."""
    rows: Sequence[Row] = ()
    """All prompts, by id."""
    seed: int = 0
    by: exact.Functions = exact.FAST
    """What members compute with."""
    entropy: Callable[[Batch], Tensor] = field(default=_not_here)
    """The policy's entropy at each token, (N,T), at the price of a forward pass: rollouts know only the log-probabilities of the
    tokens that were drawn."""

    reference: Callable[[Batch], Tensor] = field(default=_not_here)
    """(N,T) log-probabilities of the tokens under the reference model, at the price of a forward pass."""
    collisions: Callable[[Batch], Tensor] = field(default=_not_here)
    """(N,T) sum of the policy's squared probabilities of all tokens at each place, at the price of a forward pass."""
    encode: Callable[[str], list[int]] = field(default=_not_here)
    """Tokens of a text."""
    offsets: Callable[[Sequence[int], str], list[int]] = field(default=_not_here)
    """First character of each of the tokens that a text was read from."""
    likelihood: Callable[[list[list[int]], list[list[int]]], list[float]] = field(default=_not_here)
    """Mean log-probability, under the policy, of the tokens of each text behind each context, at the price of a forward pass."""
    judge: Callable[..., list[float]] = field(default=_not_here)
    """(spec of a judge, problems, texts) -> its scores."""

    def random(self, what: str) -> np.random.Generator:
        """The stream for that purpose at this step."""
        return generator(self.seed, what, self.step)
