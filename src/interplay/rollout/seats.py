"""Episodes of several seats: whose turn it is, who plays, what each reads, and what each is worth."""

import random as standard
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from interplay.core import extension, random
from interplay.core.model import UserError
from interplay.data.trajectory import Segment
from interplay.rollout import seat_spec as specs
from interplay.rollout.calls import Call, read_action
from interplay.rollout.judge import seat_marks
from interplay.rollout.request import Kept, Request
from interplay.rollout.spec import SeatsEpisode, SelfPlayEpisode
from interplay.rollout.turns import Line, Played, Setting, Thread, Turn, not_replayed, only, played_rows, sample_turns, whole_row
from interplay.tasks.families import game_of, judge_family
from interplay.tasks.family import Environment, Game, World, episode_seed
from interplay.tasks.transcripts import BOX, UNANSWERED, join_turns, move_line
from interplay.tasks.verdict import Row, Verdict

# Whose turn it is, and what seats are shown: by the rules of a game, by a world of several seats, or by an order.


class Shown(NamedTuple):
    """What was read after a turn."""

    seat: int
    text: str
    own: bool = False
    """By the environment, and not by the other seat."""
    tool: str = ""


class Table:
    """The rules as an episode goes."""

    ends = True
    """Whether an episode that is out of turns counts as truncated."""
    names: Sequence[str]
    mover: int
    """Whose turn it is; -1: the episode is over."""

    def __init__(self, setting: Setting, row: Row) -> None:
        self.setting, self.row, self.problem = setting, row, setting.problem(row)

    def briefs(self) -> Sequence[str]:
        """What each seat reads first."""
        return [self.row.prompt] * len(self.names)

    def act(self, call: Call, turn: str, last: bool) -> list[Shown]:
        """The turn of the mover, and its action; `last`: the turns are used up. What is read of it."""
        raise NotImplementedError

    def verdict(self, seat: int) -> tuple[str, Verdict]:
        """What is judged of a seat, and how."""
        raise NotImplementedError

    def paid(self, seat: int) -> list[float] | None:
        """What the rules paid for each turn of a seat; None: nothing by itself."""
        return None

    def others(self) -> list[int]:
        """The seats that are not the mover."""
        return [seat for seat in range(len(self.names)) if seat != self.mover]


class GameTable(Table):
    """A game: a turn is a move, which the other reads."""

    ends = False

    def __init__(self, setting: Setting, row: Row, game: Game) -> None:
        super().__init__(setting, row)
        self.game, self.names, self.moves = game, game.seat_names, list[str]()
        self.mover = int(game.position(self.problem, []).mover)

    def briefs(self) -> Sequence[str]:
        """Those of the game."""
        return self.game.seats(self.problem)

    def act(self, call: Call, turn: str, last: bool) -> list[Shown]:
        """The move."""
        self.moves.append((turn if call.text is None else call.text).strip())
        shown = [Shown(seat, move_line(self.moves[-1])) for seat in self.others()]
        self.mover = int(self.game.position(self.problem, self.moves).mover)
        return shown if self.mover >= 0 else []

    def verdict(self, seat: int) -> tuple[str, Verdict]:
        """Of the game."""
        return " ".join(self.moves), self.game.judge(self.problem, self.moves, seat)


