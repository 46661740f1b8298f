import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from command_line import interplay
from conftest import ROOT

from interplay.core.model import UserError
from interplay.report.inspect.compare import Side, compare, of_stage
from interplay.report.stats import intervals

RIGHT = {"a0": [0, 4, 2, 4], "b0": [4, 4, 3, 0], "a1": [0, 4, 2, 4], "b1": [4, 4, 1, 1]}
"""Evaluation -> strictly right samples, of 4, of each of its prompts; prompts 0 to 2 have op 2, prompt 3 has op 4."""
BANDS = {"id": {"2": 1.0}, "edge": {"4": 1.0}}


def write(root: Path, kind: str, digest: str, spec: dict, deps: dict[str, str], metrics: dict) -> dict[str, Any]:
    out = root / kind / digest
    out.mkdir(parents=True)
    stage = {"kind": kind, "digest": digest, "versions": {"": 1}, "spec": spec, "deps": deps}
    (out / "record.json").write_text(json.dumps({**stage, "metrics": metrics, "files": {}}))
    return {**stage, "label": f"{digest}/{kind}@0"}


def evaluation(root: Path, digest: str, rights: list[int], data: str = "test") -> dict[str, Any]:
    rows = [
        {"index": i, "sample": s, "band": "id" if i < 3 else "edge", "op": 2 if i < 3 else 4, "mode": "forward", "strict": s < right,
         "answer": s < right, "score": float(s < right), "error": "none" if s < right else "value", "completion": f"{digest} on {i}: {'good' if s < right else 'bad'}"}
        for i, right in enumerate(rights)
        for s in range(4)
    ]  # fmt: skip
    stage = write(root, "evaluate", digest, {"num_samples": 4}, {"model": f"m{digest}", "data": data}, {"n_samples": 4})
    pd.DataFrame(rows).to_parquet(root / "evaluate" / digest / "samples.parquet")
    return stage


@pytest.fixture
def world(tmp_path: Path) -> tuple[Path, dict[str, dict[str, Any]]]:
    """Results and the stages in them: four evaluations of models that differ in their steps."""
    stages = [evaluation(tmp_path, digest, rights) for digest, rights in RIGHT.items()]
    stages += [write(tmp_path, "rl", f"m{digest}", {"steps": 2 if digest < "b" else 5, "seed": 0}, {}, {}) for digest in RIGHT]
    for name in ("test", "other"):
        stages.append({**write(tmp_path, "problems", name, {"bands": BANDS, "seed": len(name)}, {}, {}), "label": f"data.{name}"})
    problems = [{"index": i, "prompt": f"prompt {i}", "solution": f"solution {i}"} for i in range(4)]
    pd.DataFrame(problems).to_parquet(tmp_path / "problems/test/problems.parquet")
    return tmp_path, {stage["digest"]: stage for stage in stages}


def arms() -> tuple[Side, Side]:
    return tuple(  # type: ignore[return-value]
        Side(name, [("rl", f"m{name}0"), ("eval", f"{name}0")], {seed: {"eval": f"{name}{seed}"} for seed in (0, 1)})
        for name in "ab"
    )


def row_of(text: str, name: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.startswith(f"  {name} "))


def test_arms_are_paired_by_prompt_and_seed(world: tuple[Path, dict]) -> None:
    text = compare(*arms(), world[1], world[0], "strict_pass@1", None, 0)
    # Of 8 pairs: prompt 0 better at both seeds, prompt 2 better at one and worse at the other, prompt 3 worse at both.
    assert row_of(text, "all")[-3:] == ["3", "3", "2"]
    assert row_of(text, "id")[-3:] == ["3", "1", "2"]
    assert row_of(text, "edge")[-3:] == ["0", "2", "0"]


def test_the_difference_and_its_interval_are_those_of_the_paired_test(world: tuple[Path, dict]) -> None:
    text = compare(*arms(), world[1], world[0], "strict_pass@1", None, 0)
    gaps = np.array([[1, 0, 0.25, -1], [1, 0, -0.25, -0.75]])
    means, (low, high) = gaps.mean(1), intervals.crossed_spread(gaps).interval((-1, 1))
    shown = row_of(text, "all")
    assert shown[1:4] == ["62.5", "65.6", f"{100 * means.mean():+.1f}"]
    assert " ".join(shown[4:6]) == f"[{100 * low:+.1f}, {100 * high:+.1f}]"
    assert " ".join(shown[6:]).startswith("any base, any prompt (2 bases, 4 prompts)")


