"""Curated sets and sets from files in the report: overlaps, ops that were trained on, what specs foretell, and the picture."""

from pathlib import Path
from typing import Any

import report_study as study

from interplay.report.display_spec import Table
from interplay.report.draw import diagram
from interplay.report.inspect import chain
from interplay.report.stats import frame, provenance
from interplay.report.write import tables

BANDS = {"id": {"2": 1.0}, "edge": {"4": 0.5, "5": 0.5}}


def overlap(root: Path, sets: dict[str, tuple[list[str], list[str]]], trained: list[str]) -> chain.Overlap:
    """Of the set `test` with what was trained on; sets as (keys, origins)."""
    inputs = {"e": study.write_evaluation(root, "e", {2: [1]})}
    for digest, (keys, origins) in sets.items():
        inputs[digest] = study.write_problems(
            root, digest, [2] * len(keys), keys, origins, "curate" if any(origins) else "problems"
        )
    spec = study.spec([study.arm("rl", 0, ["rl:rl:m"], "e")], trained_sets={"rl": trained})
    (found,) = chain.set_overlaps(frame.read_results(spec, inputs))
    return found


def test_variants_of_one_question_on_both_sides_are_counted_though_their_structures_differ(tmp_path: Path) -> None:
    sets = {"pool": (["a", "b"], ["", ""]), "train": (["x"], ["pool:0"]), "test": (["y", "z"], ["pool:0", "pool:1"])}
    found = overlap(tmp_path, sets, ["train"])
    assert (found.variants, found.shared, found.against) == ({2: 1}, {2: 1}, ["train"])


def test_what_a_training_row_was_made_of_counts_by_its_own_structure(tmp_path: Path) -> None:
    sets = {"pool": (["a", "b"], ["", ""]), "train": (["x"], ["pool:0"]), "test": (["a", "b", "c"], ["", "", ""])}
    found = overlap(tmp_path, sets, ["train"])
    assert (found.shared, found.variants) == ({2: 1}, {}), "row b of the pool was not trained on"


def test_a_set_that_is_both_trained_on_and_tested_overlaps_whole(tmp_path: Path) -> None:
    found = overlap(tmp_path, {"test": (["a", "b"], ["", ""])}, ["test"])
    assert (found.shared, found.variants) == ({2: 2}, {2: 2})


def test_ops_of_curated_rows_are_read_and_no_column_is_called_untrained_while_they_are_not_here(tmp_path: Path) -> None:
    inputs = {
        "e": study.write_evaluation(tmp_path, "e", {2: [1], 3: [1], 4: [1]}),
    }
    spec = study.spec([study.arm("rl", 0, ["rl:rl:m"], "e")], trained_ops={"rl": []}, trained_sets={"rl": ["file"]})
    table = Table(columns=["id", "edge"], cells=["strict_pass@1"])
    marks = [cell.mark for cell in tables.value_grid(frame.read_results(spec, inputs), table).cells.values()]
    assert set(marks) == {""}
    inputs["file"] = study.write_problems(tmp_path, "file", [2, 4], ["a", "b"], kind="dataset")
    read = frame.read_results(spec, inputs)
    grid = tables.value_grid(read, table)
    assert grid.cells["rl", "edge", "strict_pass@1"].mark == ""
    assert grid.cells["rl", "id", "strict_pass@1"].mark == tables.PARTLY
    assert chain.arm_rows(read)[0]["trained"] == "2, 4"


def stage(kind: str, spec: dict[str, Any] | None = None, label: str = "", **deps: str) -> dict[str, Any]:
    return {"kind": kind, "spec": spec or {}, "deps": {role.replace("_", "."): dep for role, dep in deps.items()}, "label": label}


STAGES = {
    "pool": stage("problems", {"bands": BANDS}, "data.pool"),
    "file": stage("dataset", {"band": "hotpot"}, "data.file"),
    "base": stage("pretrain", {"seed": 0}, "base/base@0", data_0="pool"),
    "rates": stage("evaluate", {}, "data.mixed.steps.0", model="base", data="pool"),
    "mixed": stage(
        "curate", {"mix": [0.5, 0.5], "steps": [{"name": "pass_rate", "bands": {"easy": [0.5, 1]}}, {"name": "take", "size": 5}]},
        "data.mixed", data_0="pool", data_1="file", samples_0_0_0="rates",
    ),
    "rl": stage("rl", {"seed": 0}, "rl/rl@0", init="base", data_0="mixed"),
    "final": stage("evaluate", {}, "rl/eval@0", model="rl", data="pool"),
}  # fmt: skip


def test_bands_of_a_curated_set_are_those_of_its_sources_and_steps_and_its_ops_are_not_told() -> None:
    assert chain.planned_bands("pool", STAGES) == {"id": [2], "edge": [4, 5]}
    assert set(chain.planned_bands("mixed", STAGES)) == {"id", "edge", "hotpot", "easy"}
    assert chain.planned_ops(chain.planned_bands("pool", STAGES)) == [2, 4, 5]
    assert chain.planned_ops(chain.planned_bands("mixed", STAGES)) is None


def test_the_picture_leads_from_data_through_curation_to_the_stage_and_never_in_a_circle() -> None:
    """The evaluation that decides what is curated, and that of what was trained on it, differ in their model alone."""
    for most in (40, 1):  # by spec, and by name
        nodes, edges = diagram.study_graph(STAGES, dict.fromkeys(STAGES, "done"), most=most)
        named = {key: node.digest for key, node in nodes.items()}
        arrows = {(named[edge.source], named[edge.target]) for edge in edges}
        assert {("pool", "mixed"), ("file", "mixed"), ("rates", "mixed"), ("mixed", "rl"), ("base", "rl")} <= arrows
        assert "rates" in named.values()
        assert "final" in named.values()
        assert "curate" in diagram.diagram_svg(nodes, edges)


def test_settings_of_a_curated_set_name_its_steps() -> None:
    assert provenance._shown_settings("curate", STAGES["mixed"]["spec"])["steps"].endswith("→ take (size 5)")
    assert provenance._shown_settings("dataset", {"format": "gsm8k", "size": None}) == {"format": "gsm8k"}
