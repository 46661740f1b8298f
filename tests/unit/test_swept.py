"""Labels and colours of arms, and figures against the values of their axes or what training took."""

import json
from pathlib import Path

import numpy as np
import pytest
import report_study as study
from lab import Lab
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from interplay.core.model import UserError
from interplay.report.display_spec import Figure
from interplay.report.draw import figures, style
from interplay.report.shown_spec import COLORS, readable
from interplay.report.spec import ReportSpec
from interplay.report.stats import frame
from interplay.report.stats.estimate import value
from interplay.report.write import answers, text
from interplay.track.describe import run_tags, stage_places

STUDY = """
task: op_dag
question: Which KL?
data:
  corpus: {band: id, split: train}
  edge: {band: edge, split: rl}
  test: {bands: [id, edge], split: test}
stages:
  base: {kind: pretrain, data: {corpus: 1.0}}
  rl: {kind: rl, data: {edge: 1.0}, method: grpo}
  eval: {kind: evaluate, data: test}
arms:
  base: {path: [base], label: before RL}
  kl: {path: [base, rl], control: base, label: 'KL {beta}', color: blue, grid: {rl.method.loss.beta: [0, 0.01, 0.1]}}
  loss: {path: [base, rl], control: base, grid: {rl.method: [gspo, dr_grpo], rl.optimizer.learning_rate: [1.0e-4, 1.0e-3]}}
evaluate: [eval]
tables:
  main: {columns: [edge], cells: [strict_pass@1], title: Scores at the edge, caption: By KL., arms: [kl, base]}
figures:
  beta: {x: rl.method.loss.beta, y: strict_pass@1, band: edge, log: true, title: The KL term}
  method: {x: rl.method, y: strict_pass@1, arms: ['loss[method=gspo,learning_rate=0.001]', 'loss[method=dr_grpo,learning_rate=0.001]']}
  plane: {form: heat, x: rl.optimizer.learning_rate, by: rl.method, y: strict_pass@1, band: edge, against: base}
  cost: {x: tokens, y: strict_pass@1, band: edge}
"""
BETA = "  beta: {x: rl.method.loss.beta, y: strict_pass@1, band: edge, log: true, title: The KL term}"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    made = Lab(tmp_path)
    (made.configs / "study/swept.yaml").write_text(STUDY)
    return made


def report(lab: Lab) -> ReportSpec:
    plan = lab.plan("swept")
    spec = plan.stages[plan.report].spec
    assert isinstance(spec, ReportSpec)
    return spec


# -- planned -----------------------------------------------------------------------------------------------------------------


def test_what_is_shown_moves_no_digest_but_the_reports(lab: Lab) -> None:
    before = lab.plan("swept")
    for old, new in (
        ("label: 'KL {beta}', color: blue, ", ""),
        ("label: before RL", "label: base"),
        (BETA, ""),
        (", caption: By KL.", ""),
    ):
        lab.edit("study/swept.yaml", old, new)
    after = lab.plan("swept")
    assert set(before.stages) - {before.report} == set(after.stages) - {after.report}
    assert before.report != after.report


def test_labels_have_the_values_of_axes_and_combinations_go_from_light_to_the_colour(lab: Lab) -> None:
    shown = report(lab).shown
    assert [shown[f"kl[beta={beta}]"].label for beta in ("0", "0.01", "0.1")] == ["KL 0", "KL 0.01", "KL 0.1"]
    colors = [shown[f"kl[beta={beta}]"].color for beta in ("0", "0.01", "0.1")]
    assert colors[-1] == COLORS["blue"].lower()
    assert colors == sorted(colors, key=lambda color: -int(color[1:3], 16))


