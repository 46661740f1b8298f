"""`interplay watch`: the state of a run, read from files alone."""

import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import Laboratory, copy_configs, wait_for

from interplay.cli import main
from interplay.cli.monitor import format_duration, format_metrics
from interplay.results import progress
from interplay.study.expand import plan_study
from interplay.study.plan import Plan

LINE = "12/40 steps, 0.5/s, 56 s left reward 0.25 strict 0.1"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in which the problems of the quickstart are done and its base is being trained."""
    copy_configs(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "150")
    for stage in planned(tmp_path).stages.values():
        folder = tmp_path / "results" / stage.kind / stage.digest
        folder.mkdir(parents=True)
        (folder / "stage.json").write_text(json.dumps(stage.as_json()))
        if stage.kind == "problems":
            (folder / "record.json").write_text("{}")
    return tmp_path


def planned(root: Path) -> Plan:
    return plan_study(root / "configs", "quickstart", "smoke")


def started(root: Path, kind: str, log: str, host: str = "elsewhere") -> Path:
    """The first stage of a kind as it looks after its start: lease, telemetry, log."""
    digest = next(stage.digest for stage in planned(root).stages.values() if stage.kind == kind)
    folder = root / "results" / kind / digest
    (folder / "lease").touch()
    (folder / "telemetry.json").write_text(json.dumps({"attempts": 1, "host": host}))
    (root / "logs" / kind).mkdir(parents=True, exist_ok=True)
    (root / "logs" / kind / f"{digest}.log").write_text(log)
    return folder


def seen(root: Path, kind: str) -> progress.Watched:
    looked = progress.watch_stages(planned(root), root / "results", root / "logs")
    return next(one for one in looked if one.stage.kind == kind)


def test_a_stage_whose_lease_is_held_runs_and_its_log_says_how_far(root: Path) -> None:
    folder = started(root, "rl", f"label\n9/40 steps, 0.4/s, 77 s left\n{LINE}\n")
    with open(folder / "lease") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        one = seen(root, "rl")
    assert one.state == "running"
    assert one.reached is not None
    assert (one.reached.text, one.reached.rate, one.reached.left) == ("12/40 steps", 0.5, 56.0)
    assert one.reached.values == {"reward": 0.25, "strict": 0.1}


def test_looking_does_not_keep_a_stage_from_starting(root: Path) -> None:
    folder = started(root, "rl", LINE, host=os.uname().nodename)
    assert seen(root, "rl").state == "stopped"
    with open(folder / "lease") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_stage_of_another_machine_runs_while_its_log_is_fresh(root: Path) -> None:
    folder = started(root, "rl", LINE)
    assert seen(root, "rl").state == "running"
    log = root / "logs/rl" / f"{folder.name}.log"
    os.utime(log, (time.time() - 2 * progress.FRESH,) * 2)
    assert seen(root, "rl").state == "stopped"


def test_metrics_tell_how_far_a_stage_is_before_its_log_does(root: Path) -> None:
    folder = started(root, "pretrain", "base/base@0 [pretrain]\n")
    (folder / "metrics.jsonl").write_text('{"step": 20, "loss": 1.5, "tokens": 25000.0}\n{"step": 21, "lo')
    os.utime(folder / "telemetry.json", (time.time() - 30,) * 2)
    reached = seen(root, "pretrain").reached
    assert reached is not None
    assert reached.share == pytest.approx(0.25)
    assert reached.text == "25,000/100,000 tokens"
    assert reached.left == pytest.approx(90, abs=45)  # three times the 30 s, and what a busy machine takes to get here
    assert reached.values == {"loss": 1.5}


def test_what_was_done_before_a_resume_does_not_count_as_pace(root: Path) -> None:
    folder = started(root, "rl", "label\ngoing on from 2/4 steps\n")
    (folder / "metrics.jsonl").write_text('{"step": 3, "reward": 0.5}\n')
    os.utime(folder / "telemetry.json", (time.time() - 30,) * 2)
    reached = seen(root, "rl").reached
    assert reached is not None
    assert reached.rate == pytest.approx(1 / 30, rel=0.1)
    assert reached.left == pytest.approx(30, abs=3)


def test_a_failed_stage_is_named_with_its_reason(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = started(root, "rl", LINE)
    (folder / "failure.json").write_text('{"message": "step 3: loss nan; lower the learning rate"}')
    assert main(["watch", "quickstart", "--scale", "smoke", "--once"]) == 0
    said = capsys.readouterr().out
    assert "failed" in said
    assert "step 3: loss nan; lower the learning rate" in said
    assert " left" not in said, "nothing runs, so that nothing tells when it will end"
    assert "nothing runs; `interplay debug quickstart.smoke/rl_edge/rl@0` makes the first that failed again" in said


def test_one_look_shows_kinds_states_progress_and_time_left(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    started(root, "rl", f"label\n{LINE}\n")
    assert main(["watch", "quickstart", "--scale", "smoke", "--once"]) == 0
    said = capsys.readouterr().out
    assert "quickstart at smoke  5 of 14 stages done, 1 running, about" in said
    assert "30%  12/40 steps" in said
    assert "0.5 steps/s" in said
    assert "reward 0.25" in said
    rows = {line.split()[0]: line.split()[1:5] for line in said.splitlines() if line.split()}
    assert rows["problems"][:3] == ["·", "·", "5"]
    assert rows["rl"][:3] == ["1", "1", "·"]


def test_a_stage_that_ended_with_an_exception_has_failed_with_its_last_words(root: Path) -> None:
    folder = started(
        root, "rl", "edge/rl_edge/rl@0 [rl 0]\nTraceback (most recent call last):\n  File\nValueError: no\n", os.uname().nodename
    )
    assert (seen(root, "rl").state, seen(root, "rl").detail) == ("failed", "ValueError: no")
    (root / "logs/rl" / f"{folder.name}.log").write_text("edge/rl_edge/rl@0 [rl 0]\ninterplay: stopped at step 3 of 9\n")
    assert (seen(root, "rl").state, seen(root, "rl").detail) == ("stopped", "stopped at step 3 of 9")


def test_a_narrow_terminal_keeps_metrics_and_curve_and_warnings_are_named(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    lines = [json.dumps({"step": step + 1, "reward": step / 8, "effective_ratio": 0.0}) for step in range(8)]
    (started(root, "rl", f"label\n{LINE}\n") / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert main(["watch", "quickstart", "--scale", "smoke", "--once"]) == 0
    said = capsys.readouterr().out
    assert "▁▂▃▄▅▆▇█  reward 0.875" in said
    assert "warning quickstart.smoke/rl_edge/rl@0 equal rewards: all rewards of each group" in " ".join(said.split())
    assert max(map(len, said.splitlines())) <= 72


class Terminal:
    """`interplay watch` in a terminal of its own, as a person would have it."""

    def __init__(self, folder: Path) -> None:
        self.ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "interplay", "watch", "quickstart", "--scale", "smoke", "--every", "0.2"]
        self.process = subprocess.Popen(command, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
        os.close(theirs)
        self.said = ""

    def shows(self, words: str) -> bool:
        """Read what is there; whether the words were ever shown."""
        while select.select([self.ours], [], [], 0)[0]:
            try:
                self.said += os.read(self.ours, 65536).decode("utf-8", "replace")
            except OSError:  # the other side has closed
                break
        return words in self.said


def test_it_ends_by_itself_when_all_is_done(finished: Laboratory) -> None:
    terminal = Terminal(finished.folder)
    wait_for(lambda: terminal.shows("14 of 14 stages done"), 60)
    assert terminal.process.wait(30) == 0


def test_ctrl_c_ends_it_without_a_traceback(root: Path) -> None:
    terminal = Terminal(root)
    wait_for(lambda: terminal.shows("of 14 stages"), 60)
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.process.wait(30) == 130
    assert not terminal.shows("Traceback")


def test_durations_read_well() -> None:
    assert [format_duration(seconds) for seconds in (42, 400, 11100, 190000)] == ["42 s", "7 min", "3 h 05 min", "2 d 4 h"]


def test_informative_metrics_come_first() -> None:
    assert format_metrics({"length": 12.0, "groups": 8.0, "reward": 0.5, "strict": 0.25}) == "reward 0.5  strict 0.25  length 12"
