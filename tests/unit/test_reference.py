"""The generated reference, and what `--help` says."""

import argparse
import difflib
import shlex
import subprocess
import sys

import pytest
from conftest import ROOT

from interplay.cli import COMMANDS, add_command, guide, main
from interplay.reference.pages import TITLES
from interplay.reference.render import documented, page, reached
from interplay.schema.kinds import KINDS
from interplay.schema.report import ReportSpec
from interplay.schema.run import Run
from interplay.schema.study import Scale, Study
from interplay.schema.train import MidtrainSpec, PretrainSpec, SftSpec

EXAMPLES = [line for shown in (guide.DAY, *(one.examples for one in guide.PAGES.values())) for line in shown]


def test_docs_reference_is_what_schema_and_commands_say() -> None:
    written, made = (ROOT / "docs/reference.md").read_text().splitlines(), page().splitlines()
    diff = "\n".join(difflib.unified_diff(written, made, "docs/reference.md", "the sources", lineterm="", n=0))
    assert not diff, f"run `make docs` and commit it:\n{diff}"


def test_every_model_that_a_study_or_scale_may_hold_has_a_section() -> None:
    specs = [kind.spec for kind in KINDS.values() if kind.spec is not ReportSpec]
    wanted = set().union(*(reached(cls) for cls in (Study, Scale, Run, *specs)))
    same_as_train = {PretrainSpec, MidtrainSpec, SftSpec}
    missing = {cls.__name__ for cls in wanted - documented() - same_as_train}
    assert not missing, f"list them in interplay/reference/pages.py: {missing}"
    assert documented() == set(TITLES)


def test_every_key_has_a_meaning() -> None:
    bare = [line for line in page().splitlines() if line.startswith("| `") and line.endswith("|  |")]
    assert bare == []


def test_every_link_of_the_page_leads_somewhere() -> None:
    text = page()
    headings = {f"#{line.removeprefix('## ').lower().replace(' ', '-')}" for line in text.splitlines() if line.startswith("## ")}
    anchors = {f"#{part.split(chr(34))[0]}" for part in text.split('<a id="')[1:]}
    links = {part.split(")")[0] for part in text.split("](")[1:]}
    assert links <= headings | anchors


def test_every_command_has_its_page_and_its_module() -> None:
    assert set(guide.PAGES) == set(COMMANDS)
    for name in COMMANDS:
        add_command(name, argparse.ArgumentParser())


@pytest.mark.parametrize("line", [line for line in EXAMPLES if line.startswith("interplay ")])
def test_an_example_can_be_typed_as_it_stands(line: str) -> None:
    _, name, *words = shlex.split(line.split(" > ")[0])
    parser = guide.Parser(prog=f"interplay {name}")
    add_command(name, parser)
    parser.parse_args(words)


def test_the_first_page_lists_every_command_under_its_heading(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    said = capsys.readouterr().out
    assert stopped.value.code == 0
    for name, command in COMMANDS.items():
        assert f"\n  {name} " in said[said.index(f"{command.group}:") :]
    assert "a day with Interplay:" in said
    assert max(map(len, said.splitlines())) <= guide.WIDEST


def test_help_of_a_command_has_a_paragraph_and_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    for name, shown in guide.PAGES.items():
        with pytest.raises(SystemExit):
            main([name, "--help"])
        said = " ".join(capsys.readouterr().out.split())
        assert " ".join(shown.about.split()) in said
        assert next(iter(shown.examples)) in said


def test_narrow_terminals_get_narrow_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit):
        main(["--help"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 60


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["plna"], "plna: no such command; did you mean 'plan'?"),
        (["plan", "--scael", "smoke"], "plan: --scael: no such option; did you mean '--scale'?"),
        (["plan", "edge", "more"], "plan: more: no such argument"),
    ],
)
def test_a_slip_on_the_command_line_is_answered_in_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err == f"interplay: {message}\n"


def test_a_value_of_the_wrong_type_is_answered_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["rollouts", "3f", "-n", "many"])
    assert stopped.value.code == 2
    assert (
        capsys.readouterr().err
        == "interplay: rollouts: argument -n: 'many' is no whole number from 1 on; see `interplay rollouts --help`\n"
    )


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import contextlib, io, sys\nfrom interplay.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit): main(['--help'])\n"
        "print([name for name in ('torch', 'pandas', 'mlflow', 'hydra', 'dvc', 'rich', 'transformers') if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True).stdout
    assert said == "[]\n"
