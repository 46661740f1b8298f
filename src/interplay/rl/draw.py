"""Rollouts of a step: sampling requests played by the episode, judged and rewarded; what decoding makes of sampling."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch

from interplay.core import extension, random
from interplay.core.model import progress_at
from interplay.data import sets, tokenizer as text
from interplay.data.trajectory import joined_text
from interplay.kernels import exact
from interplay.model import heads
from interplay.rl import continuation, requests, reward_spec, shaping
from interplay.rl.assembly import RunState, judged_completions
from interplay.rl.batch import Batch, Memory, Span, StepContext, join, offsets, seams_of, take, to_tokens
from interplay.rl.request_spec import AdaptiveTemperature, Decoding, LaggedNucleus, OwnDecoding
from interplay.rl.rewards import Graders, Rewards, by_turn, pays_turns, right_by, score_completions
from interplay.rl.sampler import Outcome, outcome_of
from interplay.rollout import request
from interplay.rollout.episodes import play_episodes
from interplay.rollout.turns import Played, Setting
from interplay.tasks import transcripts, verdict

# Decoding: what tokens of rollouts are drawn from.


SCALE = "adaptive_temperature"
"""Name in the memory: (3,) float64, what the entropies of the last batch were (`Scale`)."""


def decode_sampling(spec: Decoding | None, sampling: request.Sampling, memory: Memory) -> request.Sampling:
    """How tokens are drawn, given how they would be without a decoding. A temperature that follows a token's entropy (HAPO,
    heterogeneous tokens) acts as soon as there was a batch."""
    if isinstance(spec, AdaptiveTemperature) and SCALE in memory.tensors:
        return sampling._replace(heat=request.Heat(spec.temperature_tau, request.Scale(*memory.tensors[SCALE].tolist())))
    return extension.call(spec, sampling, memory) if isinstance(spec, OwnDecoding) else sampling


def update_decoding(spec: Decoding | None, batch: Batch, now: StepContext) -> None:
    """Save the entropies of the batch that a step learns from where a decoding reads them; nothing of an empty batch."""
    if not isinstance(spec, AdaptiveTemperature):
        return
    if scale := request.scale_of(now.entropy(batch)[batch.mask()], spec.entropy_pivot, now.by):
        now.memory.tensors[SCALE] = torch.tensor(scale, dtype=torch.float64)


def update_lagged(spec: Decoding | None, lagged: heads.Lagged | None, step: int) -> None:
    """Every `sync_every` steps the copy becomes what the policy is after the step."""
    if isinstance(spec, LaggedNucleus) and lagged and step % spec.sync_every == 0:
        with torch.no_grad():
            for mine, other in zip(lagged.copy.parameters(), lagged.policy.parameters(), strict=True):
                mine.copy_(other)


# What an episode is asked for.


def episode_requests(
    prompts: Sequence[list[int]], keys: Sequence[int], counts: Sequence[int], seen: Counter[int]
) -> list[request.Request]:
    """One request per prompt (tokens), known to the sampling noise by its key.

    `seen` counts the samples that each key had in this step and is brought up to date: a prompt drawn twice gets new samples."""
    made = []
    for prompt, key, count in zip(prompts, keys, counts, strict=True):
        made.append(request.Request(prompt=prompt, key=key, first=seen[key], count=count))
        seen[key] += count
    return made


# Rows of episodes of several turns: what each turn earns, and at which tokens.


class EpisodeRewards(NamedTuple):
    """What N rows are worth: the verdict of their episode, its reward with its parts, and each turn's verdict."""

    verdicts: list[verdict.Verdict]
    rewards: Rewards
    """`spans` in tokens, one for each turn."""
    turns: list[list[verdict.Verdict | None]]


