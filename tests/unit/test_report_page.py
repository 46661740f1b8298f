import base64
import hashlib
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
import report_study as study
from matplotlib.colors import to_hex

from interplay.core.execution import Run
from interplay.core.keys import parse_model
from interplay.core.model import KeyPlace, UserError
from interplay.report.display_spec import Figure, Table
from interplay.report.draw import figures, style
from interplay.report.spec import ReportSpec
from interplay.report.stats import frame, provenance
from interplay.report.write import answers, page, tables

METRICS = {"completions": 96, "completion_tokens": 960, "prompt_tokens": 400}
QUESTION = "Is 1 < 2 & <script>alert(1)</script>?"


def write(root: Path) -> tuple[ReportSpec, dict[str, Path]]:
    """A study of two arms at three seeds with every kind of output."""
    inputs = {"b": study.write_evaluation(root, "b", {2: [4, 4], 4: [1, 0, 2] * 4})}
    arms = [study.arm("base", seed, [f"base:pretrain:p{seed}"], "b") for seed in range(3)]
    for seed in range(3):
        inputs[f"r{seed}"] = study.write_evaluation(root, f"r{seed}", {2: [4, 4], 4: [3, 4, 2 + seed] * 4})
        inputs[f"m{seed}"] = study.write_record(root, f"m{seed}", "rl", study.RL, METRICS)
        study.write_steps(inputs[f"m{seed}"], reward=[0.1, 0.2 + seed / 10, 0.5])
        path = [f"base:pretrain:p{seed}", f"rl:rl:m{seed}"]
        arms.append(study.arm("rl", seed, path, f"r{seed}", control="base"))
    spec = study.spec(
        arms,
        question=QUESTION,
        tables={"main": {"columns": ["id", "edge"], "cells": ["strict_pass@1"]}},
        figures={
            "curves": {"x": "k", "y": "strict_pass", "panel": "band"},
            "ops": {"x": "op", "y": "strict_pass@1"},
            "reward": {"x": "step", "y": "reward"},
            "entropy": {"x": "step", "y": "entropy"},
        },
        claims=[
            {
                "says": "It lifts",
                "published": "+42 points",
                "scale_note": "There it had more prompts",
                "test": {"difference": "strict_pass@1", "band": "edge", "arm": "rl", "against": "base", "at_least": 0.1},
            }
        ],
    )
    return spec, inputs


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    root = tmp_path_factory.mktemp("report")
    spec, inputs = write(root)
    out = root / "out"
    return out, page.write_report(spec, inputs, out, Run())


def checksums(out: Path) -> dict[str, str]:
    """Of everything but the page, which is a view."""
    return {
        str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name != "report.html"
    }


def test_a_claim_stands_beside_what_was_published_and_what_scale_may_explain(report: tuple[Path, dict]) -> None:
    text = (report[0] / "report.html").read_text()
    assert "base → rl: 25 % → 83 %; claimed at least 10 points</small>" in text
    assert "Published: +42 points.</p>" in text
    assert "Scale: There it had more prompts.</p>" in text


def test_a_report_is_tables_figures_claims_and_a_page(report: tuple[Path, dict]) -> None:
    assert (report[0] / "report.html").exists()
    assert set(checksums(report[0])) == {
        "claims.json",
        *(f"tables/{name}.{form}" for name in ("main", "main_differences") for form in ("csv", "md", "tex")),
        *(f"figures/{name}.{form}" for name in ("curves", "ops", "reward") for form in ("png", "svg")),
    }


def test_the_metrics_hold_verdicts_and_numbers(report: tuple[Path, dict]) -> None:
    metrics = json.loads(json.dumps(report[1], allow_nan=False))
    assert metrics["claims"][0]["verdict"] == "supported"
    assert metrics["tables"]["main"]["base/edge/strict_pass@1"][0] == 0.25
    assert metrics["tables"]["main_differences"]["rl − base/edge/strict_pass@1"][0] == pytest.approx(10 / 12 - 0.25, abs=1e-6)


def test_the_same_records_give_the_same_bytes_at_another_path(report: tuple[Path, dict], tmp_path: Path) -> None:
    spec, inputs = write(tmp_path)
    backwards = dict(reversed(inputs.items()))
    metrics = page.write_report(spec, backwards, tmp_path / "elsewhere", Run())
    assert metrics == report[1]
    assert checksums(tmp_path / "elsewhere") == checksums(report[0])