@pytest.mark.parametrize(
    ("arm", "said"),
    [
        ("kl[beta=0.1]", "kl: beta 0.1"),
        ("mid_rl[data=edge:0.1+corpus:0.9]", "mid_rl: edge 0.1, corpus 0.9"),
        ("loss[method=gspo]", "loss: gspo"),
        ("rl[scale_rewards=batch,epsilon_high=0.28]", "rl: scale rewards batch, epsilon high 0.28"),
        ("base", "base"),
    ],
)
def test_an_arm_without_a_label_is_called_readably(arm: str, said: str) -> None:
    assert readable(arm) == said


def test_arms_are_placed_by_the_value_of_the_axis_and_connected_where_the_rest_is_equal(lab: Lab) -> None:
    placed = report(lab).placed
    assert [(one.x, one.line) for one in placed["beta"]] == [(0, "KL"), (0.01, "KL"), (0.1, "KL")]
    assert [(one.x, one.line) for one in placed["method"]] == [
        ("gspo", "loss: learning rate 0.001"),
        ("dr_grpo", "loss: learning rate 0.001"),
    ]
    assert {(one.x, one.row) for one in placed["plane"]} == {
        (rate, name) for rate in (0.0001, 0.001) for name in ("gspo", "dr_grpo")
    }
    assert [one.line for one in placed["cost"]] == ["before RL", *["KL"] * 3, *["loss"] * 4]


def test_arms_of_tables_are_in_their_order_and_an_arm_with_axes_is_all_its_combinations(lab: Lab) -> None:
    assert report(lab).tables["main"].arms == ["kl[beta=0]", "kl[beta=0.01]", "kl[beta=0.1]", "base"]


def test_mlflow_has_the_label_of_an_arm(lab: Lab) -> None:
    plan = lab.plan("swept")
    found = {run_tags(plan, plan.stages[digest], place).get("label") for digest, place in stage_places(plan).items()}
    assert {"before RL", "KL 0.1", "loss: gspo, learning rate 0.001"} <= found


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("KL {beta}", "KL", "14: arms.kl.label = 'KL': kl[beta=0.01] and kl[beta=0] have the same; put the value of an axis into it, such as {beta}"),
        ("KL {beta}", "KL {betta}", "14: arms.kl.label = 'KL {betta}': no axis of this arm is called 'betta'; did you mean 'beta'?"),
        ("color: blue", "color: bleu", "no colour: 'bleu'; write #rrggbb, or one of grey, blue, vermilion, green, pink, orange, sky, purple"),
        ("x: rl.method.loss.beta", "x: rl.method.loss.bet", "20: figures.beta.x = 'rl.method.loss.bet': no arm of the figure has this axis or sets this key; did you mean 'rl.method.loss.beta'?"),
        ("x: tokens", "x: tokenz", "no x: 'tokenz'; write the key of an axis, such as rl.method.loss.beta; did you mean 'tokens'?"),
        ("band: edge, log", "band: egde, log", "20: figures.beta.band = 'egde': no such band of the evaluations; did you mean 'edge'?"),
        ("x: rl.method, y: strict_pass@1", "x: rl.method, log: true, y: strict_pass@1", "21: figures.method.log = True: rl.method of loss[method=gspo,learning_rate=0.001] is gspo, and a logarithmic axis has room for numbers from 0 on; take log away, or leave that arm out of arms"),
        ("y: strict_pass@1, arms: ['loss[method=gspo,learning_rate=0.001]', ", "y: strict_pass@1, arms: [", "21: figures.method.x = 'rl.method': these arms have one value of it, dr_grpo; name others in arms, or draw it by op or band"),
        ("arms: [kl, base]}", "arms: [klx, base]}", "18: tables.main.arms = 'klx': no such arm; did you mean 'kl'?"),
        ("by: rl.method, ", "", "a heat map over two axes has the keys of both; write x and by, or take one away"),
        ("{x: tokens, y", "{x: op, log: true, y", "band belongs to a figure against an axis, tokens, flops or seconds; take it away"),
    ],
)  # fmt: skip
def test_what_cannot_be_shown_is_refused_with_line_and_remedy(lab: Lab, old: str, new: str, said: str) -> None:
    lab.edit("study/swept.yaml", old, new)
    with pytest.raises(UserError) as error:
        lab.plan("swept")
    assert str(error.value).endswith(said)


