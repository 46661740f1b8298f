"""The memory of a stage is that of all its processes together."""

import subprocess
import sys
import time

from conftest import wait_for

from interplay.run import resources

HOLD = "import sys, time; held = bytearray(b'x') * (int(sys.argv[1]) << 20); print(flush=True); {then}"


def held(megabytes: int, then: str = "time.sleep(60)") -> "subprocess.Popen[str]":
    """A process that took so much memory, once it has."""
    process = subprocess.Popen([sys.executable, "-c", HOLD.format(then=then), str(megabytes)], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    process.stdout.readline()
    return process


def test_children_count_together_and_not_the_largest_alone() -> None:
    seen = resources.Peak()
    seen.measure()
    alone, before = seen.together, seen.processes  # other tests may have left servers
    children = [held(150), held(150)]
    seen.measure()
    for child in children:
        child.kill()
        child.wait()
    assert seen.processes == before + 2
    assert 300 <= seen.together - alone <= 400, "each with an interpreter"


def test_what_a_child_gave_back_before_a_look_still_counts() -> None:
    seen = resources.Peak()
    seen.measure()
    alone = seen.together
    child = held(200, then="del held; print(flush=True); time.sleep(60)")
    assert child.stdout
    child.stdout.readline()
    seen.measure()
    child.kill()
    child.wait()
    assert seen.together - alone >= 200


def test_it_is_looked_at_while_the_work_goes_on() -> None:
    before = resources.Peak()
    before.measure()
    with resources.watch_memory() as seen:
        child = held(50)
        wait_for(lambda: seen.processes == before.processes + 1, seconds=30)
        child.kill()
        child.wait()
    after = seen.together
    time.sleep(0.1)
    assert seen.together == after >= 50
