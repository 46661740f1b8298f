"""The command line over a finished study."""

import re

from conftest import Laboratory


def test_rollouts_shows_the_failed_or_the_passed_completions_of_an_evaluation(finished: Laboratory) -> None:
    digest = next(finished.folder.glob("results/evaluate/*")).name
    failed = finished.run("interplay", "rollouts", digest[:8], "--failed", "-n", "3")
    passed = finished.run("interplay", "rollouts", digest[:8], "--passed", "-n", "3")
    assert failed.returncode == passed.returncode == 0
    assert "error none" not in failed.stdout
    assert "error none" in passed.stdout


def test_report_says_the_verdicts_and_the_page_and_plan_says_what_is_done(finished: Laboratory) -> None:
    named = finished.run("interplay", "report", "quickstart", "--scale", "smoke")
    assert named.returncode == 0
    *verdicts, last = named.stdout.splitlines()
    assert (finished.folder / last.removeprefix("report: ")).exists()
    assert all(re.match("indicated|no information|not tested", line) for line in verdicts[::3])  # one base
    assert "strict_pass@1 of edge: base " in verdicts[4]
    judged = finished.run("interplay", "judge", "quickstart", "--scale", "smoke")
    lines = judged.stdout.splitlines()
    assert lines[: len(verdicts)] == verdicts, "judged anew from the records"
    assert all(line.startswith("Confound, ") for line in lines[len(verdicts) :])
    needed = finished.run("interplay", "settle", "quickstart", "--scale", "smoke").stdout
    assert needed.count("a verdict needs 3 bases, of stages under seeds.vary (there is 1), each of ") == 3
    planned = finished.run("interplay", "plan", "quickstart", "--scale", "smoke", "--stages")
    assert len(re.findall(r"^[0-9a-f]{12}  done  ", planned.stdout, re.M)) == 14
    assert not re.search(r"^[0-9a-f]{12}  new ", planned.stdout, re.M)
    assert "to do: nothing" in planned.stdout


def test_a_report_that_is_not_there_is_named_with_the_command_that_makes_it(laboratory: Laboratory) -> None:
    result = laboratory.run("interplay", "report", "quickstart")
    assert result.returncode == 2
    assert "run `interplay run quickstart --scale laptop`" in result.stderr
