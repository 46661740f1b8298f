from pathlib import Path

import numpy as np
import pytest
import torch

from interplay.core.execution import Run
from interplay.core.model import UserError
from interplay.data import batches, corpus, problems, sets, tokenizer
from interplay.data.corpus import Encoded, PackedRows
from interplay.data.spec import CorpusSpec, ProblemsSpec, TokenizerSpec
from interplay.tasks.op_dag.spec import OpDag

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    out = tmp_path_factory.mktemp("data")
    tokenizer.build_tokenizer(TokenizerSpec(task=OpDag()), {}, out / "tokenizer", Run())
    for number, (op, size) in enumerate([(2, 300), (6, 100)]):
        spec = ProblemsSpec(task=OpDag(), bands={"id": {op: 1.0}}, shares={"id": 1.0}, size=size, split="train")
        problems.generate_problems(spec, {}, out / str(number), Run())
    return {"tokenizer": out / "tokenizer", "data.0": out / "0", "data.1": out / "1"}


def decoded(rows: PackedRows, path: Path) -> list[str]:
    """The text of every sequence of every row, <eos> as $."""
    encoder = tokenizer.load(path)
    texts = []
    for tokens, segments in zip(rows.tokens, rows.segments, strict=True):
        for number in range(1, int(segments.max()) + 1):
            ids = tokens[segments == number].tolist()
            texts.append("".join("$" if i == 1 else encoder.id_to_token(i) for i in ids))
    return texts


def written(inputs: dict[str, Path]) -> dict[str, dict]:
    tables = [sets.read_table(inputs[role]).to_pylist() for role in ("data.0", "data.1")]
    return {row["prompt"] + row["solution"] + "$": row for table in tables for row in table}


def test_every_sequence_is_prompt_solution_and_end_and_none_repeats(inputs: dict[str, Path], tmp_path: Path) -> None:
    metrics = corpus.build_corpus(CorpusSpec(mix=[0.5, 0.5], sequence_length=128), inputs, tmp_path, Run())
    rows = corpus.load_rows([tmp_path])
    texts = decoded(rows, inputs["tokenizer"])
    assert len(texts) == len(set(texts)) == metrics["problems"] == sum(metrics["problems_by_set"])
    assert set(texts) <= set(written(inputs))
    assert rows.tokens.dtype == np.uint16
    assert metrics["tokens"] == sum(map(len, texts)) == int((rows.segments != 0).sum())
    assert metrics["rows"] == len(rows.tokens)


def test_loss_is_on_the_solution_and_its_end_only(inputs: dict[str, Path], tmp_path: Path) -> None:
    corpus.build_corpus(CorpusSpec(mix=[1.0, 0.0], sequence_length=96), inputs, tmp_path, Run())
    rows, known = corpus.load_rows([tmp_path]), written(inputs)
    encoder = tokenizer.load(inputs["tokenizer"])
    first = rows.segments[0] == 1
    text = "".join("$" if i == 1 else encoder.id_to_token(i) for i in rows.tokens[0][first])
    bearing = "".join("$" if i == 1 else encoder.id_to_token(i) for i in rows.tokens[0][first & (rows.loss[0] == 1)])
    assert bearing == known[text]["solution"] + "$"
    assert not rows.loss[rows.segments == 0].any()


@pytest.mark.parametrize(("packing_mode", "firsts"), [("isolated", "segments"), ("causal", "rows")])
def test_loss_on_all_leaves_out_only_what_nothing_predicts(
    inputs: dict[str, Path], tmp_path: Path, packing_mode: str, firsts: str
) -> None:
    spec = CorpusSpec(mix=[1.0, 0.0], sequence_length=96, loss_on="all", packing=packing_mode)
    metrics = corpus.build_corpus(spec, inputs, tmp_path, Run())
    rows = corpus.load_rows([tmp_path])
    without = {"segments": metrics["problems"], "rows": metrics["rows"]}[firsts]
    assert metrics["loss_tokens"] == metrics["tokens"] - without == int(rows.loss.sum())
    assert not rows.loss[:, 0].any()
    assert int(rows.segments.max()) == (1 if packing_mode == "causal" else metrics["problems"] and int(rows.segments.max()))


def test_shares_hold_by_tokens_or_by_problems_and_the_scarcer_set_is_used_up(inputs: dict[str, Path], tmp_path: Path) -> None:
    by_problems = corpus.build_corpus(
        CorpusSpec(mix=[0.6, 0.4], by="problems", sequence_length=128), inputs, tmp_path / "a", Run()
    )
    assert by_problems["problems_by_set"] == [150, 100]
    assert by_problems["shares"] == [0.6, 0.4]
    by_tokens = corpus.build_corpus(CorpusSpec(mix=[0.6, 0.4], by="tokens", sequence_length=128), inputs, tmp_path / "b", Run())
    assert by_tokens["shares"][0] == pytest.approx(0.6, abs=0.01)
    assert 100 in by_tokens["problems_by_set"] or 300 in by_tokens["problems_by_set"]


