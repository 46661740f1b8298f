"""The generated reference, and what `--help` says."""

import functools
import html
import re
import shlex
import subprocess
import sys

import pytest
from conftest import ROOT

from interplay.cli import COMMANDS, DAY, WIDEST, find_command, main
from interplay.cli.common import examples
from interplay.kinds.table import KINDS
from tools.reference import __main__ as reference, pages, specs

EXAMPLES = [*DAY, *(line for name in COMMANDS for line, _ in examples(find_command(name).epilog))]


@functools.cache
def texts() -> dict[str, str]:
    """The pages by their names; made once a test asks for them, which one worker of two does."""
    return {path.name: text for path, text in pages.files(ROOT).items()}


def test_the_index_names_every_page() -> None:
    assert (ROOT / "docs/reference/index.md").read_text() == pages.index(ROOT, linked=False), "run `make docs` and commit it"
    assert all(f"]({name})" in pages.index(ROOT, linked=True) for name in texts())


def test_a_member_and_a_key_are_found_in_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert reference.main(["find", "clip_cov"]) == 0
    section, method = capsys.readouterr().out.split("\n# clip_cov\n")
    assert section.startswith("## loss: clip_cov\n")
    assert "configs/method" not in section
    assert "paper: arXiv:2505.22617" in method
    assert reference.main(["find", "num_generations"]) == 0
    assert "allocation: fixed: `num_generations` | integer ≥ 1 | `8` | Group size" in capsys.readouterr().out
    assert reference.main(["find", "num_generation5"]) == 2


def test_every_model_that_a_study_or_scale_may_hold_has_a_section() -> None:
    listed = [section for page in pages.sections().values() for section in page]
    found = {section.name for section in listed}
    defs = specs.schema()[1]
    of_report, queue = set(), ["ReportSpec"]  # no file holds what the planner makes of tables, figures and claims
    while queue:
        of_report.add(name := queue.pop())
        queue += [inner for _, inner in specs.inside(defs[name].get("properties", {})) if inner not in of_report]
    missing = {specs.model_of(name) for name in defs if not name.endswith("References")} - found - of_report - specs.HIDDEN
    assert {name for name in missing if "properties" in defs[name]} == set()
    assert {section.member for section in listed if section.member.startswith("kind: ")} == {
        f"kind: {kind}" for kind in KINDS if kind != "report"
    }


def test_every_key_has_a_meaning_and_every_member_a_card() -> None:
    for name, text in texts().items():
        assert [line for line in text.splitlines() if line.startswith("| `") and line.endswith("|  |")] == [], name
        assert text.count("- studies: ") == len(re.findall(r"^## (?!extension)[a-z]+: \w+$", text, re.MULTILINE)), name
    assert any("- studies: no committed study uses it" in text for text in texts().values())


def test_pages_are_short() -> None:
    assert {name: lines for name, text in texts().items() if (lines := len(text.splitlines())) > pages.MOST_LINES} == {}


def test_every_link_between_the_pages_leads_to_a_heading() -> None:
    anchors = {
        f"{name}#{pages.anchor(html.unescape(title))}"
        for name, text in texts().items()
        for title in re.findall(r"^## (.*)$", text, re.MULTILINE)
    }
    for name, text in texts().items():
        assert "@@" not in text
        links = set(re.findall(r"\]\((\w+\.md(?:#[\w-]+)?)\)", text))
        assert {link for link in links if "#" in link} <= anchors, name
        assert {link for link in links if "#" not in link} <= {*texts(), "index.md"}, name


def test_a_key_has_its_type_its_default_and_its_meaning() -> None:
    assert "| `prompts_per_step` | integer ≥ 1 | `32` | Distinct prompts per step. |" in texts()["rl.md"]
    assert (
        "| `method` | [method](rl.md#method), or the name of a file in `configs/method` |  | " in texts()["rl.md"]
    )  # no default: has to be given
    assert "| `edits` | list of [edits](edits.md) | `[]` | " in texts()["rl.md"]
    clip_cov = texts()["loss.md"].split("## loss: clip_cov\n")[1].split("\n## ")[0]
    [row] = [line for line in clip_cov.splitlines() if line.startswith("| `loss_type`")]
    assert row.split(" | ")[-1].removesuffix(" |")  # the key that it overrides says what it means


def test_every_command_has_a_paragraph_and_each_word_of_it_a_meaning() -> None:
    for name in COMMANDS:
        command = find_command(name)
        assert command.help
        assert [param.name for param in command.params if not param.help] == []


@pytest.mark.parametrize("line", [line for line in EXAMPLES if line.startswith("interplay ")])
def test_an_example_can_be_typed_as_it_is(line: str) -> None:
    _, name, *words = shlex.split(line.split(" > ")[0])
    command = find_command(name)
    while name := next((word for word in words[:1] if word in getattr(command, "commands", {})), ""):
        command, words = command.commands[name], words[1:]
    command.make_context("interplay", words)


def test_the_first_page_lists_every_command_under_its_heading(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    for name, command in COMMANDS.items():
        assert f"\n  {name} " in said[said.index(f"{command.group}:") :]
    assert "a day with Interplay:" in said
    assert max(map(len, said.splitlines())) <= WIDEST


def test_help_of_a_command_has_a_paragraph_and_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        assert main([name, "--help"]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert " ".join(str(find_command(name).help).split()) in said
        assert examples(find_command(name).epilog)[0][0] in said


def test_narrow_terminals_get_narrow_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "64")
    assert main(["--help"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 64


def test_without_a_command_the_first_page_is_shown_with_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "a day with Interplay:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["plna"], "plna: no such command; did you mean 'plan'?"),
        (["plan", "--scael", "smoke"], "plan: --scael: no such option; did you mean '--scale'?"),
        (["plan", "edge", "more"], "command line: more: must be KEY=VALUE, such as rl.steps=10 or rl.method=gspo"),
        (["plan", "--scale"], "plan: Option '--scale' requires an argument; see `interplay plan --help`"),
        (["novelty", "3f"], "novelty: Missing option '--against'; see `interplay novelty --help`"),
        (["show"], "show: Missing argument 'stage'; see `interplay show --help`"),
        (["track"], "track: Missing command; see `interplay track --help`"),
        (
            ["store", "pul"],
            "store: do 'pul': 'pul' is not one of 'push', 'pull', 'status', 'keep', 'rebuild'; see `interplay store --help`",
        ),
    ],
)
def test_a_slip_on_the_command_line_is_answered_in_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err == f"interplay: {message}\n"


def test_a_value_of_the_wrong_type_is_answered_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rollouts", "3f", "-n", "many"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("interplay: rollouts: -n 'many': ")
    assert said.endswith("integer; see `interplay rollouts --help`\n")


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import contextlib, io, sys\nfrom interplay.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit): main(['--help'])\n"
        "print([name for name in ('torch', 'pandas', 'mlflow', 'hydra', 'dvc', 'rich', 'transformers') if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True).stdout
    assert said == "[]\n"
