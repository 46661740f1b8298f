"""Keys and values that are kept from turn to turn: fewer tokens are passed, and no byte of a sample depends on it."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import turn_cases as cases
from test_rollout_engine import decoder, sampling

from interplay.core.execution import Run
from interplay.data import problems, sets
from interplay.data.spec import ProblemsSpec
from interplay.kernels import exact
from interplay.rollout.episodes import play_episodes
from interplay.rollout.native import Native
from interplay.rollout.request import Kept, Request, Rollouts, Sampling
from interplay.rollout.spec import EnvironmentEpisode, Episode, ReadingEpisode, RetryEpisode, SeatsEpisode
from interplay.rollout.turns import Played, Setting
from interplay.tasks.spec import OwnTask

WORLD = OwnTask(
    function="patient.py:Patient",
    source="""
from interplay.tasks.family import Step

class Patient:
    def generate(self, rng, op):
        return rng.choices("0123456789", k=30)
    def reset(self, problem, seed):
        self.steps = 0
        return "".join(problem)
    def step(self, action):
        self.steps += 1
        return Step("go on|")
    def state(self):
        return "0123456789 the same state of a world that never ends|" + "." * self.steps
    def vocabulary(self):
        return [*"0123456789abcdefghijklmnopqrstuvwxyz ."]
