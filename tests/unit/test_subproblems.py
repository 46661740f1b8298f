"""Subproblems (SCRL): which values are asked, how blocks are judged, what they earn, and which tokens get that as advantage. The
advantages are worked by hand."""

from math import sqrt

import pytest
import torch
from conftest import examples
from hypothesis import given, strategies as st
from pydantic import ValidationError
from reform_cases import INTEGERS, TASK, row, rows
from rl_cases import batch_of, now_of
from tokenizers import Tokenizer

from interplay.core.execution import Run
from interplay.data import tokenizer as text
from interplay.data.curate import StepInputs, transform_row
from interplay.data.spec import TokenizerSpec
from interplay.data.steps.context_spec import Subproblems
from interplay.data.steps.reformulate import make_subproblems
from interplay.rl.advantage_spec import SpanAdvantage
from interplay.rl.advantages import advantages
from interplay.rl.batch import WHOLE, Batch, Span, join, offsets, take, to_tokens
from interplay.rl.group_advantages import EPSILON
from interplay.rl.reward_spec import SubproblemsReward
from interplay.rl.rewards import score_completions
from interplay.rl.spec import RLSpec
from interplay.tasks.op_dag import terse_variants
from interplay.tasks.op_dag.spec import OpDag
from interplay.tasks.op_dag.terse_prompts import OP_DAG
from interplay.tasks.op_dag.terse_variants import blocks_of
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Block, Row, Verdict

LEAF_FIRST = TASK.model_copy(update={"trace": "leaf_first"})


def asked(k: int | str, task: OpDag = TASK, op: int = 6, size: int = 20) -> list[Row]:
    return make_subproblems(Subproblems(k=k), rows(size, task, op), StepInputs(0, {}, 0)).rows


def judged(made: Row, completion: str, options: Verify = Verify()) -> Verdict:  # noqa: B008
    return terse_variants.verify(terse_variants.loads(made.graph), completion, options)


# --- the step ---


@pytest.mark.parametrize("task", [TASK, LEAF_FIRST, INTEGERS])
@pytest.mark.parametrize("k", [2, 4, "all"])
def test_the_gold_solution_answers_k_values_in_order_and_every_step_once(task: OpDag, k: int | str) -> None:
    made = asked(k, task)
    assert len(made) == 20
    for one in made:
        held = terse_variants.loads(one.graph)
        names = one.prompt[:-1].rpartition("?")[2].split(",")
        assert names == [held.problem.nodes[place].name for place in held.asked]
        assert held.asked[-1] == held.problem.goal
        assert len(names) == (held.problem.necessary if k == "all" else min(k, held.problem.necessary))
        blocks = blocks_of(held)
        assert sorted(place for block in blocks for place in block) == list(range(held.problem.necessary))
        verdict = judged(one, one.solution)
        assert verdict.strict
        assert verdict.error == "none"
        assert [one.solution[b.start : b.end].rpartition("#")[2] for b in verdict.blocks] == [
            str(held.problem.values[place]) for place in held.asked
        ]
        assert all(block.right for block in verdict.blocks)
        assert set(one.prompt + one.solution) <= set(OP_DAG.alphabet(task))
        assert (one.mode, one.family, one.transforms) == ("subproblems", "subproblems", ("subproblems",))


def test_a_block_needs_nothing_that_a_later_block_works_out() -> None:
    for one in asked(3, op=8):
        held, known = terse_variants.loads(one.graph), set[int]()
        for block in blocks_of(held):
            known |= set(block)
            assert all(set(held.problem.nodes[place].parents) <= known for place in block)


def test_rows_that_cannot_be_taken_apart_are_counted_by_reason() -> None:
    reverse = OpDag(modulus=23, letters=12, modes={"reverse": 1.0})
    given_rows = [row(TASK, 1, 0), row(reverse, 4, 0), transform_row(row(TASK, 4, 0), "x", family="qa"), row(TASK, 4, 1)]
    made = make_subproblems(Subproblems(), given_rows, StepInputs(0, {}, 0))
    assert len(made.rows) == 1
    assert made.counts == {"single_value": 1, "reverse": 1, "not_op_dag": 1}


# --- the judge ---

