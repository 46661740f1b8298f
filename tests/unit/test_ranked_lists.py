"""Ranked lists, retained rows, goals of hidden states, stages of length, and the steps of methods/contexts, on numbers by hand."""

import math
import runpy
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
import world
from conftest import ROOT
from pydantic import ValidationError
from test_conflicts import made
from test_prefer import pair_set, spec_of
from test_reward_model import spec_of as reward_of

from interplay.core.artifact import write_json
from interplay.core.execution import Run
from interplay.core.metrics import read
from interplay.core.model import UserError
from interplay.data import batches, sets
from interplay.model import folder
from interplay.model.trainer_spec import TuneOptimizer
from interplay.tasks.transcripts import MARK
from interplay.train import prefer, reward_model

STEPS = runpy.run_path(str(ROOT / "configs/study/methods/contexts.py"))


def test_a_ranked_list_by_hand() -> None:
    """Log ratios 1, 0, -1 with beta 1: relevances 2, 1, 0, so weights (2^2 - 1) / log2 2 = 3 and 1 / log2 3; the last weighs nothing."""
    first = math.log(1 + (math.exp(-1) + math.exp(-2)) / 2)
    second = math.log(1 + (math.exp(1) + math.exp(-1)) / 2) / math.log2(3)
    (loss,) = prefer.ranked_losses(1.0, torch.tensor([[1.0, 0.0, -1.0]], dtype=torch.float64)).tolist()
    assert loss == pytest.approx((3 * first + second) / 3)


def test_a_list_of_two_is_half_of_dpo() -> None:
    ratios = torch.tensor([[0.5, -0.25]])
    assert prefer.ranked_losses(2.0, ratios).item() == pytest.approx(math.log1p(math.exp(-1.5)) / 2)


def listed(results: Path, digest: str, of: Path, **changes) -> Path:
    out = results / "curate" / digest
    sets.write_table(sets.table_of_rows([replace(row, **changes) for row in sets.read_rows(of, 0)]), out)
    write_json(out / "stage.json", {"kind": "curate", "digest": digest, "spec": {}, "deps": {}})
    return out


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = tmp_path_factory.mktemp("results")
    return {"init": world.model(results, "a" * 12), "data.0": pair_set(results, "b" * 12)}


def trained(spec, inputs: dict[str, Path], out: Path) -> list[dict]:
    prefer.train_preferences(spec, inputs, out, Run())
    return read(out)


def test_lists_are_read_whole_by_irpo_and_by_their_first_two_elsewhere(inputs: dict[str, Path], tmp_path: Path) -> None:
    rows = sets.read_rows(inputs["data.0"], 0)
    out = tmp_path / "set"
    sets.write_table(sets.table_of_rows([replace(row, rejected=f"{row.rejected}{MARK}#") for row in rows]), out)
    write_json(out / "stage.json", {"kind": "curate", "digest": "c" * 12, "spec": {}, "deps": {}})
    whole = batches.load_pairs([out], [1.0], inputs["init"], 0, 128, "prefer", lists=True)
    pairs = batches.load_pairs([out], [1.0], inputs["init"], 0, 128, "prefer")
    alone = batches.load_pairs([inputs["data.0"]], [1.0], inputs["init"], 0, 128, "prefer")
    assert whole.rejected == pairs.rejected == alone.rejected
    assert [len(one) for one in whole.further] == [1] * len(rows)
    assert not pairs.further
    few = np.arange(2)
    assert whole.count_tokens(few) == pairs.count_tokens(few) + 4  # a character and an end each
    lines = {
        name: trained(spec_of(loss_type="irpo", steps=2), {**inputs, "data.0": given}, tmp_path / name)
        for name, given in (("lists", out), ("pairs", inputs["data.0"]))
    }
    # Before the first update all log ratios are 0: log 2 of each completion, by weights 3 and 1 / log2 3 of three, and 1 of two.
    assert lines["lists"][0]["loss"] == pytest.approx((3 + 1 / math.log2(3)) / 3 * math.log(2), rel=1e-5)
    assert lines["pairs"][0]["loss"] == pytest.approx(math.log(2) / 2, rel=1e-5)


def test_the_likelihood_of_the_best_of_a_list_adds_to_its_loss(inputs: dict[str, Path], tmp_path: Path) -> None:
    rows = sets.read_rows(inputs["data.0"], 0)
    out = listed(tmp_path, "e" * 12, inputs["data.0"], rejected=f"{rows[0].rejected}{MARK}#")
    given = {**inputs, "data.0": out}
    plain, more = (
        trained(spec_of(loss_type="irpo", steps=1, pairs_per_step=1, rpo_alpha=weight), given, tmp_path / str(weight))[0]
        for weight in (0.0, 0.5)
    )
    pairs = batches.load_pairs([out], [1.0], inputs["init"], 0, 128, "prefer", lists=True)
    (place,) = batches.rows_between(len(pairs.prompts), 0, 0, 1).tolist()
    likelihood = -plain["logps/chosen"] / len(pairs.chosen[place])
    assert more["loss"] == pytest.approx(plain["loss"] + 0.5 * likelihood, rel=1e-5)


