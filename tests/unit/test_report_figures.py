"""Figures whole and legible: no name leaves the paper, whatever the number of arms and the length of their names."""

from pathlib import Path
from typing import Any

import matplotlib
import pytest
import report_study as study
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.text import Text

from interplay.report import figures, frame
from interplay.report.frame import Results
from interplay.schema.report import Figure

RATES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
LONG = "x" * 40 + "[prompts_per_step=64,learning_rate=0.0003,max_completion_length=2048,num_generations=16,temperature=1.0]"
GRID = [LONG, *(f"{method}[learning_rate={rate}]" for method in ("grpo", "rloo") for rate in RATES)]


def results(root: Path, arms: list[str], **given: object) -> Results:
    """Arms that differ in one prompt of each op, with their trainings."""
    inputs, rows = {}, []
    for number, name in enumerate(arms):
        counts = {2: [number % 5, 4], 3: [3, 2], 4: [1, number % 3]}
        inputs[f"e{number}"] = study.write_evaluation(root, f"e{number}", counts, extra_answers=1)
        prompts = frame.count(inputs[f"e{number}"]).reset_index()
        prompts = prompts.assign(error_none=prompts["strict"], error_value=prompts["n"] - prompts["strict"])
        prompts.to_parquet(inputs[f"e{number}"] / "prompts.parquet")
        inputs[f"m{number}"] = study.write_record(root, f"m{number}", "rl", study.RL, {})
        study.write_steps(inputs[f"m{number}"], reward=[0.1, 0.2, 0.3 + number / 50])
        rows.append(study.arm(name, 0, ["base:pretrain:m", f"rl:rl:m{number}"], f"e{number}"))
    return frame.read(study.spec(rows, **given), inputs)


FORMS: dict[str, dict[str, Any]] = {
    "by k": {"x": "k", "y": "strict_pass"},
    "by op": {"x": "op", "y": "strict_pass@1"},
    "by band": {"x": "band", "y": "strict_pass@1", "bands": ["id", "edge"]},
    "curves": {"x": "step", "y": "reward"},
    "heat": {"form": "heat", "x": "op", "y": "strict_pass@1"},
    "errors": {"x": "band", "y": "error", "bands": ["id", "edge"]},
}


def drawn(found: Results, figure: Figure) -> Canvas:
    """As `figures.draw` draws it, before it becomes bytes."""
    with matplotlib.rc_context(figures.STYLE):
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


def test_further_rows_of_a_legend_take_nothing_from_the_panels(tmp_path: Path) -> None:
    figure = Figure(**FORMS["by op"])
    few, many = (drawn(results(tmp_path / str(arms), GRID[-arms:]), figure) for arms in (2, 15))
    heights = [canvas.axes[0].get_position().height * canvas.get_figheight() for canvas in (few, many)]
    assert heights[1] > 0.95 * heights[0]
