import re
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from command_line import interplay
from conftest import ROOT
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextToPath

from interplay.report.draw import diagram
from interplay.report.draw.diagram import Edge, Node
from interplay.study.expand import plan_study

SVG = "{http://www.w3.org/2000/svg}"
STUDIES = ["edge.laptop", "edge_bases.laptop", "ladder.laptop", "quickstart.smoke"]


def stages_of(study: str) -> dict[str, dict[str, Any]]:
    return plan_study(ROOT / "configs", *study.split(".")).stages_json()


def picture(study: str, **states: str) -> tuple[dict[str, Node], list[Edge]]:
    stages = stages_of(study)
    return diagram.study_graph(stages, dict.fromkeys(stages, "done") | states)


def boxes(svg: str) -> dict[str, tuple[float, float, float, float]]:
    """Digests in a box's tooltip -> (left, top, right, bottom)."""
    found = {}
    for group in ET.fromstring(svg).iter(f"{SVG}g"):
        x, y, width, height = (float(group.find(f"{SVG}rect").attrib[key]) for key in ("x", "y", "width", "height"))  # type: ignore[union-attr]
        found[group.find(f"{SVG}title").text] = (x, y, x + width, y + height)  # type: ignore[union-attr]
    return found  # type: ignore[return-value]


@pytest.mark.parametrize("across", [8, 3])
@pytest.mark.parametrize("study", STUDIES)
def test_no_two_boxes_overlap_and_all_lie_in_the_picture(study: str, across: int) -> None:
    nodes, edges = picture(study)
    svg = diagram.diagram_svg(nodes, edges, across)
    drawn = list(boxes(svg).values())
    _, _, width, height = map(float, ET.fromstring(svg).attrib["viewBox"].split())
    assert len(drawn) == len(nodes)
    assert all(left >= 0 and top >= 0 and right <= width and bottom <= height for left, top, right, bottom in drawn)
    for number, (left, top, right, bottom) in enumerate(drawn):
        for other_left, other_top, other_right, other_bottom in drawn[number + 1 :]:
            assert right <= other_left or other_right <= left or bottom <= other_top or other_bottom <= top


@pytest.mark.parametrize("across", [8, 3, 1])
def test_what_a_stage_rests_on_stands_above_it_and_rows_are_no_wider_than_asked(across: int) -> None:
    nodes, edges = picture("edge.laptop")
    layer = diagram.layers(list(nodes), edges, across)
    assert all(layer[edge.source] < layer[edge.target] for edge in edges)
    assert max(Counter(layer.values()).values()) <= across


def test_the_edge_study_fits_a_screen_and_a_phone() -> None:
    nodes, edges = picture("edge.laptop")
    sizes = [
        list(map(float, ET.fromstring(diagram.diagram_svg(nodes, edges, across)).attrib["viewBox"].split()))[2:]
        for across in (8, 3)
    ]
    assert sizes[0][0] <= 1120
    assert sizes[0][1] <= 800
    assert sizes[1][0] <= 500


def test_equal_graphs_give_equal_bytes() -> None:
    assert diagram.diagram_svg(*picture("edge.laptop")) == diagram.diagram_svg(*picture("edge.laptop"))


def test_a_crossing_that_can_be_avoided_is_avoided() -> None:
    nodes = {key: Node(key, "rl") for key in "abcd"}
    svg = diagram.diagram_svg(nodes, [Edge("a", "d"), Edge("b", "c")])
    left = {title.split()[0]: box[0] for title, box in boxes(svg).items()}
    assert (left["a"] < left["b"]) == (left["d"] < left["c"])


def test_labels_are_escaped_and_of_long_ones_both_ends_stay() -> None:
    svg = diagram.diagram_svg({"a": Node("a<b&" + "x" * 80 + "[0.5]", "rl", digest="0123", href='x"y')}, [])
    assert ET.fromstring(svg).find(f"{SVG}a").attrib["href"] == 'x"y'  # type: ignore[union-attr]
    first, _, middle, last, kind = [text.text or "" for text in ET.fromstring(svg).iter(f"{SVG}text")]
    assert first.startswith("a<b&x")
    assert middle.endswith("…")
    assert last.endswith("[0.5]") or last == "0.5]"
    assert kind == "rl"


