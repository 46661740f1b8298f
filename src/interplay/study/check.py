"""Checks of stages, once they are planned and before the first job: each can run as its spec and run block say."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from interplay.core import artifact
from interplay.core.digest import corpus_inputs
from interplay.core.model import KeyPlace, Model, largest, nearest_name
from interplay.data.spec import CorpusSpec, ProblemsSpec, TokenizerSpec
from interplay.evaluate.spec import ENTROPY, EvaluateSpec, SelectSpec
from interplay.kinds.table import KINDS
from interplay.model.spec import ComputeSpec, SourceSpec, is_foreign
from interplay.model.trainer_spec import TrainedSpec
from interplay.report.metric_spec import is_pass_rate
from interplay.rl.sampler_spec import reads_offline
from interplay.rl.spec import RLSpec
from interplay.rl.teach_spec import TeachSpec
from interplay.rl.turn_credit_spec import TurnsAdvantage
from interplay.rollout import seat_spec
from interplay.rollout.spec import EnvironmentEpisode, SeatsEpisode, SelfPlayEpisode, vllm_misfit
from interplay.study import plan, sets
from interplay.study.context import first_stage, source_config, tokenizer_of
from interplay.tasks.families import families_with, families_with_language, task_family
from interplay.tasks.family import Environment, Game
from interplay.tasks.op_dag.spec import OpDag
from interplay.tasks.verdict import BOX
from interplay.train.spec import PretrainSpec, TrainSpec, TuneSpec

Stages = Mapping[str, plan.Stage]


def check_stage(stage: plan.Stage, stages: Stages, place: KeyPlace) -> None:
    """Raises UserError where a planned stage cannot run: its kind, its inputs or its engine do not allow what its spec and run
    block say. `place` is its key in the study file."""
    _check_devices(stage, place)
    _check_before(stage, stages, place)
    check_engine(stage, stages, place)
    check_companions(stage, stages, place)
    check_judges(stage, stages, place)
    _check_episode(stage, stages, place)
    if isinstance(stage.spec, TrainSpec):
        _check_rows(stage.spec, [stages[corpus].spec for corpus in corpus_inputs(stage.deps)], stage.run.processes, place)
    if isinstance(stage.spec, RLSpec) and "offline.0.0" in stage.deps and not reads_offline(stage.spec.method.sampler):
        name = stage.spec.method.sampler.name
        raise place.key("offline").error(f"the sampler {name} learns nothing from samples; take it away")
    if isinstance(stage.spec, RLSpec) and stage.spec.judge_credit:
        _check_credit(stage, stages, place.key("judge_credit"))
    if isinstance(stage.spec, TeachSpec):
        _check_teacher(stage, stage.spec, stages, place)
    if isinstance(stage.spec, SelectSpec):
        _check_selection(stage, stage.spec, stages, place)


def _check_credit(stage: plan.Stage, stages: Stages, key: KeyPlace) -> None:
    """Some problems of the stage may have steps that a program judges: files have none, and what the rows of a transform are is
    known once they are made."""
    drawn = [digest for role, digest in stage.deps.items() if role.split(".")[0] == "data"]
    specs = [stages[digest].spec for digest in sets.with_sources(stages, drawn)]
    made = [spec for spec in specs if isinstance(spec, ProblemsSpec)]
    if any(spec.transform or (isinstance(spec.task, OpDag) and spec.task.modes.get("forward")) for spec in made):
        return
    found = ", ".join(sorted({getattr(spec.task, "function", spec.task.name) for spec in made})) or "files"
    has = "op_dag asked in reverse alone" if found == "op_dag" else found
    raise key.error(f"compares the steps of forward problems of op_dag, and there are those of {has}; take it away", True)


def _check_rows(spec: TrainSpec, corpora: Iterable[Model], processes: int, place: KeyPlace) -> None:
    """A step of training takes a whole number of rows of its corpus, which another trainer shares evenly among processes."""
    for corpus in corpora:
        if isinstance(corpus, CorpusSpec) and spec.batch_tokens % corpus.sequence_length:
            must = f"must be a multiple of the corpus' sequence_length, {corpus.sequence_length}"
            raise place.key("batch_tokens").error(must, spec.batch_tokens)
        shared = spec.batch_tokens // corpus.sequence_length if isinstance(corpus, CorpusSpec) else 0
        if isinstance(spec, TrainedSpec) and spec.foreign() and shared % processes:
            must = f"trainer trl shares {shared} rows of a step evenly; write 1, or change batch_tokens"
            raise place.key("run", "processes").error(must, processes)


def _check_devices(stage: plan.Stage, place: KeyPlace) -> None:
    """The kind, and the members of its method, can run in several processes."""
    row, run, spec = KINDS[stage.kind], stage.run, stage.spec
    several = place.key("run", "processes")
    if run.stack > 1:
        _check_stack(stage, place.key("run", "stack"))
    if run.processes > 1 and not row.processes:
        able = ", ".join(kind for kind, one in KINDS.items() if one.processes)
        raise several.error(f"a stage of kind {stage.kind} runs in one process; write 1 ({able} run in several)", run.processes)
    if run.processes > 1 and getattr(spec, "engine", "") == "vllm" and not run.engine_server:
        remedy = "write run.engine_server: true, which gives each a server, or processes: 1"
        raise several.error(f"vllm within a process does not share work with others; {remedy}", run.processes)
    if run.nodes > 1 and getattr(spec, "trainer", "native") != "verl":
        raise place.key("run", "nodes").error("several are for trainer verl; write 1", run.nodes)
    if isinstance(spec, TrainedSpec) and (misfit := spec.run_misfit(run)):
        key, must = misfit
        raise place.key("run", key).error(must, getattr(run, key))


def _check_stack(stage: plan.Stage, place: KeyPlace) -> None:
    """The kind and the arithmetic of the stage can be stacked."""
    stack = stage.run.stack
    if not KINDS[stage.kind].stacked:
        able = ", ".join(kind for kind, one in KINDS.items() if one.stacked)
        raise place.error(f"stages of kind {stage.kind} are not stacked; write 1 ({able} can be stacked)", stack)
    if isinstance(stage.spec, ComputeSpec) and (misfit := stage.spec.stack_misfit()):
        raise place.error(misfit, stack)
    if stage.run.compile:
        raise place.error("a stack is not compiled; write compile: false, or stack: 1", stack)
    if stage.run.gradient_checkpointing:
        raise place.error("a stack keeps all activations; write gradient_checkpointing: false, or stack: 1", stack)


def _leaves_pair(stage: plan.Stage | None) -> bool:
    return stage is not None and isinstance(stage.spec, TuneSpec) and stage.spec.leaves_pair()


def _check_before(stage: plan.Stage, stages: Stages, place: KeyPlace) -> None:
    """Training starts from a single model, and an assistant from one of our own layers."""
    before = stages.get(artifact.ref_digest(stage.deps.get("init", "")))
    first = before and first_stage(before, stages)
    if _leaves_pair(stage) and first and is_foreign(source_config(first)):
        why = "transformers computes the model, and an assistant is made of our own layers; write npo"
        raise place.key("objective").error(why, "uld")
    if _leaves_pair(before):
        pair = "a model and an assistant (objective uld), which can be evaluated and not trained on"
        raise place.error(f"the stage before it leaves {pair}; end the path there")


def check_engine(stage: plan.Stage, stages: Stages, place: KeyPlace) -> None:
    """Raises UserError where another engine than `native` is to sample from a pair of models, another than `hf` from a source
    that transformers computes, or `vllm` from a shape that it does not compute; and where `trainer: trl` is to train such a
    source. The same of the arms that judge. A model that was made elsewhere is checked when the stage begins."""
    judges = stage.spec.judges() if isinstance(stage.spec, RLSpec | EvaluateSpec) else []
    for role in ("model", "init", *(one.arm for one in judges if one.arm)):
        if role in stage.deps:
            _check_sampled(stage, role, stages, place)


def _check_sampled(stage: plan.Stage, role: str, stages: Stages, place: KeyPlace) -> None:
    engine = getattr(stage.spec, "engine", "native")
    model = stages.get(artifact.ref_digest(stage.deps[role]))
    first = None if model is None else first_stage(model, stages)
    if first and is_foreign(source_config(first)):
        if getattr(stage.spec, "trainer", "native") == "trl" and role == "init":
            raise place.key("trainer").error("does not train a model that transformers computes; write native", "trl")
        if hasattr(stage.spec, "engine") and engine in ("native", "vllm") and getattr(stage.spec, "trainer", "native") != "verl":
            raise place.key("engine").error("transformers computes this model, and samples from it; write hf", engine)
    if engine == "native" or model is None:
        return
    if _leaves_pair(model):
        raise place.key("engine").error("the model is a pair with an assistant (objective uld); write native", engine)
    longest, most = getattr(stage.spec, "max_completion_length", 0), _context_of(stage.deps[role], stages)
    if engine == "vllm" and 0 < most <= longest:
        at = place.key("max_completion_length")
        raise at.error(f"leaves no place for a prompt in the model's max_position_embeddings, {most}; lower it", longest)
    shape = first.spec.model if first and isinstance(first.spec, PretrainSpec) and engine == "vllm" else None
    if shape is not None and (why := vllm_misfit(shape, not stage.run.gpus)):
        raise place.key("engine").error(f"{why}; write native", engine)


def check_companions(stage: plan.Stage, stages: Stages, place: KeyPlace) -> None:
    """Models that a stage reads next to the policy have its tokenizer, but for those that judge, which read text; of a model and
    an assistant RL and log-probabilities know nothing. Of models that were made elsewhere nothing is known. Raises UserError."""
    if not isinstance(stage.spec, RLSpec | EvaluateSpec):
        return
    keys = COMPANIONS_RL if isinstance(stage.spec, RLSpec) else COMPANIONS_EVALUATION
    judges = {one.arm for one in stage.spec.judges()}
    own = _own_tokenizer(stage, stages)
    for role, ref in stage.deps.items():
        if (at := keys.get(role.split(".")[0])) is None:
            continue
        paired = _leaves_pair(stages.get(artifact.ref_digest(ref)))
        if paired and (isinstance(stage.spec, RLSpec) or role == "reference"):
            pair = "a model and an assistant (objective uld), which can be evaluated and does not serve here"
            raise place.key(*at).error(f"an arm leaves {pair}; name one that ends with a single model")
        other = tokenizer_of(ref, stages)
        if role not in judges and own and other and other != own:
            raise place.key(*at).error("a model has another tokenizer than the policy; name an arm with the same one")


COMPANIONS_RL = {"reward": ("reward",), "reference": ("references",), "seat": ("method", "episode", "seats")}
COMPANIONS_EVALUATION = {
    "reward": ("by_reward", "model"),
    "reference": ("by_reward", "reference"),
    "compared": ("probe", "against"),
    "seat": ("episode", "seats"),
}
"""Where a stage names models next to the policy, by the first part of their roles."""


class _Question(NamedTuple):
    """What a judging model is asked."""

    place: KeyPlace
    role: str
    text: str
    named: str
    """Key of the text."""
    tokens: int
    """Of an answer at most."""
    limit: str
    """Key of that."""


def check_judges(stage: plan.Stage, stages: Stages, place: KeyPlace) -> None:
    """A question with a whole episode, and its answer, fit the context that a judging model declares: the text of the rubric,
    or of a judge's brief in an episode of seats, the longest prompt that the stage declares where the text has it, and all turns.
    Of another tokenizer than the policy's only text and answer are counted. Raises UserError."""
    if not isinstance(stage.spec, RLSpec | EvaluateSpec):
        return
    own = _own_tokenizer(stage, stages)
    for one in _questions(stage.spec, place):
        ref = stage.deps.get(one.role, "")
        if not (most := _context_of(ref, stages)):
            continue
        counted = _judge_reads(stage.spec, one, bool(own) and own == tokenizer_of(ref, stages), _spells(ref, stages))
        if sum(counted.values()) > most:
            read = " + ".join(f"{what} = {tokens}" for what, tokens in counted.items() if tokens and what != one.limit)
            asked = f"an answer of {one.limit} = {one.tokens}{read and f' to {read}'} is longer than"
            longest = max(counted, key=lambda what: counted[what])
            remedy = f"shorten {longest}" if longest == one.named else f"lower {longest}"
            raise one.place.error(f"{asked} the judging model's max_position_embeddings, {most}; {remedy}")


