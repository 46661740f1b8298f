"""RL runs that are killed and started again, in processes of their own."""

import hashlib
import json
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from forked import Script

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
    pointer = out / "resume" / "state" / "state.json"
    for step, delay in kills:
        script = Script(RUNNER, *map(json.dumps, arguments))
        while script.poll() is None and not (pointer.exists() and json.loads(pointer.read_text())["step"] >= step):
            time.sleep(0.005)
        time.sleep(delay)
        assert script.kill() == -signal.SIGKILL, script.errors.read_text()
        assert not (out / "model").exists()
    script = Script(RUNNER, *map(json.dumps, arguments))
    assert script.wait() == 0, script.errors.read_text()
