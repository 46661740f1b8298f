"""Figures whole and legible: no name leaves the paper, whatever the number of arms and the length of their names."""

import itertools
import math
import re
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import report_study as study
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.text import Text

from interplay.report.display_spec import Figure
from interplay.report.draw import figures, style
from interplay.report.stats import frame
from interplay.report.stats.estimate import Estimate
from interplay.report.stats.frame import Results
from interplay.report.write import headline

RATES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
LONG = "x" * 40 + "[prompts_per_step=64,learning_rate=0.0003,max_completion_length=2048,num_generations=16,temperature=1.0]"
GRID = [LONG, *(f"{method}[learning_rate={rate}]" for method in ("grpo", "rloo") for rate in RATES)]


def results(root: Path, arms: list[str], **given: object) -> Results:
    """Arms that differ in one prompt of each op, with their trainings."""
    inputs, rows = {}, []
    for number, name in enumerate(arms):
        counts = {2: [number % 5, 4], 3: [3, 2], 4: [1, number % 3]}
        inputs[f"e{number}"] = study.write_evaluation(root, f"e{number}", counts, extra_answers=1)
        prompts = frame.count_samples(inputs[f"e{number}"]).reset_index()
        prompts = prompts.assign(error_none=prompts["strict"], error_value=prompts["n"] - prompts["strict"])
        prompts.to_parquet(inputs[f"e{number}"] / "prompts.parquet")
        inputs[f"m{number}"] = study.write_record(root, f"m{number}", "rl", study.RL, {})
        study.write_steps(inputs[f"m{number}"], reward=[0.1, 0.2, 0.3 + number / 50])
        rows.append(study.arm(name, 0, ["base:pretrain:m", f"rl:rl:m{number}"], f"e{number}"))
    return frame.read_results(study.spec(rows, **given), inputs)


FORMS: dict[str, dict[str, Any]] = {
    "by k": {"x": "k", "y": "strict_pass"},
    "by op": {"x": "op", "y": "strict_pass@1"},
    "by band": {"x": "band", "y": "strict_pass@1", "bands": ["id", "edge"]},
    "by length": {"x": "length", "y": "strict_pass@1", "bands": ["id", "edge"]},
    "curves": {"x": "step", "y": "reward"},
    "heat": {"form": "heat", "x": "op", "y": "strict_pass@1"},
    "errors": {"x": "band", "y": "error", "bands": ["id", "edge"]},
}


def drawn(found: Results, figure: Figure) -> Canvas:
    """As `figures.draw_figure` draws it, before it becomes bytes."""
    with matplotlib.rc_context(style.STYLE):
        canvas, _ = figures._drawer(figure)(found, figure)
        assert canvas is not None
        FigureCanvasAgg(canvas).draw()
    return canvas


def texts(canvas: Canvas) -> list[Text]:
    return [text for text in canvas.findobj(Text) if isinstance(text, Text) and text.get_visible() and text.get_text()]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("arms", [1, 2, 9, 15])
def test_every_arm_is_named_in_full_and_nothing_leaves_the_figure(tmp_path: Path, form: str, arms: int) -> None:
    names = GRID[-arms:]
    canvas = drawn(results(tmp_path, names), Figure(**FORMS[form]))
    written = {text.get_text().replace("\n", "") for text in texts(canvas)}
    assert set(names) <= written
    width, height = canvas.get_size_inches() * canvas.dpi
    legends = [text for box in canvas.legends for text in box.get_texts()]
    labels = [label for axis in canvas.axes for label in axis.get_yticklabels() if label.get_text().replace("\n", "") in names]
    for text in [*legends, *labels]:
        box = text.get_window_extent()
        assert 0 <= box.x0 < box.x1 <= width, text.get_text()
        assert 0 <= box.y0 < box.y1 <= height, text.get_text()


