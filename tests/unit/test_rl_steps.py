"""Process supervision: a reward for each step, and tokens that earn the rewards of the steps behind them."""

import math
from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError
from reform_cases import TASK
from rl_cases import batch_of, now_of
from test_intervention import GOLD, PROBLEM

from interplay.rl.advantage_spec import SpanAdvantage
from interplay.rl.advantages import advantages
from interplay.rl.batch import WHOLE, Span
from interplay.rl.records import rank_steps
from interplay.rl.reward_spec import StepsReward
from interplay.rl.rewards import score_completions
from interplay.rl.spec import RLSpec
from interplay.tasks.op_dag.terse import render
from interplay.tasks.op_dag.terse_prompts import OP_DAG
from interplay.tasks.op_dag.terse_verifier import verify
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Row

SAID = render(PROBLEM, TASK)
ROW = Row(0, 0, "id", 3, "forward", SAID.prompt, SAID.solution, SAID.answer, OP_DAG.dumps(PROBLEM), "0" * 16, "op_dag", "o:0")


def spans_of(completion: str, row: Row = ROW) -> list[tuple[str, float]]:
    """(text, worth) of each span."""
    found = score_completions(StepsReward(), [row], [completion], [verify(PROBLEM, completion, Verify())]).spans
    assert found is not None
    assert found[0][-1].end == WHOLE, "the end token belongs to the answer"
    assert [span.position for span in found[0]] == list(range(len(found[0])))
    return [(completion[span.start : span.end], span.value) for span in found[0]]


def test_steps_are_worth_one_up_to_the_first_wrong_one_and_the_answer_is_judged_by_itself() -> None:
    assert [worth for _, worth in spans_of(GOLD)] == [1] * 9
    lucky = "cb*2,bd+a,d3,a1|a1,d3,b3+1=5,c4*2=8#8"
    texts, worths = zip(*spans_of(lucky), strict=True)
    assert texts == ("cb*2,", "bd+a,", "d3,", "a1|", "a1,", "d3,", "b3+1=5,", "c4*2=8", "#8")
    assert worths == (1, 1, 1, 1, 1, 1, 0, 0, 1)
    assert spans_of("@@@") == [("@@@", 0), ("", 0)]
    assert spans_of("cb*2,bd+a") == [("cb*2,", 1), ("bd+a", 1), ("", 0)]
    assert spans_of("#8") == [("#8", 1)]


def test_a_row_without_steps_that_can_be_judged_is_one_step() -> None:
    assert spans_of(GOLD, replace(ROW, mode="reverse")) == [(GOLD, 1)]


def test_the_rewards_of_a_completion_are_the_mean_of_its_steps() -> None:
    wrong = "cb*2,bd+e,d3,a1|a1#2"
    verdicts = [verify(PROBLEM, text, Verify()) for text in (GOLD, wrong)]
    found = score_completions(StepsReward(), [ROW, ROW], [GOLD, wrong], verdicts)
    assert found.sequence == [1, pytest.approx(1 / 6)]
    assert found.parts == {"outcome": [1, 0]}


def test_a_token_earns_the_rewards_of_the_steps_that_end_behind_it_by_hand() -> None:
    # Values 1, 0, 0 and 1, 1, 1: mean 2/3, variance (4/9 + 4/9 + 4/9) / 5 = 4/15.
    worths = [[1.0, 0.0, 0.0], [1.0, 1.0, 1.0]]
    spans = [[Span(2 * j, min(2 * j + 2, 5), j, value) for j, value in enumerate(row)] for row in worths]
    batch = replace(batch_of([1 / 3, 1.0], [0, 0], [5, 5]), spans=spans)
    good, bad = (1 / 3) / math.sqrt(4 / 15), (-2 / 3) / math.sqrt(4 / 15)
    spec = SpanAdvantage(normalise="pooled", credit="following")
    found = advantages(spec, batch, now_of())
    expected = [[good + 2 * bad] * 2 + [2 * bad] * 2 + [bad], [3 * good] * 2 + [2 * good] * 2 + [good]]
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-3, atol=1e-3)


def test_credit_is_the_share_of_pairs_in_which_a_right_step_is_above_the_first_wrong_one_by_hand() -> None:
    texts = [GOLD, "cb*2,bd+a,d3,a1|a1,d3,b3+1=5,c5*2=10#10", "cb*2,bd+a,d3,a1|a1,d4,b4+1=5,c5*2=10#10", GOLD.replace("#8", "#9")]
    lengths, width = [len(text) + 1 for text in texts], len(max(texts, key=len)) + 1
    batch = batch_of([1, 0, 0, 0], [0] * 4, lengths, completions=texts)
    now = now_of(rows=[ROW], offsets=lambda tokens, text: list(range(len(text) + 1)))

    def auc(*rows: list[float]) -> dict[str, float]:
        return rank_steps(batch, torch.tensor([row + [0.0] * (width - len(row)) for row in rows]), now)

    # Step 6, b, is wrong in row 1 and right in rows 0 and 3; step 5, d, is wrong in row 2 and right in the other three.
    whole = [[value] * width for value in (1.5, -0.5, -0.5, -0.5)]
    assert auc(*whole) == {"credit/auc": (1 + 1 / 2 + 1 + 1 / 2 + 1 / 2) / 5, "credit/pairs": 5}
    blamed = [row[:] for row in whole]
    blamed[1][texts[1].index("b3+1")] = -3.0  # one token of the step is enough
    assert auc(*blamed)["credit/auc"] == (1 + 1 + 1 + 1 / 2 + 1 / 2) / 5
    later = [row[:] for row in whole]
    later[1][texts[1].index("c5")] = 9.0  # behind the first wrong step nothing is compared
    assert auc(*later) == auc(*whole)
    alone = replace(batch, groups=torch.arange(4), ids=torch.zeros(4, dtype=torch.int64))
    assert rank_steps(alone, torch.ones(4, width), now) == {"credit/auc": 0.5, "credit/pairs": 0}


@pytest.mark.parametrize(("seam", "name"), [("prompting", "prefix"), ("continuation", "tree"), ("continuation", "windows")])
def test_a_member_that_begins_completions_itself_is_refused(seam: str, name: str) -> None:
    method = {"paper": "p", "advantage": {"name": "spans"}, seam: {"name": name}}
    if name == "windows":
        group, critic = {"name": "fixed", "num_generations": 1}, {"name": "value_head"}
        method |= {"advantage": {"name": "gae"}, "critic": critic, "allocation": group}
    with pytest.raises(
        ValidationError, match=f"reward = steps does not go with method.{seam} = {name}, which begins completions itself"
    ):
        RLSpec.model_validate({"method": method, "reward": {"name": "steps"}, "mix": [1.0], "steps": 1})
