"""The written pages of docs/: links lead somewhere, numbers are those of the results, and terms are in the glossary."""

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest
from conftest import ROOT, copy_configs

from interplay.core import artifact
from interplay.kinds.table import KINDS
from interplay.report.write import page
from interplay.study.expand import plan_study
from tools.reference import committed, lists, papers
from tools.reference.specs import unions

SEAMS = [key.replace("edits", "edit") for key in unions() if key not in ("task", "steps")]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(path for path in DOCS.rglob("*.md") if DOCS / "results" not in path.parents)]
FINDINGS = (DOCS / "findings.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing


def test_the_study_of_the_readme_adds_what_it_says_to_the_demo(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    (block,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    copy_configs(tmp_path)
    shutil.copytree(ROOT / "data/demo", tmp_path / "data/demo")
    (tmp_path / "configs/study/kl.yaml").write_text(block)
    demo, made = (plan_study(tmp_path / "configs", study, "laptop") for study in ("demo", "kl"))
    new = made.stages.keys() - demo.stages.keys()
    counts = re.search(r"# (\d+) stages, (\d+) done; .*?runs the (\d+) new stages", text, re.DOTALL)
    assert counts
    assert [len(made.stages), len(made.stages) - len(new), len(new)] == [int(number) for number in counts.groups()]


def test_the_log_lists_every_topic_and_every_entry() -> None:
    index = (DOCS / "log.md").read_text()
    pages = sorted((DOCS / "log").glob("*.md"))
    assert pages
    for one in pages:
        assert f"](log/{one.name})" in index
        part = index.split(f"](log/{one.name})")[1].split("\n## ")[0]
        assert re.findall(r"^- (.*)$", part, re.MULTILINE) == re.findall(r"^## (.*)$", one.read_text(), re.MULTILINE)


def test_every_interval_of_the_findings_is_in_the_results_or_the_log() -> None:
    texts = [papers.claim_page(ROOT), *(papers.section(ROOT, paper) for paper in lists.papers(ROOT))]
    texts += [path.read_text() for path in (DOCS / "log").glob("*.md")]
    known = set().union(*map(_intervals, texts))
    for result in (artifact.read_json(path) for path in (DOCS / "results").glob("*.json.gz")):
        ends = [(claim["estimate"]["low"], claim["estimate"]["high"]) for claim in result["claims"] if claim["estimate"]["value"]]
        ends += [tuple(one["difference"][1:]) for fight in result["contrasts"].values() for one in fight.values()]
        known |= {(round(100 * low, 1), round(100 * high, 1)) for low, high in ends if None not in (low, high)}
    stated = _intervals(FINDINGS)
    assert len(stated) > 20
    assert not {(low, high) for low, high in stated if not {(low, high), (-high, -low)} & known}


def test_the_findings_state_no_interval_of_a_withdrawn_claim() -> None:
    withdrawn: set[tuple[float, float]] = set()
    left: set[tuple[float, float]] = set()
    for path in sorted((DOCS / "results").glob("*.json.gz")):
        result = artifact.read_json(path)
        gone = {
            entry.claim for entry in lists.withdrawals(ROOT) if (entry.study, entry.scale) == (result["study"], result["scale"])
        }
        for claim in (claim for claim in result["claims"] if claim["estimate"]["low"] is not None):
            ends = (round(100 * claim["estimate"]["low"], 1), round(100 * claim["estimate"]["high"], 1))
            (withdrawn if claim["says"] in gone else left).add(ends)
    assert withdrawn
    assert not {
        (low, high) for low, high in _intervals(FINDINGS) if (low, high) in withdrawn - left and (-high, -low) not in left
    }


def _intervals(text: str) -> set[tuple[float, float]]:
    """Ends without their signs, since a page may say `5.3 [1.7, 8.9] points worse` of -5.3 [-8.9, -1.7]."""
    found = re.findall(r"\[([+-]?\d[\d.]*), ([+-]?\d[\d.]*)\]", text)
    ends = {(float(low), float(high)) for low, high in found}
    return ends | {(-high, -low) for low, high in ends}


def test_the_counts_of_the_findings_are_those_of_the_results() -> None:
    studies = sorted({artifact.read_json(path)["study"] for path in (DOCS / "results").glob("*.json.gz")})
    results = [result for study in studies for result in committed.results(ROOT, study).values()]
    left = Counter(claim["verdict"] for result in results for claim in result["claims"])
    fights = Counter(entry["verdict"] for result in results for fight in result["contrasts"].values() for entry in fight.values())
    withdrawn = lists.withdrawals(ROOT)
    words = " ".join(FINDINGS.split())
    assert f"Of {left.total()} claims in the committed results" in words
    assert (
        f"**{left['supported']} are supported, {left['indicated']} indicated, {left['indicated against']} indicated against, "
        f"{left['no information']} carry no information and {left['withdrawn']} are withdrawn**"
    ) in words
    assert left["withdrawn"] == len(withdrawn)
    compared = [fights[word] for word in ("no information", "better here", "worse here")]
    assert f"Of {sum(compared)} comparisons" in words
    assert (
        f"**{compared[0]} carry no information**, {compared[1]} found their method better than its rival and {compared[2]} worse"
        in words
    )
    listed = {reason: int(count) for reason, count in re.findall(r"^\| `(\w+)`[^|]*\| (\d+) \|", FINDINGS, re.MULTILINE)}
    assert listed == Counter(entry.reason for entry in withdrawn)


OWN = (
    *(
        "op",
        "band",
        "edge",
        "strict",
        "answer",
        "gold",
        "arm",
        "base",
        "replicate",
        "twin",
        "control",
        "seam",
        "member",
        "sampler",
    ),
    *(
        "allocation",
        "prompting",
        "continuation",
        "digest",
        "lock",
        "record",
        "payload",
        "scale",
        "study",
        "stage",
        "kind",
        "claim",
        "premise",
        "contrast",
    ),
    *("supported", "refuted", "inconclusive", "not judged", "no information", "withdrawn", "noise floor"),
)
"""Words of the README and of pages that mean something of their own here."""


def test_the_glossary_has_every_special_word_once_and_the_readme_links_to_it() -> None:
    glossary = (DOCS / "glossary.md").read_text()
    entries = re.findall(r"\*\*([^*]+)\*\*", glossary)
    assert len(entries) == len(set(entries))
    assert set(OWN) <= set(entries)
    assert "](docs/glossary.md)" in (ROOT / "README.md").read_text()
    for names in (KINDS, SEAMS):
        assert set(names) <= set(re.findall(r"`(\w+)`", glossary))
    reasons = get_args(lists.Withdrawal.model_fields["reason"].annotation)
    assert set(re.findall(r"\*(\w+)\*[,:]", glossary.split("**withdrawn**")[1])) >= set(reasons)


def test_pages_of_studies_carry_the_glossary_as_it_is() -> None:
    ((path, text),) = lists.glossary(ROOT).items()
    assert path.read_text() == text, "run `make docs` and commit it"
    assert set(page.TERMS) <= json.loads(text).keys()


def test_every_path_that_the_guide_names_exists_and_every_seam_is_named() -> None:
    guide = (DOCS / "guide/extending.md").read_text()
    paths = re.findall(r"`((?:src|tests|configs|rules|docs)/[\w/.]+)`", guide)
    assert len(paths) > 25
    assert not [path for path in paths if "NAME" not in path and not (ROOT / path).exists()]
    assert set(SEAMS) <= set(re.findall(r"\w+", guide.replace("edits", "edit")))
    for module, name in re.findall(r"`(\w+)` in (?:the seam's table \()?`(src/[\w/.]+\.py)`", guide):
        assert re.search(rf"\b{module}\b", (ROOT / name).read_text()), (module, name)