class WorldTable(Table):
    """A world of several seats, which says who is next and what that reads."""

    def __init__(self, setting: Setting, row: Row, family: Environment) -> None:
        super().__init__(setting, row)
        self.family, self.names, self.mover, self.done = family, family.seat_names, 0, False
        self.world, self.steps = family.begin(self.problem), list[tuple[str, str]]()
        self.pay: list[list[float]] = [[] for _ in self.names]
        self.rest = [0.0] * len(self.names)
        self.said = [""] * len(self.names)

    def briefs(self) -> Sequence[str]:
        """Those of the world."""
        return self.family.briefs(self.problem) if self.family.briefs else super().briefs()

    def act(self, call: Call, turn: str, last: bool) -> list[Shown]:
        """A step of the world. Raises UserError where the world's replay gives another text."""
        action, seat = turn if call.text is None else call.text, self.mover
        step = self.world.step(action)
        self.steps.append((action, step.text))
        self.said[seat] = action
        self.pay[seat].append(float(step.reward or 0.0))
        for other, value in step.pays.items():
            self.rest[other] += value
        self.done = step.done
        self.mover = -1 if step.done else (seat + 1) % len(self.names) if step.seat is None else step.seat
        if not step.done and not 0 <= self.mover < len(self.names):
            raise UserError(f"{self.family.name}: step says that seat {self.mover} is next, and has {len(self.names)} seats")
        if self.done or last:
            self.world.close()
            _check_replay(self.family, self.family.begin(self.problem), self.steps)
        return [] if self.done else [Shown(self.mover, step.text, True, step.tool)]

    def verdict(self, seat: int) -> tuple[str, Verdict]:
        """By what the seat was paid."""
        assert self.family.settled is not None
        pay = random.sum_in_order(self.pay[seat]) + self.rest[seat]
        return self.said[seat], self.family.settled(self.problem, pay, self.done, self.said[seat])

    def paid(self, seat: int) -> list[float]:
        """With what it was paid while another acted at its last turn."""
        own = self.pay[seat] or [0.0]
        return [*own[:-1], own[-1] + self.rest[seat]]


def _check_replay(family: Environment, world: World, steps: Sequence[tuple[str, str]]) -> None:
    found = [world.step(action).text for action, _ in steps]
    world.close()
    if found != [text for _, text in steps]:
        raise not_replayed(family.name)


class OrderTable(Table):
    """Seats in an order, the last of which acts in the environment of the family, or answers."""

    def __init__(self, setting: Setting, row: Row, order: Sequence[str], names: Sequence[str], error: str) -> None:
        super().__init__(setting, row)
        self.names, self.order, self.error = names, [names.index(name) for name in order], error
        self.at, self.mover, self.answer = 0, self.order[0], ""
        self.family = found if isinstance(found := judge_family(row.family), Environment) else None
        self.world: World | None = None
        self.ends = self.family is not None
        self.actions, self.replies = list[str](), list[str]()

    def act(self, call: Call, turn: str, last: bool) -> list[Shown]:
        """What was said, and what the environment replies where the seat acts."""
        said = turn if call.text is None else call.text
        shown = [Shown(seat, move_line(said)) for seat in self.others()]
        over = False
        if self.mover == self.order[-1]:
            self.answer = said
            if self.family is None:
                over = BOX in said
            elif call.text is None:
                shown += [Shown(seat, self.error.replace("{why}", call.why), True) for seat in range(len(self.names))]
            else:
                self.world = self.world or self.family.begin(self.problem)
                step = self.world.step(said)
                self.actions, self.replies, over = [*self.actions, said], [*self.replies, step.text], step.done
                shown += [Shown(seat, step.text, True, step.tool) for seat in range(len(self.names))]
        self.at = (self.at + 1) % len(self.order)
        self.mover = -1 if over else self.order[self.at]
        if self.world and (over or last):
            self.world.close()
        return [] if over else shown

    def verdict(self, seat: int) -> tuple[str, Verdict]:
        """That on the answer, for all seats."""
        if self.family is None:
            return self.answer, self.setting.verify(self.row, self.answer) if self.answer else UNANSWERED
        text = join_turns(self.actions, self.replies[:-1]) if self.actions else ""
        return text, self.setting.verify(self.row, text) if self.actions else UNANSWERED


def table_of(spec: SeatsEpisode, setting: Setting, row: Row) -> Table:
    """The rules of a row. Raises UserError where they have other seats than the spec."""
    family = judge_family(row.family)
    if why := specs.misfit(family, spec.seats, spec.order):
        raise UserError(f"method.episode.seats: {why}")
    if spec.order:
        return OrderTable(setting, row, spec.order, spec.players(), spec.action.error)
    assert isinstance(family, Environment)
    return GameTable(setting, row, family) if isinstance(family, Game) else WorldTable(setting, row, family)


# Who plays.