def episode_rewards(
    spec: reward_spec.Reward, played: Played, rows: Sequence[verdict.Row], graders: Graders | None = None
) -> EpisodeRewards:
    """Each turn that answers is paid by the reward as a completion is, the others earn what the environment paid them where the
    reward has such a term, else 0; an episode is worth its last turn, or with such a term all of them. `rows`: the problem of
    each row. Raises ValueError where episodes have one turn."""
    if played.turns is None:
        raise ValueError("an episode of one turn is paid as a whole")
    answers = [(i, turn) for i, turns in enumerate(played.turns) for turn in turns if turn.verdict is not None]
    given = [[turn.paid or 0.0 for turn in turns] for turns in played.turns]
    totals = [math.fsum(given[i]) if turn.number == len(given[i]) - 1 else given[i][turn.number] for i, turn in answers]

    def score(one: reward_spec.Reward) -> Rewards:
        texts, verdicts = [turn.judged for _, turn in answers], [turn.verdict for _, turn in answers if turn.verdict]
        return score_completions(one, [rows[i] for i, _ in answers], texts, verdicts, graders, None, totals)

    paid = score(spec)
    terms = [score(one) for one in reward_spec.terms_of(spec)] if pays_turns(spec) else []
    place = {(i, turn.number): at for at, (i, turn) in enumerate(answers)}
    last = [place.get((i, turns[-1].number)) if turns else None for i, turns in enumerate(played.turns)]
    spans = []
    for i, turns in enumerate(played.turns):
        if terms and (at := last[i]) is not None:
            values = by_turn(spec, terms, at, given[i])
        else:
            values = [paid.sequence[place[i, t.number]] if (i, t.number) in place else 0.0 for t in turns]
        spans.append([Span(t.start, t.end, t.number, value) for t, value in zip(turns, values, strict=True)])

    def of_last(values: Sequence[float]) -> list[float]:
        return [0.0 if at is None else values[at] for at in last]

    return EpisodeRewards(
        verdicts=[turns[-1].verdict or transcripts.UNANSWERED if turns else transcripts.UNANSWERED for turns in played.turns],
        rewards=Rewards(of_last(paid.sequence), {name: of_last(values) for name, values in paid.parts.items()}, spans),
        turns=[[turn.verdict for turn in turns] for turns in played.turns],
    )


def credited_rewards(found: EpisodeRewards, played: Played) -> EpisodeRewards:
    """With each seat's reward as `credit` has it: sum_j c_ij r_j over the seats j of its episode. What its turns earn counts c_ii
    times, and the rest comes with the last of them."""
    credit, rewards = played.credit, found.rewards
    if credit is None or played.seats is None or rewards.spans is None:
        return found
    places = zip(played.rollouts.request.tolist(), played.rollouts.sample.tolist(), strict=True)
    episodes, seats = [*places], played.seats.tolist()
    earned = {(*at, seat): value for at, seat, value in zip(episodes, seats, rewards.sequence, strict=True)}
    sequence, spans = list[float](), []
    for at, seat, value, own in zip(episodes, seats, rewards.sequence, rewards.spans, strict=True):
        sequence.append(math.fsum(weight * earned[*at, other] for other, weight in enumerate(credit[seat])))
        scaled = [span._replace(value=credit[seat][seat] * span.value) for span in own]
        rest = sequence[-1] - credit[seat][seat] * value
        spans.append([*scaled[:-1], scaled[-1]._replace(value=scaled[-1].value + rest)] if scaled else scaled)
    return found._replace(rewards=rewards._replace(sequence=sequence, spans=spans))


# Groups of completions: what the planner asks for, sampled by the episode and judged by the reward.


def step_context(run: RunState, step: int, **more: Any) -> StepContext:
    """A step of a run as members of the method see it; `more`: what they may ask of the trainer's models."""
    spec = run.spec
    if run.graders and run.graders.judge:
        more["judge"] = run.graders.judge.scores
    return StepContext(
        method=seams_of(spec.method),
        memory=run.memory,
        step=step,
        progress=progress_at(step, spec.steps),
        max_completion_length=spec.max_completion_length,
        pad=run.special.pad,
        rows=run.pool.rows,
        seed=spec.seed,
        gold=partial(gold_solution, run),
        encode=lambda written: text.encode_texts(run.tokenizer, [written])[0],
        offsets=partial(offsets, run.tokenizer),
        by=exact.functions(spec.numerics),
        **more,
    )


class Rollouts(NamedTuple):
    """Rollouts for one round of sampling requests."""

    batch: Batch
    slots: torch.Tensor
    """(N,) int64: place of each row's prompt among those drawn."""
    plain: torch.Tensor
    """(N,) bool: rows that measure the policy on the bare prompt."""


def draw_batch(run: RunState, ids: list[int], now: StepContext, seen: Counter[int]) -> Batch:
    """The groups of further prompts, sampled, judged and shaped; the sampler observes the results of the bare prompts. `seen`
    counts this step's samples by noise key."""
    rows = [run.pool.rows[i] for i in ids]
    expected = run.sampler.expected(ids)
    parts = [sample_rollouts(run, ids, continuation.first_requests(rows, now), now, seen)]
    batch = parts[0].batch
    while asks := continuation.next_requests(rows, batch, len(parts) - 1, now):
        parts.append(sample_rollouts(run, ids, asks, now, seen))
        batch = join([part.batch for part in parts], run.special.pad, same_groups=True)
    slots = torch.cat([part.slots for part in parts])
    run.sampler.observe(now.step, outcomes(ids, batch, slots, torch.cat([part.plain for part in parts])))
    if expected is not None:
        batch = replace(batch, expected=expected[slots])
    return shaping.shape_rewards(batch, now)