def test_two_evaluations_have_an_interval_over_prompts(world: tuple[Path, dict]) -> None:
    root, stages = world
    text = compare(of_stage("a0", "a0", stages), of_stage("b0", "b0", stages), stages, root, "strict_pass@1", "op:2", 0)
    assert "this base, any prompt (1 run, 3 prompts)" in text
    assert row_of(text, "op")[-3:] == ["2", "0", "1"]


def test_flipped_items_stand_with_both_completions_and_the_gold_solution(world: tuple[Path, dict]) -> None:
    text = compare(*arms(), world[1], world[0], "strict_pass@1", None, 1)
    assert "wrong in a and right in b: 2; right in a and wrong in b: 2" in text
    gain, loss = text.split("\n\n")[-2:]
    assert gain.splitlines() == [
        "gain: problem 0, id, op 2, seed 0: 0 of 4 -> 4 of 4 strictly right",
        "  prompt prompt 0",
        "  a      a0 on 0: bad  (4x, value)",
        "  b      b0 on 0: good  (4x, right)",
        "  gold   solution 0",
    ]
    assert loss.startswith("loss: problem 3, edge, op 4, seed 0: 4 of 4 -> 0 of 4 strictly right")


def test_a_prompt_is_shown_at_one_seed_only(world: tuple[Path, dict]) -> None:
    text = compare(*arms(), world[1], world[0], "strict_pass@1", None, 9)
    assert text.count("\n  prompt prompt 0\n") == 1


def test_specs_are_compared_down_to_what_the_model_rests_on(world: tuple[Path, dict]) -> None:
    root, stages = world
    text = compare(of_stage("a0", "a0", stages), of_stage("b0", "b0", stages), stages, root, "strict_pass@1", None, 0)
    assert [row_of(text, "evaluate")[1:], ["model.steps", "2", "->", "5"]] == [
        ["model", "ma0/rl", "[ma0]", "->", "mb0/rl", "[mb0]"],
        next(line.split()[1:] for line in text.splitlines() if "model.steps" in line),
    ]
    assert "model.seed" not in text


def test_metrics_of_other_kinds_stand_side_by_side(world: tuple[Path, dict]) -> None:
    root, stages = world
    for digest, reward in (("ma0", 0.25), ("mb0", 0.75)):
        path = root / "rl" / digest / "record.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "metrics": {"reward_last": reward, "steps": 4}}))
    text = compare(of_stage("ma0", "ma0", stages), of_stage("mb0", "mb0", stages), stages, root, "strict_pass@1", None, 0)
    assert row_of(text, "reward_last") == ["reward_last", "0.25", "->", "0.75", "+0.5"]
    assert "\n  steps " not in text.split("metrics, a -> b")[1]


def test_different_problem_sets_are_refused_in_one_line(world: tuple[Path, dict]) -> None:
    root, stages = world
    stages["c0"] = evaluation(root, "c0", [0, 0, 0, 0], data="other")
    with pytest.raises(UserError, match=r"a0 and c0 are on different problem sets \(test \[test\] and other \[other\]\)"):
        compare(of_stage("a0", "a0", stages), of_stage("c0", "c0", stages), stages, root, "strict_pass@1", None, 0)


def test_different_kinds_are_refused(world: tuple[Path, dict]) -> None:
    root, stages = world
    with pytest.raises(UserError, match="a0 is evaluate and mb0 is rl: compare stages of one kind"):
        compare(of_stage("a0", "a0", stages), of_stage("mb0", "mb0", stages), stages, root, "strict_pass@1", None, 0)


def test_without_samples_the_specs_are_compared_and_what_is_missing_is_named(world: tuple[Path, dict]) -> None:
    root, stages = world
    (root / "evaluate/b0/samples.parquet").unlink()
    text = compare(of_stage("a0", "a0", stages), of_stage("b0", "b0", stages), stages, root, "strict_pass@1", None, 0)
    assert "model.steps" in text
    assert "samples of evaluation b0" in text