ONE = next(one for one in asked(3) if len(terse_variants.loads(one.graph).asked) == 3)
BLOCKS = [ONE.solution[block.start : block.end] for block in judged(ONE, ONE.solution).blocks]


def with_answers(*answers: str) -> str:
    """The gold blocks with other answers; None in a place keeps the gold's."""
    return "|".join(b.rpartition("#")[0] + f"#{a}" if a else b for b, a in zip(BLOCKS, answers, strict=True))


def wrong(number: int) -> str:
    return str((int(BLOCKS[number].rpartition("#")[2]) + 1) % 23)


def test_blocks_are_judged_each_by_its_answer() -> None:
    verdict = judged(ONE, with_answers("", wrong(1), ""))
    assert [block.right for block in verdict.blocks] == [True, False, True]
    assert verdict.answer
    assert not verdict.strict
    assert verdict.error == "subproblem"
    last = judged(ONE, with_answers("", "", wrong(2)))
    assert [block.right for block in last.blocks] == [True, True, False]
    assert not last.answer
    assert last.error == "answer"


@pytest.mark.parametrize(
    "completion",
    [
        "",
        "|".join(BLOCKS[:2]),
        "|".join([*BLOCKS, BLOCKS[-1]]),
        "|".join(BLOCKS) + "|",
        "|".join(BLOCKS) + "|a",
        BLOCKS[0] + "|" + "|".join(f"#{b.rpartition('#')[2]}" for b in BLOCKS[1:]),
        "|".join([BLOCKS[0], BLOCKS[1] + "#1", BLOCKS[2]]),
        "|".join(BLOCKS).replace("#", ""),
        "#".join(b.rpartition("#")[2] for b in BLOCKS),
        BLOCKS[-1],
        "|".join([BLOCKS[-1]] * 20),
    ],
)
def test_a_broken_format_has_no_blocks_and_no_right_answer(completion: str) -> None:
    verdict = judged(ONE, completion)
    assert verdict.blocks == ()
    assert not verdict.answer
    assert not verdict.strict
    assert verdict.error in ("format", "truncated")


@given(st.text(alphabet="".join(sorted(set(ONE.prompt + ONE.solution))), max_size=60))
@examples(200)
def test_any_text_is_judged_without_an_error_and_blocks_lie_in_order_within_it(completion: str) -> None:
    ends = [place for block in judged(ONE, completion).blocks for place in (block.start, block.end)]
    assert ends == sorted(ends)
    assert all(0 <= place <= len(completion) for place in ends)


# --- the reward ---


def verdict_of(*right: bool, answer: bool = False) -> Verdict:
    blocks = tuple(Block(4 * j, 4 * j + 3, flag) for j, flag in enumerate(right))
    return Verdict(False, answer or bool(right and right[-1]), 0.0, "value", blocks=blocks)


