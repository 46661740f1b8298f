"""The audit of an environment: what it pays over whole episodes to policies that did not solve the problem, and whether its
episodes are the same when they are replayed. No model is needed.

A policy reads what a model reads, and of cheats also what the expert does, and acts until the episode is over or its turns are
used up. What it earns is the share of episodes that are right, or of the expert's pay. It may earn `Environment.chance` in
addition to its due: the episodes whose last action is the expert's, by luck."""

import contextlib
import math
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import psutil

from interplay.tasks import audit, verdict
from interplay.tasks.audit import Finding
from interplay.tasks.family import Environment, Game, Step
from interplay.tasks.transcripts import join_turns

FARMED = 1.5
"""What a policy may be paid at most, as a multiple of what the expert is."""
ROWS = 8
"""Rows whose episodes are played; fewer where an episode takes long."""
SECONDS = 90.0
"""CPU time that all episodes of an audit may take, about, in processes of the package, too; two rows are played however long that
takes."""
PATIENCE = 10.0
"""CPU seconds that an episode may take, its verdict included."""
MOST_TURNS, USUAL_TURNS = 24, 6
"""Turns of a policy at most, and without an expert who says how many are needed."""
Shown = tuple[str, float | None, bool, int | None, list[Any]]


class Moment(NamedTuple):
    """What a policy knows when it is to act."""

    number: int
    """Of the row among those that are played."""
    said: list[str]
    """Its actions so far."""
    read: list[str]
    """The prompt, and what came after each of them."""
    legal: Callable[[], list[str]]
    """The actions that there are, as far as the environment says; else those of experts, and what was read in brackets."""


class Episode(NamedTuple):
    """An episode that was played."""

    actions: list[str]
    steps: list[Step]
    said: verdict.Verdict | None
    """None: a step or the verdict raised, or took too long."""

    @property
    def paid(self) -> float:
        """In all."""
        return math.fsum(step.reward or 0.0 for step in self.steps)


Actor = Callable[[Moment], str | None]
"""None: it acts no more."""
BRACKETS = re.compile(r"\[[^\[\]\n]{1,40}\]")
WORD = re.compile(r"\w+")


def cpu_seconds() -> float:
    """CPU time of this process and of the living ones that it started: a package may play in a process of its own."""
    spent = time.process_time()
    for below in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            spent += sum(below.cpu_times()[:2])
    return spent


