"""A study whose results lie at another scale than the one that is asked for: commands name it."""

from pathlib import Path

import pytest
from lab import Lab, of_kind

from interplay import cli
from interplay.results import payloads, state
from interplay.study.expand import plan_study

SAID = "finished at smoke: add --scale smoke"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    lab = Lab(tmp_path)
    lab.finish_all(lab.plan())
    return lab


@pytest.mark.parametrize(
    "words",
    [
        ["report", "quickstart"],
        ["watch", "quickstart", "--once"],
        ["explain", "quickstart", "main", "base", "id"],
        ["efficiency", "quickstart"],
        ["export", "quickstart", "-o", "out"],
        ["compare", "quickstart/base", "quickstart/rl_edge"],
        ["rollouts", "quickstart/rl_edge/eval@0"],
    ],
)
def test_a_command_that_finds_nothing_names_the_scale_that_has_results(
    lab: Lab, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    code = cli.main(words)
    said = capsys.readouterr()
    assert SAID in said.out + said.err
    assert code == (2 if words[0] in ("report", "export", "rollouts") else 0)


@pytest.mark.parametrize("words", [["watch", "quickstart", "--once"], ["efficiency", "quickstart"]])
def test_at_the_scale_that_has_results_nothing_is_said_of_scales(
    lab: Lab, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert cli.main([*words, "--scale", "smoke"]) == 0
    assert "--scale" not in capsys.readouterr().out


def test_what_is_begun_elsewhere_is_not_called_finished_and_a_launch_of_its_own_silences_the_hint(lab: Lab) -> None:
    plan = lab.plan()
    (lab.results / "report" / plan.report / "record.json").unlink()
    laptop = plan_study(lab.configs, "quickstart", "laptop")
    assert state.other_scale_hint(lab.configs, lab.results, laptop) == "begun at smoke: add --scale smoke"
    lab.start(of_kind(laptop, "report")[0])
    assert state.other_scale_hint(lab.configs, lab.results, laptop) == ""
    assert state.other_scale_hint(lab.configs, lab.folder / "empty", laptop) == ""


def test_the_state_of_the_store_names_study_and_scale(
    lab: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payloads, "in_project", lambda: True)
    monkeypatch.setattr(payloads, "stored_folders", lambda folders: set())
    assert cli.main(["store", "status", "quickstart"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == ["quickstart at scale laptop", f"quickstart {SAID}"]
    assert cli.main(["store", "status", "quickstart", "--scale", "smoke"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "quickstart at scale smoke"
