"""Rows made of logged trajectories: each turn by itself, a trajectory cut short as a prompt, and one told what it came to."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reform_cases import TASK, row
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from interplay.core.model import PermanentError
from interplay.data import corpus
from interplay.data.curate import StepInputs
from interplay.data.steps import turns, turns_spec as steps
from interplay.tasks.transcripts import MARK
from interplay.tasks.verdict import Row

EPISODE = MARK.join(["one", "?", "two", "!", "three"])
SINGLE = "one"


def inputs(folder: Path, *samples: dict[str, Any]) -> StepInputs:
    """Samples of row 0 of set 0."""
    every = [
        {
            "index": 0,
            "sample": n,
            "strict": False,
            "answer": one["right"],
            "truncated": one.get("cut", False),
            "completion": one["text"],
        }
        for n, one in enumerate(samples)
    ]
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(every), folder / "samples.parquet")
    return StepInputs(0, {"data.0": folder, "samples.0.0.0": folder}, 0)


def source(solution: str = "gold") -> list[Row]:
    made = row(TASK, 4, 0, 0)
    return [made.__class__(**{name: getattr(made, name) for name in made.__slots__} | {"prompt": "ask", "solution": solution})]


def pairs(made: Any) -> list[tuple[str, str]]:
    return [(one.prompt, one.solution) for one in made.rows]


def test_each_turn_is_a_row_behind_what_came_before_it(tmp_path: Path) -> None:
    given = inputs(tmp_path, {"text": "no", "right": False}, {"text": EPISODE, "right": True})
    made = turns.by_turn(steps.ByTurn(by="answer"), source(), given)
    assert pairs(made) == [
        ("ask", "one"),
        (MARK.join(["ask", "one", "?"]), "two"),
        (MARK.join(["ask", "one", "?", "two", "!"]), "three"),
    ]
    assert made.counts == {"no_episode": 0, "episodes": 1, "turns": 3}
    assert all(one.transforms[-1] == "by_turn" for one in made.rows)


def test_a_turn_that_was_cut_gives_no_row_and_a_row_without_a_right_episode_none(tmp_path: Path) -> None:
    cut = inputs(tmp_path, {"text": EPISODE, "right": True, "cut": True})
    assert [one.solution for one in turns.by_turn(steps.ByTurn(by="answer"), source(), cut).rows] == ["one", "two"]
    wrong = turns.by_turn(steps.ByTurn(by="answer"), source(), inputs(tmp_path, {"text": EPISODE, "right": False}))
    assert (wrong.rows, wrong.counts) == ([], {"no_episode": 1})


def test_an_episode_is_cut_after_what_was_read_and_the_row_keeps_its_gold(tmp_path: Path) -> None:
    given = inputs(tmp_path, {"text": EPISODE, "right": False}, {"text": SINGLE, "right": True}, {"text": EPISODE, "right": True})
    made = turns.to_prompts(steps.ToPrompts(per_prompt=3), source(), given)
    first, second = MARK.join(["ask", "one", "?"]), MARK.join(["ask", "one", "?", "two", "!"])
    assert pairs(made) == [(first, "gold"), (second, "gold")]
    assert pairs(turns.to_prompts(steps.ToPrompts(per_prompt=3, cut="last"), source(), given)) == [(second, "gold")]
    with pytest.raises(PermanentError, match=r"judges whole transcripts, .*; take the step by_turn"):
        turns.to_prompts(steps.ToPrompts(), source(MARK.join(["a", "b", "c"])), given)


def test_a_sample_becomes_the_solution_of_a_prompt_that_says_what_it_came_to(tmp_path: Path) -> None:
    given = inputs(
        tmp_path, {"text": "a", "right": False}, {"text": "b", "right": True}, {"text": "c", "right": True, "cut": True}
    )
    made = turns.relabel(steps.Relabel(by="answer", per_prompt=3), source(), given)
    assert pairs(made) == [("0ask", "a"), ("1ask", "b")]
    own = steps.Relabel(by="answer", per_prompt=1, keep="right", template="{prompt}{reached}", right="+")
    assert pairs(turns.relabel(own, source(), given)) == [("ask+", "b")]
    with pytest.raises(PermanentError, match="has no samples"):
        turns.relabel(
            own, [source()[0].__class__(**{n: getattr(source()[0], n) for n in source()[0].__slots__} | {"index": 7})], given
        )


def test_a_prompt_with_turns_is_encoded_as_an_episode_has_it() -> None:
    """The end token follows each turn that was written, and the solution alone is what is learnt."""

    letters = {letter: number for number, letter in enumerate("$qab?")}
    encoder = Tokenizer(models.WordLevel(letters, "$"))
    encoder.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    prompts, solutions = [MARK.join(["q", "a", "?"]), "q"], ["b", MARK.join(["a", "?", "b"])]
    made = corpus.encode_transcripts(prompts, solutions, np.array([1, 1]), encoder, letters["$"])
    ends = np.cumsum(made.lengths)
    texts = [
        "".join("$qab?"[token] for token in made.tokens[end - size : end]) for end, size in zip(ends, made.lengths, strict=True)
    ]
    assert texts == ["qa$?b$", "qa$", "qa$?b$"]
    assert made.prompts.tolist() == [4, 1, 4]