class Player:
    """Plays policies on rows of one environment, and keeps what went wrong."""

    def __init__(self, family: Environment[Any, Any], rows: Sequence[verdict.Row], judge: audit.Judge) -> None:
        self.family, self.judge = family, judge
        self.raised, self.odd, self.known = list[str](), list[str](), audit.rows_to_audit(rows)
        self.rows = list(rows[:1])
        started = cpu_seconds()
        self.golds = [self.gold(row) for row in self.rows]
        self.play(0, lambda now: (self.golds[0] or [""])[len(now.said)], len(self.golds[0] or "1"))
        taken = max(cpu_seconds() - started, 1e-6)
        self.rows = list(rows[: max(2, min(ROWS, int(SECONDS / taken / EPISODES)))])
        self.golds = [self.gold(row) for row in self.rows]
        times = Counter(action for gold in self.golds for action in gold)
        self.pool = sorted(times, key=lambda action: (-times[action], action))
        self.lasts = [gold[-1] for gold in self.golds if gold]
        self.raised, self.odd = [], []

    def gold(self, row: verdict.Row) -> list[str]:
        """The expert's actions; none where there is no expert."""
        return [*self.family.expert(self.family.loads(row.graph))]

    def turns(self, number: int) -> int:
        """As many as the expert needs."""
        return min(len(self.golds[number]) or USUAL_TURNS, MOST_TURNS)

    def play(self, number: int, actor: Actor, most: int) -> Episode:
        """An episode of a row, of `most` turns at most."""
        row, actions, steps, said = self.rows[number], list[str](), list[Step](), None
        read = [row.prompt]
        try:
            with audit.TimeLimit(PATIENCE):
                problem = self.family.loads(row.graph)
                with contextlib.closing(self.family.begin(problem)) as world:
                    while len(actions) < most and not (steps and steps[-1].done):
                        legal = partial(self.legal, world, problem, actions, read)
                        action = actor(Moment(number, actions, read, legal))
                        if action is None:
                            break
                        actions.append(action)
                        steps.append(world.step(action))
                        read.append(steps[-1].text)
                said = self.judge(row, join_turns(actions, read[1:-1])) if actions else None
        except (Exception, audit.OutOfTime) as error:  # an environment may raise anything
            why = f"more than {PATIENCE:g} s" if isinstance(error, audit.OutOfTime) else f"{type(error).__name__}: {error!s:.80}"
            self.raised.append(f"{actions_line(actions)} (row {row.index}): {why}")
        steps = steps[: len(actions)]
        if any(not math.isfinite(step.reward or 0.0) for step in steps):
            self.raised.append(f"{actions_line(actions)} (row {row.index}): pays a number that is not finite")
        if said and said.answer and not steps[-1].done:
            self.odd.append(f"{actions_line(actions)} (row {row.index}): right before it is over")
        return Episode(actions, steps, said)

    def legal(self, world: Any, problem: Any, actions: list[str], read: list[str]) -> list[str]:
        """The actions that there are."""
        if isinstance(self.family, Game):
            moves, left = list[str](), list(actions)
            while (mover := self.family.position(problem, moves).mover) >= 0 and (mover != problem.seat or left):
                moves.append(left.pop(0) if mover == problem.seat else self.family.scripted(problem, moves))
            return self.family.legal(problem, moves)
        known: list[str] = getattr(world, "legal", list)()
        return known or [*self.pool, *BRACKETS.findall(read[-1])] or list(audit.CONSTANTS)

    def lucky(self, number: int, episode: Episode) -> bool:
        """Whether a policy did as the expert, in its last action where that differs between rows."""
        gold = self.golds[number]
        if not gold or not episode.actions:
            return False
        return episode.actions[-1] == gold[-1] if len(set(self.lasts)) > 1 else episode.actions == gold


class Earned(NamedTuple):
    """What a policy earned."""

    policy: str
    right: float
    """Share of episodes."""
    pay: float
    """As a share of the expert's; 0 where that is not above 0."""
    due: float
    example: str


def actions_line(actions: Sequence[str]) -> str:
    """Actions as one line."""
    return repr(" | ".join(actions))[:160]


