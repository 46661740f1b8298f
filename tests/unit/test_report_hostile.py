"""A page shows what others wrote and does not run it: names, labels, errors and sentences that look like markup."""

import json
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import browser
import pytest
import report_study as study

from interplay.core.execution import Run
from interplay.report.draw.diagram import Edge, Node, diagram_svg, mermaid
from interplay.report.spec import ReportSpec
from interplay.report.write import page

EVIL = "<script>alert(1)</script>"
ARM = f"rl\"'<img src=x onerror=alert(1)>{EVIL}$\\frac{{1}}$|`"
METRICS = {"completions": 96, "completion_tokens": 960, "prompt_tokens": 400}


class Tags(HTMLParser):
    """Every element of a page with its attributes, and the text between."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def hostile(root: Path) -> tuple[ReportSpec, dict[str, Path]]:
    """Two arms at three seeds, each word that a study can choose being hostile; one evaluation is missing."""
    inputs = {"b": study.write_evaluation(root, "b", {2: [4, 4], 4: [1, 0, 2]})}
    arms = [study.arm("base", seed, ["base:pretrain:m"], "b") for seed in range(3)]
    for seed in range(3):
        inputs[f"r{seed}"] = study.write_evaluation(root, f"r{seed}", {2: [4, 4], 4: [3, 4, 2 + seed]})
        inputs[f"m{seed}"] = study.write_record(root, f"m{seed}", "rl", {**study.RL, "note": EVIL}, METRICS)
        study.write_steps(inputs[f"m{seed}"], reward=[0.1, 0.2 + seed / 10, 0.5])
        telemetry = {"seconds_wall": 5.0, "host": EVIL, "environment": {"cpu": EVIL, "gpu": EVIL}}
        (inputs[f"m{seed}"] / "telemetry.json").write_text(json.dumps(telemetry))
        arms.append(study.arm(ARM, seed, ["base:pretrain:m", f"{EVIL}:rl:m{seed}"], f"r{seed}", control="base"))
    test = {"difference": "strict_pass@1", "band": "edge", "arm": ARM, "against": "base"}
    spec = study.spec(
        arms,
        study=EVIL.replace("/", ""),
        scale=EVIL.replace("/", ""),
        question=EVIL,
        source=EVIL,
        tables={"main": {"columns": ["id", "edge"], "cells": ["strict_pass@1"]}},
        figures={"ops": {"x": "op", "y": "strict_pass@1"}, "reward": {"x": "step", "y": "reward"}},
        claims=[
            {"says": EVIL, "source": EVIL, "published": EVIL, "scale_note": EVIL, "test": {**test, "at_least": 0.1}},
            {"says": EVIL, "published": {"effect": 20, "source": f'">{EVIL}'}, "test": test},
        ],
    )
    return spec, inputs


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hostile")
    spec, inputs = hostile(root)
    page.write_report(spec, inputs, root / "out", Run())
    return root / "out"


def test_nothing_on_the_page_runs_but_its_own_script(out: Path) -> None:
    tags = Tags()
    tags.feed((out / "report.html").read_text())
    assert EVIL in tags.text
    scripts = [attributes for tag, attributes in tags.found if tag == "script"]
    chart = {"type": "application/json", "class": "chart"}
    assert scripts == [chart, chart, {"type": "application/gzip", "id": "provenance"}, {}]
    handlers = [(tag, name) for tag, attributes in tags.found for name in attributes if name.startswith("on")]
    assert handlers == [("button", "onclick")]
    links = [value for tag, attributes in tags.found for name, value in attributes.items() if name in ("href", "src")]
    assert links
    assert all(str(link).startswith(("#", "data:image/svg+xml;base64,", "data:application/pdf;base64,")) for link in links)


def test_the_data_of_the_page_cannot_end_its_element(out: Path) -> None:
    text = (out / "report.html").read_text()
    inside = text.partition('id="provenance">')[2].partition("</script>")[0]
    assert any(ARM in key for key in browser.read_provenance(text)["cells"])
    assert "<" not in inside


def test_figures_are_drawn_with_names_as_they_are_and_hold_no_script(out: Path) -> None:
    drawn = sorted((out / "figures").glob("*.svg"))
    assert [path.stem for path in drawn] == ["ops", "reward"]
    for path in drawn:
        assert not {element.tag.rpartition("}")[2] for element in ET.parse(path).iter()} & {
            "script",
            "image",
            "foreignObject",
            "a",
        }


def test_markdown_tables_hold_no_element_and_keep_their_columns(out: Path) -> None:
    for path in (out / "tables").glob("*.md"):
        text = path.read_text()
        assert "<script" not in text
        assert "<img" not in text
        rows = [line.replace("\\|", "") for line in text.splitlines() if line.startswith("|")]
        assert rows
        assert len({row.count("|") for row in rows}) == 1


def test_pictures_of_a_plan_escape_what_stages_are_called() -> None:
    nodes = {"a": Node("<b>&\x1b[2J", "rl", "failed", note=f'{EVIL}"]'), "b": Node('x"] --> y["', "rl", href="#stage-b")}
    edges = [Edge("a", "b", "init")]
    drawn = ET.fromstring(diagram_svg(nodes, edges))
    names = {element.tag.rpartition("}")[2] for element in drawn.iter()}
    assert names == {"svg", "style", "path", "g", "title", "rect", "text", "a"}
    texts = [element.text for element in drawn.iter() if element.tag.endswith("}text")]
    assert "<b>&\\x1b[2J" in texts
    lines = mermaid(nodes, edges).splitlines()
    assert [line for line in lines if " --> " in line] == ["  n0 --> n1"]
    assert any("x#quot;#93; --#gt; y#91;#quot;" in line for line in lines)
    assert not any("<script" in line or "\x1b" in line for line in lines)


def test_latex_tables_call_nothing(out: Path) -> None:
    for path in (out / "tables").glob("*.tex"):
        rows = [line for line in path.read_text().splitlines() if "alert" in line and not line.startswith("% ")]
        assert rows
        assert all(r"\$\textbackslash{}frac\{\{1\}\}\$" in row or r"\$\textbackslash{}frac\{1\}\$" in row for row in rows)
