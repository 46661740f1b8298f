"""Whether several processes can share a stage, as its `run` block asks: refused when the study is planned where they cannot."""

from interplay.schema.base import Model, UserError
from interplay.schema.kinds import SEVERAL, SLICED
from interplay.schema.rl import RLSpec
from interplay.schema.run import Run


def check(kind: str, spec: Model, run: Run, where: str) -> None:
    """Raises UserError where the stage's kind, or a member of its method, works in one process or on whole weights alone."""
    if run.processes > 1 and kind not in SEVERAL:
        able = ", ".join(SEVERAL)
        raise UserError(
            f"{where}: run.processes = {run.processes}: a stage of kind {kind} works in one process; write 1 ({able} share)"
        )
    if run.processes > 1 and getattr(spec, "engine", "") == "vllm" and not run.engine_server:
        remedy = "write run.engine_server: true, which gives each a server, or processes: 1"
        raise UserError(f"{where}: run.processes = {run.processes}: vllm within a process knows no others; {remedy}")
    if run.sharding == "none":
        return
    if kind not in SLICED:
        raise UserError(f"{where}: run.sharding = {run.sharding}: a stage of kind {kind} keeps its model whole; write none")
    if isinstance(spec, RLSpec):
        if spec.engine != "native":
            raise UserError(f"{where}: run.sharding = {run.sharding}: the engine {spec.engine} reads whole weights; write none")
        if spec.method.decoding is not None and spec.method.decoding.name == "lagged_nucleus":
            raise UserError(
                f"{where}: run.sharding = {run.sharding}: lagged_nucleus keeps a whole copy of the policy; write none"
            )
