"""`interplay open` in a real browser, over results of the real Snakemake, while RL runs."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Laboratory, kill_group, wait_for
from served import Served, Tab, serving

STUDY = "configs/study/quickstart.yaml"
ARMS = (
    "evaluate: [eval]",
    "  broken: {path: [base, gold], control: base, set: {gold.optimizer.learning_rate: 1.0e+30}}\n"
    "  longer: {path: [base, rl], control: rl_edge, set: {rl.steps: 400}}\nevaluate: [eval]",
)
STAGE = ("  eval: {kind", "  gold: {kind: sft, data: {edge: 1.0}, validation: held_out}\n  eval: {kind")
POINTS = "[...document.querySelectorAll('#chart path.mean')].map(path => path.getAttribute('d').split('L').length)"
FOUR_SEEDS = """(() => {
    const cell = document.querySelector("table.grid td .mark").parentNode;
    for (let copies = 0; copies < 3; copies++) cell.append(cell.firstChild.cloneNode(true));
    return new Set([...cell.children].map(one => one.offsetTop)).size;
})()"""
"""Heights at which the marks of a cell with four seeds lie."""


@pytest.fixture
def open_tab(tmp_path: Path) -> Iterator[list[Tab]]:
    """Tabs to close at the end."""
    tabs: list[Tab] = []
    yield tabs
    for tab in tabs:
        tab.close()


def test_a_study_is_followed_from_its_list_to_the_cause_of_a_failure(
    finished: Laboratory, laboratory: Laboratory, open_tab: list[Tab], tmp_path: Path
) -> None:
    shutil.copytree(finished.folder / "results", laboratory.folder / "results", symlinks=True)
    for old, new in (STAGE, ARMS):
        laboratory.edit(STUDY, old, new)
    run = laboratory.start("study=quickstart", "scale=smoke")
    try:
        with serving(laboratory.folder) as page:
            tab = Tab(page.url, tmp_path / "profile")
            open_tab.append(tab)
            wait_for(lambda: tab.js("document.querySelectorAll('.run').length") == 1, 60)
            assert tab.shows("Does RL lift a model at the edge")
            tab.follow(".run")
            wait_for(lambda: tab.shows("broken/gold@0"), 120)
            wait_for(lambda: tab.shows("lower the learning rate"), 120)
            assert tab.shows("interplay debug quickstart.smoke/broken/gold@0")

            wait_for(lambda: tab.shows("longer/rl@0") and tab.js(f"Math.max(0, ...{POINTS})") > 4, 120)
            before = tab.js(f"Math.max(...{POINTS})")
            wait_for(lambda: tab.js(f"Math.max(...{POINTS})") > before + 2, 120)
            assert tab.shows("left"), "a running stage says how long it takes"
            assert tab.js("document.querySelector('#pulse').className") == "on"
            other_views(page, tab)
            assert tab.errors == []
    finally:
        kill_group(run)


def other_views(page: Served, tab: Tab) -> None:
    """The completions of an evaluation by error class, and two arms side by side."""
    stages = page.get("api/state", study="quickstart", scale="smoke").json()["stages"]
    digest = next(row["digest"] for row in stages if row["label"] == "rl_edge/eval@0")
    counts = page.get(f"api/rollouts/{digest}").json()["errors"]
    wrong = next(name for name in counts if name != "none")
    tab.go(f"{page.url}stage/{digest}?study=quickstart&scale=smoke")
    wait_for(lambda: tab.js("document.querySelectorAll('#errors button').length") == len(counts) + 1, 60)
    tab.js(
        f"[...document.querySelectorAll('#errors button')].find(b => b.innerText.startsWith({json.dumps(wrong.replace('_', ' '))})).click()"
    )
    wait_for(lambda: tab.shows(f"{counts[wrong]} completion"), 60)
    chips = tab.js("[...document.querySelectorAll('#rollouts .chip')].map(chip => chip.innerText)")
    assert set(chips) == {wrong.replace("_", " ")}
    assert tab.js("document.querySelectorAll('#rollouts mark').length") > 0, "differences to the reference are marked"

    tab.go(f"{page.url}compare?a=quickstart.smoke/rl_edge&b=quickstart.smoke/rl_hard")
    wait_for(lambda: tab.shows("flipped, most samples wrong in a and right in b"), 120)
    wait_for(lambda: tab.js("document.querySelectorAll('#chart path.mean').length") == 2, 60)
    for width in (390, 1400):
        tab.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500)
        assert tab.js("document.documentElement.scrollWidth - innerWidth") <= 0

    tab.send("Emulation.setDeviceMetricsOverride", width=390, height=900, deviceScaleFactor=1, mobile=True)
    tab.go(f"{page.url}study?study=quickstart&scale=smoke")
    wait_for(lambda: tab.js("document.querySelectorAll('table.grid td .mark').length") > 0, 60)
    assert tab.js(FOUR_SEEDS) == 1, "seeds of a stage lie side by side"