def _questions(spec: RLSpec | EvaluateSpec, place: KeyPlace) -> Iterator[_Question]:
    keys = COMPANIONS_RL if isinstance(spec, RLSpec) else COMPANIONS_EVALUATION
    key = place.key("judged" if isinstance(spec, EvaluateSpec) else "reward")
    for one in spec.judges():
        yield _Question(key, one.arm, one.rubric, "rubric", one.max_tokens, "max_tokens")
    for name, seat in getattr(_episode_of(spec), "seats", {}).items():
        if isinstance(seat, seat_spec.JudgeSeat):
            at = place.key(*keys["seat"], name)
            yield _Question(at, seat.model, seat.brief, "brief", spec.max_completion_length, "max_completion_length")


def _episode_of(spec: RLSpec | EvaluateSpec) -> Any:
    return spec.method.episode if isinstance(spec, RLSpec) else spec.episode


def _judge_reads(spec: RLSpec | EvaluateSpec, asked: _Question, same: bool, spells: bool) -> dict[str, int]:
    """What a question to a judge and its answer take of the judge's context at most, in tokens. `same`: it has the tokenizer of
    the policy; `spells`: that has a token per character; else each word of the text counts as one."""
    text = re.sub(r"\{\w+\}", " ", asked.text)
    turns = int(largest(getattr(_episode_of(spec), "max_turns", 1)))
    prompt = getattr(spec, "max_prompt_length", None) if "{prompt}" in asked.text else None
    written = asked.named == "rubric" or "{episode}" in asked.text
    all_turns = "max_turns x max_completion_length" if turns > 1 else "max_completion_length"
    return {
        asked.named: len(text) if spells else len(text.split()),
        "max_prompt_length": (prompt or 0) * same,
        all_turns: spec.max_completion_length * turns * same * written,
        asked.limit: asked.tokens,
    }


