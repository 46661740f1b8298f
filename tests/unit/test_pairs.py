"""Preference pairs: of each row a right sample and a wrong one, in an order that the seed decides; sets that hold pairs."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from test_rejection import BY_LUCK, GOLD, SWAPPED, WRONG, evaluation, source

from interplay.core.artifact import write_json
from interplay.core.execution import Run
from interplay.data import batches, sets, tokenizer
from interplay.data.curate import StepInputs
from interplay.data.spec import TokenizerSpec
from interplay.data.steps.filter import make_preference_pairs
from interplay.data.steps.spec import PreferencePairs

OTHER = WRONG.replace("c5*2=10#10", "c5*2=9#9")


def step(folder: Path, spec: PreferencePairs, *completions: list[str], seed: int = 0, cut: tuple = ()) -> Any:
    rows = [source(index) for index in range(len(completions))]
    inputs = StepInputs(0, {"data.0": folder, "samples.0.0.0": evaluation(folder, dict(enumerate(completions)), cut)}, seed)
    return make_preference_pairs(spec, rows, inputs)


def made_of(result: Any) -> list[tuple[int, str, str]]:
    return [(row.index, row.solution, row.rejected) for row in result.rows]


def test_a_right_sample_is_chosen_and_a_wrong_one_of_its_row_rejected(tmp_path: Path) -> None:
    result = step(tmp_path, PreferencePairs(), [WRONG, SWAPPED], [WRONG, WRONG], [GOLD, GOLD])
    assert made_of(result) == [(0, SWAPPED, WRONG)]
    assert result.counts == {"never_right": 1, "never_wrong": 1, "further": 0}
    assert result.rows[0].transforms == ("preference_pairs",)
    assert result.rows[0].answer == source().answer


def test_what_is_right_by_answer_alone_may_be_chosen(tmp_path: Path) -> None:
    samples = [BY_LUCK, WRONG]
    assert made_of(step(tmp_path, PreferencePairs(), samples)) == []
    assert made_of(step(tmp_path, PreferencePairs(by="answer"), samples)) == [(0, BY_LUCK, WRONG)]


def test_the_gold_may_stand_against_each_wrong_sample(tmp_path: Path) -> None:
    result = step(tmp_path, PreferencePairs(chosen="gold", per_prompt=5), [WRONG, OTHER, WRONG], [GOLD])
    assert sorted(made_of(result)) == sorted([(0, GOLD, WRONG), (0, GOLD, OTHER)])
    assert result.counts == {"never_right": 0, "never_wrong": 1, "further": 1}


def test_no_pair_comes_twice_and_a_cap_holds(tmp_path: Path) -> None:
    samples = [GOLD, SWAPPED, WRONG, OTHER, BY_LUCK, WRONG]
    for cap in (1, 2, 3, 9):
        found = made_of(step(tmp_path, PreferencePairs(per_prompt=cap), samples))
        assert len(found) == len(set(found)) == min(cap, 3)
    assert {rejected for _, _, rejected in found} == {WRONG, OTHER, BY_LUCK}


def test_samples_that_are_empty_or_cut_are_in_no_pair(tmp_path: Path) -> None:
    assert made_of(step(tmp_path, PreferencePairs(), [GOLD, WRONG, OTHER, ""], cut=((0, 1), (0, 2)))) == []


def test_the_seed_decides_which_and_nothing_else_does(tmp_path: Path) -> None:
    samples = [[GOLD, SWAPPED, WRONG, OTHER, BY_LUCK]] * 20
    one, again, other = (made_of(step(tmp_path, PreferencePairs(), *samples, seed=seed)) for seed in (0, 0, 1))
    assert one == again
    assert one != other
    assert len({(chosen, rejected) for _, chosen, rejected in one}) > 2, "rows draw apart"


def test_sets_keep_pairs_and_sets_without_any_know_nothing_of_them(tmp_path: Path) -> None:
    (row,) = step(tmp_path, PreferencePairs(), [WRONG, SWAPPED]).rows
    for name, rows in (("pairs", [row]), ("plain", [source()])):
        sets.write_table(sets.table_of_rows(rows), tmp_path / name)
        write_json(tmp_path / name / "stage.json", {"digest": name})
    assert [kept.rejected for kept in sets.read_rows(tmp_path / "pairs", 0)] == [WRONG]
    assert [kept.rejected for kept in sets.read_rows(tmp_path / "plain", 0)] == [""]
    assert pq.read_schema(tmp_path / "plain/problems.parquet").names == sets.COLUMNS.names


def test_both_completions_end_and_a_mix_uses_up_the_set_that_is_smallest_for_its_share(tmp_path: Path) -> None:
    from reform_cases import TASK

    tokenizer.build_tokenizer(TokenizerSpec(task=TASK), {}, tmp_path / "tokenizer", Run())
    eos = tokenizer.special(tmp_path / "tokenizer").eos
    for name, count in (("a", 4), ("b", 8)):
        rows = step(tmp_path, PreferencePairs(), *[[WRONG, SWAPPED]] * count).rows
        sets.write_table(sets.table_of_rows(rows), tmp_path / name)
        write_json(tmp_path / name / "stage.json", {"digest": name})
    found = batches.load_pairs([tmp_path / "a", tmp_path / "b"], [0.5, 0.5], tmp_path / "tokenizer", 0, 200, "prefer")
    assert [row.set for row in found.rows] == [0] * 4 + [1] * 4
    assert {tokens[-1] for tokens in (*found.chosen, *found.rejected)} == {eos}
    assert found.count_tokens(np.array([0])) == len(found.prompts[0]) + len(SWAPPED) + len(WRONG) + 2


def test_pieces_hold_each_pair_once_within_the_tokens() -> None:
    lengths = [3, 9, 1, 4, 4, 30, 2]
    some = batches.Pairs([[0] * 2] * 7, [[1] * n for n in lengths], [[1] * (n + 1) for n in lengths], [])
    found = batches.micro_batches(some, np.arange(7), 40)
    assert sorted(np.concatenate(found).tolist()) == list(range(7))
    for piece in found:
        width = max(lengths[i] + 1 for i in piece)
        assert len(piece) * (2 * width + 2) <= 40 or len(piece) == 1