def test_bars_below_zero_are_seen_whole(tmp_path: Path) -> None:
    inputs = {"e": study.write_evaluation(tmp_path, "e", {2: [1] * 6, 4: [2] * 6})}
    results = frame.read_results(study.spec([study.arm("base", 0, ["base:pretrain:p"], "e")]), inputs)
    prompts = {digest: table.assign(**{"own:change": -2.0 * table["n"]}) for digest, table in results.prompts.items()}
    canvas, _, _ = figures.draw_canvas(results._replace(prompts=prompts), Figure(x="op", y="own:change"))
    assert canvas is not None
    assert canvas.axes[0].get_ylim()[0] < -2


@pytest.mark.parametrize("alike", [False, True])
def test_bands_lie_at_the_lengths_of_the_completions_of_each_arm_a_panel_for_those_of_equal_ops(
    tmp_path: Path, alike: bool
) -> None:
    found = results(tmp_path, ["one", "two"])
    for number in range(2):
        lengths = {"id": {"length": 20.0 + number}, "edge": {"length": 41.0 + number}}
        found.records[f"e{number}"]["metrics"]["band"] = lengths
        if alike:
            found.prompts[f"e{number}"]["op"] = 2
    panels = drawn(found, Figure(**FORMS["by length"])).axes
    lines = [{str(line.get_label()): list(line.get_xdata()) for line in axis.get_lines()} for axis in panels]
    apart = [{"one": [20.0], "two": [21.0]}, {"one": [41.0], "two": [42.0]}]
    assert lines == ([{"one": [20.0, 41.0], "two": [21.0, 42.0]}] if alike else apart)


def test_further_rows_of_a_legend_take_nothing_from_the_panels(tmp_path: Path) -> None:
    figure = Figure(**FORMS["by op"])
    few, many = (drawn(results(tmp_path / str(arms), GRID[-arms:]), figure) for arms in (2, 15))
    heights = [canvas.axes[0].get_position().height * canvas.get_figheight() for canvas in (few, many)]
    assert heights[1] > 0.95 * heights[0]


def test_the_numbers_beneath_panels_of_errors_stand_apart(tmp_path: Path) -> None:
    figure = Figure(x="band", y="error", bands=["id", "edge", "op:2", "op:3"])
    canvas = drawn(results(tmp_path, ["an_arm", "another"]), figure)
    boxes = [label.get_window_extent() for axis in canvas.axes for label in axis.get_xticklabels() if label.get_text()]
    assert len(boxes) == 12
    assert all(box.x1 + 4 < other.x0 for box, other in itertools.pairwise(boxes))


def test_names_of_narrow_bands_lie_in_further_rows_where_they_would_overlap(tmp_path: Path) -> None:
    names = {op: f"{op} operations, a name for two rows" for op in (2, 3, 4)}
    found = results(tmp_path, ["an_arm"])
    for table in found.prompts.values():
        table["band"] = table["op"].map(names)
    spec = found.spec.model_copy(update={"bands": {name: [op] for op, name in names.items()}})
    canvas = drawn(found._replace(spec=spec), Figure(**FORMS["by op"]))
    boxes = {text.get_text(): text.get_window_extent() for text in canvas.axes[0].texts}
    assert list(boxes) == list(names.values())
    assert not [pair for pair in itertools.combinations(boxes, 2) if boxes[pair[0]].overlaps(boxes[pair[1]])]
    assert len({round(box.y0) for box in boxes.values()}) == 2


def same_results(root: Path, steps: int = 3, **given: object) -> Results:
    """Two arms that came out the same, and one that did not."""
    inputs, rows = (
        {"e": study.write_evaluation(root, "e", {2: [1], 4: [1]}), "o": study.write_evaluation(root, "o", {2: [2], 4: [1]})},
        [],
    )
    for name, reward in (("one", 0.1), ("two", 0.1), ("other", 7.0)):
        inputs[name] = study.write_record(root, name, "rl", study.RL, {})
        study.write_steps(inputs[name], reward=[reward, 0.2, 0.3][:steps])
        rows.append(study.arm(name, 0, ["base:pretrain:m", f"rl:rl:{name}"], "o" if name == "other" else "e"))
    return frame.read_results(study.spec(rows, **given), inputs)


