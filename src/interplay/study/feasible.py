"""Whether stages can run as asked: devices, engines, episodes, and inputs from outside the graph."""

from collections.abc import Iterable, Mapping

from interplay.core.artifact import split_ref
from interplay.core.execution import Run
from interplay.core.metrics import without_vllm
from interplay.core.model import Model, UserError
from interplay.data.spec import DatasetSpec, ProblemsSpec
from interplay.evaluate.spec import EvaluateSpec
from interplay.kinds.table import KINDS
from interplay.model.spec import Shape, SourceSpec
from interplay.rl.spec import RLSpec
from interplay.rollout.spec import EnvironmentEpisode, SelfPlayEpisode, vllm_misfit
from interplay.study.plan import Stage
from interplay.tasks.family import Environment, Game, families_with, judge_family
from interplay.train.spec import PretrainSpec, UnlearnSpec

# Whether several processes can share a stage, as its `run` block asks: refused when the study is planned where they cannot.


def check_devices(kind: str, spec: Model, run: Run, where: str) -> None:
    """Raises UserError where the stage's kind, or a member of its method, works in one process or on whole weights alone."""
    if run.processes > 1 and not KINDS[kind].processes:
        able = ", ".join(one for one, row in KINDS.items() if row.processes)
        raise UserError(
            f"{where}: run.processes = {run.processes}: a stage of kind {kind} works in one process; write 1 ({able} share)"
        )
    if run.processes > 1 and getattr(spec, "engine", "") == "vllm" and not run.engine_server:
        remedy = "write run.engine_server: true, which gives each a server, or processes: 1"
        raise UserError(f"{where}: run.processes = {run.processes}: vllm within a process knows no others; {remedy}")
    if run.sharding == "none":
        return
    if not KINDS[kind].sharding:
        raise UserError(f"{where}: run.sharding = {run.sharding}: a stage of kind {kind} keeps its model whole; write none")
    if isinstance(spec, RLSpec):
        if spec.engine != "native":
            raise UserError(f"{where}: run.sharding = {run.sharding}: the engine {spec.engine} reads whole weights; write none")
        if spec.method.decoding is not None and spec.method.decoding.name == "lagged_nucleus":
            raise UserError(
                f"{where}: run.sharding = {run.sharding}: lagged_nucleus keeps a whole copy of the policy; write none"
            )


# Whether the engine of a stage can sample from its model.


ROLES = ("model", "init")


def check_engines(stage: "Stage", stages: Mapping[str, "Stage"], where: str) -> None:
    """Raises UserError where an engine is to sample from a pair of models that is not `native`, or `vllm` from a shape that
    it does not compute. A model that was made elsewhere is looked at when the stage begins."""
    engine = getattr(stage.spec, "engine", "native")
    digest = next((split_ref(stage.deps[role])[0] for role in ROLES if role in stage.deps), "")
    model = stages.get(digest)
    if engine == "native" or model is None:
        return
    if isinstance(model.spec, UnlearnSpec) and model.spec.objective == "uld":
        raise UserError(
            f"{where}.engine = {engine}: the model is one and an assistant (objective uld), side by side; write native"
        )
    shape = _shape(model, stages) if engine == "vllm" else None
    if shape is not None and (why := vllm_misfit(shape, not stage.run.gpus)):
        raise UserError(f"{where}.engine = vllm: {why}; write native")


def _shape(model: "Stage", stages: Mapping[str, "Stage"]) -> Shape | None:
    """That which a model's first stage was given; None where it was made elsewhere."""
    while not isinstance(model.spec, PretrainSpec):
        before = stages.get(split_ref(model.deps.get("init", ""))[0])
        if before is None:
            return None
        model = before
    return model.spec.model


# Whether the problems of a stage can be played as its episode plays them.


def check_episodes(spec: Model, deps: Mapping[str, str], stages: Mapping[str, "Stage"], where: str) -> None:
    """Raises UserError where an episode needs environments, or games, and a generated set of the stage is of another. Sets
    that steps made or that were read from files are looked at when the stage begins."""
    if isinstance(spec, RLSpec):
        episode, key = spec.method.episode, "method.episode"
    elif isinstance(spec, EvaluateSpec) and spec.episode:
        episode, key = spec.episode, "episode"
    else:
        return
    able = Game if isinstance(episode, SelfPlayEpisode) else Environment if isinstance(episode, EnvironmentEpisode) else None
    for role, digest in deps.items():
        data = stages[digest].spec if role.split(".")[0] == "data" and digest in stages else None
        if able is None or not isinstance(data, ProblemsSpec) or data.transform:
            continue
        if not isinstance(judge_family(data.task.name), able):
            needs = "a game" if able is Game else "an environment"
            raise UserError(
                f"{where}.{key} = {episode.name}: needs problems of {needs}, and {role} has those of {data.task.name}; "
                f"known: {', '.join(families_with(able))}"
            )


# What stages take from outside the graph: files of data sets, models that were made elsewhere, an engine of one's own choice.


def check_external(stages: Iterable[Stage]) -> None:
    """Raises UserError with one line for all of these stages, which are to be made, whose file is not in its place or differs,
    whose model has no place, or whose engine is not installed: who has to fetch three files learns of three. A model's folder was
    read by the plan already."""
    missing = dict.fromkeys(error for stage in stages if (error := _missing(stage)))
    if missing:
        raise UserError("; ".join(missing))


def _missing(stage: Stage) -> str | None:
    try:
        if isinstance(stage.spec, DatasetSpec):
            from interplay.data.dataset import find_file  # NumPy and pyarrow, for studies that read files alone

            find_file(stage.spec, stage.run)
        elif isinstance(stage.spec, SourceSpec) and stage.spec.sha256 and not stage.run.path:
            from interplay.model.folder import find_source  # torch, for this check only

            find_source(stage.spec, stage.run)
        elif getattr(stage.spec, "engine", None) == "vllm":
            return without_vllm()
    except UserError as error:
        return str(error)
    return None