def test_the_seed_orders_and_equal_seeds_give_equal_bytes(inputs: dict[str, Path], tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        corpus.build_corpus(CorpusSpec(mix=[0.5, 0.5], sequence_length=128, seed=seed), inputs, tmp_path / name, Run())
    read = {name: (tmp_path / name / "tokens.npy").read_bytes() for name in "abc"}
    assert read["a"] == read["b"] != read["c"]


def test_a_problem_longer_than_a_row_is_refused_with_the_length_it_needs(inputs: dict[str, Path], tmp_path: Path) -> None:
    longest = max(map(len, written(inputs)))
    with pytest.raises(UserError, match=rf"sequence_length = 40: the longest problem needs {longest} tokens"):
        corpus.build_corpus(CorpusSpec(mix=[0.5, 0.5], sequence_length=40), inputs, tmp_path, Run())


def test_a_mix_with_more_shares_than_sets_is_refused(inputs: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no data\.2"):
        corpus.build_corpus(CorpusSpec(mix=[0.5, 0.25, 0.25]), inputs, tmp_path, Run())


def test_best_fit_on_a_hand_worked_case() -> None:
    # 6 opens row 0 (room 4), 7 row 1 (room 3), 3 fits row 1 exactly, 4 fits row 0 exactly, 5 row 2, 5 row 2.
    placed = corpus.pack_best_fit(np.array([6, 7, 3, 4, 5, 5]), 10)
    assert placed.row.tolist() == [0, 1, 1, 0, 2, 2]
    assert placed.offset.tolist() == [0, 0, 7, 6, 0, 5]
    assert placed.segment.tolist() == [1, 1, 2, 2, 1, 2]
    assert placed.rows == 3


def test_best_fit_never_overlaps_and_wastes_little() -> None:
    lengths = np.random.default_rng(0).integers(20, 90, 2000)
    placed = corpus.pack_best_fit(lengths, 256)
    used = np.zeros((placed.rows, 256), int)
    for row, offset, length in zip(placed.row, placed.offset, lengths, strict=True):
        used[row, offset : offset + length] += 1
    assert used.max() == 1
    assert used.mean() > 0.95


def small_rows() -> PackedRows:
    """Three rows of 8: problems of 5 and 3 tokens; of 4; of 2, 2 and 3. Tokens count from 1; loss from each third token on."""
    lengths = np.array([5, 3, 4, 2, 2, 3])
    encoded = Encoded(np.arange(1, lengths.sum() + 1).astype(np.uint32), lengths, np.full(6, 2))
    placed = corpus.Placement(np.array([0, 0, 1, 2, 2, 2]), np.array([0, 5, 0, 0, 2, 4]), np.array([1, 2, 1, 1, 2, 3]), 3)
    rows = PackedRows(*(np.zeros((3, 8), dtype) for dtype in (np.uint16, np.uint16, np.uint8)))
    corpus.write_rows(encoded, placed, "solution", True, *rows)
    return rows


def test_a_batch_holds_each_sequence_of_its_rows_once_with_its_targets() -> None:
    batch = batches.batch_of_rows(small_rows(), np.array([2, 0]), CPU)
    assert batch.buckets == [(5, 5)]
    assert batch.ids.view(5, 5).tolist() == [
        [1, 2, 3, 4, 5],
        [17, 18, 19, 0, 0],
        [6, 7, 8, 0, 0],
        [13, 14, 0, 0, 0],
        [15, 16, 0, 0, 0],
    ]
    assert batch.positions.view(5, 5)[0].tolist() == [0, 1, 2, 3, 4]
    assert batch.targets.tolist() == [3, 4, 5, 19, 8]
    assert batch.ids[batch.before].tolist() == [2, 3, 4, 18, 7]


def test_long_and_short_sequences_go_to_different_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MIN_BUCKET", 16)
    assert batches.bucket_lengths([16, 15, 14, 8, 8, 7, 6, 3]) == [(3, 16), (3, 8), (2, 6)]


def test_causal_rows_stay_whole() -> None:
    rows = small_rows()
    causal = PackedRows(rows.tokens, (rows.segments != 0).astype(np.uint16), rows.loss)
    batch = batches.batch_of_rows(causal, np.array([0, 1]), CPU)
    assert batch.ids.tolist()[:8] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert batch.positions.tolist()[:8] == list(range(8))


def test_every_epoch_sees_every_row_once_in_its_own_order() -> None:
    epochs = [batches.rows_between(7, 3, 7 * e, 7 * (e + 1)).tolist() for e in range(3)]
    assert all(sorted(rows) == list(range(7)) for rows in epochs)
    assert len({tuple(rows) for rows in epochs}) == 3
    assert batches.rows_between(7, 3, 5, 17).tolist() == [*epochs[0][5:], *epochs[1], *epochs[2][:3]]


def test_the_budget_is_met_by_the_last_step_and_not_by_the_one_before() -> None:
    per_row = np.array([8, 4, 7, 8, 2])
    for budget in (1, 8, 29, 30, 58, 100):
        steps = batches.steps_for(budget, per_row, 2, 0)
        seen = [int(per_row[batches.rows_between(5, 0, 0, 2 * s)].sum()) if s else 0 for s in (steps - 1, steps)]
        assert seen[0] < budget <= seen[1]