def policies(player: Player) -> dict[str, dict[str, Actor]]:
    """Policies by the check that they belong to."""
    golds, rows, frame = player.golds, player.rows, player.known.framed
    pool, lasts = player.pool, list(dict.fromkeys(player.lasts))

    def always(text: str) -> Actor:
        return lambda now: text

    def noise(length: int) -> Actor:
        def act(now: Moment) -> str:
            draw = random.Random(f"{length} {len(now.said)} {now.read[0]}")
            return "".join(draw.choices(f"{now.read[0]} 01xyz", k=length))

        return act

    def at_random(key: int) -> Actor:
        draw = random.Random(key)
        return lambda now: draw.choice(now.legal())

    def in_turn(actions: Callable[[int], Sequence[str]]) -> Actor:
        return lambda now: each[len(now.said)] if len(each := actions(now.number)) > len(now.said) else None

    def by_position(now: Moment) -> str | None:
        there = Counter(gold[len(now.said)] for gold in golds if len(gold) > len(now.said))
        return max(there, key=lambda action: (there[action], action)) if there else None

    def other(number: int) -> Sequence[str]:
        return golds[(number + 1) % len(golds)]

    def wrong_end(number: int, among: Sequence[str]) -> Sequence[str]:
        gold = golds[number]
        wrong = [action for action in among if gold and action != gold[-1]]
        return [*gold[:-1], wrong[number % len(wrong)]] if wrong else []

    def reading(opening: Callable[[int], str], pattern: re.Pattern[str], framed: bool) -> Actor:
        def act(now: Moment) -> str:
            said = audit.match_at(pattern, now.read[-1], -1)
            return opening(now.number) if not now.said else frame(said) if framed else said

        return act

    def wrong(number: int) -> str:
        return next((last for last in lasts if not golds[number] or last != golds[number][-1]), frame("0"))

    read = {
        f"{what} of what {name} reads{' as the answer' * framed}": reading(opening, pattern, framed)
        for name, opening in (("nonsense", lambda number: "?"), ("a wrong answer", wrong))
        for what, pattern in (("last number", audit.NUMBER), ("last word", WORD), ("last line", re.compile(r"[^\n]+")))
        for framed in ((False, True) if any(player.known.frame) else (False,))
    }
    said = ("0", "1", "2", "yes", "A", "[0]", "the", "?")
    return {
        "nothing": {"nothing": always(""), "a blank": always(" ")},
        "constant": {
            **{repr(text): always(text) for text in said},
            **({repr(frame(text)): always(frame(text)) for text in said[:4]} if any(player.known.frame) else {}),
        },
        "modal": {**{repr(text[:40]): always(text) for text in pool[:4]}, "the commonest at each turn": by_position},
        "echo": {"the last that it read": lambda now: now.read[-1], "the prompt": lambda now: now.read[0]},
        "reads": read,
        "prompt": {
            "words of the prompt in turn": in_turn(lambda number: WORD.findall(rows[number].prompt)),
            "numbers of the prompt in turn": in_turn(lambda number: audit.NUMBER.findall(rows[number].prompt)),
            "last word of the prompt": lambda now: audit.match_at(WORD, now.read[0], -1),
        },
        "noise": {"8 characters": noise(8), "400 characters": noise(400), "a long text": always("wait " * 400)},
        "legal": {"random legal actions": at_random(0), "other random legal actions": at_random(1)},
        "other": {"the expert of another row": in_turn(other)},
        "wrong end": {
            "the expert with the end of another row": in_turn(lambda number: wrong_end(number, lasts)),
            "the expert with another action at the end": in_turn(lambda number: wrong_end(number, pool)),
        },
        "repeated": {"the expert's first action": lambda now: (golds[now.number] or ["0"])[0]},
        "twice": {
            "each action of the expert twice": in_turn(lambda number: [one for one in golds[number] for _ in range(2)]),
            "the expert's last action but one": lambda now: (golds[now.number] or ["0"])[-2:][0],
        },
    }


EPISODES = 150
"""Episodes, about, that an audit plays of a row, replays and verdicts included."""
READ_ONLY = ("nothing", "constant", "echo", "reads", "noise")
"""Checks whose policies may not earn pay either; others may be paid for a part of the way."""


def audit_turns(
    family: Environment[Any, Any], rows: Sequence[verdict.Row], judge: audit.Judge
) -> tuple[list[Finding], list[tuple[str, list[str], list[Shown]]]]:
    """All checks of an environment, in order, and episodes that another process should play the same: the problem of the row, the
    actions and the steps. Never raises on account of the environment, once its expert has acted."""
    player = Player(family, rows, judge)
    count = len(player.rows)
    expert = [player.play(number, _gold(player, number), len(player.golds[number])) for number in range(count)]
    pays = math.fsum(one.paid for one in expert)
    acted = [one for one in expert if one.actions]
    wrong = [one for one in acted if not (one.said and one.said.answer and one.steps[-1].done)]
    found = [
        Finding(
            "plays expert", bool(wrong), 1 - len(wrong) / max(len(acted), 1), 1.0, actions_line(wrong[0].actions) if wrong else ""
        )
    ]
    kept, tried = {number: [one] for number, one in enumerate(expert) if one.said}, list[Earned]()
    for check, actors in policies(player).items():
        each = [_earned(player, name, actor, check, pays, kept) for name, actor in actors.items()]
        tried += each
        if check == "twice":
            continue
        worth = [(max(one.right, min(1.0, one.pay)) if check in READ_ONLY else one.right, one) for one in each]
        earned, best = max(worth, key=lambda one: one[0] - one[1].due)
        bound = {"nothing": 0.0, "prompt": audit.MODAL}.get(check, family.chance)
        bound = max(bound, family.chance) if family.chance > audit.BOUND else bound
        found.append(Finding(f"plays {check}", earned - best.due > bound, earned, best.due, _line(best)))
    most = max(tried, key=lambda one: one.pay)
    luck = family.chance >= 1
    found.append(Finding("farmed", not luck and most.pay > FARMED, min(most.pay, 9.99), 1.0, _line(most)))
    changed = [text for number, episodes in kept.items() for text in _changed(player, number, episodes)]
    replayed = sum(map(len, kept.values()))
    for name, faults in (("replayed", changed), ("over", player.odd), ("plays on", player.raised)):
        found.append(Finding(name, bool(faults), min(1.0, len(faults) / max(replayed, 1)), 0.0, faults[0] if faults else ""))
    again = [(player.rows[number].graph, one) for number, episodes in kept.items() for one in episodes]
    return found, [(problem, one.actions, [step_shown(step) for step in one.steps]) for problem, one in again]