@pytest.mark.parametrize("figure", [Figure(x="k", y="strict_pass", panel="band"), Figure(x="step", y="reward")])
def test_of_curves_alike_each_shows_beneath_the_next_and_the_caption_names_them(tmp_path: Path, figure: Figure) -> None:
    found = same_results(tmp_path)
    lines = {line.get_label(): line.get_linewidth() for line in drawn(found, figure).axes[0].get_lines()}
    assert lines["one"] > lines["two"] + 2, "at least a point to either side"
    assert lines["two"] == lines["other"]
    said = "one, two (in id); one, two, other (in edge)" if figure.x == "k" else "one, two"
    assert f"The same curve, drawn one inside the other: {said}." in figures.draw_figure(found, figure).caption


def test_a_dozen_curves_alike_are_no_wider_than_a_finger() -> None:
    names = [f"a{number}" for number in range(12)]
    same = style.coinciding_curves({name: [np.zeros(3)] for name in names})
    widths = [style.extra_width(name, same) for name in names]
    assert widths == sorted(widths, reverse=True)
    assert len(set(widths)) == 12
    assert (widths[0], widths[-1], style.coinciding_note({"": []})) == (style.WIDEST, 0.0, "")


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_steps_are_whole_and_a_single_one_is_seen(tmp_path: Path, steps: int) -> None:
    axis = drawn(same_results(tmp_path, steps), Figure(x="step", y="reward")).axes[0]
    low, high = axis.get_xlim()
    ticks = [tick for tick in axis.get_xticks() if low <= tick <= high]
    assert ticks == list(range(1, steps + 1))
    assert all(line.get_marker() not in ("", "None") for line in axis.get_lines()) == (steps == 1)


@pytest.mark.parametrize("seeds", [12, 13])
def test_of_many_seeds_a_dozen_have_curves_of_their_own_and_all_are_in_the_mean(tmp_path: Path, seeds: int) -> None:
    inputs, rows = {"e": study.write_evaluation(tmp_path, "e", {2: [1], 4: [1]})}, []
    for seed in range(seeds):
        name = f"m{seed:02d}"
        inputs[name] = study.write_record(tmp_path, name, "rl", study.RL, {})
        study.write_steps(inputs[name], reward=[float(seed), 0.0])
        rows.append(study.arm("one", seed, ["base:pretrain:m", f"rl:rl:{name}"], "e"))
    found, figure = frame.read_results(study.spec(rows), inputs), Figure(x="step", y="reward")
    *thin, mean = drawn(found, figure).axes[0].get_lines()
    assert len(thin) == 12
    assert mean.get_ydata()[0] == pytest.approx((seeds - 1) / 2)
    assert ("(12 of 13)" in figures.draw_figure(found, figure).caption) == (seeds == 13)


@pytest.mark.parametrize(
    ("ends", "written"),
    [((0.002, 3.0), {"0.01", "0.1", "1"}), ((4e-6, 3.0), {"1e-05", "1e-04", "1e-03", "1e-02", "1e-01", "1e+00"})],
)
def test_a_logarithmic_axis_writes_its_numbers_in_one_form(tmp_path: Path, ends: tuple, written: set[str]) -> None:
    root = study.write_record(tmp_path, "m1", "rl", study.RL, {})
    study.write_steps(root, reward=list(ends))
    inputs = {"e": study.write_evaluation(tmp_path, "e", {2: [1]}), "m1": root}
    found = frame.read_results(study.spec([study.arm("rl", 0, ["base:pretrain:m", "rl:rl:m1"], "e")]), inputs)
    axis = drawn(found, Figure(x="step", y="reward")).axes[0]
    low, high = axis.get_ylim()
    labels = zip(axis.get_yticks(), axis.get_yticklabels(), strict=True)
    assert {label.get_text() for at, label in labels if low <= at <= high} == written