def test_a_block_earns_only_behind_right_ones_when_the_prefix_is_corrected() -> None:
    problems, verdicts = [ONE] * 4, [verdict_of(*flags) for flags in [(1, 1, 0), (1, 0, 1), (0, 1, 1), ()]]
    corrected = score_completions(SubproblemsReward(), problems, [""] * 4, verdicts)
    plain = score_completions(SubproblemsReward(prefix_correction=False), problems, [""] * 4, verdicts)
    values = lambda rewards: [[span.value for span in of_row] for of_row in rewards.spans]  # noqa: E731
    assert values(corrected) == [[1, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert values(plain) == [[1, 1, 0], [1, 0, 1], [0, 1, 1], [0, 0, 0]]
    assert corrected.sequence == pytest.approx([2 / 3, 1 / 3, 0, 0])
    assert corrected.parts == {"outcome": [0, 1, 1, 0], "well_formed": [1, 1, 1, 0]}
    assert [(span.start, span.end) for span in corrected.spans[3]] == [(0, 0)] * 3


def test_a_plain_row_is_one_block_with_its_end_token() -> None:
    rewards = score_completions(SubproblemsReward(), [row(TASK, 4, 0)] * 2, ["", ""], [verdict_of(answer=True), verdict_of()])
    assert rewards.spans == [[Span(0, WHOLE, 0, 1.0)], [Span(0, WHOLE, 0, 0.0)]]
    assert rewards.sequence == [1.0, 0.0]


# --- characters to tokens ---


@pytest.fixture(scope="module")
def characters(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    out = tmp_path_factory.mktemp("tokenizer")
    text.build_tokenizer(TokenizerSpec(task=TASK), {}, out, Run())
    return text.load(out)


def test_tokens_of_one_character_map_one_to_one_and_the_end_token_stands_behind(characters: Tokenizer) -> None:
    ids = [*characters.encode("a6#6|b1#1").ids, 1]
    spans = [Span(0, 4, 0, 1.0), Span(5, 9, 1, 0.0), Span(0, WHOLE, 0, 1.0), Span(0, 0, 2, 0.0)]
    assert to_tokens(characters, ids, "a6#6|b1#1", spans) == [
        Span(0, 4, 0, 1.0),
        Span(5, 9, 1, 0.0),
        Span(0, 10, 0, 1.0),
        Span(0, 0, 2, 0.0),
    ]


@given(st.text(max_size=30))
@examples(100)
def test_tokens_of_any_tokenizer_start_where_their_texts_do(written: str) -> None:
    bytes_of = text.bpe_tokenizer(iter(["the cat sat on the mat " * 20, "naïve café ☕"]), 300)
    ids = bytes_of.encode(written, add_special_tokens=False).ids
    starts = offsets(bytes_of, ids, bytes_of.decode(ids))
    assert starts == sorted(starts)
    assert len(starts) == len(ids)
    assert all(0 <= start <= len(written) for start in starts)
    for place, start in enumerate(starts):
        before = bytes_of.decode(ids[:place])
        assert written[:start] == before.rstrip("\N{REPLACEMENT CHARACTER}") or "\N{REPLACEMENT CHARACTER}" in written


def test_a_tokenizer_that_joins_words_is_decoded_step_by_step(characters: Tokenizer) -> None:
    from tokenizers import decoders, models

    words = Tokenizer(models.WordLevel({"two": 0, "words": 1, "here": 2}))
    words.decoder = decoders.WordPiece()  # puts blanks between: single tokens do not add up to the text
    assert words.decode([0, 1, 2]) == "two words here"
    assert offsets(words, [0, 1, 2], "two words here") == [0, 3, 9]


# --- the advantage ---


def rows_of(values: list[list[float]], width: int = 3) -> list[list[Span]]:
    """Row i: span j over tokens 2j and 2j + 1; an empty row is malformed and has empty spans of value 0."""
    return [
        [Span(2 * j, 2 * j + 2, j, v) for j, v in enumerate(row)] if row else [Span(0, 0, j, 0.0) for j in range(width)]
        for row in values
    ]


def advantage(spec: SpanAdvantage, spans: list[list[Span]], groups: list[int], tokens: int = 7) -> torch.Tensor:
    batch = batch_of([0.0] * len(spans), groups, [tokens] * len(spans), spans=spans)
    return advantages(spec, batch, now_of())


def test_each_position_is_normalised_over_the_group_by_itself() -> None:
    # Position 0: 1, 1, 0, 0: mean 1/2, sd sqrt(4 * 1/4 / 3) = 1/sqrt(3). Position 1: 1, 0, 0, 0: mean 1/4, sd 1/2. Position 2: all 0.
    got = advantage(SpanAdvantage(), rows_of([[1, 1, 0], [1, 0, 0], [0, 0, 0], []]), [5] * 4)
    first, second = 1 / sqrt(3) + EPSILON, 0.5 + EPSILON
    expected = [
        [0.5 / first] * 2 + [0.75 / second] * 2 + [0] * 3,
        [0.5 / first] * 2 + [-0.25 / second] * 2 + [0] * 3,
        [-0.5 / first] * 2 + [-0.25 / second] * 2 + [0] * 3,
        [0] * 7,  # malformed: it counts among the others, but its tokens learn nothing
    ]
    torch.testing.assert_close(got, torch.tensor(expected, dtype=torch.float32))


def test_pooled_spans_share_one_mean_and_one_deviation() -> None:
    # 1, 1, 0 | 1, 0, 0: mean 1/2, sd sqrt(6 * 1/4 / 5) = sqrt(3/10).
    got = advantage(SpanAdvantage(normalise="pooled"), rows_of([[1, 1, 0], [1, 0, 0]]), [0, 0])
    unit = 0.5 / (sqrt(0.3) + EPSILON)
    expected = [[unit] * 4 + [-unit] * 2 + [0], [unit] * 2 + [-unit] * 4 + [0]]
    torch.testing.assert_close(got, torch.tensor(expected, dtype=torch.float32))


def test_groups_are_normalised_apart_and_plain_groups_train_every_token() -> None:
    spans = [*rows_of([[1, 0], [0, 0]], 2), [Span(0, 7, 0, 1.0)], [Span(0, 7, 0, 0.0)]]
    got = advantage(SpanAdvantage(), spans, [0, 0, 1, 1])
    unit = 0.5 / (sqrt(0.5) + EPSILON)
    assert got[2].tolist() == pytest.approx([unit] * 7)
    assert got[3].tolist() == pytest.approx([-unit] * 7)
    assert got[0].tolist() == pytest.approx([unit] * 2 + [0] * 5)


def test_a_group_of_malformed_rows_and_a_group_of_equals_get_exactly_zero() -> None:
    assert not advantage(SpanAdvantage(), rows_of([[], []]), [0, 0]).any()
    assert not advantage(SpanAdvantage(), rows_of([[0.1, 0.3], [0.1, 0.3], [0.1, 0.3]]), [0] * 3).any()


@given(
    st.lists(st.lists(st.integers(0, 1), min_size=3, max_size=3), min_size=2, max_size=8).filter(
        lambda rows: len({tuple(r) for r in rows}) > 1
    )
)
def test_advantages_of_a_position_sum_to_zero_and_follow_the_order_of_its_rewards(values: list[list[float]]) -> None:
    got = advantage(SpanAdvantage(), rows_of(values), [0] * len(values))
    for position in range(3):
        column = got[:, 2 * position].double()
        assert float(column.sum()) == pytest.approx(0, abs=1e-5)
        pairs = [(values[i][position], float(column[i])) for i in range(len(values))]
        assert all((a < b) == (x < y) for a, x in pairs for b, y in pairs if a != b)


def test_the_advantage_of_spans_without_spans_is_an_error() -> None:
    with pytest.raises(ValueError, match="needs a reward that judges spans"):
        advantages(SpanAdvantage(), batch_of([0, 0], [0, 0], [3, 3]), now_of())


def test_spans_stay_with_their_rows_when_rows_are_taken_and_joined() -> None:
    def batch(number: int, spans: list[list[Span]] | None) -> Batch:
        return Batch(
            row=torch.arange(2),
            ids=torch.arange(2),
            groups=torch.zeros(2, dtype=torch.int64),
            prompts=[[1], [2]],
            tokens=torch.zeros(2, 3 + number, dtype=torch.int64),
            lengths=torch.tensor([3, 3]),
            logprobs=torch.zeros(2, 3 + number),
            truncated=torch.zeros(2, dtype=torch.bool),
            completions=["", ""],
            verdicts=[verdict_of(), verdict_of()],
            right=torch.zeros(2, dtype=torch.bool),
            rewards=torch.zeros(2, dtype=torch.float64),
            parts={},
            spans=spans,
        )

    a, b = Span(0, 1, 0, 1.0), Span(1, 2, 1, 0.0)
    both = join([take(batch(0, [[a], [b]]), torch.tensor([1])), batch(1, [[], [a, b]])], 0)
    assert both.spans == [[b], [], [a, b]]
    assert join([batch(0, None), batch(0, None)], 0).spans is None


# --- the plan ---


def spec(reward: dict, **loss: object) -> dict:
    method = {"paper": "p", "advantage": {"name": "spans"}, "loss": {"name": "clipped", **loss}}
    return {"method": method, "reward": reward, "mix": [1.0], "steps": 1}


def test_span_advantages_are_refused_without_a_reward_of_spans_and_with_a_ratio_of_sequences() -> None:
    RLSpec.model_validate(spec({"name": "subproblems"}))
    with pytest.raises(ValidationError, match=r"method\.advantage = spans needs .*; write reward = subproblems, steps"):
        RLSpec.model_validate(spec({"name": "outcome"}))
    with pytest.raises(
        ValidationError, match=r"spans .* method\.loss = clipped.*importance_sampling_level: sequence_token in place"
    ):
        RLSpec.model_validate(spec({"name": "subproblems"}, importance_sampling_level="sequence"))