# -- drawn -------------------------------------------------------------------------------------------------------------------


def finished(root: Path, **given: object) -> frame.Results:
    """base, and three strengths of KL of which the last was trained on more tokens."""
    inputs, rows = {"m": study.write_record(root, "m", "pretrain", {"tokens": 1000}, {"tokens": 1000, "parameters": 10})}, []
    shown, placed = {}, []
    for number, (beta, right) in enumerate([(None, 1), (0.0, 3), (0.01, 4), (0.1, 2)]):
        name = "base" if beta is None else f"kl[beta={beta:g}]"
        inputs[f"e{number}"] = study.write_evaluation(root, f"e{number}", {2: [right, 4], 4: [right, 0]})
        path = ["base:pretrain:m", *([f"rl:rl:r{number}"] if number else [])]
        if number:
            metrics = {"completion_tokens": 100 * number, "prompt_tokens": 0, "completions": 96, "steps": 3, "parameters": 10}
            inputs[f"r{number}"] = study.write_record(root, f"r{number}", "rl", study.RL, metrics, {"init": "m"})
            (inputs[f"r{number}"] / "telemetry.json").write_text(json.dumps({"seconds_wall": 10.0 * number}))
            placed.append({"arm": name, "x": beta, "line": "KL"})
            shown[name] = {"label": f"KL {beta:g}", "color": "#0072b2"}
        rows.append(study.arm(name, 0, path, f"e{number}", "base" if number else None))
    (inputs["m"] / "telemetry.json").write_text(json.dumps({"seconds_wall": 5.0}))
    given = {"shown": shown, "placed": {name: placed for name in given.get("figures", {})}, **given}  # type: ignore[attr-defined]
    return frame.read_results(study.spec(rows, **given), inputs)


def drawn(found: frame.Results) -> tuple[Axes, str]:
    with style.drawn_for(style.PAGE):
        canvas, caption, _ = figures.draw_canvas(found, next(iter(found.spec.figures.values())))
    assert canvas is not None
    return canvas.axes[0], caption


def test_a_line_has_each_value_with_its_interval_and_the_control_is_level(tmp_path: Path) -> None:
    figure = {"x": "rl.method.loss.beta", "y": "strict_pass@1", "band": "edge", "log": True, "caption": "Less is more."}
    found = finished(tmp_path, figures={"beta": figure})
    axis, caption = drawn(found)
    lines = {line.get_label(): line for line in axis.lines}
    arms = [arm for arm in found.spec.arm_names() if arm != "base"]
    expected = [100 * value(found, arm, "edge", "strict_pass@1").value for arm in arms]
    ys = np.asarray(lines["KL"].get_ydata())
    assert list(ys[~np.isnan(ys)]) == pytest.approx(expected)
    assert np.isnan(ys[1])
    assert lines["_KL"].get_linestyle() == ":", "0 has no place on the axis, so the line to it is dotted"
    assert list(lines["_KL"].get_ydata()) == pytest.approx(expected[:2])
    assert list(lines["base"].get_ydata()) == [pytest.approx(100 * value(found, "base", "edge", "strict_pass@1").value)] * 2
    assert lines["base"].get_linestyle() == "--"
    assert to_hex(lines["KL"].get_color()) == "#0072b2"
    assert axis.get_xscale() == "log"
    assert [label.get_text() for label in axis.get_xticklabels()] == ["0", "0.01", "0.1"]
    xs = np.asarray(lines["KL"].get_xdata())
    assert np.all(np.diff(xs[~np.isnan(xs)]) > 0)
    assert caption.startswith(
        "Less is more. strict pass@1, edge against rl.method.loss.beta (logarithmic; a 0 is left of all values, dotted)."
    )


