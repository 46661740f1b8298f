"""The format ladder against hand-made histories: who is promoted, on what, how far, and that it goes on from its saved state."""

import pytest
from pydantic import ValidationError
from reform_cases import TASK, row, rows

from interplay.core.model import PermanentError
from interplay.data.curate import StepInputs
from interplay.data.steps.context_spec import Ladder
from interplay.data.steps.reformulate import reformulate_rows
from interplay.rl.difficulty_samplers import FormatLadder
from interplay.rl.sampler import Outcome, PromptSource
from interplay.rl.sampler_spec import FormatLadderSampler
from interplay.rl.samplers import build_sampler
from interplay.tasks.verdict import Row

FORMATS = ["four_choice", "ten_choice", "cloze", "open"]
ROWS = reformulate_rows(Ladder(distractors="near"), rows(12), StepInputs(0, {}, 0)).rows
QUESTIONS = list(dict.fromkeys(made.origin for made in ROWS))


def deck(seed: int = 0, given: list[Row] = ROWS) -> PromptSource:
    return PromptSource([len(given)], [1.0], seed, 100, given)


def made(seed: int = 0, **keys: object) -> FormatLadder:
    return build_sampler(FormatLadderSampler.model_validate(keys), deck(seed))


def modes(draws: FormatLadder, m: int = len(QUESTIONS)) -> dict[str, str]:
    """Origin -> mode of the next m draws."""
    return {ROWS[i].origin: ROWS[i].mode for i in draws.select(m, 1)}


def outcome(i: int, right: int, of: int = 8, reward: float = 0.0) -> Outcome:
    return Outcome(i, (reward,) * of, 0, right)


def at(origin: str, mode: str) -> int:
    return next(i for i, one in enumerate(ROWS) if (one.origin, one.mode) == (origin, mode))


def test_every_question_starts_in_its_easiest_format_and_is_drawn_once_per_epoch() -> None:
    draws = made()
    drawn = [ROWS[i] for _ in range(4) for i in draws.select(6, 1)]
    assert {one.mode for one in drawn} == {"four_choice"}
    assert sorted(one.origin for one in drawn) == sorted(QUESTIONS * 2)
    assert [one.origin for one in drawn[:12]] != [one.origin for one in drawn[12:]]


def test_a_question_climbs_one_valid_format_at_a_time_and_never_back() -> None:
    two_digits = next(one.origin for one in ROWS if one.mode == "cloze")
    one_digit = next(origin for origin in QUESTIONS if all(one.mode != "cloze" for one in ROWS if one.origin == origin))
    draws, seen = made(), {two_digits: ["four_choice"], one_digit: ["four_choice"]}
    for right in (8, 8, 0, 8, 8, 0):
        for origin in seen:
            draws.observe(1, [outcome(at(origin, seen[origin][-1]), right)])
        now = modes(draws)
        for origin, formats in seen.items():
            if now[origin] != formats[-1]:
                formats.append(now[origin])
    assert seen == {two_digits: FORMATS, one_digit: ["four_choice", "ten_choice", "open"]}


# mean 5/8 of a choice of four: (5/8 - 1/4) / (3/4) = 1/2, which does not exceed 1/2.
@pytest.mark.parametrize(("right", "corrected", "published"), [(4, False, False), (5, False, True), (6, True, True)])
def test_the_threshold_is_corrected_for_chance_unless_as_published(right: int, corrected: bool, published: bool) -> None:
    i = at(QUESTIONS[0], "four_choice")
    for keys, expected in (({}, corrected), ({"chance_correction": False}, published)):
        draws = made(**keys)
        draws.observe(1, [outcome(i, right)])
        assert (modes(draws)[QUESTIONS[0]] == "ten_choice") is expected


def test_a_reward_for_form_promotes_only_where_the_published_rule_is_asked_for() -> None:
    formed = outcome(at(QUESTIONS[0], "four_choice"), right=0, reward=0.9)
    for keys, expected in (({}, "four_choice"), ({"promote_on": "reward"}, "ten_choice")):
        draws = made(**keys)
        draws.observe(1, [formed])
        assert modes(draws)[QUESTIONS[0]] == expected


def test_the_rolling_mean_needs_a_full_window_and_starts_anew_after_a_promotion() -> None:
    draws, i = made(window=2, chance_correction=False), at(QUESTIONS[0], "four_choice")
    draws.observe(1, [outcome(i, 8)])
    assert modes(draws)[QUESTIONS[0]] == "four_choice"  # one batch
    draws.observe(2, [outcome(i, 0)])
    assert modes(draws)[QUESTIONS[0]] == "four_choice"  # (1 + 0) / 2 does not exceed 1/2
    draws.observe(3, [outcome(i, 5)])
    assert modes(draws)[QUESTIONS[0]] == "four_choice"  # (0 + 5/8) / 2
    draws.observe(4, [outcome(i, 8)])
    assert modes(draws)[QUESTIONS[0]] == "ten_choice"  # (5/8 + 1) / 2
    draws.observe(5, [outcome(at(QUESTIONS[0], "ten_choice"), 8)])
    assert modes(draws)[QUESTIONS[0]] == "ten_choice"  # the history began anew