@dataclass
class Match:
    """An episode as it is played: a thread for each seat, in the order of the rules."""

    table: Table
    threads: list[Thread]
    names: list[str]
    """Of the players in the spec; with `rotate` not those of the seats that they sit on."""
    own: dict[int, Any] = field(default_factory=dict)
    """Objects of the user's own, by seat."""
    unread: dict[int, str] = field(default_factory=lambda: defaultdict(str))
    """What an object has not read yet."""
    lines: list[str] = field(default_factory=list)
    """All turns, each with the name of its seat."""


def play_seats(spec: SeatsEpisode, setting: Setting, asked: Sequence[Request]) -> Played:
    """An episode for each sample, turn by turn; the models of the seats are evaluated in batches, a model after the other. A row
    for each seat of the policy and each other seat, of which the former are learnt from where they are trained. A turn that the
    length limit cut says nothing."""
    matches = [_begun(spec, setting, number, request, i) for number, request in enumerate(asked) for i in range(request.count)]
    for turn in range(spec.max_turns):
        live = [match for match in matches if match.table.mover >= 0]
        if not live:
            break
        _write(spec, setting, asked, live, turn)
        for match in live:
            _pass_on(spec, setting, match, turn + 1 == spec.max_turns)
            if match.table.mover < 0:
                for thread in match.threads:
                    thread.kept = Kept()
    return _judged(spec, setting, asked, matches)


def _begun(spec: SeatsEpisode, setting: Setting, number: int, request: Request, i: int) -> Match:
    row = setting.rows[number]
    table = table_of(spec, setting, row)
    count, sample = len(table.names), request.first + i
    names = [*table.names]
    if spec.rotate:
        names = [table.names[(seat - sample) % count] for seat in range(count)]
    match = Match(table, [Thread(number, sample, [], seat) for seat in range(count)], names)
    for seat, usual in enumerate(table.briefs()):
        who = spec.seats[names[seat]]
        text = who.briefed(usual, row) if isinstance(who, specs.Reads) else usual
        if isinstance(who, specs.OwnSeat):
            match.own[seat] = extension.call(who)
            given = getattr(table.problem, "value", table.problem)
            with extension.errors_in(who):
                match.own[seat].reset(given, episode_seed(row.graph) + sample)
        _read(setting, match, seat, text, special=True)
    return match


def _read(
    setting: Setting, match: Match, reader: int, text: str, by: int | None = None, tool: str = "", special: bool = False
) -> None:
    if not text:
        return
    (tokens,) = setting.encode([text], special=special)
    match.threads[reader].observe(text, tokens, seat=by, tool=tool)
    match.unread[reader] += text


def _write(spec: SeatsEpisode, setting: Setting, asked: Sequence[Request], live: Sequence[Match], turn: int) -> None:
    """The turn of each mover: those of one model together, in the order of the episodes."""
    by_model: dict[str, list[Thread]] = defaultdict(list)
    for match in live:
        seat = match.table.mover
        who, thread = spec.seats[match.names[seat]], match.threads[seat]
        if isinstance(who, specs.ScriptSeat | specs.OwnSeat):
            _scripted(setting, asked, match, who, turn)
        else:
            by_model[_model(who, match.names[seat], setting, asked[thread.request].key)].append(thread)
    for name in sorted(by_model):
        sample_turns(setting._replace(engine=setting.others[name]) if name else setting, asked, by_model[name], turn)


def _model(who: Any, name: str, setting: Setting, key: int) -> str:
    """The model that plays a seat; empty: the policy. Of a pool one for each prompt and step."""
    if not isinstance(who, specs.PoolSeat):
        return who.model if isinstance(who, specs.ModelSeat) else ""
    pool = [*who.models, *(setting.past[-who.keep :] if who.every else ())]
    return pool[random.stream_key(setting.sampling.seed, "pool", name, key) % len(pool)]