def test_the_axis_of_a_share_says_of_which_set_and_stage(tmp_path: Path) -> None:
    axis, _ = drawn(finished(tmp_path, figures={"mix": {"x": "mid.data.edge", "y": "strict_pass@1", "band": "edge"}}))
    assert axis.get_xlabel() == "share of edge in mid"


@pytest.mark.parametrize(
    ("unit", "amounts"), [("tokens", {"base": [1000], "KL": [1100, 1200, 1300]}), ("seconds", {"base": [5], "KL": [15, 25, 35]})]
)
def test_a_score_is_drawn_against_what_training_took(tmp_path: Path, unit: str, amounts: dict[str, list[float]]) -> None:
    figure = {"x": unit, "y": "strict_pass@1", "band": "edge"}
    found = finished(tmp_path, figures={"cost": figure})
    base = [{"arm": "base", "x": "", "line": "base"}]
    placed = {"cost": [*base, *(one.model_dump() for one in found.spec.placed["cost"])]}
    found = found._replace(spec=ReportSpec.model_validate({**found.spec.model_dump(), "placed": placed}))
    axis, _ = drawn(found)
    assert {line.get_label(): list(line.get_xdata()) for line in axis.lines} == amounts


def test_a_heat_map_over_two_axes_has_each_arm_in_its_cell(tmp_path: Path) -> None:
    figure = {"form": "heat", "x": "rl.a", "by": "rl.b", "y": "strict_pass@1", "band": "edge"}
    placed = {
        "plane": [
            {"arm": f"kl[beta={beta}]", "x": x, "row": row} for beta, x, row in (("0", 1, 7), ("0.01", 2, 7), ("0.1", 2, 8))
        ]
    }
    found = finished(tmp_path, figures={"plane": figure}, placed=placed)
    axis, caption = drawn(found)
    score = {arm: 100 * value(found, arm, "edge", "strict_pass@1").value for arm in found.spec.arm_names()}
    cells = np.ma.filled(axis.images[0].get_array(), np.nan)
    np.testing.assert_allclose(cells, [[score["kl[beta=0]"], score["kl[beta=0.01]"]], [np.nan, score["kl[beta=0.1]"]]])
    assert [label.get_text() for label in axis.get_yticklabels()] == ["7", "8"]
    assert caption.startswith("strict pass@1, edge, by rl.b and rl.a.")


def test_labels_and_the_arms_of_a_figure_reach_its_legend_in_order_with_the_colours_of_all_arms(tmp_path: Path) -> None:
    figure = {"x": "op", "y": "strict_pass@1", "arms": ["kl[beta=0.1]", "base"]}
    axis, _ = drawn(finished(tmp_path, figures={"op": figure}))
    assert [bars.get_label() for bars in axis.containers] == ["KL 0.1", "base"]
    assert to_hex(axis.containers[1].patches[0].get_facecolor()) == to_hex(style.PALETTE[0])  # type: ignore[attr-defined]


def test_labels_titles_and_captions_reach_the_tables_and_names_stay_in_the_csv(tmp_path: Path) -> None:
    table = {
        "columns": ["edge"],
        "cells": ["strict_pass@1"],
        "title": "Scores",
        "caption": "By KL.",
        "arms": ["kl[beta=0.1]", "base"],
    }
    made = answers.answer_study(finished(tmp_path, tables={"main": table}))
    answers.write_answers(made, tmp_path / "out")
    said = (tmp_path / "out/tables/main.md").read_text()
    assert said.startswith("# Scores: ")
    assert said.index("| KL 0.1 |") < said.index("| base |")
    assert "By KL." in said
    assert "KL 0.1" in (tmp_path / "out/tables/main.tex").read_text()
    assert "kl[beta=0.1]" in text.as_csv(made.grids["main"])
    assert Figure(x="k", y="strict_pass").title == ""
