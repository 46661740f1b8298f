"""Episodes: one completion, retries, an environment, self-play; the table of episodes by name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from interplay.core import extension
from interplay.rollout.play import Played, Setting, Thread, apart, go_on, left, opened, whole
from interplay.rollout.request import Request
from interplay.rollout.spec import CompletionEpisode, EnvironmentEpisode, Episode, RetryEpisode, SelfPlayEpisode, Turns
from interplay.tasks.environments.games import move_line
from interplay.tasks.environments.transcript import join_turns
from interplay.tasks.family import environment_of, game_of

# Episodes of one seat: answering again, and an environment.


def retry(spec: RetryEpisode, setting: Setting, asked: Sequence[Request]) -> Played:
    """Each turn is judged by itself; after a wrong one, or after any, comes the feedback (UFO, arXiv:2507.14295, section 3)."""

    def answer(thread: Thread, over: bool) -> str | None:
        verdict = setting.verify(setting.rows[thread.request], thread.said[-1])
        thread.verdicts.append((thread.said[-1], verdict))
        return None if verdict.answer and not spec.always else spec.feedback

    return _played(spec, setting, asked, answer)


def environment(spec: EnvironmentEpisode, setting: Setting, asked: Sequence[Request]) -> Played:
    """The environment of the row's family replies to each turn; the transcript is judged where the episode ends. An environment
    is a function of the problem and of all that was said, so there is nothing to keep."""

    def answer(thread: Thread, over: bool) -> str | None:
        row = setting.rows[thread.request]
        reply = environment_of(row).reply(setting.problem(row), thread.said)
        ends = reply.done or over
        text = join_turns(thread.said, thread.told)
        thread.verdicts.append((text, setting.verify(row, text) if ends else None))
        return None if ends else reply.text

    return _played(spec, setting._replace(stop=spec.stop), asked, answer)


def _played(spec: Turns, setting: Setting, asked: Sequence[Request], answer: Callable[[Thread, bool], str | None]) -> Played:
    """Episodes to their end. `answer(thread, over)` judges the turn that was written last and says what is read next: None ends
    the episode, as does `over`, the last turn that is allowed or one that the length limit cut."""
    threads = opened(setting, asked)
    live: list[Thread] = threads
    for turn in range(1, spec.max_turns + 1):
        told = [answer(thread, turn == spec.max_turns or thread.truncated) for thread in live]
        rest = [
            (thread, text)
            for thread, text in zip(live, told, strict=True)
            if text is not None and turn < spec.max_turns and not thread.truncated
        ]
        if not rest:
            break
        for (thread, text), tokens in zip(rest, setting.encode([text for _, text in rest]), strict=True):
            thread.tell(text, tokens)
        live = [thread for thread, _ in rest]
        go_on(setting, asked, live, turn, spec.window)
    if spec.window is None:
        return left([whole(thread) for thread in threads], setting.sampling.pad, False)
    return left([line for thread in threads for line in apart(thread, spec.window)], setting.sampling.pad, True)


# Games of the policy against itself (SPIRAL, arXiv:2506.24119).


@dataclass
class Match:
    """A game as it is played: a thread for each seat."""

    seats: tuple[Thread, Thread]
    moves: list[str] = field(default_factory=list)


def self_play(spec: SelfPlayEpisode, setting: Setting, asked: Sequence[Request]) -> Played:
    """A game for each sample: turn t is that of the seat which is to move, and what it writes is read by the other. A row for
    each seat that moved. A move that the length limit cut is not legal, whatever it says."""
    matches = [_begun(setting, number, request, i) for number, request in enumerate(asked) for i in range(request.count)]
    live = [(match, _mover(setting, match)) for match in matches]
    for turn in range(spec.max_turns):
        if not live:
            break
        go_on(setting, asked, [match.seats[mover] for match, mover in live], turn)
        for match, mover in live:
            own = match.seats[mover]
            match.moves.append("" if own.truncated else own.said[-1].strip())
        after = [(match, mover, _mover(setting, match)) for match, mover in live]
        for match, mover, following in after:
            if following >= 0:
                _hear(setting, match.seats[1 - mover], move_line(match.moves[-1]))
        live = [(match, following) for match, _, following in after if following >= 0]
    for match in matches:
        row = setting.rows[match.seats[0].request]
        for seat, thread in enumerate(match.seats):
            verdict = game_of(row).judge(setting.problem(row), match.moves, seat)
            thread.verdicts = [(text, None) for text in thread.said[:-1]]
            thread.verdicts += [(" ".join(match.moves), verdict)] * bool(thread.said)
    played = [(seat, thread) for match in matches for seat, thread in enumerate(match.seats) if thread.said]
    return left([whole(thread) for _, thread in played], setting.sampling.pad, True, [seat for seat, _ in played])


def _begun(setting: Setting, number: int, request: Request, i: int) -> Match:
    row = setting.rows[number]
    first, second = setting.encode(game_of(row).seats(setting.problem(row)))
    sample = request.first + i
    return Match((Thread(number, sample, first), Thread(number, sample, second)))


def _hear(setting: Setting, thread: Thread, text: str) -> None:
    """What the other did: behind the prompt as long as the seat has not moved, else behind its last turn."""
    (tokens,) = setting.encode([text])
    if thread.said:
        thread.tell(text, tokens)
    else:
        thread.prompt = [*thread.prompt, *tokens]


def _mover(setting: Setting, match: Match) -> int:
    row = setting.rows[match.seats[0].request]
    return int(game_of(row).position(setting.problem(row), match.moves).mover)


# The table of episodes, by the `name` of their spec.


def completion(spec: CompletionEpisode, setting: Setting, asked: Sequence[Request]) -> Played:
    """One completion per sample, one turn."""
    return Played(setting.engine.generate(list(asked), setting.sampling))


MEMBERS: dict[str, Callable[..., Played]] = {
    "completion": completion,
    "retry": retry,
    "environment": environment,
    "self_play": self_play,
    "custom": extension.call,
}


def play_episodes(spec: Episode, setting: Setting, asked: Sequence[Request]) -> Played:
    """The member that `spec` names."""
    return MEMBERS[spec.name](spec, setting, asked)
