"""Episodes: how the policy acts on a prompt, in one turn or in several with an environment, another seat or feedback."""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from interplay.core import extension, random
from interplay.core.model import UserError
from interplay.data.trajectory import Segment, transcript_of
from interplay.rollout import seats
from interplay.rollout.calls import Call, read_action
from interplay.rollout.request import Kept, Request
from interplay.rollout.spec import (
    Branching,
    CompletionEpisode,
    Context,
    EnvironmentEpisode,
    Episode,
    PlaybookContext,
    ReadingEpisode,
    RetrievedContext,
    RetryEpisode,
    StateContext,
    SummaryContext,
    Turns,
)
from interplay.rollout.turns import (
    Played,
    Setting,
    Thread,
    not_replayed,
    opened,
    parted_rows,
    played_rows,
    sample_turns,
    whole_row,
    windowed_rows,
)
from interplay.tasks.families import environment_of
from interplay.tasks.family import Step, World
from interplay.tasks.transcripts import MARK, UNANSWERED
from interplay.tasks.verdict import Row

# Episodes of one seat: answering again, and an environment.


def retry(spec: RetryEpisode, setting: Setting, asked: Sequence[Request]) -> Played:
    """Each turn is judged by itself; after a wrong one, or after any, comes the feedback (UFO, arXiv:2507.14295, section 3)."""

    def answer(thread: Thread, over: bool) -> Step | None:
        verdict = setting.verify(setting.rows[thread.request], thread.said[-1])
        thread.verdicts.append((thread.said[-1], verdict))
        return None if verdict.answer and not spec.always else Step(spec.feedback)

    return _played(spec, setting, asked, answer)


def environment(spec: EnvironmentEpisode, setting: Setting, asked: Sequence[Request]) -> Played:
    """The environment of the row's family replies to the action of each turn; the transcript of its actions is judged where the
    episode ends. Raises UserError where the environment's replay is another episode."""

    def answer(thread: Thread, over: bool) -> Step | None:
        row, call = setting.rows[thread.request], read_action(spec.action, thread.said[-1])
        family = environment_of(row)
        if call.text is None:
            step = Step(spec.action.error.replace("{why}", call.why))
        else:
            thread.world = thread.world or _begun_again(thread, family.begin(setting.problem(row)))
            step = thread.world.step(call.text)
        _note(thread, call, step)
        if not (step.done or over):
            thread.verdicts.append(("", None))
            return step
        thread.overrun = not step.done and not thread.truncated
        text = transcript_of(thread.segments, calls=True)
        verdict = setting.verify(row, text) if thread.world else UNANSWERED
        if verdict.error == "made_up" and family.world:
            raise not_replayed(family.name)
        thread.verdicts.append((text, verdict))
        if thread.world:
            thread.world.close()
            thread.world = None
        return None

    return _played(spec, setting._replace(stop=spec.stop), asked, answer)


def _begun_again(thread: Thread, world: World) -> World:
    """The environment where the last turn finds it: after the calls of the turns before, of a branch those that it shares."""
    for one in _actions(thread)[:-1]:
        if one.call != "":
            world.step(one.text if one.call is None else one.call)
    return world


def _note(thread: Thread, call: Call, step: Step) -> None:
    """Keep with the last turn what its environment got and returned; and who acts next."""
    turn = thread.segments[-1]
    given = None if call.text == turn.text else call.text or ""
    info = json.dumps(dict(step.info), sort_keys=True, default=str) if step.info else ""
    reward = None if step.reward is None else float(step.reward)
    thread.segments[-1] = turn._replace(tool=step.tool or call.tool, reward=reward, call=given, info=info)
    thread.seat = step.seat


def _played(spec: Turns, setting: Setting, asked: Sequence[Request], answer: Callable[[Thread, bool], Step | None]) -> Played:
    """Episodes to their end. `answer(thread, over)` judges the turn that was written last and says what is read next: None ends
    the episode, as does `over`, the last turn that is allowed or one that the length limit cut."""
    branch = spec.branch
    begun = asked if branch is None else [replace(one, count=min(one.count, branch.first)) for one in asked]
    shown = [_entries(spec.context, setting, number) for number in range(len(asked))]
    threads = opened(
        setting, [replace(one, prompt=[*tokens, *one.prompt]) for one, (tokens, _) in zip(begun, shown, strict=True)]
    )
    for one in threads:
        if text := shown[one.request][1]:
            one.segments.insert(0, Segment("context", text, tokens=()))
    _to_the_end(spec, setting, asked, threads, answer)
    if branch is not None:
        for number in range(branch.rounds):
            roots, forks = branched(branch, setting, asked, threads, number)
            again = opened(setting, [*roots.values()]) if roots else []
            for one in again:
                one.request = [*roots][one.request]
            _to_the_end(spec, setting, asked, again, answer, forks)
            threads += [*again, *forks]
        threads.sort(key=lambda one: (one.request, one.sample))
        made = played_rows([whole_row(thread) for thread in threads], setting.sampling.pad, False)
        trees = torch.tensor([one.tree for one in threads]) if branch.baseline == "tree" else None
        return made._replace(trees=trees)
    if spec.context.name != "full":
        trained = getattr(spec.context, "trained", True)
        rows = [line for one in threads for line in (parted_rows(one, trained) if one.parts else [whole_row(one)])]
        return played_rows(rows, setting.sampling.pad, True)
    if spec.window is None:
        return played_rows([whole_row(thread) for thread in threads], setting.sampling.pad, False)
    return played_rows([line for thread in threads for line in windowed_rows(thread, spec.window)], setting.sampling.pad, True)


