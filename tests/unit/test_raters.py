"""Raters of different tastes: how they label pairs, how a policy reads them in its context, and how a mixture of heads is told
whom to trust."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import world
from test_prefer import spec_of as prefer_of
from test_rejection import GOLD, SWAPPED, WRONG, evaluation, source
from test_reward_model import FAST, spec_of as reward_of

from interplay.core.artifact import write_json
from interplay.core.execution import Run
from interplay.core.model import PermanentError, UserError
from interplay.data import batches, sets, tokenizer
from interplay.data.curate import StepInputs
from interplay.data.steps.filter import RATERS, make_rated_pairs
from interplay.data.steps.spec import RatedPairs
from interplay.model.trainer_spec import TuneOptimizer
from interplay.tasks.verdict import Row
from interplay.train import prefer, reward_model
from interplay.train.reward_model import accuracy_by_rater, route_heads
from interplay.train.spec import Routing

SHORT = "c8#8"
"""Right by its answer, and with nothing before it."""


def step(folder: Path, spec: RatedPairs, *completions: list[str], seed: int = 0, cut: tuple = ()) -> Any:
    rows = [source(index) for index in range(len(completions))]
    inputs = StepInputs(0, {"data.0": folder, "samples.0.0.0": evaluation(folder, dict(enumerate(completions)), cut)}, seed)
    return make_rated_pairs(spec, rows, inputs)


# --- labels ---


def test_what_each_rater_thinks_of_a_sample_by_hand() -> None:
    spec = RatedPairs(by="answer")
    sample = {"completion": "a,bc,d", "strict": False, "answer": True}
    found = {name: rate(spec, sample) for name, rate in RATERS.items()}
    assert found == {"shorter": -6, "longer": 6, "more_steps": 2, "fewer_steps": -2, "right": 1.0}
    assert RATERS["right"](RatedPairs(), sample) == 0.0


@pytest.mark.parametrize(
    ("rater", "chosen"),
    [("shorter", WRONG[:5]), ("longer", GOLD), ("more_steps", GOLD), ("fewer_steps", WRONG[:5]), ("right", GOLD)],
)
def test_a_rater_chooses_what_it_likes_and_its_name_stays(tmp_path: Path, rater: Any, chosen: str) -> None:
    (row,) = step(tmp_path, RatedPairs(raters=[rater]), [GOLD, WRONG[:5]]).rows
    assert (row.solution, {row.solution, row.rejected}, row.rater) == (chosen, {GOLD, WRONG[:5]}, rater)
    sets.write_table(sets.table_of_rows([row]), tmp_path / "set")
    write_json(tmp_path / "set" / "stage.json", {"digest": "set"})
    assert [kept.rater for kept in sets.read_rows(tmp_path / "set", 0)] == [rater]


def test_a_rater_to_whom_two_samples_are_equal_leaves_them_to_the_next(tmp_path: Path) -> None:
    """The gold and its twin in another order are equal to every rater but the one that asks for the wrong answer's other length."""
    spec = RatedPairs(raters=["right", "shorter"])
    none = step(tmp_path, spec, [GOLD, SWAPPED], seed=1)
    assert (none.rows, none.counts) == ([], {"never_apart": 1, "further": 0})
    assert {row.rater for seed in range(9) for row in step(tmp_path, spec, [GOLD, SWAPPED[:9]], seed=seed).rows} == {
        "right",
        "shorter",
    }
    (row,) = step(tmp_path, RatedPairs(raters=["right", "shorter"]), [WRONG, WRONG[:9]]).rows
    assert row.rater == "shorter", "both are wrong"


def test_raters_take_turns_over_pairs_that_all_differ(tmp_path: Path) -> None:
    samples = [GOLD, WRONG, SHORT, GOLD, ""]
    result = step(tmp_path, RatedPairs(per_prompt=9), samples)
    assert len(result.rows) == len({frozenset((row.solution, row.rejected)) for row in result.rows}) == 3
    assert len({row.rater for row in result.rows}) > 1
    first = [step(tmp_path, RatedPairs(), [GOLD, WRONG[:5]], seed=seed).rows[0].rater for seed in range(40)]
    assert set(first) == {"shorter", "more_steps", "right"}
    assert result.counts["further"] == 2
    assert not step(tmp_path, RatedPairs(), samples, cut=((0, 1), (0, 2))).rows, "what was cut is in no pair"
    with pytest.raises(PermanentError, match="has 1 samples of the 2"):
        step(tmp_path, RatedPairs(), [GOLD])


def test_a_question_may_tell_who_rates(tmp_path: Path) -> None:
    samples = [[GOLD, WRONG[:5]]] * 200
    for told, expected in ((0.0, 1 / 3), (1.0, 1.0), (0.5, 2 / 3)):
        rows = step(tmp_path, RatedPairs(told=told), *samples).rows
        own = RatedPairs().raters[source().op % 3]
        assert sum(row.rater == own for row in rows) / 200 == pytest.approx(expected, abs=0.09)


