"""The documentation site: it is built with no network, and links that lead nowhere end the build."""

import re
from pathlib import Path

import pytest
from conftest import ROOT

from interplay.core.model import UserError
from tools.reference import lists, tasks
from tools.site import __main__ as site, examples, metrics, sources

CONFIG = "site_name: x\nuse_directory_urls: false\ndocs_dir: pages\nsite_dir: html\ntheme: {name: material, font: false}\n"


@pytest.fixture(scope="module")
def made() -> dict[str, str | bytes]:
    return sources.assemble(ROOT)


def test_every_link_and_anchor_holds_and_no_page_fetches_anything(made: dict[str, str | bytes], tmp_path: Path) -> None:
    sources.write(tmp_path, made, sources.configuration(ROOT, made))
    assert site.build(tmp_path) == ""
    pages = list((tmp_path / "html").rglob("*.html"))
    assert len(pages) >= sum(name.endswith(".md") for name in made)
    assert all(site.SHIM not in page.read_text() for page in pages)
    assert 'src="../worker.js"' in (tmp_path / "html/gallery/edge.html").read_text()
    assert (tmp_path / "html/results/edge.laptop.json.gz").read_bytes() == (
        ROOT / "docs/results/edge.laptop.json.gz"
    ).read_bytes()


def test_a_page_that_leads_nowhere_ends_the_build(tmp_path: Path) -> None:
    for text, wrong in (("[a](index.md#no)", "anchor does not exist"), ("[a](no.md)", "page does not exist")):
        sources.write(tmp_path, {"index.md": f"# Title\n\n{text}\n"}, CONFIG)
        assert wrong in site.build(tmp_path)
    sources.write(tmp_path, {"index.md": '# Title\n\n<img src="https://example.org/a.png">\n'}, CONFIG)
    assert site.build(tmp_path).endswith("index.html: fetches https://example.org/a.png")


def test_a_link_to_a_file_that_is_gone_is_refused_with_its_page(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^docs/guide/data.md: link to ../gone.py: docs/gone.py does not exist$"):
        sources.relink(ROOT, "guide/data.md", "[a](../gone.py)", "docs/guide", {}, {})


def test_files_outside_the_docs_are_shown_as_pages_and_methods_and_studies_lead_to_their_own(
    made: dict[str, str | bytes],
) -> None:
    assert "](../reference/extensions.md)" in str(made["guide/extending.md"])
    assert "](methods/gspo.md)" in str(made["methods.md"])
    assert "](gallery/interplay_modes.md)" in str(made["papers.md"])
    assert "](../files/configs/study/interplay/modes.yaml.md)" in str(made["gallery/interplay_modes.md"])
    assert "~~~~yaml\n" in str(made["files/configs/study/interplay/modes.yaml.md"])


def test_every_page_is_in_the_navigation_and_one_that_is_not_is_refused(made: dict[str, str | bytes]) -> None:
    with pytest.raises(UserError, match=r"nav has no entry for guide/lost.md$"):
        sources.configuration(ROOT, {**made, "guide/lost.md": "# Lost\n"})


def test_generated_pages_are_short(made: dict[str, str | bytes]) -> None:
    generated = {name: str(text) for name, text in made.items() if re.match(r"(reference|methods|gallery)/", name)}
    assert len(generated) > 100
    assert {name: lines for name, text in generated.items() if (lines := len(text.splitlines())) > 250} == {}


def test_every_refusal_of_the_faq_is_what_the_program_says(tmp_path: Path) -> None:
    examples.new_project(ROOT, tmp_path)
    refused = list(examples.follow((ROOT / "docs/guide/faq.md").read_text(), tmp_path))
    assert len(refused) >= 15
    for command, outcome in refused:
        assert outcome.code == 2, command.line
        assert examples.agrees(command.shown, outcome.said), (
            f"{outcome.said}run `python -m tools.site.examples --write docs/guide/faq.md`"
        )
        assert len(outcome.said.splitlines()) == 1


def test_output_agrees_with_what_a_page_shows_but_for_what_it_leaves_open() -> None:
    assert examples.agrees("a 1 b\n", "a 1 b\n")
    assert not examples.agrees("a 1 b\n", "a 2 b\n")
    assert examples.agrees("a … b\n...\nlast\n", "a 2 b\none\ntwo\nlast\n")
    assert not examples.agrees("a\n...\nlast\n", "a\nb\nlost\n")


def test_the_primer_and_its_figure_are_what_the_code_makes() -> None:
    stale = [path.name for path, text in tasks.files(ROOT).items() if path.read_text() != text]
    assert stale == [], "run `make docs`"


def test_every_logged_number_is_explained_and_every_method_is_in_a_row_of_the_choice() -> None:
    assert metrics.unexplained(ROOT) == set()
    assert {name for row in lists.choices(ROOT) for name in row.methods} == set(lists.methods(ROOT))