def _spells(model: str, stages: Stages) -> bool:
    """Whether the tokenizer of a model has a token per character, as far as the plan knows."""
    found = stages.get(tokenizer_of(model, stages))
    return found is not None and isinstance(found.spec, TokenizerSpec) and found.spec.algorithm == "characters"


def _context_of(model: str, stages: Stages) -> int:
    """Longest sequence that a model declares; 0 where that is not known, or extended by its configuration."""
    found = stages.get(artifact.ref_digest(model))
    first = found and first_stage(found, stages)
    if first and isinstance(first.spec, PretrainSpec):
        return first.spec.model.max_position_embeddings
    config = source_config(first) if first else {}
    return 0 if config.get("rope_scaling") else int(config.get("max_position_embeddings") or 0)


def _check_episode(stage: plan.Stage, stages: Stages, place: KeyPlace) -> None:
    """Episodes that need environments, or games, get problems of such. Sets that steps made or that were read from files
    are checked when the stage begins."""
    if isinstance(stage.spec, RLSpec):
        episode, key = stage.spec.method.episode, place.key("method", "episode")
    elif isinstance(stage.spec, EvaluateSpec) and stage.spec.episode:
        episode, key = stage.spec.episode, place.key("episode")
    else:
        return
    if isinstance(episode, SeatsEpisode):
        return _check_seats(episode, stage, stages, key)
    able = Game if isinstance(episode, SelfPlayEpisode) else Environment if isinstance(episode, EnvironmentEpisode) else None
    if able is None:
        return
    for role, data in _generated_sets(stage, stages):
        if not isinstance(task_family(data.task), able):
            needs = "a game" if able is Game else "an environment"
            given = f"{role} has those of {data.task.name}; known: {', '.join(families_with(able))}"
            raise key.error(f"needs problems of {needs}, and {given}", episode.name)
        stated = getattr(task_family(data.task), "state", None) is not None
        if isinstance(episode, EnvironmentEpisode) and episode.context.name == "state" and not stated:
            raise key.key("context").error(f"{data.task.name} has no text of its state; write full, or a window", "state")
        if isinstance(stage.spec, RLSpec) and isinstance(stage.spec.method.advantage, TurnsAdvantage):
            _check_sources(stage.spec.method.advantage, data, role, place.key("method", "advantage", "sources"))