def test_retained_rows_keep_their_likelihood_and_count_in_no_value_of_pairs(inputs: dict[str, Path], tmp_path: Path) -> None:
    apart = listed(tmp_path, "d" * 12, inputs["data.0"], rejected="")
    both = {**inputs, "data.1": apart}
    lines = trained(
        spec_of(mix=[0.5, 0.5], retain_weight=2.0, steps=20, optimizer=TuneOptimizer(learning_rate=3e-3)), both, tmp_path
    )
    first = lines[0]
    assert first["retain_nll"] > 0.0
    assert first["rewards/accuracies"] == 0.0  # of pairs alone, before the first update
    assert lines[-1]["retain_nll"] < first["retain_nll"]


def test_the_loss_of_a_step_is_the_mean_over_pairs_and_retained_rows_by_hand(inputs: dict[str, Path]) -> None:
    chosen, tokens = torch.tensor([-3.0, -6.0]), torch.tensor([3.0, 4.0])
    zero = torch.zeros(2)
    logps = prefer.Logps(chosen, chosen, zero, zero, tokens, tokens, 3.5, torch.zeros(()))
    (row, *_) = sets.read_rows(inputs["data.0"], 0)
    pairs = batches.Pairs([[1], [1]], [[2], [2]], [[3], [3]], [row, replace(row, rejected="")])
    setup = prefer.Setup(spec_of(retain_weight=0.5), pairs, None, None, 64, torch.float32)  # type: ignore[arg-type]
    found = {"loss": torch.tensor([0.7, 9.0]), "rewards/margins": torch.tensor([0.2, 9.0])}
    made_of = prefer.retained_values(setup, np.arange(2), found, logps, (1, 2))
    assert made_of["loss"].tolist() == pytest.approx([0.7, 0.5 * 6 / 4])
    assert made_of["rewards/margins"].mean().item() == pytest.approx(0.2)
    assert made_of["retain_nll"].mean().item() == pytest.approx(1.5)


def test_rows_with_one_completion_do_not_move_the_reference_point_of_kto(inputs: dict[str, Path]) -> None:
    pairs = batches.load_pairs([inputs["data.0"]], [1.0], inputs["init"], 0, 128, "prefer")
    ends, rows = [one[-1:] for one in pairs.rejected], [replace(row, rejected="") for row in pairs.rows]
    apart = batches.Pairs(pairs.prompts * 2, pairs.chosen * 2, pairs.rejected + ends, pairs.rows + rows)
    model, reference = (folder.load_decoder(inputs["init"] / "model").requires_grad_(False) for _ in range(2))
    for weight in reference.parameters():
        weight *= 1.5
    count, spec = len(pairs.rows), spec_of(loss_type="kto", retain_weight=1.0)
    points = [
        prefer.kto_reference_point(prefer.Setup(spec, given, model, reference, 512, torch.float32), places).item()
        for given, places in ((pairs, np.arange(count)), (apart, np.arange(2 * count)), (apart, np.arange(count, 2 * count)))
    ]
    assert points[1] == points[0] > 0.0
    assert points[2] == 0.0  # a step of such rows alone


# -- reward models ---------------------------------------------------------------------------------------------------


def test_states_resemble_their_goals_by_hand() -> None:
    """One state each, after the only token: the chosen one's source and goal are the same state, so its cosine is 1; the rejected
    one's is orthogonal."""
    chosen, rejected = torch.tensor([[[9.0, 9.0], [1.0, 0.0]]]), torch.tensor([[[9.0, 9.0], [0.0, 2.0]]])
    ends, drawn = torch.ones(2, 1, dtype=torch.int64), torch.full((1, 4, 3), 0.5)
    (loss,) = reward_model.goal_contrast(chosen, rejected, ends, drawn).tolist()
    assert loss == pytest.approx(math.log1p(math.exp(-1)) + math.log(2))


def test_a_goal_is_not_before_its_source() -> None:
    """Of two states the first was drawn as the goal: they change places."""
    chosen = torch.tensor([[[9.0, 9.0], [1.0, 0.0], [0.0, 1.0]]])
    ends = torch.full((2, 1), 2)
    drawn = torch.tensor([[[0.9], [0.1], [0.1], [0.1]]])
    swapped = drawn[:, [1, 0, 2, 3]]
    losses = [reward_model.goal_contrast(chosen, chosen, ends, each).item() for each in (drawn, swapped)]
    assert losses[0] == losses[1] == pytest.approx(math.log(2) + math.log1p(math.exp(1)))