def sample_rollouts(run: RunState, ids: list[int], asks: requests.Requests, now: StepContext, seen: Counter[int]) -> Rollouts:
    """The completions that are asked for, each judged against the gold of its prompt."""
    rows = [run.pool.rows[ids[ask.slot]] for ask in asks]
    prompts = contexts(run, [ask.sampling for ask in asks])
    asked = episode_requests(prompts, [sets.noise_key(row) for row in rows], [ask.n for ask in asks], seen)
    played = play_episodes(run.spec.method.episode, setting(run, rows, now.step, asks[0].limit), asked)
    batch = judged_batch(run, played, ids, asks)
    of_row = [asks[number] for number in played.rollouts.request.tolist()]
    slots = torch.tensor([ask.slot for ask in of_row])
    plain = torch.tensor([ask.own or (ask.group is None and not ask.given) for ask in of_row], dtype=torch.bool)
    plain &= batch.finished() & batch.baseline_mask()
    if batch.off_policy is not None:
        plain &= ~batch.off_policy
    if played.learnt is None:
        return Rollouts(batch, slots, plain)
    rows_kept = played.learnt.nonzero()[:, 0]
    learnt = take(batch, rows_kept)
    return Rollouts(replace(learnt, row=torch.arange(len(learnt))), slots[rows_kept], plain[rows_kept])


def judged_batch(run: RunState, played: Played, ids: list[int], asks: requests.Requests) -> Batch:
    """Episodes as a batch, a row for each, with verdicts and rewards; groups are those of the requests, in each those of a tree
    of episodes or of a seat."""
    rollouts, trees, seats = played.rollouts, played.trees, played.seats
    made_by, longest = rollouts.request.tolist(), int(rollouts.lengths.max())
    of_row = [asks[number] for number in made_by]
    row_ids = [ids[ask.slot] for ask in of_row]
    written = rollouts.written()
    completions = run.tokenizer.decode_batch(written)
    whole = [ask.given + completion for ask, completion in zip(of_row, completions, strict=True)]
    found = score_rollouts(run, played, row_ids, written, completions, whole)
    prompts = contexts(run, [ask.training for ask in asks])
    foreign = torch.tensor([ask.sampling != ask.training for ask in of_row], dtype=torch.bool)
    going_on = torch.tensor([ask.goes_on for ask in of_row], dtype=torch.bool) & rollouts.truncated
    shown = torch.tensor([math.nan if ask.shown is None else ask.shown for ask in of_row], dtype=torch.float64)
    groups = torch.tensor([ask.slot if ask.group is None else ask.group for ask in of_row])
    groups = groups if trees is None else groups * (int(trees.max()) + 1) + trees
    groups = groups if seats is None else groups * (len(played.seat_names) or 2) + seats
    return Batch(
        row=torch.arange(len(of_row)),
        ids=torch.tensor(row_ids),
        groups=groups,
        prompts=played.prompts or [prompts[number] for number in made_by],
        tokens=rollouts.tokens[:, :longest],
        lengths=rollouts.lengths,
        logprobs=rollouts.logprobs[:, :longest],
        truncated=rollouts.truncated,
        completions=whole if played.segments is None else [joined_text(one) for one in played.segments],
        verdicts=found.verdicts,
        right=right_by(run.spec.reward, found.verdicts),
        rewards=torch.tensor(found.rewards.sequence, dtype=torch.float64),
        parts={name: torch.tensor(values, dtype=torch.float64) for name, values in found.rewards.parts.items()},
        spans=found.rewards.spans,
        off_policy=foreign if foreign.any() else None,
        unfinished=going_on if going_on.any() else None,
        excluded=played.excluded,
        observed=None if played.observed is None else played.observed[:, :longest],
        turns=found.turns if played.turns is not None else None,
        shown=None if shown.isnan().all() else shown,
        seats=seats,
        segments=played.segments,
    )


def setting(run: RunState, rows: list[verdict.Row], step: int, limit: int | None = None) -> Setting:
    """What the episodes of a step are played with; `rows`: the problem of each request, `limit`: tokens at most, where that is
    not the run's."""
    return Setting(
        engine=run.engine,
        sampling=sampling(run, step, limit),
        encode=partial(text.encode_texts, run.tokenizer),
        decode=run.tokenizer.decode_batch,
        rows=rows,
        verify=partial(sets.judge_completion, run.spec.verify()),
        problem=sets.problem_of,
        reply=partial(text.chat_reply, run.tokenizer_files),
        others=run.opponents.engines() if run.opponents else {},
        past=run.opponents.past_names() if run.opponents else (),
        library=run.library,
    )