def test_a_report_of_audited_problems_is_made_again_from_its_inputs_without_a_difference(tmp_path: Path) -> None:
    spec, inputs = write(tmp_path)
    study.write_record(tmp_path / "audited", "m0", "rl", study.RL, METRICS, {"accepted.0": "a"})
    study.write_steps(tmp_path / "audited/rl/m0", reward=[0.1, 0.2, 0.5])
    inputs["m0"] = tmp_path / "audited/rl/m0"
    audit = study.write_record(tmp_path, "a", "audit", {}, {"failed": ["echo"]})
    inputs["audit.a"] = audit
    metrics = page.write_report(spec, inputs, tmp_path / "made", Run())
    out = study.write_record(tmp_path, "out", "report", {}, metrics)
    shutil.copytree(tmp_path / "made", out, dirs_exist_ok=True)
    assert "The audit of the problems that RL draws from failed (echo)" in (out / "tables/main.md").read_text()
    stated = spec.model_dump(mode="json")
    assert answers.differing_answers(stated, inputs, out, tmp_path / "again") == []
    (audit / "record.json").write_text((audit / "record.json").read_text().replace("echo", "empty"))
    assert any("empty" in line for line in answers.differing_answers(stated, inputs, out, tmp_path / "changed"))


class Page(HTMLParser):
    """Tags with their attributes, and whether every element is closed in order."""

    VOID = {"meta", "img", "br", "link", "hr", "input"}

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(report: tuple[Path, dict]) -> Page:
    found = Page()
    found.feed((report[0] / "report.html").read_text())
    assert found.open == []
    return found


def test_the_page_asks_nothing_of_the_network(report: tuple[Path, dict]) -> None:
    tags = parsed(report).tags
    assert not [tag for tag, _ in tags if tag in {"link", "iframe", "object"}]
    sources = [attrs["src"] for tag, attrs in tags if "src" in attrs]
    assert len(sources) == 3
    assert all(str(source).startswith("data:image/svg+xml;base64,") for source in sources)
    style, script = (
        (report[0] / "report.html").read_text().rsplit(f"</{tag}>", 1)[0].rsplit(f"<{tag}>", 1)[1] for tag in ("style", "script")
    )
    assert not re.search(r"url\(|@import|http", style)
    script = script.replace("http://www.w3.org/2000/svg", "")  # a name
    assert not re.search(r"fetch|XMLHttp|import|http|innerHTML|eval\(", script)


def test_figures_on_the_page_are_those_of_the_folder_to_a_hundredth_of_a_point(report: tuple[Path, dict]) -> None:
    sources = [str(attrs["src"]) for tag, attrs in parsed(report).tags if tag == "img"]
    for name, source in zip(("curves", "ops", "reward"), sources, strict=True):
        slim = base64.b64decode(source.partition(",")[2]).decode()
        whole = re.sub(
            "<!--.*?-->|<metadata>.*?</metadata>", "", (report[0] / f"figures/{name}.svg").read_text(), flags=re.DOTALL
        )
        numbers, exact = ([float(one) for one in re.findall(r"(?<![\w#])-?\d+(?:\.\d+)?(?!\w)", text)] for text in (slim, whole))
        assert numbers == pytest.approx(exact, abs=0.01, rel=0)
        assert slim.count("scale(0.1 -0.1)") == whole.count("scale(0.1 -0.1)") > 4
        assert slim.count("scale(0.015625)") == whole.count("scale(0.015625)") > 4
        assert len(slim) < 0.9 * len(whole)


def test_the_page_says_the_question_the_verdict_and_the_digests(report: tuple[Path, dict]) -> None:
    written = (report[0] / "report.html").read_text()
    assert "Is 1 &lt; 2 &amp; &lt;script&gt;" in written
    assert '<p class="answer yes">It lifts: <b>25 % → 83 %</b></p>' in written
    facts = re.sub("<[^>]*>", "", re.search(r'<p class="facts">(.*?)</p>', written)[1])
    assert facts == "toy · scale smoke · 2 arms × 3 replicates · 7 of 12 stages done · after by hand"
    assert "completions 96" in written
    assert "Not drawn: no arm&#39;s last stage logs entropy." in written
    assert all(digest in written for digest in ("r0", "r1", "r2", "m0", "m1", "m2"))


@pytest.mark.parametrize(("named", "shown"), [("reward", "reward"), ("", "curves"), ("entropy", "curves")])
def test_the_key_figure_is_the_one_that_the_study_names_or_else_the_first_that_is_drawn(
    named: str, shown: str, tmp_path: Path
) -> None:
    spec, inputs = write(tmp_path)
    page.write_report(spec.model_copy(update={"key_figure": named}), inputs, tmp_path / "out", Run())
    written = (tmp_path / "out/report.html").read_text()
    section = written[written.index('<section class="" id="key"') : written.index("</section>", written.index('id="key"'))]
    assert re.findall(r'id="figure-([a-z]+)"', section) == [shown]