def _gold(player: Player, number: int) -> Actor:
    return lambda now: player.golds[number][len(now.said)]


def _line(one: Earned) -> str:
    return f"{one.policy}: right {one.right:.0%}, paid {one.pay:.0%} of the expert's: {one.example}"


def _earned(player: Player, name: str, actor: Actor, check: str, pays: float, kept: dict[int, list[Episode]]) -> Earned:
    """What a policy earns over all rows. Some of its episodes are kept for a replay."""
    played = []
    for number in range(len(player.rows)):
        turns = player.turns(number)
        episode = player.play(number, actor, turns if check in ("legal", "modal", "reads") else min(2 * turns + 2, MOST_TURNS))
        over = bool(episode.said and episode.steps[-1].done and episode.said.error == "truncated")
        if over and check in ("legal", "other", "wrong end"):
            player.odd.append(f"{actions_line(episode.actions)} (row {player.rows[number].index}): over, and has no verdict")
        if check in ("legal", "noise") and episode.said:
            kept.setdefault(number, []).append(episode)
        played.append(episode)
    right = [bool(one.said and one.said.answer) for one in played]
    lucky = [player.lucky(number, one) for number, one in enumerate(played)]
    example = next((one for one, won in zip(played, right, strict=True) if won), max(played, key=lambda one: one.paid))
    pay = math.fsum(one.paid for one in played) / pays if pays > 0 else 0.0
    return Earned(name, sum(right) / len(right), pay, sum(lucky) / len(lucky), actions_line(example.actions))


def step_shown(step: Step) -> Shown:
    """All of a step that an episode sees, as JSON has it."""
    return step.text, step.reward, step.done, step.seat, sorted(map(list, step.pays.items()))


def steps_again(family: Environment[Any, Any], problem: Any, actions: Sequence[str]) -> list[Shown]:
    """The steps of actions in a new episode."""
    with contextlib.closing(family.begin(problem)) as world:
        return [step_shown(world.step(action)) for action in actions]


def _changed(player: Player, number: int, episodes: Sequence[Episode]) -> list[str]:
    """What differs when episodes of a row are played again, all of them next to each other, turn by turn, and the verdicts on
    them."""
    row, family = player.rows[number], player.family
    again: list[list[Shown]] = [[] for _ in episodes]
    faults = list[str]()
    try:
        with audit.TimeLimit(PATIENCE * len(episodes)), contextlib.ExitStack() as opened:
            worlds = [opened.enter_context(contextlib.closing(family.begin(family.loads(row.graph)))) for _ in episodes]
            for turn in range(max(len(one.actions) for one in episodes)):
                for one, world, steps in zip(episodes, worlds, again, strict=True):
                    if turn < len(one.actions):
                        steps.append(step_shown(world.step(one.actions[turn])))
            judged = [player.judge(row, join_turns(one.actions, [step.text for step in one.steps[:-1]])) for one in episodes]
    except (Exception, audit.OutOfTime) as error:
        return [f"row {row.index}: {type(error).__name__}: {error!s:.80}, when episodes are played next to each other"]
    for one, steps, said in zip(episodes, again, judged, strict=True):
        where = f"{actions_line(one.actions)} (row {row.index})"
        if steps != [step_shown(step) for step in one.steps]:
            faults.append(f"{where}: other steps the second time")
        if said != one.said or said.error == "made_up":
            faults.append(f"{where}: another verdict the second time ({said.error})")
    return faults