def test_stages_of_length_take_short_pairs_first_and_all_in_the_end(inputs: dict[str, Path]) -> None:
    pairs = batches.load_pairs([inputs["data.0"]], [1.0], inputs["init"], 0, 128, "reward_model")
    lengths = [len(p) + len(c) + len(r) for p, c, r in zip(*pairs[:3], strict=True)]
    spec = reward_of(length_stages=2, steps=10, pairs_per_step=4)
    first, second = (
        {i for step in steps for i in reward_model.step_pairs(spec, pairs, step)} for steps in (range(1, 6), range(6, 11))
    )
    assert len(first) == len(second) == 20
    assert first | second == set(range(40))
    assert max(lengths[i] for i in first) <= min(lengths[i] for i in second)
    assert reward_of(length_stages=1) == reward_of()


def test_more_stages_of_length_than_steps_or_pairs_are_refused(inputs: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="length_stages = 11: each takes a step at least; write at most 10"):
        reward_of(length_stages=11, steps=10)
    with pytest.raises(UserError, match="length_stages = 41: there are 40 pairs; write at most that"):
        reward_model.train_reward_model(reward_of(length_stages=41, steps=41), inputs, tmp_path, Run())


def test_a_goal_conditioned_reward_model_learns_otherwise(inputs: dict[str, Path], tmp_path: Path) -> None:
    given = {**inputs, "validation": inputs["data.0"]}
    for name, weight in (("plain", 0.0), ("goals", 0.5)):
        reward_model.train_reward_model(reward_of(contrastive_weight=weight), given, tmp_path / name, Run())
    plain, goals = (read(tmp_path / name)[0] for name in ("plain", "goals"))
    assert goals["loss"] > plain["loss"]
    assert goals["nll"] == plain["nll"]  # of the win alone, before the first update
    last = [[line["nll"] for line in read(tmp_path / name) if "nll" in line][-1] for name in ("plain", "goals")]
    assert last[0] != last[1]


# -- steps of the study ----------------------------------------------------------------------------------------------


def rows_of(**keys) -> list[dict]:
    return [asdict(row) for row in made(12, **keys).rows]


def test_a_ranked_list_ends_with_what_nothing_says() -> None:
    for row in STEPS["ranked"](rows_of()):
        texts = [row["solution"], *row["rejected"].split(MARK)]
        assert len(set(texts)) == 3
        assert STEPS["said"](texts[0]) == row["answer"] != STEPS["said"](texts[2])


def test_a_pair_of_prompts_shares_its_completion_and_differs_in_one_name() -> None:
    given = rows_of(contradicting=1.0)
    found = STEPS["intra"](given)
    assert len(found) == 2 * len(given)
    for row, (one, other) in zip(given, zip(found[::2], found[1::2], strict=True), strict=True):
        good, bad = STEPS["said"](row["solution"]), STEPS["said"](row["rejected"])
        assert one["prompt"] + one["solution"] == row["prompt"] + row["solution"]  # what it says, after the context that says it
        assert one["rejected"] == bad + one["solution"][len(good) :]
        assert other["solution"] == bad + other["rejected"][len(good) :]
        assert other["solution"].endswith(row["rejected"])


def test_two_instructions_err_in_one() -> None:
    given = rows_of()
    found = STEPS["inter"](given)
    assert len(found) == len(given) // 2
    assert found[0]["prompt"] == given[0]["prompt"] + given[1]["prompt"]
    assert found[0]["rejected"] == f"{given[0]['solution']} {given[1]['rejected']}"
    assert found[1]["rejected"] == f"{given[2]['rejected']} {given[3]['solution']}"


def test_rumours_contradict_the_context_before_the_question() -> None:
    row = {"index": 0, "prompt": "Ada's boss is Eva. Who is the boss of Ada?\n", "solution": "Ada's boss is Eva. \\boxed{Eva}"}
    given = [{**row, "answer": name} for name in ("Eva", "Dov", "Cid")]
    found = STEPS["spoil"](given, sentences=2, named=True)[0]
    rumours = "Rumour: Ada's boss is Cid. Rumour: Ada's boss is Dov. "  # the third would be the first again
    assert found["prompt"] == f"Ada's boss is Eva. {rumours}Who is the boss of Ada?\n"
    assert found["solution"] == rumours + row["solution"]
    assert STEPS["spoil"](given, sentences=2)[0]["solution"] == row["solution"]


def test_ways_and_forms() -> None:
    row = {"mode": "irrelevant", "prompt": "Q?\n", "solution": "S"}
    assert STEPS["choose"]([row], named=True)[0] == {**row, "prompt": "Q?\nRead or recall?\n", "solution": "Recall. S"}
    told = {**row, "mode": "contradicting"}
    assert [one["solution"] for one in STEPS["choose"]([told], named=True) + STEPS["choose"]([told])] == ["Read. S", "S"]
    assert STEPS["formed"]([row])[0]["prompt"] == "X's R is Y. \\boxed{Y}\nQ?\n"
    assert STEPS["formed"]([row, told], form="example")[0]["prompt"] == "Q?\nS\nQ?\n"
    assert STEPS["lone"]([{**row, "rejected": "x"}])[0]["rejected"] == ""