def _check_sources(advantage: TurnsAdvantage, data: ProblemsSpec, role: str, key: KeyPlace) -> None:
    """Sources of turn credit find what they pay by, which the expert's episode of one problem shows. Raises UserError."""
    family = task_family(data.task)
    asked = {source.name for source in advantage.sources} & {"environment", "gold_calls"}
    if not (asked and isinstance(family, Environment)):
        return
    ops = [op for found in (*data.bands.values(), *data.calibrated.values()) for op in found]
    problem = family.generate(data.task, data.seed, 0, min(ops))
    turns = family.expert(problem)
    if "gold_calls" in asked and all(BOX in turn for turn in turns):
        raise key.error(f"needs gold calls, and {family.name}, which {role} is of, has no expert that makes any", "gold_calls")
    world = family.begin(problem)
    if "environment" in asked and turns and all(world.step(turn).reward is None for turn in turns):
        raise key.error(
            f"needs an environment that pays turns, and {family.name}, which {role} is of, pays none; write reward", "environment"
        )
    world.close()


def _check_seats(episode: SeatsEpisode, stage: plan.Stage, stages: Stages, key: KeyPlace) -> None:
    """The rules of generated problems have the seats that are played."""
    for _, data in _generated_sets(stage, stages):
        if why := seat_spec.misfit(task_family(data.task), episode.seats, episode.order):
            raise key.key("seats").error(why)