def score_rollouts(
    run: RunState, played: Played, ids: list[int], tokens: list[list[int]], completions: list[str], whole: list[str]
) -> EpisodeRewards:
    """What the rows are worth; `ids`: the prompt of each, `tokens` and `completions`: what was written, `whole`: what is judged
    where an episode has one turn."""
    spec, rows = run.spec, [run.pool.rows[i] for i in ids]
    if played.turns is not None:
        return credited_rewards(episode_rewards(spec.reward, played, rows, run.graders), played)
    verdicts = sets.judge_completions(rows, whole, spec.verify())
    rewards = score_completions(spec.reward, rows, whole, verdicts, run.graders, played.rollouts.truncated.tolist())
    if rewards.spans is not None:
        texts = zip(tokens, completions, rewards.spans, strict=True)
        rewards = rewards._replace(spans=[to_tokens(run.tokenizer, *row) for row in texts])
    return EpisodeRewards(verdicts, rewards, [])


def gold_solution(run: RunState, i: int) -> tuple[str, list[int]]:
    """Text and tokens of the gold solution of a prompt, with the end token."""
    text_of = run.pool.rows[i].solution
    return text_of, [*text.encode_texts(run.tokenizer, [text_of])[0], run.special.eos]


def contexts(run: RunState, texts: list[str]) -> list[list[int]]:
    """Tokens of what completions follow."""
    return text.encode_turns(run.tokenizer, texts, run.special.eos)


def outcomes(ids: list[int], batch: Batch, slots: torch.Tensor, plain: torch.Tensor) -> list[Outcome]:
    """Results of each prompt's `plain` (N,) bool rows; `slots` (N,) gives each row's place in `ids`. Prompts without such rows
    are left out."""
    members: list[list[int]] = [[] for _ in ids]
    for row in plain.nonzero()[:, 0].tolist():
        members[int(slots[row])].append(row)
    return [
        outcome_of(i, batch.rewards[rows].tolist(), [batch.verdicts[row] for row in rows])
        for i, rows in zip(ids, members, strict=True)
        if rows
    ]


def sampling(run: RunState, step: int, limit: int | None = None) -> request.Sampling:
    """The policy itself at the method's temperature: RL's gradient is of the distribution that was sampled, so nothing is cut
    off. What the method's decoding makes of that. `limit`: tokens at most, where that is not the run's."""
    spec = run.spec
    usual = request.Sampling(
        temperature=spec.temperature,
        top_p=1.0,
        top_k=0,
        max_completion_length=limit or spec.max_completion_length,
        seed=random.stream_key(spec.seed, "rollout", step),
        eos=run.special.eos,
        pad=run.special.pad,
    )
    return decode_sampling(spec.method.decoding, usual, run.memory)


# What a state is worth by sampling on from it (VinePPO, arXiv:2410.01679; SPO, arXiv:2505.23564).


def continuation_values(
    run: RunState, step: int, seen: Counter[int], batch: Batch, places: Sequence[tuple[int, int]], n: int
) -> torch.Tensor:
    """(M,) float64: mean reward of `n` completions of each place (row, tokens of it that are kept); equal states are sampled
    once. n = 0: of the greedy one. `seen` counts this step's samples by noise key. The whole is cut at the run's limit, as a
    completion is."""
    if not places:
        return torch.zeros(0, dtype=torch.float64)
    state = [(tuple(batch.prompts[row]), tuple(batch.tokens[row, :kept].tolist())) for row, kept in places]
    first = {one: number for number, one in reversed(list(enumerate(state)))}
    distinct = sorted(first.values())
    values = dict(zip(distinct, _mean_rewards(run, step, seen, batch, [places[i] for i in distinct], n), strict=True))
    return torch.tensor([values[first[one]] for one in state], dtype=torch.float64)


def _mean_rewards(
    run: RunState, step: int, seen: Counter[int], batch: Batch, places: list[tuple[int, int]], n: int
) -> list[float]:
    """The mean rewards of different states."""
    spec, pool = run.spec, run.pool
    stems = [batch.tokens[row, :kept].tolist() for row, kept in places]
    asked = []
    for (row, _), stem in zip(places, stems, strict=True):
        noise = random.stream_key("continued", sets.noise_key(pool.rows[int(batch.ids[row])]), *stem)
        asked.append(request.Request(batch.prompts[row] + stem, noise, seen[noise], max(n, 1)))
        seen[noise] += n
    drawn = sampling(run, step)
    found = run.engine.generate(asked, drawn if n else drawn._replace(temperature=0.0, heat=None))
    made_by = found.request.tolist()
    tokens = [(stems[i] + row)[: spec.max_completion_length] for i, row in zip(made_by, found.written(), strict=True)]
    rows = [pool.rows[int(batch.ids[places[i][0]])] for i in made_by]
    cut = [row[-1:] != [run.special.eos] for row in tokens]
    rewards, _ = judged_completions(spec, rows, run.tokenizer.decode_batch(tokens), run.graders, cut)
    sums = [0.0] * len(places)
    for i, reward in zip(made_by, rewards, strict=True):
        sums[i] += reward
    return [total / max(n, 1) for total in sums]