def _scripted(setting: Setting, asked: Sequence[Request], match: Match, who: Any, turn: int) -> None:
    seat, table = match.table.mover, match.table
    thread = match.threads[seat]
    if isinstance(who, specs.OwnSeat):
        with extension.errors_in(who):
            text = match.own[seat].act(match.unread.pop(seat, ""))
        if not isinstance(text, str):
            raise UserError(f"{who.function}: act must return a text, not {text!r:.60}")
    elif who.plays == "random":
        assert isinstance(table, GameTable)
        places = (setting.sampling.seed, "script", seat, asked[thread.request].key, thread.sample, turn)
        text = standard.Random(random.stream_key(*places)).choice(table.game.legal(table.problem, table.moves))
    else:
        assert isinstance(table, GameTable)
        text = (table.game.best if who.plays == "expert" else table.game.scripted)(table.problem, table.moves)
    thread.truncated = False
    thread.segments.append(Segment("action", text, len(thread.said), seat, tokens=(), logprobs=()))


def _pass_on(spec: SeatsEpisode, setting: Setting, match: Match, last: bool) -> None:
    """The last turn as the rules take it, and what each seat reads of it."""
    table, seat = match.table, match.table.mover
    thread = match.threads[seat]
    said = "" if thread.truncated else thread.segments[-1].text
    call = Call("") if thread.truncated else read_action(spec.action, said)
    if call.text != said and not thread.truncated:
        thread.segments[-1] = thread.segments[-1]._replace(call=call.text or "", tool=call.tool)
    match.lines.append(f"{match.names[seat]}: {said.strip()}\n")
    others = table.others()
    shown = table.act(call, said, last)
    if table.mover < 0 or last:
        return
    for reader in range(len(table.names)):
        sees = getattr(spec.seats[match.names[reader]], "sees", "public")
        if sees == "all" and reader in others:
            _read(setting, match, reader, move_line(said), seat)
        for one in shown:
            if one.seat == reader and (one.own or sees == "public"):
                _read(setting, match, reader, one.text, None if one.own else seat, one.tool)


# What each seat is worth.


def _judged(spec: SeatsEpisode, setting: Setting, asked: Sequence[Request], matches: Sequence[Match]) -> Played:
    marks = seat_marks(spec, setting, asked, [(one.threads[0], one.table.row, one.lines) for one in matches])
    lines, seats, learnt, players = list[Line](), list[int](), list[bool](), list[bool]()
    for match, mark in zip(matches, marks, strict=True):
        over = match.table.mover < 0
        for seat, thread in enumerate(match.threads):
            who, pays = spec.seats[match.names[seat]], match.table.paid(seat)
            policy = isinstance(who, specs.PolicySeat)
            thread.overrun = match.table.ends and not over and not thread.truncated
            if mark is not None and policy:
                pays = pays or [0.0] * max(len(thread.said), 1)
                pays[-1] += mark
            judged, verdict = match.table.verdict(seat)
            thread.verdicts = [(text, None) for text in thread.said[:-1]] + [(judged, verdict)] * bool(thread.said)
            acted = [place for place, one in enumerate(thread.segments) if one.kind == "action"]
            for place, value in zip(acted, pays or (), strict=False):
                thread.segments[place] = thread.segments[place]._replace(reward=value)
            line = whole_row(thread)
            if not thread.said:  # it is worth something all the same
                line = line._replace(turns=[Turn(0, 0, 0, judged, verdict, pays[-1] if pays else None)])
            lines.append(line)
            seats.append(seat)
            learnt.append(policy and getattr(who, "trained", False) and bool(thread.said))
            players.append(policy)
    played = played_rows(lines, setting.sampling.pad, True, seats)
    names = list(matches[0].table.names) if matches else []
    credit = specs.credit_matrix(spec.credit, names) if spec.credit != "own" and names else None
    return played._replace(learnt=torch.tensor(learnt), policy=torch.tensor(players), credit=credit, seat_names=names)


def self_play(spec: SelfPlayEpisode, setting: Setting, asked: Sequence[Request]) -> Played:
    """A game of the policy against itself (SPIRAL, arXiv:2506.24119): a row for each seat that moved."""
    for row in setting.rows:
        game_of(row)
    seats: dict[str, Any] = {name: specs.PolicySeat() for name in Game.seat_names}
    played = play_seats(SeatsEpisode(seats=seats, max_turns=spec.max_turns), setting, asked)
    return only(played, played.learnt)._replace(learnt=None, policy=None)