@pytest.mark.parametrize(
    "arms",
    [
        [f"{method}[learning_rate={rate}]/rl" for method in ("grpo", "rloo", "dr_grpo") for rate in (0.0003, 0.003, 0.01)],
        [f"rl[learning_rate={rate},num_generations={many}]/rl" for rate in (0.0003, 0.003) for many in (8, 16)],
        [f"rl[{axis}=0.5]/rl" for axis in ("beta", "alpha_of_it", "temperature")],
    ],
)
def test_labels_stay_inside_their_boxes_and_arms_of_a_grid_keep_their_values(arms: list[str]) -> None:
    nodes = {arm: Node(arm, "reward_model", note="2 of 13 done", times=13) for arm in arms}
    labels = []
    for group in ET.fromstring(diagram.diagram_svg(nodes, [])).iter(f"{SVG}g"):
        box = group.find(f"{SVG}rect").attrib  # type: ignore[union-attr]
        top, bottom = float(box["y"]), float(box["y"]) + float(box["height"])
        texts = list(group.iter(f"{SVG}text"))
        for text in texts:
            assert top + 9 <= float(text.attrib["y"]) <= bottom - 3, "a line is 9 px high"
            small = "class" in text.attrib
            font = FontProperties(family="DejaVu Sans", weight="normal" if small else "bold", size=10 if small else 11)
            width = TextToPath().get_text_width_height_descent(text.text, font, ismath=False)[0]
            assert float(text.attrib.get("textLength", width)) <= diagram.WIDTH - 4, text.text
        labels.append("".join(text.text or "" for text in texts if "class" not in text.attrib))
        assert "×13" in (texts[-1].text or "")
    assert labels == arms, "no name is shortened"


@pytest.mark.parametrize(
    ("label", "lines"),
    [
        ("rl[lr=0.1]/rl", ["rl[lr=0.1]/rl"]),
        ("grpo[learning_rate=0.003]/rl", ["grpo[", "learning_rate=", "0.003]/rl"]),
        ("grpo[learning_rate=0.0003,beta=0.04]/midtrain", ["grpo[", "learning_rate=", "0.0003,beta=", "0.04]/midtrain"]),
        ("base corpus", ["base corpus"]),
        ("", []),
    ],
)
def test_labels_break_after_punctuation(label: str, lines: list[str]) -> None:
    assert diagram.label_lines(label) == lines


def test_a_cycle_is_refused() -> None:
    with pytest.raises(ValueError, match="cycle"):
        diagram.diagram_svg({"a": Node("a", "rl"), "b": Node("b", "rl")}, [Edge("a", "b"), Edge("b", "a")])


def test_seeds_are_one_box_and_arms_that_do_something_else_are_not() -> None:
    nodes, _ = picture("edge.laptop")
    times = {node.label: node.times for node in nodes.values()}
    assert times["rl_edge/rl"] == times["rl_hard/rl"] == times["mid_rl/rl"] == 3
    assert times["base"] == 1
    assert times["eval"] == 16
    assert sum(times.values()) == len(stages_of("edge.laptop"))


def test_a_box_is_as_bad_as_its_worst_stage_and_says_how_many_are_done() -> None:
    stages = stages_of("edge.laptop")
    broken = next(digest for digest, stage in stages.items() if stage["label"] == "rl_edge/rl@1")
    node = next(node for node in picture("edge.laptop", **{broken: "failed"})[0].values() if node.label == "rl_edge/rl")
    assert (node.state, node.note) == ("failed", "2 of 3 done")


def test_a_hundred_arms_still_fit_one_screen() -> None:
    stages = stages_of("quickstart.laptop")
    rl = next(stage for stage in stages.values() if stage["label"] == "rl_edge/rl@0")
    for number in range(100):
        spec = {**rl["spec"], "optimizer": {**rl["spec"]["optimizer"], "learning_rate": number / 1e5}}
        stages[f"{number:012d}"] = {
            **rl,
            "digest": f"{number:012d}",
            "spec": spec,
            "label": f"rl_edge[learning_rate={number}]/rl@0",
        }
    nodes, edges = diagram.study_graph(stages, {})
    assert len(nodes) <= diagram.MOST
    assert sum(node.times for node in nodes.values()) == len(stages)
    assert {edge.source for edge in edges} | {edge.target for edge in edges} <= nodes.keys()


def test_a_dependency_whose_record_is_not_at_hand_stands_for_itself() -> None:
    stages = {
        "a" * 12: {"kind": "evaluate", "spec": {}, "deps": {"model": f"{'b' * 12}@20", "data": "c" * 12}, "label": "x/eval@0"}
    }
    nodes, edges = diagram.study_graph(stages, {"a" * 12: "done"})
    assert sorted(node.kind for node in nodes.values()) == ["evaluate", "model", "problems"]
    assert len(edges) == 2


def test_mermaid_has_a_box_and_an_arrow_for_each() -> None:
    nodes, edges = picture("quickstart.smoke")
    text = diagram.mermaid(nodes, edges)
    assert len(re.findall(r'^  n\d+\["', text, re.M)) == len(nodes)
    assert len(re.findall(r"^  n\d+ --> n\d+$", text, re.M)) == len({(edge.source, edge.target) for edge in edges})


def test_the_command_draws_a_study_or_what_a_stage_rests_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    assert interplay(capsys, "lineage", "edge", "-o", "edge.svg") == (0, "wrote edge.svg: 46 stages in 19 boxes\n", "")
    assert len(boxes((tmp_path / "edge.svg").read_text())) == 19
    _, text, _ = interplay(capsys, "lineage", "edge/rl_edge/rl@0")
    assert "rl_edge/rl" in text
    assert "report" not in text
    code, _, error = interplay(capsys, "lineage", "edge", "--across", "0")
    assert code == 2
    assert "--across '0'" in error
    assert "greater than or equal to 1" in error