""",
)
SPEC = ProblemsSpec(task=WORLD, bands={"b": {1: 1.0}}, shares={"b": 1.0}, size=2, split="rl")
WORLDS = problems.first_rows(SPEC, Run(), 2)
ROWS = [cases.row(prompt, "never") for prompt in ("a long prompt of more than sixteen tokens, twice|", "short|")]
LONG = cases.row("aaaabbbbcccc, more than two blocks of sixteen?who", "never")
NOTE = {"name": "summary", "every": 1, "ask": "S:", "shown": "({summary})"}
EPISODES: dict[str, tuple[Episode, list[Any]]] = {
    "all turns": (RetryEpisode(max_turns=4, feedback="once more"), ROWS),
    "the last turn": (RetryEpisode(max_turns=4, feedback="once more", window=1), ROWS),
    "a note": (RetryEpisode(max_turns=3, feedback="once more", context=NOTE), ROWS),
    "branches": (RetryEpisode(max_turns=3, feedback="?", branch={"first": 2, "rounds": 2}), ROWS),
    "the state": (EnvironmentEpisode(max_turns=3, context={"name": "state"}), WORLDS),
    "an environment": (EnvironmentEpisode(max_turns=3), WORLDS),
    "reading": (ReadingEpisode(chunk=16, divide="?", read="{question}[{note}]{chunk}", answered="{question}|{note}"), [LONG]),
    "two seats": (SeatsEpisode(seats={"a": {"name": "policy"}, "b": {"name": "policy"}}, order=["a", "b"], max_turns=5), ROWS),
}


class Watched:
    """The native engine in int8; `of` says what of a request it is given. Counts the tokens that are passed as contexts."""

    def __init__(self, numerics: str, of: Callable[[Request], Request] = lambda one: one, **how: Any) -> None:
        model = decoder(vocab=128)
        model.sums = exact.Sums(model) if numerics == "exact" else None
        self.made, self.of, self.passed, self.asked = Native(model, Run(**how), torch.int8), of, 0, 0

    def generate(self, requests: list[Request], settings: Sampling) -> Rollouts:
        given = [self.of(one) for one in requests]
        self.asked += sum(len(one.prompt) for one in given)
        self.passed += sum(len(one.prompt) - (one.kept[0].common(one.prompt) if one.kept else 0) for one in given)
        made = self.made.generate(given, settings)
        return made._replace(truncated=torch.zeros_like(made.truncated))  # no turn ends its episode


def played(case: str, engine: Watched) -> Played:
    spec, rows = EPISODES[case]
    settings = sampling(max_completion_length=9, eos=ord(cases.END))

    def decode(tokens: list[list[int]]) -> list[str]:
        return [text.replace("S:", "") for text in cases.decode(tokens)]

    setting = Setting(
        engine, settings, cases.encode, decode, rows, cases.verify, lambda row: sets.problem_of(row) if row.graph else None
    )
    return play_episodes(spec, setting, cases.asked(rows, 5))


def bare(one: Request) -> Request:
    return replace(one, kept=())


@pytest.mark.parametrize("numerics", ["fast", "exact"])
@pytest.mark.parametrize("case", EPISODES)
def test_what_is_kept_moves_no_byte_of_any_episode(case: str, numerics: str) -> None:
    alone, chance = Watched(numerics, bare), random.Random(0)

    def lost(one: Request) -> Request:
        return one if chance.random() < 0.5 else replace(one, kept=(Kept(),) * one.count)

    routes = {
        "kept": Watched(numerics),
        "in small batches": Watched(numerics, engine_batch=3),
        "lost now and then, as by a kill": Watched(numerics, lost),
        "without room for all": Watched(numerics),
    }
    routes["without room for all"].made.room.limit = 60_000
    expected = played(case, alone)
    for name, engine in routes.items():
        found = played(case, engine)
        assert found.segments == expected.segments, name
        assert all(torch.equal(a, b) for a, b in zip(found.rollouts, expected.rollouts, strict=True)), name
        assert engine.asked == alone.passed, "the same contexts"
    passed = {name: engine.passed for name, engine in routes.items()}
    assert passed["kept"] < alone.passed
    assert passed["kept"] == passed["in small batches"] <= passed["without room for all"] <= alone.passed
    assert passed["kept"] <= passed["lost now and then, as by a kill"] <= alone.passed


def test_samples_that_are_asked_for_one_by_one_share_the_pass_over_their_prompt() -> None:
    engine, prompts = Native(decoder(vocab=128), Run(engine_batch=3), torch.int8), ([5] * 40, [7] * 20)
    kept = [(Kept(),) for _ in range(8)]
    single = [Request(prompts[i // 4], i // 4, i % 4, 1, own) for i, own in enumerate(kept)]
    found = engine.generate(single, sampling(eos=None))
    expected = engine.generate([Request(prompt, number, 0, 4) for number, prompt in enumerate(prompts)], sampling(eos=None))
    assert found.request.tolist() == list(range(8))
    assert all(torch.equal(a, b) for a, b in zip(found[1:], expected[1:], strict=True))
    assert [own[0].tokens[: len(one.prompt)] for own, one in zip(kept, single, strict=True)] == [one.prompt for one in single]
    pieces = [own[0].pieces[0].data_ptr() for own in kept]
    assert [len(set(some)) for some in (pieces[:3], pieces[4:7])] == [1, 1]  # engine_batch parts each four into 3 + 1


def test_of_whole_histories_each_token_is_passed_once() -> None:
    engine = Watched("fast")
    found = played("all turns", engine)
    count = len(cases.asked(ROWS)[0].prompt) + len(cases.asked(ROWS)[1].prompt)
    for episode in found.segments or ():
        for turn, read in zip(episode[::2], episode[1::2], strict=False):
            assert turn.kind == "action"
            count += 1 + len(read.tokens or ())  # the last token that was written, and what was read
    assert engine.passed == count


@pytest.mark.parametrize("numerics", ["fast", "exact"])
def test_contexts_that_part_anywhere_give_the_samples_of_contexts_that_are_passed_whole(numerics: str) -> None:
    generator, engine = random.Random(1), Watched(numerics)
    kept, context = Kept(), [generator.randrange(2, 120) for _ in range(40)]
    settings = sampling(max_completion_length=20)
    for turn in range(12):
        asked = Request(context, 7, turn, 1, (kept,))
        found, expected = (engine.made.generate([one], settings) for one in (asked, bare(asked)))
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        assert kept.tokens == [*context, *found.tokens[0].tolist()][: len(kept.tokens)]
        assert sum(piece.shape[2] for piece in kept.pieces) == len(kept.tokens) == len(context) + int(found.lengths[0]) - 1
        more = [generator.randrange(2, 120) for _ in range(generator.randrange(1, 30))]
        whole = [*context, *found.tokens[0].tolist()]
        context = [*whole[: generator.randrange(len(whole) + 1)], *more]


def test_no_more_is_kept_than_there_is_room_for_and_nothing_of_episodes_that_are_over() -> None:
    engine = Watched("fast")
    asked = [Request([5] * 30, key, 0, 4, tuple(Kept() for _ in range(4))) for key in range(6)]

    def held() -> int:
        return sum({id(p): p.nbytes for r in asked for one in r.kept for p in one.pieces}.values())

    engine.made.generate(asked, sampling(eos=None))
    token = 2 * 2 * 2 * 16 * 4
    assert held() == token * (6 * 30 + 24 * 39), "a group's prompt once, and all that each sample wrote but its last token"
    del asked[1:]
    engine.made.room.count([])
    assert engine.made.room.left == (512 << 20) - held()
    asked = [replace(one, kept=tuple(Kept() for _ in one.kept)) for one in asked * 3]
    engine.made.room.limit = token * 100
    engine.made.generate(asked, sampling(eos=None))
    assert 0 < held() <= token * 100


def test_contexts_that_part_within_a_prompt_share_what_is_left_of_it_and_take_no_memory_by_it() -> None:
    engine, some = Watched("fast").made, tuple(Kept() for _ in range(4))
    settings = sampling(eos=None, max_completion_length=8)
    engine.generate([Request([5] * 30, 0, 0, 4, some)], settings)
    asked = [Request([5] * 20 + [6 + i] * 7, 0, i, 1, (one,)) for i, one in enumerate(some)]
    found, expected = (engine.generate(given, settings) for given in (asked, [bare(one) for one in asked]))
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert [one.pieces[0].shape[2] for one in some] == [20] * 4
    assert len({one.pieces[0].data_ptr() for one in some}) == 1
    engine.room.count([])
    assert engine.room.limit - engine.room.left == 2 * 2 * 2 * 16 * 4 * (30 + 4 * (7 + 7)), "the prompt, and what is new of each"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_where_pytorch_computes_the_layers_nothing_is_kept(dtype: torch.dtype) -> None:
    asked = Request([5] * 30, 0, 0, 1, (Kept(),))
    Native(decoder(), Run(), dtype).generate([asked], sampling())
    assert not asked.kept[0].pieces