def _to_the_end(
    spec: Turns,
    setting: Setting,
    asked: Sequence[Request],
    live: Sequence[Thread],
    answer: Callable[[Thread, bool], Step | None],
    forks: Sequence[Thread] = (),
) -> None:
    """`live` have written their first turn; `forks` are to write a later one, each in the round of its number."""
    joining = {turn: [one for one in forks if len(one.said) == turn] for turn in {len(one.said) for one in forks}}
    for turn in range(1, spec.max_turns + 1):
        replies = [answer(thread, turn == spec.max_turns or thread.truncated) for thread in live]
        rest = [
            (thread, reply)
            for thread, reply in zip(live, replies, strict=True)
            if reply is not None and turn < spec.max_turns and not thread.truncated
        ]
        going = {id(thread) for thread, _ in rest}
        for thread in live:
            if id(thread) not in going and spec.branch is None:  # no episode branches off
                thread.kept = Kept()
        read = [reply.text for _, reply in rest]
        if spec.read_as != "text":
            ended = [(one.segments[-1].tokens or [-1])[-1] == setting.sampling.eos for one, _ in rest]
            read = [setting.reply(spec.read_as, *each) for each in zip(read, ended, strict=True)]
        # What is read as it is ends no turn, also where it spells a special token.
        tokens_read = setting.encode(read, special=spec.read_as != "text") if read else []
        for (one, reply), tokens in zip(rest, tokens_read, strict=True):
            one.observe(reply.text, tokens, tool=one.segments[-1].tool)
        live = [*(one for one, _ in rest), *joining.pop(turn, ())]
        if live and spec.context.name != "full":
            _cut_history(spec.context, setting, asked, live, turn)
        if live:
            sample_turns(setting, asked, live, turn, spec.window)
        elif not joining:
            break


# Branches at turn ends.


def surprisal(one: Segment, tokens: int) -> float:
    """Mean -log p of the first tokens of a turn: what it is on average is their entropy."""
    first = list(one.logprobs or ())[:tokens]
    return -math.fsum(first) / max(len(first), 1)


def branched(
    spec: Branching, setting: Setting, asked: Sequence[Request], threads: Sequence[Thread], number: int
) -> tuple[dict[int, Request], list[Thread]]:
    """Of round `number` the episodes that start from the prompt after all, as requests by their place in `asked`, and those that
    go on from inside one of the threads, before they write."""
    roots, forks = dict[int, Request](), list[Thread]()
    for place, request in enumerate(asked):
        own = [one for one in threads if one.request == place]
        missing = request.count - len(own)
        wanted = missing if number + 1 == spec.rounds else missing // (spec.rounds - number)
        points = [(one, each[0], each[turn]) for one in own if (each := _actions(one)) for turn in range(1, len(each))]
        if spec.at == "random":
            order = random.generator(setting.sampling.seed, "branch", number, request.key).permutation(len(points)).tolist()
        else:
            rise = [surprisal(later, spec.tokens) - surprisal(first, spec.tokens) for _, first, later in points]
            order = sorted(range(len(points)), key=lambda i: -rise[i])
        sample = request.first + len(own)
        if not points and wanted:
            roots[place] = replace(request, first=sample, count=wanted)
        chosen = [points[order[n % len(order)]] for n in range(wanted if points else 0)]
        forks += [_fork(one, later, sample + n) for n, (one, _, later) in enumerate(chosen)]
    return roots, forks


def _actions(thread: Thread) -> list[Segment]:
    return [one for one in thread.segments if one.kind == "action"]


def _fork(thread: Thread, later: Segment, sample: int) -> Thread:
    """An episode as it was before one of its turns."""
    kept = [one for one in thread.segments if one.kind == "context" or one.turn < later.turn]
    return Thread(
        thread.request,
        sample,
        thread.prompt,
        later.seat,
        kept,
        thread.verdicts[: later.turn],
        tree=thread.tree,
        kept=thread.kept.copy(),
    )


def _entries(context: Context, setting: Setting, number: int, read: str | None = None) -> tuple[list[int], str]:
    """What a request's prompt begins with once `read` was read, or before the first turn, as tokens and as text; nothing where
    the context has no entries."""
    if not isinstance(context, RetrievedContext | PlaybookContext):
        return [], ""
    assert setting.library is not None
    row, asks = setting.rows[number], context.retrieval() if isinstance(context, PlaybookContext) else context
    text = setting.library.text(asks, row.prompt.rpartition(MARK)[2] if read is None else read, row)
    return setting.encode([text], special=False)[0], text


