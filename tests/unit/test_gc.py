"""`interplay gc` and `interplay verify`."""

import fcntl
import json
import os
import time
from pathlib import Path

import pytest
from lab import Lab, of_kind

from interplay import cli
from interplay.core import artifact
from interplay.core.model import UserError
from interplay.results import storage
from interplay.run.graph import Graph
from interplay.study.plan import Plan, Stage


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.chdir(tmp_path)
    return Lab(tmp_path)


def old(lab: Lab, days: float = 30) -> None:
    """All files of the results were written so many days ago."""
    when = time.time() - days * storage.DAY
    for path in lab.results.rglob("*"):
        os.utime(path, (when, when), follow_symlinks=False)


def other_steps(lab: Lab, steps: int = 5) -> Plan:
    lab.edit("scale/smoke.yaml", "rl: {steps: 4,", f"rl: {{steps: {steps},")
    return lab.plan()


def folders(lab: Lab) -> set[str]:
    return {path.name for path in lab.results.glob("*/*") if path.parent.name != "by-name"}


def test_what_a_lock_reaches_stays_and_the_rest_is_listed_but_not_touched(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    first = lab.plan()
    lab.finish_all(first)
    second = other_steps(lab)
    lab.finish_all(second)
    second.write_lock(lab.configs)
    old(lab)
    before = folders(lab)
    assert cli.main(["gc"]) == 0
    text = capsys.readouterr().out
    assert "total: 5 results" in text
    assert any(line.split()[:3] == ["rl", "2", "0"] for line in text.splitlines())
    assert "nothing was removed" in text
    assert folders(lab) == before
    assert cli.main(["gc", "--delete"]) == 0
    assert folders(lab) == set(second.stages)
    assert cli.main(["gc", "--delete"]) == 0
    assert "nothing to remove: all results are in a lock, in by-name/ of a study without a lock" in capsys.readouterr().out


def test_a_lock_given_on_the_command_line_keeps_its_stages(lab: Lab) -> None:
    first = lab.plan()
    lab.finish_all(first)
    elsewhere = lab.folder / "elsewhere.lock.json"
    elsewhere.write_text(first.lock())
    other_steps(lab).write_lock(lab.configs)
    old(lab)
    assert len(storage.find_garbage(lab.configs, lab.results).results) == 5
    assert storage.find_garbage(lab.configs, lab.results, [elsewhere]).results == []


def test_a_brief_lock_keeps_the_stages_that_it_leaves_out(lab: Lab) -> None:
    lab.finish_all(other_steps(lab))
    lab.edit("scale/smoke.yaml", "rl: {steps: 5,", "rl: {steps: 6,")
    lab.edit("scale/smoke.yaml", "\nbands:", "\nlock: report\nbands:")
    brief = lab.plan()
    lab.finish_all(brief)
    lab.lock()
    old(lab)
    found = {item.folder.name for item in storage.find_garbage(lab.configs, lab.results).results}
    assert len(found) == 5
    assert not found & brief.stages.keys()


def test_without_any_lock_nothing_is_removed(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.finish_all(lab.plan())
    before = folders(lab)
    assert cli.main(["gc", "--older-than", "0", "--delete"]) == 2
    assert "holds no lock" in capsys.readouterr().err
    assert folders(lab) == before


def test_young_results_stay_unless_asked_for(lab: Lab) -> None:
    first = lab.plan()
    lab.finish_all(first)
    other_steps(lab).write_lock(lab.configs)
    old(lab, days=3)
    found = {days: storage.find_garbage(lab.configs, lab.results, older_than=days) for days in (0.0, 2.0, 5.0)}
    assert [len(found[days].results) for days in (0.0, 2.0, 5.0)] == [5, 5, 0]
    assert [found[days].young for days in (0.0, 2.0, 5.0)] == [0, 0, 5]


def test_a_stage_that_is_being_made_stays_with_its_inputs_and_with_what_the_stages_that_wait_for_it_need(lab: Lab) -> None:
    lab.lock("edge")
    lab.edit("scale/smoke.yaml", "tokens: 100000", "tokens: 300000")
    plan = lab.plan()
    running, finished = of_kind(plan, "rl")
    lab.finish_all(plan, but=("rl", "evaluate", "report"))
    lab.finish(finished)  # no input of the running one, but the report, which waits for both, will read it
    for stage in (running, *of_kind(plan, "evaluate"), *of_kind(plan, "report")):
        artifact.write_json(lab.out(stage) / "stage.json", stage.as_json())
    old(lab)
    lab.start(running)
    with open(lab.out(running) / "lease") as lease:
        fcntl.flock(lease, fcntl.LOCK_EX)
        old(lab)
        assert storage.find_garbage(lab.configs, lab.results, older_than=1.0).results == []
    assert of_kind(plan, "pretrain")[0].digest in {
        item.folder.name for item in storage.find_garbage(lab.configs, lab.results).results
    }


def test_a_folder_whose_lease_is_taken_meanwhile_is_not_removed(lab: Lab) -> None:
    stage = of_kind(lab.plan(), "rl")[0]
    lab.finish(stage)
    other_steps(lab).write_lock(lab.configs)
    found = storage.find_garbage(lab.configs, lab.results)
    with open(lab.out(stage) / "lease") as lease:
        fcntl.flock(lease, fcntl.LOCK_EX)
        assert storage.remove_garbage(found, lab.results) == [f"{lab.out(stage)}: in use, so it stays"]
    assert artifact.done(lab.out(stage))
    assert storage.remove_garbage(found, lab.results) == []
    assert not lab.out(stage).exists()


def linked(lab: Lab, plan: Plan) -> Path:
    """By-name links, as Snakemake's main process makes them."""
    Graph(lab.results, [plan]).link()
    return lab.results / "by-name" / f"{plan.study}.{plan.scale}"


def test_links_of_a_study_without_a_lock_hold_on_to_its_results_until_its_file_is_gone(lab: Lab) -> None:
    lab.lock("edge")
    lab.edit("scale/smoke.yaml", "tokens: 100000", "tokens: 300000")
    plan = lab.plan()
    lab.finish_all(plan)
    top = linked(lab, plan)
    old(lab)
    assert storage.find_garbage(lab.configs, lab.results).results == []
    (lab.configs / "study/quickstart.yaml").unlink()
    found = storage.find_garbage(lab.configs, lab.results)
    assert {"pretrain", "rl", "evaluate", "report"} == {item.kind for item in found.results}
    assert top / "report" in found.links
    storage.remove_garbage(found, lab.results)
    assert not top.exists()


def test_links_that_a_newer_lock_does_not_name_are_removed_and_the_others_stay(lab: Lab) -> None:
    first = lab.plan()
    lab.finish_all(first)
    top = linked(lab, first)
    other_steps(lab).write_lock(lab.configs)
    storage.remove_garbage(storage.find_garbage(lab.configs, lab.results), lab.results)
    assert (top / "base/base@0").resolve().is_dir()
    assert not (top / "rl_edge/rl@0").is_symlink()
    assert not (top / "report").is_symlink()


def test_logs_and_benchmarks_go_with_their_stage_and_those_of_planned_stages_stay(lab: Lab) -> None:
    first = lab.plan()
    gone, kept = of_kind(first, "rl")[0], of_kind(first, "pretrain")[0]
    lab.finish(gone)
    files = [lab.folder / "logs/rl/000000000000.log"]
    for stage in (gone, kept):
        files += [
            lab.folder / f"logs/{stage.kind}/{stage.digest}.log",
            lab.folder / f"benchmarks/{stage.kind}/{stage.digest}.tsv",
        ]
        files += [lab.folder / f"logs/{stage.kind}/.{stage.digest}.log"]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    other_steps(lab).write_lock(lab.configs)
    old(lab)
    found = storage.find_garbage(Path("configs"), Path("results"))
    storage.remove_garbage(found, Path("results"))
    assert [file.exists() for file in files] == [False, *[False] * 3, *[True] * 3]


def test_what_an_interrupted_removal_left_is_taken_away_and_is_no_result(lab: Lab) -> None:
    plan = lab.lock()
    lab.finish_all(plan)
    half = lab.results / "rl/.gc.0123456789ab"
    (half / "model").mkdir(parents=True)
    found = storage.find_garbage(lab.configs, lab.results)
    assert found.results == []
    assert found.leftovers == [half]
    storage.remove_garbage(found, lab.results)
    assert not half.exists()


# -- verify ------------------------------------------------------------------------------------------------------------


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[list[str], str]:
    assert cli.main(["verify", *words]) == 1
    said = capsys.readouterr()
    return said.out.splitlines(), said.err.splitlines()[-1]


def changed(stage: Stage, lab: Lab) -> Path:
    return lab.out(stage) / "payload.bin"


def test_finished_stages_that_are_as_recorded_pass(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    plan = lab.plan()
    lab.finish_all(plan, but=("report",))
    lab.start(plan.stages[plan.report])
    count = len(plan.stages) - 1
    for words in ((), ("quickstart", "--scale", "smoke")):
        assert cli.main(["verify", *words]) == 0
        assert f"{count} finished stages ({count} files" in capsys.readouterr().out


def test_each_damage_is_one_line_and_the_exit_code_1(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    plan = lab.plan()
    lab.finish_all(plan)
    missing, longer, altered = (changed(stage, lab) for stage in of_kind(plan, "evaluate"))
    missing.unlink()
    longer.write_bytes(b"more" + longer.read_bytes())
    altered.write_bytes(altered.read_bytes()[::-1])
    torn, moved = of_kind(plan, "rl")
    (lab.out(torn) / "record.json").write_text("{")
    record = json.loads((lab.out(moved) / "record.json").read_text())
    record["spec"]["steps"] = 400
    artifact.write_json(lab.out(moved) / "record.json", record)
    lines, summary = refused(capsys)
    assert f"{missing.relative_to(lab.folder)}: missing" in lines
    assert f"{longer.relative_to(lab.folder)}: corrupt (16 bytes instead of 12)" in lines
    assert f"{altered.relative_to(lab.folder)}: corrupt (checksum differs)" in lines
    assert any("not readable as JSON" in line and torn.digest in line for line in lines)
    assert any("its content is that of rl/" in line and moved.digest in line for line in lines)
    assert len(lines) == 5
    assert "5 of 14 finished stages" in summary


def test_a_record_in_the_folder_of_another_stage_is_found(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = of_kind(lab.plan(), "rl")
    lab.finish(one)
    os.rename(lab.out(one), lab.out(other))
    lines, _ = refused(capsys)
    assert len(lines) == 1
    assert f"its content is that of rl/{one.digest}" in lines[0]


def test_one_stage_is_verified_by_its_digest(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = of_kind(lab.plan(), "rl")
    for stage in (one, other):
        lab.finish(stage)
    changed(other, lab).unlink()
    assert cli.main(["verify", one.digest]) == 0
    refused(capsys, other.digest)
    with pytest.raises(UserError, match="holds no lock"):
        storage.find_garbage(lab.configs, lab.results)