def _generated_sets(stage: plan.Stage, stages: Stages) -> Iterator[tuple[str, ProblemsSpec]]:
    """(role, spec) of the problem sets of a stage that are generated and that nothing transforms."""
    for role, digest in stage.deps.items():
        data = stages[digest].spec if role.split(".")[0] == "data" and digest in stages else None
        if isinstance(data, ProblemsSpec) and not data.transform:
            yield role, data


def _own_tokenizer(stage: plan.Stage, stages: Stages) -> str:
    """The tokenizer of the model that a stage trains, or samples from."""
    return tokenizer_of(stage.deps.get("model", stage.deps.get("init", "")), stages)


def _check_teacher(stage: plan.Stage, spec: TeachSpec, stages: Stages, place: KeyPlace) -> None:
    """Proposals can be parsed, and the model before has learnt to write prompts. Of a source nothing is known."""
    if spec.task.name not in (known := families_with_language()):
        able = ", ".join(known)
        raise place.error(f"proposals are read as problems of task {spec.task.name}, which has no parser; known: {able}")
    drawn = spec.proposer == "instances"
    if drawn != ("instances" in stage.deps):
        remedy = "missing; name a problem set" if drawn else "the teacher proposes; write proposer: instances"
        raise place.key("instances").error(remedy)
    if drawn:
        return
    first, learnt = stage, False
    while "init" in first.deps:
        first = stages[artifact.ref_digest(first.deps["init"])]
        learnt |= any(getattr(stages[corpus].spec, "loss_on", "") == "all" for corpus in corpus_inputs(first.deps))
    if not learnt and not isinstance(first.spec, SourceSpec):
        needs = "corpus: {loss_on: all} to a stage before it, or instances"
        raise place.error(f"no corpus taught the model to write problems; give {needs}")
    tokenizer = stages[first.deps["tokenizer"]].spec if "tokenizer" in first.deps else None
    if isinstance(tokenizer, TokenizerSpec) and tokenizer.algorithm == "bpe":
        algorithm = KeyPlace(place.file, ("tokenizer", "algorithm"))
        raise algorithm.error(f"{place.dotted} ends proposals at a token of one character; write words", "bpe")


def _check_selection(stage: plan.Stage, spec: SelectSpec, stages: Stages, place: KeyPlace) -> None:
    """The stage before keeps checkpoints, and its records or the evaluations have the value to choose by."""
    before = stages.get(stage.deps["init"])
    if before is None or not before.kept_steps():
        raise place.error("the stage before it keeps no checkpoints; give it checkpoints: [steps]")
    judged = [stages[dep] for role, dep in stage.deps.items() if role.startswith("evaluation.0.")]
    rate = is_pass_rate(spec.by)
    if (rate and not judged) or (judged and not rate and spec.by != ENTROPY):
        remedy = "name the evaluate stage that gives the pass rate" if rate else "belongs to by: strict_pass@k or by: entropy"
        raise place.key("evaluate").error(remedy)
    if spec.by.startswith("eval_loss/"):
        band, known = spec.by.removeprefix("eval_loss/"), _bands_of(before.deps.get("validation", ""), stages)
        if known is not None and band not in known:
            lacks = f"the stage before it has no validation set with it{nearest_name(band, known)}"
            raise place.key("by").error(lacks, spec.by)
    if not judged:
        return
    specs = [one.spec for one in judged if isinstance(one.spec, EvaluateSpec)]
    samples = sum(one.num_samples for one in specs)
    if spec.by == ENTROPY and not all(one.entropy for one in specs):
        raise place.key("by").error("its evaluation keeps none; give it entropy: true", spec.by)
    if rate and int(spec.by.split("@")[1]) > samples:
        few = f"its evaluation has {samples} samples per prompt; give it more, or lower k"
        raise place.key("by").error(few, spec.by)
    known = _bands_of(judged[0].deps["data"], stages)
    if spec.band is not None and known is not None and spec.band not in known:
        raise place.key("band").error(f"no such band in its evaluation{nearest_name(spec.band, known)}", spec.band)


def _bands_of(problems: str, stages: Stages) -> list[str] | None:
    """The bands of a generated problem set; none without a set, and None of one whose bands are known once it is made."""
    if not problems:
        return []
    spec = stages[problems].spec
    return sorted([*spec.bands, *spec.calibrated]) if isinstance(spec, ProblemsSpec) else None