def test_a_question_drawn_twice_in_a_batch_has_one_mean() -> None:
    draws, i = made(chance_correction=False), at(QUESTIONS[0], "four_choice")
    draws.observe(1, [outcome(i, 8), outcome(i, 0)])
    assert modes(draws)[QUESTIONS[0]] == "four_choice"
    draws.observe(1, [outcome(i, 8), outcome(i, 1)])
    assert modes(draws)[QUESTIONS[0]] == "ten_choice"


def test_random_promotion_moves_as_many_as_the_rule_would_but_not_the_same() -> None:
    ids = [at(origin, "four_choice") for origin in QUESTIONS]
    results = [outcome(i, 8 if place < 4 else 0) for place, i in enumerate(ids)]
    moved = []
    for seed in range(8):
        adaptive, random = made(seed), made(seed, promotion="random")
        for draws in (adaptive, random):
            draws.observe(1, results)
        assert [o for o, mode in modes(adaptive).items() if mode == "ten_choice"].sort() == QUESTIONS[:4].sort()
        moved.append(frozenset(o for o, mode in modes(random).items() if mode == "ten_choice"))
    assert {len(some) for some in moved} == {4}
    assert len(set(moved)) > 4
    assert set.union(*map(set, moved)) > set(QUESTIONS[:4])


def test_random_promotion_at_a_rate_looks_at_no_score() -> None:
    ids, moved = [at(origin, "four_choice") for origin in QUESTIONS], 0
    for seed in range(60):
        draws = made(seed, promotion="random", rate=0.25)
        draws.observe(1, [outcome(i, 0) for i in ids])
        moved += list(modes(draws).values()).count("ten_choice")
    assert abs(moved / (60 * len(ids)) - 0.25) < 0.05


def test_fixed_promotion_moves_none() -> None:
    draws = made(promotion="fixed")
    for step in range(3):
        draws.observe(step, [outcome(at(origin, "four_choice"), 8) for origin in QUESTIONS])
    assert set(modes(draws).values()) == {"four_choice"}


def test_what_is_logged_are_promotions_and_the_share_at_each_format() -> None:
    draws = made()
    draws.observe(1, [outcome(at(origin, "four_choice"), 8) for origin in QUESTIONS[:3]])
    assert draws.metrics() == {
        "promoted": 3.0, "share_four_choice": 0.75, "share_ten_choice": 0.25, "share_cloze": 0.0, "share_open": 0.0,
    }  # fmt: skip


@pytest.mark.parametrize("keys", [{}, {"promotion": "random"}, {"promotion": "random", "rate": 0.3}, {"window": 3}])
def test_it_goes_on_from_its_state_as_if_it_had_never_stopped(keys: dict) -> None:
    def steps(draws: FormatLadder, numbers: range) -> list[list[int]]:
        seen = []
        for step in numbers:
            seen.append(draws.select(5, step))
            draws.observe(step, [outcome(i, (i * 7 + step) % 9) for i in seen[-1]])
        return seen

    whole, first, second = (made(3, **keys) for _ in range(3))
    expected = steps(whole, range(1, 25))
    steps(first, range(1, 13))
    second.load_state_dict(first.state_dict(), first.tensors())
    assert steps(second, range(13, 25)) == expected[12:]
    assert second.metrics() == whole.metrics()
    assert whole.metrics()["promoted"] > 0


def test_questions_of_several_sets_are_drawn_by_the_mix_and_plain_rows_have_one_rung() -> None:
    plain = [row(TASK, 4, 500 + place, place) for place in range(4)]
    draws = build_sampler(FormatLadderSampler(), PromptSource([len(ROWS), 4], [0.5, 0.5], 0, 1, [*ROWS, *plain]))
    drawn = draws.select(8, 1)
    assert sum(i >= len(ROWS) for i in drawn) == 4
    draws.observe(1, [outcome(i, 8) for i in drawn])
    assert all(([*ROWS, *plain][i].mode == "forward") == (i >= len(ROWS)) for i in draws.select(8, 2))


def test_a_row_in_no_format_of_the_ladder_or_a_format_twice_is_refused() -> None:
    with pytest.raises(PermanentError, match=r"each must be one of .*, once; not cloze"):
        build_sampler(FormatLadderSampler(formats=["four_choice", "ten_choice", "open"]), deck())
    with pytest.raises(PermanentError, match="not four_choice"):
        build_sampler(FormatLadderSampler(), deck(0, [ROWS[0], ROWS[0]]))


def test_keys_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(ValidationError, match="rate is a key of random promotion"):
        FormatLadderSampler(rate=0.5)
    with pytest.raises(ValidationError, match="each format once"):
        FormatLadderSampler(formats=["open", "open"])


def test_formats_as_sets_of_their_own_are_refused_when_the_run_begins() -> None:
    easy, hard = ([one for one in ROWS if one.mode == mode] for mode in ("four_choice", "open"))
    told = r"data\.1 has share 0\.5 .*; join the sets into one, for instance with the step ladder"
    with pytest.raises(PermanentError, match=told):
        build_sampler(FormatLadderSampler(), PromptSource([len(easy), len(hard)], [0.5, 0.5], 0, 1, [*easy, *hard]))
    build_sampler(FormatLadderSampler(), PromptSource([len(easy), len(hard)], [1.0, 0.0], 0, 1, [*easy, *hard])).select(8, 1)
