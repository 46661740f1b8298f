"""The lint of words: what it finds, and where it does not look."""

from conftest import ROOT

from tools import words


def found(name: str, text: str) -> list[str]:
    return [line.partition(";")[0] for line in words.findings(name, text)]


def test_a_word_is_found_with_its_line_and_the_standard_wording() -> None:
    [line] = words.findings("src/a.py", "x = 1\n# nobody uses it\n")
    assert line == f"src/a.py:2: nobody; write: {words.WORDS['nobody']}"


def test_words_are_found_in_identifiers_and_in_any_case() -> None:
    assert found("src/a.py", "def as_told(): ...\nALIKE = 1\nFOO_Beside = 2") == [
        "src/a.py:1: told",
        "src/a.py:2: ALIKE",
        "src/a.py:3: Beside",
    ]


def test_parts_of_other_words_and_two_idioms_are_left_alone() -> None:
    assert found("README.md", "untold amendments, a stand-in; it stands for a tree; apart from that, heartily recommended") == []
    assert found("README.md", "kept apart; where it stands; the result that came of it") == [
        "README.md:1: apart",
        "README.md:1: stands",
        "README.md:1: came of",
    ]


def test_of_configs_the_comments_are_read_and_titles_of_papers_nowhere() -> None:
    assert found("configs/study/a.yaml", "says: nobody told  # whoever reads this") == ["configs/study/a.yaml:1: whoever"]
    assert found("README.md", "[Beside the point](https://arxiv.org/abs/2501.00001)") == []


def test_sources_pages_configs_and_templates_are_covered() -> None:
    names = set(words.covered(ROOT))
    assert {
        "README.md",
        "Snakefile",
        "docs/glossary.md",
        "configs/study/edge.yaml",
        "rules/train.smk",
        "tools/structure.py",
    } <= names
    assert any(name.startswith("src/interplay/report/templates/") for name in names)
    assert not any(name.startswith(words.EXEMPT) for name in names)