def test_a_noisy_rater_is_wrong_as_often_as_it_says(tmp_path: Path) -> None:
    rows = step(tmp_path, RatedPairs(raters=["longer"], noise=0.25), *[[GOLD, WRONG[:5]]] * 400).rows
    assert sum(row.solution != GOLD for row in rows) / 400 == pytest.approx(0.25, abs=0.06)


def test_a_stated_rater_is_named_before_the_question_and_nothing_else_changes(tmp_path: Path) -> None:
    samples = [[GOLD, WRONG[:5]]] * 9
    plain, stated = (step(tmp_path, RatedPairs(stated=stated), *samples).rows for stated in (False, True))
    places = {"shorter": "0", "more_steps": "1", "right": "2"}
    assert {row.rater for row in stated} > {"right"}
    assert [row.prompt for row in stated] == [f"{places[row.rater]}{row.prompt}" for row in plain]
    assert [replace(row, prompt="") for row in stated] == [replace(row, prompt="") for row in plain]


# --- few shots ---


def rated(raters: list[str], origins: list[str] | None = None) -> list[Row]:
    """A pair for each rater: prompt pN with cN over rN."""
    return [
        replace(
            source(n),
            prompt=f"{n}?",
            solution=f"{n}+",
            rejected=f"{n}-",
            rater=rater,
            origin=(origins or [str(i) for i in range(99)])[n],
        )
        for n, rater in enumerate(raters)
    ]


def test_shots_are_of_the_same_rater_and_of_other_questions_and_drawn_from_the_seed() -> None:
    rows = rated(["a", "b"] * 6, origins=["same", "same", "same", *map(str, range(9))])
    found = batches.draw_shots(rows, 3, 0, "prefer")
    for number, seen in enumerate(found):
        assert len(set(seen)) == 3
        assert {rows[i].rater for i in seen} == {rows[number].rater}
        assert rows[number].origin not in {rows[i].origin for i in seen}
    assert found == batches.draw_shots(rows, 3, 0, "prefer") != batches.draw_shots(rows, 3, 1, "prefer")
    with pytest.raises(UserError, match="prefer: needs 5 other pairs of the rater 'a', and a pair has 4"):
        batches.draw_shots(rows, 5, 0, "prefer")
    with pytest.raises(UserError, match="pairs without a rater; make them with a step rated_pairs"):
        batches.draw_shots(rated([""]), 0, 0, "prefer")


def test_a_prompt_stands_behind_chosen_and_rejected_of_each_shot_each_with_its_end(tmp_path: Path) -> None:
    init = world.model(tmp_path, "a" * 12)
    encoder, eos = tokenizer.load(init), tokenizer.special(init).eos
    rows = rated(["a", "a", "a"])
    shown = [batches.few_shot_prompt(rows[0], [rows[1], rows[2]]), batches.few_shot_prompt(rows[1], [])]
    found = tokenizer.encode_turns(encoder, shown, eos)
    texts = ["1?", "1+", "1-", "2?", "2+", "2-", "0?"]
    ids = [encoder.encode(text).ids for text in texts]
    ended = [each + [eos] * (text[-1] in "+-") for each, text in zip(ids, texts, strict=True)]
    assert found[0] == [i for each in ended for i in each]
    assert found[1] == encoder.encode("1?").ids


# --- the stages ---


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = tmp_path_factory.mktemp("results")
    data, held = (opposed(results, name * 12, 40, seed) for seed, name in enumerate("bc"))
    return {"init": world.model(results, "a" * 12), "data.0": data, "validation": held}


def opposed(results: Path, digest: str, size: int, seed: int) -> Path:
    """Gold solutions and their bare answers: one rater likes what the other dislikes, and no prompt tells whose turn it is."""
    rows = sets.read_rows(world.problem_set(results, f"{digest[:-1]}f", size, seed), 0)
    made = []
    for number, row in enumerate(rows):
        texts = row.solution, f"#{row.answer}"
        chosen, rejected = texts if number % 2 else texts[::-1]
        made.append(replace(row, solution=chosen, rejected=rejected, rater="longer" if number % 2 else "shorter"))
    out = results / "curate" / digest
    sets.write_table(sets.table_of_rows(made), out)
    write_json(out / "stage.json", {"kind": "curate", "digest": digest, "spec": {}, "deps": {}})
    return out


def test_a_policy_is_trained_and_judged_behind_shots_and_zero_shots_are_what_was(inputs: dict[str, Path], tmp_path: Path) -> None:
    longer = {"max_length": 512, "optimizer": TuneOptimizer(learning_rate=3e-3)}
    told = {
        shots: prefer.train_preferences(prefer_of(few_shot=shots, **longer), inputs, tmp_path / str(shots), Run())
        for shots in (0, 2)
    }
    for metrics in told.values():
        each = [metrics[f"eval_rewards/accuracies/{rater}"] for rater in ("longer", "shorter")]
        assert metrics["eval_rewards/accuracies"] == pytest.approx(np.mean(each))
    assert told[2]["tokens"] > 1.5 * told[0]["tokens"]
    prefer.train_preferences(prefer_of(few_shot=2, **longer), inputs, tmp_path / "again", Run())
    weights = [(tmp_path / name / "model/model.safetensors").read_bytes() for name in ("0", "2", "again")]
    assert weights[0] != weights[1] == weights[2]