def test_a_column_that_no_prompt_has_is_refused(world: tuple[Path, dict]) -> None:
    root, stages = world
    with pytest.raises(UserError, match=r"--column egde: no prompt of it .*did you mean 'edge'"):
        compare(of_stage("a0", "a0", stages), of_stage("b0", "b0", stages), stages, root, "strict_pass@1", "egde", 0)


def test_arms_of_a_study_are_named_with_a_colon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    _, text, _ = interplay(capsys, "compare", "edge:rl_edge", "edge:rl_hard")
    assert "data.0.bands.edge.7" in text
    assert "is not finished" in text
    code, _, error = interplay(capsys, "compare", "edge:rl_edge", "edge:rl_hrad")
    assert (code, error) == (2, "interplay: edge:rl_hrad: study edge has no arm 'rl_hrad'; did you mean 'rl_hard'?\n")


def test_all_blocks_of_an_evaluation_are_compared(world: tuple[Path, dict]) -> None:
    root, stages = world
    stages["a0+"] = evaluation(root, "a0+", [0, 4, 0, 4])
    stages["b0+"] = evaluation(root, "b0+", [0, 4, 4, 0])
    blocks = {"a0": ["a0+"], "b0": ["b0+"]}
    a, b = (side._replace(evaluations={0: side.evaluations[0]}, blocks=blocks) for side in arms())
    text = compare(a, b, stages, root, "strict_pass@8", None, 1)
    assert row_of(text, "all")[1:3] == ["75.0", "75.0"]  # prompts 1 to 3 of a, 0 to 2 of b
    assert "gain: problem 2, id, op 2, seed 0: 2 of 8 -> 7 of 8 strictly right" in text
    assert "loss: problem 3, edge, op 4, seed 0: 8 of 8 -> 0 of 8 strictly right" in text
    assert "  a      a0+ on 2: bad  (4x, value)" in text  # the commonest of all eight
    (root / "evaluate/b0+/record.json").unlink()
    assert "evaluation b0+ is not finished" in compare(a, b, stages, root, "strict_pass@1", None, 1)


def test_a_pass_rate_beyond_the_samples_is_refused_in_one_line(world: tuple[Path, dict]) -> None:
    with pytest.raises(UserError, match=r"--metric strict_pass@8: evaluation a0 has 4 samples per prompt; lower k"):
        compare(*arms(), world[1], world[0], "strict_pass@8", None, 0)


def test_a_share_of_right_answers_is_refused_since_no_prompt_has_one(world: tuple[Path, dict]) -> None:
    with pytest.raises(UserError, match=r"hacked_of_right: a share of all right answers.*; choose another$"):
        compare(*arms(), world[1], world[0], "hacked_of_right", None, 3)
    assert "hacked in percent" in compare(*arms(), world[1], world[0], "hacked", None, 3)


def test_each_evaluation_that_both_arms_have_has_a_table_and_flips_of_its_own(world: tuple[Path, dict]) -> None:
    root, stages = world
    stages["ax"], stages["bx"] = evaluation(root, "ax", [0, 0, 0, 0], "other"), evaluation(root, "bx", [4, 4, 4, 4], "other")
    a, b = (side._replace(evaluations={0: {**side.evaluations[0], "more": f"{side.name}x"}}) for side in arms())
    blocks = compare(a, b, stages, root, "strict_pass@1", None, 0).split("\n\n")
    first, second = (next(n for n, block in enumerate(blocks) if block.startswith(f"{name}: ")) for name in ("eval", "more"))
    assert row_of(blocks[first], "all")[1:3] == ["62.5", "68.8"]
    assert row_of(blocks[first], "all")[-3:] == ["2", "1", "1"]
    assert row_of(blocks[second], "all")[1:3] == ["0.0", "100.0"]
    assert row_of(blocks[second], "all")[-3:] == ["4", "0", "0"]
    assert blocks[second + 1].startswith("flipped, most samples wrong in a and right in b: 4;")


def test_numerics_that_differ_are_told(world: tuple[Path, dict]) -> None:
    assert "numerics" not in compare(*arms(), world[1], world[0], "strict_pass@1", None, 0)
    path = world[0] / "rl/mb0/record.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "numerics": "stacked"}))
    text = compare(*arms(), world[1], world[0], "strict_pass@1", None, 0)
    assert "alone -> stacked" in text
