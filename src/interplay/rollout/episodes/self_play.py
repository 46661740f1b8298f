"""Games of the policy against itself (SPIRAL, arXiv:2506.24119)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from interplay.rollout.episodes.play import Played, Setting, Thread, go_on, left, whole
from interplay.rollout.request import Request
from interplay.schema.episode import SelfPlayEpisode
from interplay.tasks.games import line
from interplay.tasks.table import game


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
                _hear(setting, match.seats[1 - mover], line(match.moves[-1]))
        live = [(match, following) for match, _, following in after if following >= 0]
    for match in matches:
        row = setting.rows[match.seats[0].request]
        for seat, thread in enumerate(match.seats):
            verdict = game(row).judge(setting.problem(row), match.moves, seat)
            thread.verdicts = [(text, None) for text in thread.said[:-1]]
            thread.verdicts += [(" ".join(match.moves), verdict)] * bool(thread.said)
    played = [(seat, thread) for match in matches for seat, thread in enumerate(match.seats) if thread.said]
    return left([whole(thread) for _, thread in played], setting.sampling.pad, True, [seat for seat, _ in played])


def _begun(setting: Setting, number: int, request: Request, i: int) -> Match:
    row = setting.rows[number]
    first, second = setting.encode(game(row).seats(setting.problem(row)))
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
    return int(game(row).position(setting.problem(row), match.moves).mover)
