"""Episodes of several turns: what they leave, what each turn earns, and that nothing is learnt from what was only read."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import test_rl_update as toy
import torch
import turn_cases as cases
from hypothesis import given, strategies as st
from pydantic import ValidationError
from rl_cases import RIGHT, WRONG, batch_of, now_of

from interplay.rl.advantage_spec import GainAdvantage, GroupAdvantage, TurnAdvantage
from interplay.rl.advantages import advantages
from interplay.rl.batch import Batch, Span, first_turns, join, take
from interplay.rl.draw import episode_rewards
from interplay.rl.edit_spec import AttemptsShaping, ImprovementShaping
from interplay.rl.policy import likelihoods, scores
from interplay.rl.records import measure_step, sampled_counts
from interplay.rl.reward_spec import OutcomeReward
from interplay.rl.shaping import shape_rewards
from interplay.rl.spec import RLSpec
from interplay.rl.turn_credit import returns
from interplay.rl.update import update
from interplay.rollout.episodes import play_episodes
from interplay.rollout.spec import CompletionEpisode, RetryEpisode
from interplay.tasks.verdict import Verdict

# --- what an episode leaves ---

ROWS = [cases.row("p|", "4"), cases.row("qq|", "7")]


def says(text: str, sample: int) -> str:
    """Of p: sample 0 is right at once, sample 1 after two further tries; of q: always wrong, and sample 1 is cut at once."""
    if text.startswith("q"):
        return "12345" if sample else "1$"
    return "4$" if not sample or text.count("?") == 2 else "33$"


def test_a_wrong_answer_is_followed_by_the_feedback_and_another_try() -> None:
    setting = cases.setting(says, ROWS)
    played = play_episodes(RetryEpisode(max_turns=3, feedback="?"), setting, cases.asked(ROWS, 2))
    texts = ["".join(map(chr, row[:n])) for row, n in zip(played.rollouts.tokens.tolist(), played.rollouts.lengths, strict=True)]
    assert texts == ["4$", "33$?33$?4$", "1$?1$?1$", "12345"]
    assert played.rollouts.request.tolist() == [0, 0, 1, 1]
    assert played.rollouts.sample.tolist() == [0, 1, 0, 1]
    assert played.rollouts.truncated.tolist() == [False, False, False, True]
    observed = ["".join(".o"[int(o)] for o in row[:n]) for row, n in zip(played.observed, played.rollouts.lengths, strict=True)]
    assert observed == ["..", "...o...o..", "..o..o..", "....."]
    assert [[(t.start, t.end) for t in turns] for turns in played.turns] == [
        [(0, 2)], [(0, 3), (4, 7), (8, 10)], [(0, 2), (3, 5), (6, 8)], [(0, 5)],
    ]  # fmt: skip
    assert [[t.verdict.answer for t in turns] for turns in played.turns] == [[True], [False, False, True], [False] * 3, [False]]
    of_read = played.rollouts.logprobs[played.observed]
    assert of_read.tolist() == [0.0] * 4
    assert played.rollouts.logprobs[1, :3].tolist() == [-1.0] * 3
    assert [(one.kind, one.text, one.turn, one.answer) for one in played.segments[1]] == [
        ("action", "33", 0, False), ("observation", "?", 0, None), ("action", "33", 1, False), ("observation", "?", 1, None),
        ("action", "4", 2, True),
    ]  # fmt: skip
    for i, segments in enumerate(played.segments):
        assert [t for one in segments for t in one.tokens] == played.rollouts.tokens[i, : played.rollouts.lengths[i]].tolist()


def test_the_first_turn_is_the_completion_and_no_turn_repeats_the_noise_of_another() -> None:
    setting = cases.setting(says, ROWS, seed=5)
    play_episodes(RetryEpisode(max_turns=3, feedback="?"), setting, cases.asked(ROWS, 2))
    first, second, third = setting.engine.asked
    assert first == (cases.asked(ROWS, 2), 5)
    assert [(r.key, r.first, r.count) for r in second[0]] == [(10, 1, 1), (11, 0, 1)], "known by its prompt and its sample"
    assert len({5, second[1], third[1]}) == 3


def test_two_attempts_are_made_whatever_the_first_was() -> None:
    spec = RetryEpisode(max_turns=2, feedback="?", always=True)
    played = play_episodes(spec, cases.setting(says, ROWS[:1]), cases.asked(ROWS[:1], 2))
    assert [[t.verdict.answer for t in turns] for turns in played.turns] == [[True, True], [False, False]]
    assert "".join(map(chr, played.rollouts.tokens[0, :5].tolist())) == "4$?4$"


def test_with_a_window_each_turn_is_a_row_that_follows_the_last_turns_alone() -> None:
    spec = RetryEpisode(max_turns=4, feedback="?", window=1)
    setting = cases.setting(lambda text, sample: f"{len(text)}$", ROWS[1:])
    played = play_episodes(spec, setting, cases.asked(ROWS[1:]))
    assert ["".join(map(chr, p)) for p in played.prompts] == ["qq|", "qq|3$?", "qq|6$?", "qq|6$?"]
    contexts = ["".join(map(chr, r.prompt)) for requests, _ in setting.engine.asked for r in requests]
    assert contexts == ["".join(map(chr, p)) for p in played.prompts], "what is learnt is what was sampled from"
    assert played.excluded.tolist() == [True, True, True, False], "the episode counts once"
    assert all(len(turns) == 4 for turns in played.turns)
    assert [[t.end > 0 for t in turns].index(True) for turns in played.turns] == [0, 1, 2, 3]
    assert not played.observed.any()


@given(st.integers(1, 4), st.integers(2, 5), st.integers(0, 5))
def test_every_token_of_a_row_is_read_or_stands_in_one_turn(window: int, most: int, right_at: int) -> None:
    def tries(text: str, sample: int) -> str:
        return "4$" if text.count("?") == right_at else "x" * (1 + sample) + "$"

    for spec in (RetryEpisode(max_turns=most, feedback="?"), RetryEpisode(max_turns=most, feedback="?", window=window)):
        played = play_episodes(spec, cases.setting(tries, ROWS[:1]), cases.asked(ROWS[:1], 3))
        for i, of_row in enumerate(played.turns):
            inside = torch.zeros(int(played.rollouts.lengths[i]), dtype=torch.int64)
            for turn in of_row:
                inside[turn.start : turn.end] += 1
            assert (inside + played.observed[i, : len(inside)] == 1).all()
            seen = right_at if spec.window is None else min(right_at, window)  # feedback that one context holds
            assert len(of_row) == (min(most, right_at + 1) if seen == right_at else most)


# --- what turns earn ---


def test_a_turn_is_paid_as_a_completion_is_and_the_episode_is_worth_its_last() -> None:
    played = play_episodes(RetryEpisode(max_turns=3, feedback="?"), cases.setting(says, ROWS), cases.asked(ROWS, 2))
    found = episode_rewards(OutcomeReward(), played, [ROWS[0], ROWS[0], ROWS[1], ROWS[1]])
    assert found.rewards.sequence == [1, 1, 0, 0]
    assert [[s.value for s in spans] for spans in found.rewards.spans] == [[1], [0, 0, 1], [0, 0, 0], [0]]
    assert [[s.position for s in spans] for spans in found.rewards.spans] == [[0], [0, 1, 2], [0, 1, 2], [0]]
    with pytest.raises(ValueError, match="paid as a whole"):
        episode_rewards(OutcomeReward(), play_episodes(CompletionEpisode(), cases.setting(says, ROWS), cases.asked(ROWS)), ROWS)


def tried(*said: tuple[str, float]) -> tuple[list[Verdict | None], list[Span]]:
    verdicts: list[Verdict | None] = [(RIGHT if value else WRONG)._replace(said=text) for text, value in said]
    return verdicts, [Span(3 * i, 3 * i + 2, i, value) for i, (_, value) in enumerate(said)]


def turned(*rows: tuple[list[Verdict | None], list[Span]], groups: list[int] | None = None, **more: Any) -> Batch:
    """A batch of episodes of turns of two tokens with one read token after each but the last."""
    lengths = [spans[-1].end for _, spans in rows]
    observed = torch.zeros(len(rows), max(lengths), dtype=torch.bool)
    observed[:, 2::3] = True
    observed &= torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    given: dict[str, Any] = {"observed": observed, "turns": [v for v, _ in rows], "spans": [s for _, s in rows], **more}
    return batch_of([spans[-1].value for _, spans in rows], groups or [0] * len(rows), lengths, **given)


UFO = [tried(("4", 1)), tried(("1", 0), ("4", 1)), tried(("1", 0), (" 1", 0), ("2", 0)), tried(("A b", 0), ("ab", 0))]


def test_ufo_pays_less_for_later_answers_and_charges_repeated_ones_by_hand() -> None:
    found = shape_rewards(turned(*UFO), now_of(shaping=[AttemptsShaping(gamma=0.5, repeats=0.5)]))
    assert found.rewards.tolist() == pytest.approx([1, 0.5, -0.5 * (1 - 2 / 3), -0.5 * (1 - 1 / 2)])
    assert [[s.value for s in spans] for spans in found.spans][1:3] == [[0, 0.5], [0, 0, pytest.approx(-1 / 6)]]
    assert found.parts["attempts"].tolist() == pytest.approx([0, -0.5, -1 / 6, -1 / 4])


def test_score_rewards_the_second_answer_for_corrections_and_charges_new_errors_by_hand() -> None:
    rows = [tried(("1", 0), ("4", 1)), tried(("4", 1), ("1", 0)), tried(("4", 1), ("4", 1)), tried(("1", 0), ("1", 0))]
    found = shape_rewards(turned(*rows), now_of(shaping=[ImprovementShaping(alpha=10)]))
    assert [[s.value for s in spans] for spans in found.spans] == [[0, 11], [1, -10], [1, 1], [0, 0]]
    first = shape_rewards(turned(*rows), now_of(shaping=[ImprovementShaping(alpha=0, first=0)]))
    assert [[s.value for s in spans] for spans in first.spans] == [[0, 1], [0, 0], [0, 1], [0, 0]]


@given(st.lists(st.floats(-5, 5), max_size=6), st.floats(0, 1))
def test_returns_are_discounted_sums_of_what_is_to_come(rewards: list[float], gamma: float) -> None:
    got = returns(rewards, gamma)
    for t, value in enumerate(got):
        assert value == pytest.approx(sum(gamma ** (k - t) * r for k, r in enumerate(rewards) if k >= t))


def test_turn_returns_compare_the_turns_of_one_number_by_hand() -> None:
    rows = [tried(("1", 0), ("4", 1)), tried(("4", 1), ("1", 0)), tried(("4", 1))]
    got = advantages(TurnAdvantage(gamma=0.5, scale_rewards="none"), turned(*rows), now_of())
    # Returns: 0.5 and 1; 1 and 0; 1. The mean of the first turns is 5/6, of the second ones 1/2.
    assert got[0].tolist() == pytest.approx([0.5 - 5 / 6] * 2 + [0] + [0.5] * 2)
    assert got[1].tolist() == pytest.approx([1 - 5 / 6] * 2 + [0] + [-0.5] * 2)
    assert got[2].tolist() == pytest.approx([1 - 5 / 6] * 2 + [0] * 3)
    plain = advantages(GroupAdvantage(scale_rewards="none"), turned(*rows), now_of())
    assert plain[0].tolist() == pytest.approx([1 - 2 / 3] * 2 + [0] + [1 - 2 / 3] * 2), "GRPO pays every turn for the last"


@pytest.mark.parametrize("normalise", ["per_position", "pooled"])
def test_the_order_of_episodes_does_not_matter_and_what_was_read_has_no_advantage(normalise: str) -> None:
    batch, spec = turned(*UFO, *UFO[::-1], groups=[0] * 4 + [1] * 4), TurnAdvantage(gamma=0.9, normalise=normalise)
    plain = advantages(spec, batch, now_of())
    order = torch.tensor([3, 0, 6, 5, 1, 7, 2, 4])
    torch.testing.assert_close(advantages(spec, take(batch, order), now_of()), plain[order], atol=1e-5, rtol=1e-5)
    assert plain.any()
    assert not plain[~batch.mask()].any()
    equal = replace(batch, spans=[[span._replace(value=0.0) for span in row] for row in batch.spans])
    assert not advantages(spec, equal, now_of()).any(), "episodes without a difference teach nothing"


def test_igpo_rewards_turns_for_information_on_the_answer_by_hand() -> None:
    rows = [tried(("", 0), ("", 0), ("4", 1)), tried(("", 0), ("4", 1)), tried(("4", 1))]
    tokens = torch.arange(24).view(3, 8)
    asked = []

    def likelihood(contexts: list[list[int]], texts: list[list[int]]) -> list[float]:
        asked.extend(zip(contexts, texts, strict=True))
        return [-4.0, -2.0, -1.0, -3.0, -3.0]

    now = now_of(rows=[SimpleNamespace(answer="4")], encode=lambda text: [ord(c) for c in text], likelihood=likelihood)
    batch = turned(*rows, tokens=tokens)
    got = advantages(GainAdvantage(gamma=0.5, template="={answer}"), batch, now)
    # The answer is asked for behind the prompt, and behind each turn with what was read after it, but the last.
    assert [context for context, _ in asked] == [[1, 2], [1, 2, 0, 1, 2], [1, 2, 0, 1, 2, 3, 4, 5], [1, 2], [1, 2, 8, 9, 10]]
    assert {tuple(text) for _, text in asked} == {(ord("="), ord("4"))}
    # Gains 2, 1; 0; none: mean 1, deviation 1. Outcomes are equal and worth 0.
    z = [1 / (1 + 1e-4), 0.0, -1 / (1 + 1e-4)]
    assert got[0].tolist() == pytest.approx([z[0]] * 2 + [0] + [z[1]] * 2 + [0] + [0] * 2)
    assert got[1].tolist() == pytest.approx([z[2]] * 2 + [0] * 6)
    assert got[2].tolist() == [0] * 8
    assert not advantages(GroupAdvantage(), batch, now).any(), "GRPO learns nothing where all are right"
    lost = turned(rows[0], tried(("", 0), ("1", 0)), rows[2], tokens=tokens)
    o = 1 / 3 / (3**-0.5 + 1e-4)  # of outcomes 1, 0, 1
    second = advantages(GainAdvantage(gamma=0.5, template="={answer}"), lost, now)
    assert second[0, [0, 3, 6]].tolist() == pytest.approx([z[0] + 0.5 * z[1] + 0.25 * o, z[1] + 0.5 * o, o])
    assert second[1, [0, 3]].tolist() == pytest.approx([z[2] - o, -2 * o])


def test_the_likelihood_of_an_answer_is_that_of_its_tokens_alone_however_it_is_cut() -> None:
    policy = toy.decoder()
    contexts, texts = [[1, 2, 3], [4], [1, 2, 3, 5, 6]], [[7, 8], [9], [7, 8]]
    for tokens in (1, 10**6):
        for context, text, got in zip(contexts, texts, likelihoods(policy, contexts, texts, torch.float32, tokens), strict=True):
            ids = torch.tensor([context + text])
            logs = policy.logits(policy.hidden(ids, torch.arange(ids.shape[1])[None]))[0].log_softmax(-1).detach()
            own = [float(logs[len(context) - 1 + n, token]) for n, token in enumerate(text)]
            assert got == pytest.approx(sum(own) / len(own), abs=1e-5)


def test_rows_of_an_episode_that_are_aside_do_not_count_and_are_compared_with_those_that_do() -> None:
    batch = replace(turned(*UFO[:2], *UFO[:2]), excluded=torch.tensor([False, False, True, True]))
    got = advantages(GroupAdvantage(scale_rewards="none"), batch, now_of())
    assert got[2:].tolist() == got[:2].tolist()
    values = {**measure_step(replace(batch, rewards=torch.tensor([1.0, 0, 5, 5])), torch.ones(4)), **sampled_counts(batch)}
    assert (values["reward"], values["completions"], values["turns"], values["answer_first"]) == (0.5, 2, 1.5, 0.5)


def test_groups_that_pass_or_fail_are_counted_by_the_verdict_and_not_by_what_is_paid() -> None:
    """A length penalty takes from what is right, and a bonus pays what is wrong."""
    right = torch.tensor([True, True, False, False, True, False])
    paid = torch.tensor([0.9, 0.8, 0.1, 0.2, 1, 0])
    shaped = replace(toy.batch_of(toy.REWARDS[:6], size=2), right=right, rewards=paid)
    values = measure_step(shaped, torch.zeros(6))
    assert (values["frac_all_pass"], values["frac_all_fail"]) == pytest.approx((1 / 3, 1 / 3))


def test_rows_are_taken_and_joined_with_what_was_read() -> None:
    batch = turned(*UFO)
    some = take(batch, torch.tensor([2, 0]))
    assert (some.observed.sum(1).tolist(), [len(t) for t in some.turns]) == ([2, 0], [3, 1])
    both = join([take(batch, torch.tensor([0])), batch], 0)
    assert both.observed.shape == (5, 8)
    assert both.num_action_tokens().tolist() == [2, 2, 4, 6, 4]


# --- nothing is learnt from what was read ---


def read(batch: Batch) -> Batch:
    """Of each row of three tokens or more the second and third are what was read, between two turns."""
    observed = torch.zeros(batch.tokens.shape, dtype=torch.bool)
    observed[:, 1:3] = (batch.lengths > 3)[:, None]
    spans = [
        [Span(0, 1, 0, 0.0), Span(3, n, 1, r)] if n > 3 else [Span(0, n, 0, r)]
        for n, r in zip(batch.lengths.tolist(), batch.rewards.tolist(), strict=True)
    ]
    return replace(batch, observed=observed, spans=spans, turns=[[None] * len(row) for row in spans])


@pytest.mark.parametrize("loss", [{"loss_type": "dapo"}, {"loss_type": "grpo", "importance_sampling_level": "sequence"}])
def test_tokens_that_were_read_have_no_gradient_and_no_weight(loss: dict[str, str]) -> None:
    batch, policy = read(toy.batch_of(toy.REWARDS)), toy.decoder()
    advantage = toy.advantage_of(batch)
    assert not advantage[batch.observed].any()
    loud = torch.where(batch.observed, 1e6, advantage)  # the mask, not the advantage, keeps them out
    results = []
    for each in (advantage, loud):
        policy = toy.decoder()
        update(toy.learner(policy, **loss), batch, each, 1)
        results.append(torch.nn.utils.parameters_to_vector(policy.parameters()).detach())
    assert torch.equal(*results)
    if loss["loss_type"] == "dapo":
        total, policy = torch.zeros(()), toy.decoder()
        for i in range(len(batch)):
            n = int(batch.lengths[i])
            chosen = toy.naive_logprobs(policy, batch, i).gather(1, batch.tokens[i, :n, None])[:, 0]
            total = total - (advantage[i, :n] * chosen)[~batch.observed[i, :n]].sum() / int(batch.num_action_tokens().sum())
        total.backward()
        before = torch.nn.utils.parameters_to_vector(policy.parameters()).detach()
        gradient = torch.cat([p.grad.flatten() for p in policy.parameters()])
        torch.testing.assert_close(results[0] - before, -0.5 * gradient, atol=1e-6, rtol=1e-3)


def test_what_was_read_is_in_no_statistic_of_what_was_written() -> None:
    batch = read(toy.batch_of(toy.REWARDS))
    loud = replace(batch, logprobs=torch.where(batch.observed, -1e6, batch.logprobs))
    values = {**measure_step(loud, torch.zeros(len(batch))), **sampled_counts(loud)}
    mask = batch.mask()
    assert values["entropy"] == pytest.approx(float(-batch.logprobs[mask].mean()))
    assert values["completion_tokens"] == int(mask.sum()) < int(batch.lengths.sum())
    assert values["length"] == pytest.approx(int(mask.sum()) / len(batch))


def test_the_kl_term_of_the_first_turn_holds_the_first_turn_alone() -> None:
    batch = read(toy.batch_of(toy.REWARDS))
    first = first_turns(batch)
    assert first.sum() < batch.mask().sum()
    policy, reference = toy.decoder(), toy.decoder(seed=1)
    rows = torch.arange(len(batch))
    logp = scores(policy, batch, rows, 1.0, torch.float32).logp
    difference = scores(reference, batch, rows, 1.0, torch.float32).logp.detach() - logp
    (0.1 * (difference.exp() - 1 - difference) * first).sum().div(int(batch.mask().sum())).backward()
    gradient = torch.cat([p.grad.flatten() for p in policy.parameters()])
    before = torch.nn.utils.parameters_to_vector(policy.parameters()).detach().clone()
    policy = toy.decoder()
    advantage = torch.zeros(batch.tokens.shape)
    advantage[0, 0] = 1e-9  # else no optimiser step is made at all
    learner = toy.learner(policy, rate=0.1)._replace(references=((1.0, reference),))
    loss = learner.spec.method.loss.model_copy(update={"first_turn_beta": 0.1})
    method = learner.spec.method.model_copy(update={"loss": loss, "episode": RetryEpisode()})
    update(learner._replace(spec=learner.spec.model_copy(update={"method": method})), batch, advantage, 1)
    got = torch.nn.utils.parameters_to_vector(policy.parameters()).detach() - before
    torch.testing.assert_close(got, -0.1 * gradient, atol=1e-6, rtol=1e-3)


# --- what does not go together ---


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ({"advantage": {"name": "turn_returns"}}, "turn_returns needs a member that has several turns; write method.episode = retry, environment"),
        ({"shaping": [{"name": "attempts"}]}, "attempts needs a member that has several turns"),
        ({"loss": {"name": "clipped", "first_turn_beta": 0.1}}, "clipped needs a member that has a first turn for first_turn_beta"),
        ({"episode": {"name": "retry", "window": 1}, "edits": [{"name": "replay"}]}, "replay does not go with method.episode = retry"),
        ({"episode": {"name": "retry"}, "shaping": [{"name": "overlong"}]}, "overlong does not go with method.episode = retry"),
        ({"episode": {"name": "retry"}, "continuation": {"name": "guide"}}, "episode = retry needs .*; write method.continuation = none"),
        (
            {
                "episode": {"name": "retry"}, "advantage": {"name": "turn_returns"},
                "loss": {"name": "clipped", "importance_sampling_level": "sequence"},
            },
            "turn_returns does not go with method.loss = clipped, .*importance_sampling_level: sequence_token",
        ),
    ],
)  # fmt: skip
def test_what_does_not_go_with_an_episode_is_refused_in_one_line(method: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message) as caught:
        RLSpec.model_validate({"method": {"paper": "p", **method}, "mix": [1.0], "steps": 1})
    assert "\n" not in caught.value.errors()[0]["msg"]
