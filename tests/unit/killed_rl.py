"""RL runs that are killed and started again, in processes of their own."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from conftest import BEHIND

from interplay.core.execution import Run
from interplay.rl.spec import RLSpec

RUNNER = """
import json, sys
from pathlib import Path
from interplay.rl import loop
from interplay.rl.spec import RLSpec
from interplay.core.execution import Run
spec, inputs, out, how = (json.loads(a) for a in sys.argv[1:])
loop.train_policy(RLSpec(**spec), {k: Path(v) for k, v in inputs.items()}, Path(out), Run(**how))
"""


def payload(out: Path) -> dict[str, str]:
    """What a run leaves, by file."""
    names = ["model/model.safetensors", "metrics.jsonl", "rollouts.parquet", "history.parquet"]
    names += [str(path.relative_to(out)) for path in sorted(out.glob("checkpoints/*/model/*"))]
    return {name: hashlib.sha256((out / name).read_bytes()).hexdigest() for name in names}


def run_killed(spec: RLSpec, inputs: dict[str, Path], out: Path, how: Run, kills: Iterable[tuple[int, float]]) -> None:
    """Run to the end, killed (SIGKILL) on the way: for each (step, seconds) so long after that step or a later one was saved. Each
    kill must meet a run that is not over."""
    arguments = [spec.model_dump(), {role: str(path) for role, path in inputs.items()}, str(out), how.model_dump()]
    command = [*BEHIND, sys.executable, "-c", RUNNER, *(json.dumps(a) for a in arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pointer = out / "resume" / "state" / "state.json"
    for step, delay in kills:
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
        while process.poll() is None and not (pointer.exists() and json.loads(pointer.read_text())["step"] >= step):
            time.sleep(0.005)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, process.stderr.read().decode() if process.stderr else ""
        assert not (out / "model").exists()
    subprocess.run(command, env=environment, check=True)