def test_what_a_clone_lacks_is_said_where_it_would_be_with_the_command_that_brings_it(tmp_path: Path) -> None:
    spec, inputs = write(tmp_path)
    page.write_report(spec, inputs, tmp_path / "whole", Run())
    assert "store pull" not in (tmp_path / "whole/report.html").read_text()
    for digest, name in (("b", "samples.parquet"), ("m1", "model/model.safetensors")):
        record = json.loads((inputs[digest] / "record.json").read_text())
        (inputs[digest] / "record.json").write_text(json.dumps({**record, "files": {name: [1, "0"]}}))
    (inputs["b"] / "samples.parquet").rename(inputs["b"] / "prompts.parquet")
    counts = pd.read_parquet(inputs["b"] / "prompts.parquet").groupby("index")
    kept = (
        counts[["op", "band", "mode"]]
        .first()
        .assign(n=counts.size(), **{key: counts[key].sum() for key in ("strict", "answer", "score")})
    )
    kept.reset_index().to_parquet(inputs["b"] / "prompts.parquet")
    page.write_report(spec, inputs, tmp_path / "part", Run())
    written = (tmp_path / "part/report.html").read_text()
    for place in ('id="problem"', 'id="rollouts"', 'id="behind"'):
        section = written[written.index(place) :][:900]
        assert "files of 1 evaluate, 1 rl are missing" in section
        assert "interplay store pull toy --scale smoke" in section


def test_a_study_without_any_finished_input_still_makes_a_page(tmp_path: Path) -> None:
    spec, _ = write(tmp_path)
    metrics = page.write_report(spec, {}, tmp_path / "out", Run())
    assert metrics["claims"][0]["verdict"] == "not judged"
    assert "missing" in (tmp_path / "out" / "report.html").read_text()


def test_an_arm_has_one_colour_in_every_figure_and_no_two_of_eight_share_one(tmp_path: Path) -> None:
    inputs = {"b": study.write_evaluation(tmp_path, "b", {2: [1]})}
    results = frame.read_results(study.spec([study.arm(f"a{i}", 0, ["x:rl:m"], "b") for i in range(8)]), inputs)
    looks = [style.arm_look(results, f"a{i}") for i in range(8)]
    assert len(set(looks)) == 8
    drawn = [figures.draw_figure(results, Figure(x=x, y=y)) for x, y in (("k", "strict_pass"), ("op", "strict_pass@1"))]
    assert all(color.lower().encode() in item.svg.lower() for item in drawn for color in {one.color for one in looks})


def test_two_dozen_arms_look_different_and_each_has_a_colour_of_its_own() -> None:
    names = [f"arm{number}" for number in range(24)]
    results = frame.read_results(study.spec([study.arm(one, 0, ["base:pretrain:m"], "b") for one in names]), {})
    looks = [style.arm_look(results, one) for one in names]
    assert len({one.color for one in looks}) == len({style.palette_color(place) for place in range(100)}) - 76 == 24
    assert len({(one.color, one.marker) for one in looks}) == len({(one.color, one.line) for one in looks}) == 24
    assert len({(one.color, one.hatch) for one in looks}) == 24
    assert [one.color for one in looks[:8]] == [to_hex(color) for color in style.PALETTE]
    assert {(one.line, one.hatch) for one in looks[:8]} == {("-", "")}


def test_no_arm_has_the_colour_that_another_chose() -> None:
    names = [f"arm{number}" for number in range(10)]
    results = frame.read_results(study.spec([study.arm(one, 0, ["base:pretrain:m"], "b") for one in names]), {})
    chosen = results._replace(colors={"arm7": style.PALETTE[5], "arm9": style.palette_color(10)})
    colors = style.arm_colors(chosen)
    assert (colors["arm7"], colors["arm9"]) == (to_hex(style.PALETTE[5]), style.palette_color(10))
    assert len(set(colors.values())) == 10
    assert colors["arm4"] == style.arm_colors(results)["arm4"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"x": "k", "y": "strict_pass@1"}, "write strict_pass or answer_pass"),
        ({"x": "op", "y": "strict_pass"}, "write strict_pass@K, answer_pass@K, score"),
    ],
)
def test_a_figure_that_could_not_be_drawn_is_refused_when_the_study_is_read(given: dict, says: str) -> None:
    with pytest.raises(UserError, match=says):
        parse_model(Figure, given, KeyPlace("study.yaml"))