def _cut_history(context: Context, setting: Setting, asked: Sequence[Request], live: Sequence[Thread], turn: int) -> None:
    """What takes the place of the history before turn number `turn`: the state of the environment, a note that the policy
    writes, or the history behind other entries. The noise of notes is keyed by their own name. Raises UserError where an
    environment has no text of its state."""
    if isinstance(context, StateContext):
        for one in live:
            row = setting.rows[one.request]
            world = one.world or environment_of(row).begin(setting.problem(row))  # the thread has none before its first call
            shown = getattr(world, "state", lambda: None)()
            if world is not one.world:
                world.close()
            if shown is None:
                raise UserError("episode.context = state: the environment has no text of its state; give its class state()")
            one.replace_history(setting.encode([shown], special=False)[0], shown)
        return
    if isinstance(context, RetrievedContext) and context.each == "turn":
        for one in live:
            tokens, text = _entries(context, setting, one.request, one.segments[-1].text)
            history = [token for part in one.segments if part.kind != "context" for token in part.tokens or ()]
            one.replace_history([*tokens, *asked[one.request].prompt, *history], text)
        return
    if not isinstance(context, SummaryContext) or turn % context.every:
        return
    (asks,) = setting.encode([context.ask])
    for one in live:
        one.segments.append(Segment("observation", context.ask, len(one.said), tokens=asks))
    seed = random.stream_key(setting.sampling.seed, "note")
    sample_turns(setting._replace(sampling=setting.sampling._replace(seed=seed), stop=None), asked, live, turn)
    for one in live:
        note = one.segments[-1]
        one.segments[-1] = note._replace(call="")
        one.notes.add(note.turn)
        one.verdicts.append(("", None))
        one.truncated = False
        text = context.shown.replace("{summary}", note.text)
        one.replace_history([*asked[one.request].prompt, *setting.encode([text], special=False)[0]], text)


# Episodes in which a long prompt is read in chunks, with a note that is rewritten after each (MemAgent, arXiv:2507.02259).


def reading(spec: ReadingEpisode, setting: Setting, asked: Sequence[Request]) -> Played:
    """A turn for each chunk of the prompt, whose text is the next note, and one that answers and is judged."""
    threads = [Thread(number, one.first + i, []) for number, one in enumerate(asked) for i in range(one.count)]
    each = [_chunks(spec, setting, row) for row in setting.rows]
    for turn in range(max((len(chunks) for _, chunks in each), default=0) + 1):
        live = [one for one in threads if turn <= len(each[one.request][1])]
        for one in live:
            question, chunks = each[one.request]
            template, chunk = (spec.read, chunks[turn]) if turn < len(chunks) else (spec.answered, [])
            # What a model wrote spells no special token.
            note = setting.encode([one.said[-1]], special=False)[0] if one.said else setting.encode([spec.note])[0]
            said = {"{question}": setting.encode([question])[0], "{note}": note, "{chunk}": chunk}
            pieces = [piece for piece in re.split(r"(\{(?:question|note|chunk)\})", template) if piece]
            tokens = [token for piece in pieces for token in (said[piece] if piece in said else setting.encode([piece])[0])]
            one.replace_history(tokens, setting.decode([tokens])[0])
        sample_turns(setting, asked, live, turn)
        for one in live:
            answers = turn == len(each[one.request][1])
            judged = (one.said[-1], setting.verify(setting.rows[one.request], one.said[-1])) if answers else ("", None)
            one.verdicts.append(judged)
            one.notes |= set() if answers else {turn}
            one.kept = Kept() if answers else one.kept
    rows = [line for one in threads for line in parted_rows(one, spec.trained)]
    return played_rows(rows, setting.sampling.pad, True)


def _chunks(spec: ReadingEpisode, setting: Setting, row: Row) -> tuple[str, list[list[int]]]:
    """The question of a prompt, and the tokens of each chunk of what is before it."""
    text, mark, question = row.prompt.rpartition(spec.divide)
    if not mark:
        raise UserError(f"episode.divide = {spec.divide!r}: the prompt of row {row.index} does not hold it")
    (tokens,) = setting.encode([text])
    chunks = [tokens[start : start + spec.chunk] for start in range(0, len(tokens), spec.chunk)]
    if len(chunks) >= spec.max_turns:
        must = f"row {row.index} has {len(chunks)} chunks; write {len(chunks) + 1}, or a larger chunk"
        raise UserError(f"episode.max_turns = {spec.max_turns}: {must}")
    return mark + question, chunks


# The table of episodes, by the `name` of their spec.


def completion(spec: CompletionEpisode, setting: Setting, asked: Sequence[Request]) -> Played:
    """One completion per sample, one turn."""
    return Played(setting.engine.generate(list(asked), setting.sampling))


MEMBERS: dict[str, Callable[..., Played]] = {
    "completion": completion,
    "retry": retry,
    "environment": environment,
    "reading": reading,
    "seats": seats.play_seats,
    "self_play": seats.self_play,
    "custom": extension.call,
}


def play_episodes(spec: Episode, setting: Setting, asked: Sequence[Request]) -> Played:
    """The member that `spec` names."""
    return MEMBERS[spec.name](spec, setting, asked)