def test_hedge_weighs_heads_by_what_they_said_of_the_labelled_pairs_by_hand() -> None:
    """Heads that give the labelled pair chances of 0.8 and 0.2, from a gate of 0.5 each: Bayes' weights are 0.8 and 0.2, and with
    two such pairs 16/17 and 1/17; eta 0.5 takes the roots, 2/3 and 1/3."""
    told = torch.tensor([[0.8, 0.2], [0.8, 0.2], [0.1, 0.9]]).log()
    gate = torch.tensor([[0.5, 0.5]] * 3).log()
    weights = route_heads(gate, told, [[1], [0], [0, 1]], 1.0).exp()
    torch.testing.assert_close(weights, torch.tensor([[0.8, 0.2], [0.8, 0.2], [16 / 17, 1 / 17]]))
    torch.testing.assert_close(route_heads(gate, told, [[1]] * 3, 0.5)[0].exp(), torch.tensor([2 / 3, 1 / 3]))
    tilted = route_heads(torch.tensor([[0.2, 0.8]]).log(), told[:1], [[0]], 1.0).exp()
    torch.testing.assert_close(tilted, torch.tensor([[0.5, 0.5]])), "it starts from the gate"
    # Pair 0 wins with 0.8 * 0.8 + 0.2 * 0.2 = 0.68, pair 2 with 1.6/17 + 0.9/17 < 0.5.
    assert accuracy_by_rater(rated(["a", "a", "b"]), told, weights.log(), "x") == {
        "x": pytest.approx(2 / 3),
        "x/a": 1.0,
        "x/b": 0.0,
    }


def test_a_mixture_that_is_told_whom_to_trust_knows_more_than_one_head() -> None:
    """One rater goes by the first feature of a completion, the other by the second; the context tells with 0.9 who rates in
    training, and nothing of it in the test. A head for each, told by four labelled pairs, is nearly always right."""
    g = torch.Generator().manual_seed(0)

    def drawn(count: int, told: float) -> tuple[torch.Tensor, torch.Tensor, list[Row]]:
        context, difference = torch.randint(0, 2, (count,), generator=g), torch.randn(count, 2, generator=g)
        rater = torch.where(torch.rand(count, generator=g) < told, context, torch.randint(0, 2, (count,), generator=g))
        sign = difference.gather(1, rater[:, None]).sign()
        rows = [replace(source(n), rater="ab"[who], origin=str(n)) for n, who in enumerate(rater.tolist())]
        return F.one_hot(context, 2).float(), difference * sign, rows

    where, gap, _ = drawn(2000, 0.9)
    held_where, held_gap, rows = drawn(1000, 0.0)
    found = {}
    for heads in (1, 2):
        score = (0.1 * torch.randn(heads, 2, generator=g)).requires_grad_()
        gate = torch.zeros(heads, 2, requires_grad=True)
        optimizer = torch.optim.Adam([score, gate], lr=0.05)
        for _ in range(400):
            weights = (where @ gate.T).log_softmax(-1)
            (-(weights + F.logsigmoid(gap @ score.T)).logsumexp(-1).mean()).backward()
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            told, weights = F.logsigmoid(held_gap @ score.T), (held_where @ gate.T).log_softmax(-1)
            trusted = route_heads(weights, told, batches.draw_shots(rows, 4, 0, "reward_model"), 1.0)
            found[heads] = [accuracy_by_rater(rows, told, each, "x")["x"] for each in (weights, trusted)]
    assert found[1][0] == found[1][1] < 0.8
    assert found[2][0] < 0.8
    assert found[2][1] > 0.9


def test_a_reward_model_says_what_routing_adds_for_all_and_for_each_rater(inputs: dict[str, Path], tmp_path: Path) -> None:
    found = {}
    for heads in (1, 2):
        spec = reward_of(heads=heads, optimizer=FAST, routing=Routing(pairs=4))
        found[heads] = reward_model.train_reward_model(spec, inputs, tmp_path / str(heads), Run())
        kinds = {name: found[heads][f"eval_{name}_accuracy"] for name in ("gated", "routed")}
        for name, value in kinds.items():
            each = [found[heads][f"eval_{name}_accuracy/{rater}"] for rater in ("longer", "shorter")]
            assert value == pytest.approx(np.mean(each))
        assert found[heads]["eval_routing_gain"] == pytest.approx(kinds["routed"] - kinds["gated"])
        assert kinds["gated"] == found[heads]["eval_accuracy"]
    assert found[1]["eval_routing_gain"] == 0
    assert "eval_routing_gain" not in reward_model.train_reward_model(reward_of(), inputs, tmp_path / "plain", Run())
