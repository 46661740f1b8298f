"""Plants each fault of fault_list in a copy of src, runs its tests there, and says which of them die.

`python tests/mutation/planted.py [--only NAME ...] [--again]`. The checkout is never changed. A fault is killed when a test fails
that passes without it. Results are kept in $TMPDIR and reused as long as sources, fault and its tests are the same."""

import argparse
import hashlib
import importlib
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from fault_list import FAULTS, Fault

ROOT = Path(__file__).parents[2]
MOST_SURVIVORS = 2
LONGEST = 900
"""Seconds of the tests of a fault; a fault that makes them hang is killed."""
RESULTS = Path(tempfile.gettempdir()) / "interplay-mutations" / "results.json"


def places(old: str, src: Path) -> list[Path]:
    """Files of src that hold the text, one entry for each time."""
    return [path for path in sorted(src.rglob("*.py")) for _ in range(path.read_text().count(old))]


def files_of(fault: Fault) -> list[Path]:
    """Its tests, nearest first."""
    return [ROOT / "tests" / "unit" / f"test_{name}.py" for name in fault.tests]


def fingerprint(fault: Fault) -> str:
    """Of all that a result depends on."""
    found = hashlib.sha256(repr(fault).encode())
    for path in [*sorted((ROOT / "src").rglob("*.py")), *files_of(fault)]:
        found.update(path.read_bytes())
    return found.hexdigest()


def outcome(src: Path, tests: list[str]) -> tuple[int, str]:
    """Exit code and output of the tests on these sources; the code is -1 when time ran out.

    The process is a fork of this one, which has imported what takes long and nothing of interplay."""
    with tempfile.TemporaryFile("w+") as output:
        process = multiprocessing.get_context("fork").Process(target=_tests, args=(src, tests, output.fileno()))
        process.start()
        process.join(LONGEST)
        if process.is_alive():
            os.killpg(process.pid, signal.SIGKILL)
            process.join()
            return -1, "FAILED out of time"
        output.seek(0)
        return int(process.exitcode or 0), output.read()


def _tests(src: Path, tests: list[str], output: int) -> None:
    """Of the forked process."""
    os.setpgid(0, 0)
    for stream in (1, 2):
        os.dup2(output, stream)
    sys.path[0] = str(src)
    os.environ["PYTHONPATH"] = str(src)
    os.chdir(ROOT)
    code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests])
    sys.stdout.flush()
    os._exit(int(code))


def warm_up() -> None:
    """Import what most tests need and no fault is in."""
    for name in ("numpy", "pandas", "pyarrow.parquet", "pydantic", "scipy.optimize", "scipy.stats", "tokenizers", "torch", "trl"):
        importlib.import_module(name)
    assert "interplay" not in sys.modules


def failing(output: str) -> str:
    """The test that failed first, as pytest names it."""
    found = re.search(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", output, re.MULTILINE)
    return found[1] if found else ""


def planted(fault: Fault, src: Path) -> dict[str, Any]:
    """Plant the fault in the copy `src`, run its tests, and take it out again."""
    started = time.monotonic()
    files = places(fault.old, src)
    if len(files) != 1:
        return {"verdict": "unplaced", "seconds": 0.0, "by": f"the text occurs {len(files)} times in src"}
    text = files[0].read_text()
    files[0].write_text(text.replace(fault.old, fault.new))
    try:
        code, output = outcome(src, [str(path) for path in files_of(fault)])
    finally:
        files[0].write_text(text)
    by = failing(output)
    verdict = "survived" if code == 0 else "killed" if code in (1, -1) else "broken"
    if verdict == "broken":
        by = output.strip().splitlines()[-1] if output.strip() else f"pytest exit code {code}"
    if verdict == "killed" and code == 1 and outcome(src, [by])[0] != 0:
        verdict = "broken"  # the test fails without the fault, too
    return {"verdict": verdict, "seconds": round(time.monotonic() - started, 1), "by": by}


def scratch(folder: Path) -> Path:
    """A copy of src with its bytecode, which holds by the hash of a source: faults come and go within a second, and not all change
    a file's size."""
    src = folder / "src"
    shutil.copytree(ROOT / "src", src, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    command = [sys.executable, "-m", "compileall", "-q", "-j", "1", "--invalidation-mode", "checked-hash", str(src)]
    subprocess.run(command, check=True)
    imported = [sys.executable, "-c", "import interplay; print(interplay.__file__)"]
    environment = {**os.environ, "PYTHONPATH": str(src)}
    place = subprocess.run(imported, env=environment, cwd=folder, capture_output=True, text=True, check=True).stdout
    if not place.startswith(str(src)):
        raise SystemExit(f"tests would not import the copy but {place.strip()}")
    return src


def main() -> int:
    """Exit code 1 when more than MOST_SURVIVORS live, or one could not be judged."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[fault.name for fault in FAULTS])
    parser.add_argument("--again", action="store_true", help="run those with a result, too")
    options = parser.parse_args()
    if unknown := set(options.only) - {fault.name for fault in FAULTS}:
        parser.error(f"--only {' '.join(sorted(unknown))}: no such fault; known: {', '.join(f.name for f in FAULTS)}")
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    verdicts = []
    warm_up()
    with tempfile.TemporaryDirectory() as folder:
        src = scratch(Path(folder))
        for fault in FAULTS:
            if fault.name not in options.only:
                continue
            mark = fingerprint(fault)
            result = known.get(fault.name, {})
            if options.again or result.get("mark") != mark:
                result = {**planted(fault, src), "mark": mark}
                known[fault.name] = result
                RESULTS.parent.mkdir(parents=True, exist_ok=True)
                RESULTS.write_text(json.dumps(known, indent=1))
            verdicts.append(result["verdict"])
            print(f"{fault.name:22} {result['verdict']:9} {result['seconds']:6.1f} s  {result['by']}", flush=True)
    killed, survived = verdicts.count("killed"), verdicts.count("survived")
    other = len(verdicts) - killed - survived
    print(f"{killed} of {len(verdicts)} killed, {survived} survived, {other} not judged")
    return int(survived > MOST_SURVIVORS or other > 0)


if __name__ == "__main__":
    sys.exit(main())