def test_a_column_that_names_no_op_is_refused_when_the_study_is_read() -> None:
    with pytest.raises(UserError, match="op:x' is not a column"):
        parse_model(Table, {"columns": ["op:x"], "cells": ["strict_pass@1"]}, KeyPlace("study.yaml"))


def test_a_table_of_two_kinds_of_machine_says_so_and_each_number_its_own(tmp_path: Path) -> None:
    spec, inputs = write(tmp_path)
    for number, digest in enumerate(["m0", "m1", "m2"]):
        record = json.loads((inputs[digest] / "record.json").read_text())
        (inputs[digest] / "record.json").write_text(json.dumps({**record, "spec": {**record["spec"], "dtype": "int8"}}))
        (inputs[digest] / "telemetry.json").write_text(json.dumps({"environment": {"cpu": "EPYC" if number else "Xeon"}}))
        evaluation = json.loads((inputs[f"r{number}"] / "record.json").read_text())
        (inputs[f"r{number}"] / "record.json").write_text(json.dumps({**evaluation, "deps": {"model": digest, "data": "test"}}))
    behind = provenance.of_inputs(spec, inputs)
    assert provenance.mixed_machines(["r0"], behind) == ()
    (inputs["m2"] / "telemetry.json").unlink()  # as of a model that came with the project
    behind = provenance.of_inputs(spec, inputs)
    (line,) = provenance.mixed_machines(["r0", "r1", "r2"], behind)
    assert line == "Mixed: made on 2 kinds of machine, to which differences may be due: Xeon: 1 rl; EPYC: 1 rl."
    assert list(provenance.made_with(["r0"], behind)) == [("Xeon", "int8, fast")]


@pytest.mark.parametrize(("arms", "folded"), [(10, False), (11, True)])
def test_a_table_with_the_differences_of_many_arms_is_folded(arms: int, folded: bool, tmp_path: Path) -> None:
    inputs = {name: study.write_evaluation(tmp_path, name, {4: [1]}) for name in ["b", *map(str, range(arms))]}
    rows = [study.arm("base", 0, ["base:pretrain:m"], "b")]
    rows += [study.arm(f"a{i}", 0, ["base:pretrain:m", f"rl:rl:r{i}"], str(i), control="base") for i in range(arms)]
    found = frame.read_results(study.spec(rows), inputs)
    asked, behind = Table(columns=["edge"], cells=["strict_pass@1"]), provenance.of_inputs(found.spec, inputs)
    differences, values = tables.difference_grid(found, asked), tables.value_grid(found, asked)
    assert page.present_table("main", differences, "Main", behind)["folded"] == folded
    assert not page.present_table("main", values, "Main", behind)["folded"]


def test_a_page_of_hundreds_of_stages_over_eight_bases_stays_below_a_megabyte_and_a_half(tmp_path: Path) -> None:
    """13 arms at 8 seeds, 313 stages, 520 cells with differences, figures with a curve for each seed."""
    arms, inputs = [], {}
    for seed in range(8):
        for place in range(13):
            digest, model = f"e{place:05d}x{seed:05d}", f"m{place:05d}x{seed:05d}"
            inputs[digest] = study.write_evaluation(tmp_path, digest, {2: [4, 2], 4: [place % 5, seed % 5]}, model=model)
            inputs[model] = study.write_record(tmp_path, model, "rl", study.RL, METRICS, {"init": f"p{place:05d}x{seed:05d}"})
            study.write_steps(inputs[model], reward=[(place * step + seed) % 17 / 17 for step in range(40)])
            path = [f"base:pretrain:p{place:05d}x{seed:05d}", f"rl:rl:{model}"]
            arms.append(study.arm(f"arm_{place}", seed, path, digest, control="arm_0" if place else None))
    tabled = {"columns": ["id", "edge", "op:2", "op:4"], "cells": ["strict_pass@1", "answer_pass@1", "strict_pass@4"]}
    named = {f"table_{number}": tabled for number in range(5)}
    drawn = {f"reward_{number}": {"x": "step", "y": "reward"} for number in range(4)}
    spec = study.spec(arms, tables=named, figures=drawn)
    made = answers.answer_study(frame.read_results(spec, inputs))
    written = page.render_page(made, provenance.of_inputs(spec, inputs), [])
    assert written.count('class="chart"') == 4
    assert len(written.encode()) < 1_500_000