def colours_of(canvas: Canvas) -> tuple[float, float]:
    low, high = canvas.axes[0].images[0].get_clim()
    return float(low), float(high)


def test_maps_of_shares_run_over_all_percents_and_differences_as_far_as_the_widest_map_of_the_report(tmp_path: Path) -> None:
    wide = Figure(form="heat", x="op", y="strict_pass@1", against="one")
    narrow = Figure(form="heat", x="band", y="strict_pass@1", bands=["edge", "id"], against="other")
    found = same_results(tmp_path, figures={"wide": wide, "narrow": narrow})
    assert colours_of(drawn(found, Figure(form="heat", x="op", y="strict_pass@1"))) == (0.0, 100.0)
    assert colours_of(drawn(found, wide)) == colours_of(drawn(found, narrow)) == (-25.0, 25.0)
    assert drawn(found, wide).axes[1].get_ylabel() == "points"


def test_the_colours_of_maps_of_other_arms_span_the_cells_that_these_maps_draw(tmp_path: Path) -> None:
    given: dict[str, Any] = {"form": "heat", "x": "op", "y": "strict_pass@1", "against": "one"}
    maps = {
        "all": Figure(**given),
        "some": Figure(**given, arms=["two"]),
        "of_one": Figure(**given, by="band", bands=["id", "edge"], arms=["three"]),
    }
    found = results(tmp_path, ["one", "two", "three"], figures=maps)
    ends = [colours_of(figures.draw_canvas(found, one)[0]) for one in maps.values()]
    assert ends[0] == ends[1] == ends[2]


@pytest.mark.parametrize(
    ("claimed", "shown"),
    [
        ((0.02, math.inf), ["0", "+2"]),
        ((0.0, 0.0001), ["0"]),
        ((-0.01, 0.01), ["−1", "0", "+1"]),
        ((-math.inf, -0.001), ["−0.1", "0"]),
    ],
)
def test_a_claims_picture_names_zero_and_every_end_apart(claimed: tuple[float, float], shown: list[str]) -> None:
    picture = headline.forest_svg(Estimate(value=0.3, low=0.2, high=0.5, seeds=(0,)), claimed, (-0.6, 0.6), signed=True)
    found = re.findall(r'<text x="([\d.]+)"[^>]*>([^<]*)<', picture)
    assert [text for _, text in found] == shown
    places = [(float(x), headline.DIGIT * len(text)) for x, text in found]
    assert all(x + width / 2 <= other - its / 2 for (x, width), (other, its) in itertools.pairwise(places))
    assert all(width / 2 <= x <= headline.WIDTH - width / 2 for x, width in places)


def test_a_point_that_is_not_there_has_no_whisker_in_the_page() -> None:
    canvas = Canvas()
    curve, _, (whiskers,) = canvas.subplots().errorbar([0, 1], [math.nan, 0.5], yerr=[[math.nan, 0.25], [math.nan, 0.25]])
    curve.set_label("rl")
    whiskers.set_label("_rl")
    (line,) = figures.read_chart(canvas)["panels"][0]["lines"]
    assert line["points"] == [[0.0, None, None, None], [1.0, 0.5, 0.25, 0.75]]


def test_whiskers_of_neighbouring_steps_of_a_long_run_stay_their_own() -> None:
    canvas = Canvas()
    curve, _, (whiskers,) = canvas.subplots().errorbar([1234567, 1234568], [0.25, 0.5], yerr=[[0.125, 0.25], [0.125, 0.25]])
    curve.set_label("rl")
    whiskers.set_label("_rl")
    (line,) = figures.read_chart(canvas)["panels"][0]["lines"]
    assert line["points"] == [[1234567.0, 0.25, 0.125, 0.375], [1234568.0, 0.5, 0.25, 0.75]]
