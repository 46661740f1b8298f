"""Tasks of lm-eval (EleutherAI's Language Model Evaluation Harness): their files, their items as rows of a problem set, and a
model's answers to them by lm-eval itself.

A task is one of lm-eval's own by its name, or a YAML file of the project in lm-eval's format. What the YAML reads from the
project (`include`, modules of `!function`, `data_files`) is part of the task, and travels with the set."""

import hashlib
import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import yaml

from interplay.core import artifact
from interplay.core.digest import canonical_json
from interplay.core.model import UserError, nearest_name
from interplay.data.spec import LM_EVAL_VERSION, DatasetSpec, LmEval
from interplay.report.metric_spec import OWN
from interplay.tasks import qa, verdict

FOLDER = "task"
"""In the artifact of a set: the task's files, by their paths from the project's root."""
ENDINGS = (".yaml", ".yml")
ASSUMED_LENGTH = 1024
"""Tokens of a sequence, by which a pass is divided."""
REMEDY = f"pip install lm-eval=={LM_EVAL_VERSION}"


# Files.


class _Loader(yaml.SafeLoader):
    """Reads a task without loading what `!function` names."""


_Loader.add_constructor("!function", lambda loader, node: _Function(loader.construct_scalar(node)))


class _Function(str):
    """`module.function`, the module lying next to the YAML file or being installed."""


def is_file(task: str) -> bool:
    """Whether a task is a YAML file of the project, not one of lm-eval's by its name."""
    return task.endswith(ENDINGS)


def task_files(task: str) -> list[str]:
    """Paths from the project's root of the files that a task reads, itself first; none of a task of lm-eval's own. Raises
    UserError where one is not there or lies elsewhere."""
    found: dict[str, None] = {}

    def visit(file: str) -> None:
        if file in found:
            return
        config, folder = _read(file), os.path.dirname(file)
        found[file] = None
        for other in _listed(config.get("include")):
            visit(_inside(os.path.join(folder, other), file))
        for function in _functions(config):
            module = os.path.join(folder, f"{function.rpartition('.')[0].replace('.', '/')}.py")
            if Path(module).is_file():
                found[_inside(module, file)] = None
        for local in (config.get("dataset_path"), _kwargs(config).get("data_dir")):
            if local and not _data_files(config) and Path(str(local)).exists():
                raise UserError(f"{file}: {local} lies in the project, and nothing says what is read of it; write data_files")
        for data in _data_files(config):
            if not Path(_inside(data, file)).is_file():
                raise UserError(f"{file}: data_files: no such file: {data}; paths are from the project's root")
            found[data] = None

    if is_file(task):
        visit(task)
    return list(found)


def _read(file: str) -> dict[str, Any]:
    try:
        config = _Loader(Path(file).read_text(encoding="utf-8")).get_single_data()
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"{file}: not readable as a task of lm-eval ({' '.join(str(error).split())[:160]})") from None
    if not isinstance(config, dict):
        raise UserError(f"{file}: not readable as a task of lm-eval (it is no mapping)")
    return config


def _inside(path: str, file: str) -> str:
    found = os.path.normpath(path)
    if os.path.isabs(found) or found.startswith("..") or "://" in path:
        raise UserError(f"{file}: {path} must lie below the project's root, so that its content is known; put it there")
    return found


def _listed(value: Any) -> list[str]:
    """Texts of a text, a list of them, or a mapping to such."""
    if isinstance(value, Mapping):
        return [text for item in value.values() for text in _listed(item)]
    return [value] if isinstance(value, str) else [str(item) for item in value or ()]


def _functions(value: Any) -> Iterator[str]:
    if isinstance(value, _Function):
        yield str(value)
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _functions(item)


def _kwargs(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return config.get("dataset_kwargs") or {}


def _data_files(config: Mapping[str, Any]) -> list[str]:
    return _listed(_kwargs(config).get("data_files"))


def task_checksum(task: str) -> str:
    """Identity of a task: the content of its files, or its name and the version of lm-eval, which fixes what lies there but not
    the data that it downloads. Raises UserError where there is no such task, as far as lm-eval is installed."""
    files = {file: artifact.checksum(Path(file)) for file in task_files(task)}
    if files:
        _check_whole(task)
    else:
        _check_known(task)
    return hashlib.sha256(canonical_json(files or [f"lm-eval=={LM_EVAL_VERSION}", task]).encode()).hexdigest()


def _check_whole(task: str) -> None:
    merged: dict[str, Any] = {}
    for file in reversed([file for file in task_files(task) if is_file(file)]):
        merged |= _read(file)
    needed = [("task",), ("dataset_path", "custom_dataset", "class"), ("doc_to_text", "class")]
    if lacking := [keys[0] for keys in needed if not any(map(merged.get, keys))]:
        raise UserError(f"{task}: {lacking[0]}: missing; a task of lm-eval has it")
    if not isinstance(merged["task"], str):
        raise UserError(f"{task}: task: must be a name; a file of one task each")
    if merged.get("output_type") == ROLLING:
        raise UserError(f"{task}: output_type: {ROLLING} gives perplexities of documents and no score of an item; take another")


def _check_known(task: str) -> None:
    found = importlib.util.find_spec("lm_eval")
    if found is None or not found.submodule_search_locations:
        return
    files = [*(Path(found.submodule_search_locations[0]) / "tasks").rglob("*.yaml")]
    if any(file.stem == task for file in files):
        return
    known = {name for file in files for name in NAMED.findall(file.read_text(encoding="utf-8"))}
    if task not in known:
        raise UserError(f"no task '{task}' in lm-eval{nearest_name(task, sorted(known))}; or name a YAML file of the project")


ROLLING = "loglikelihood_rolling"
NAMED = re.compile(r"^(?:task|group): *[\"']?([\w-]+)[\"']?\s*$", re.MULTILINE)


# Items.


def load_tasks(task: str, root: Path) -> dict[str, Any]:
    """Name -> task object of lm-eval: one of a file, and of a group all. `root`: what paths in a file are relative to. Raises
    UserError."""
    try:
        version = importlib.metadata.version("lm-eval")
        from lm_eval.tasks import TaskManager
        from lm_eval.tasks._yaml_loader import load_yaml
    except ImportError as error:
        raise UserError(f"lm-eval is not installed ({error}); {REMEDY}") from None
    if version != LM_EVAL_VERSION:
        raise UserError(f"lm-eval {version} is installed, and the plan says {LM_EVAL_VERSION}; {REMEDY}")
    config: Any = task
    if is_file(task):
        config = load_yaml(root / task)
        config["dataset_kwargs"] = _rooted(dict(config.get("dataset_kwargs") or {}), root)
    try:
        return dict(TaskManager(include_defaults=not is_file(task)).load([config])["tasks"])
    except (KeyError, ValueError, TypeError, OSError, ImportError, AttributeError) as error:
        raise UserError(f"{task}: not loaded by lm-eval ({type(error).__name__}: {' '.join(str(error).split())[:300]})") from None


def _rooted(kwargs: dict[str, Any], root: Path) -> dict[str, Any]:
    def rooted(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: rooted(item) for key, item in value.items()}
        return [rooted(item) for item in value] if isinstance(value, list) else str((root / value).resolve())

    return {**kwargs, "data_files": rooted(kwargs["data_files"])} if "data_files" in kwargs else kwargs


def read_task(spec: DatasetSpec, task: str, out: Path) -> list[verdict.Row]:
    """The items of a task as rows, in its order: mode is the name of the task, and the id of the problem `task:number`. The
    task's files go to the artifact. Raises UserError where the files are not those of the plan."""
    if (found := task_checksum(task)) != spec.sha256:
        raise UserError(f"{task}: its files have sha256 {found}, those of the plan {spec.sha256}; put them there, or plan again")
    for file in task_files(task):
        (out / FOLDER / file).parent.mkdir(parents=True, exist_ok=True)
        artifact.copy_atomic(Path(file), out / FOLDER / file)
    artifact.write_json(out / FOLDER / "task.json", {"task": task, "lm_eval": LM_EVAL_VERSION})
    made = []
    for name, one in load_tasks(task, out / FOLDER).items():
        for number, doc in enumerate(one.eval_docs):
            prompt, answer = _asked(one, doc)
            problem = qa.Problem(prompt, (answer or "-",), (), f"{name}:{number}")
            key = hashlib.sha256(canonical_json([name, prompt, answer]).encode()).hexdigest()[:16]
            made.append(verdict.Row(0, 0, spec.band, 1, name, prompt, "", answer, qa.dumps(problem), key, "qa", ""))
    return made


def _asked(task: Any, doc: Mapping[str, Any]) -> tuple[str, str]:
    """What an item asks, without examples before it, and its answer."""
    target, choices = task.doc_to_target(doc), []
    if task.OUTPUT_TYPE == "multiple_choice":
        choices = task.doc_to_choice(doc)
    target = target[0] if isinstance(target, list) and target else target
    return str(task.doc_to_text(doc)), str(choices[target]) if choices and isinstance(target, int) else str(target)


# Answers.


class Answered(NamedTuple):
    """What lm-eval says of a model's answer to an item."""

    scores: dict[str, float]
    """By the names of its tables: `acc_norm`, and of a task with several filters `exact_match,strict-match`."""
    text: str
    """What was generated, or the choice of the largest likelihood."""
    length: int
    """Tokens that were generated."""


class Asking(NamedTuple):
    """How a model is asked."""

    model: Path
    dtype: str
    device: str
    batch: int
    """Sequences of a pass."""
    max_completion_length: int
    """Tokens of an answer, where the task does not say."""


def answer_items(spec: LmEval, data: Path, rows: Sequence[verdict.Row], how: Asking) -> list[Answered]:
    """The answers of a model to rows of the set `data`, in their order: `simple_evaluate` with lm-eval's model `hf` and its
    seeds. Raises UserError where an item is no longer what the row says, or lm-eval refuses."""
    tasks = load_tasks(artifact.read_json(data / FOLDER / "task.json")["task"], data / FOLDER)
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    class Model(HFLM):
        max_gen_toks = how.max_completion_length

    wanted: dict[str, list[int]] = {}
    ids = [qa.loads(row.graph).id.rpartition(":") for row in rows]
    for row, (name, _, number) in zip(rows, ids, strict=True):
        docs = tasks[name].eval_docs
        if int(number) >= len(docs) or _asked(tasks[name], docs[int(number)]) != (row.prompt, row.answer):
            raise UserError(f"{name}: item {number} is not what it was when the set was made; make the set again")
        wanted.setdefault(name, []).append(int(number))
    wanted = {name: sorted(numbers) for name, numbers in wanted.items()}  # lm-eval numbers its samples in the task's order
    chosen = [task for name, task in tasks.items() if name in wanted]
    model = Model(pretrained=str(how.model), dtype=how.dtype, device=how.device, batch_size=how.batch)
    try:
        known = TaskManager(include_defaults=False)  # what is chosen is loaded: its own tasks need not be read again
        shots = spec.num_fewshot
        found = simple_evaluate(model, tasks=chosen, num_fewshot=shots, samples=wanted, bootstrap_iters=0, task_manager=known)
    except (ValueError, AssertionError, RuntimeError) as error:
        raise UserError(f"lm-eval: {' '.join(str(error).split())[:300]}") from error
    answers = {name: _by_item(found["samples"][name], model) for name in wanted}
    return [answers[name][int(number)] for name, _, number in ids]


def _by_item(samples: Sequence[Mapping[str, Any]], model: Any) -> dict[int, Answered]:
    """Number of an item -> its answer, from the samples that lm-eval logs, one for each filter."""
    several = len({sample["filter"] for sample in samples}) > 1
    found: dict[int, Answered] = {}
    for sample in samples:
        scores = {
            f"{metric},{sample['filter']}" if several else metric: float(value)
            for metric in sample["metrics"]
            if isinstance(value := sample[metric], int | float)
        }
        text, length = _chosen_reply(sample, model)
        first = found.setdefault(int(sample["doc_id"]), Answered({}, text, length))
        first.scores.update(scores)
    return found


def _chosen_reply(sample: Mapping[str, Any], model: Any) -> tuple[str, int]:
    replies = [reply[0] for reply in sample["resps"]]
    if isinstance(replies[0], str):
        return replies[0], len(model.tok_encode(replies[0], add_special_tokens=False))
    likely = [reply[0] if isinstance(reply, tuple | list) else reply for reply in replies]
    best = max(range(len(likely)), key=likely.__getitem__)
    return str(sample["arguments"][best][-1]), 0


def answer_table(spec: LmEval, data: Path, rows: Sequence[verdict.Row], asked: Asking, schema: pa.Schema) -> pa.Table:
    """The answers as rows of `samples.parquet`, with `own:NAME` for each metric that the spec names. Raises UserError where the
    task has no such metric."""
    found, named = answer_items(spec, data, rows, asked), spec.names
    known = list(found[0].scores)
    if not known:
        raise UserError("evaluate: harness: lm-eval gives no number of an item of this task, such as acc; take another task")
    for name in named or known[:1]:
        if name not in known:
            raise UserError(f"evaluate: harness.metrics: the task has no '{name}'{nearest_name(name, known)}")
    score = [one.scores[next(iter(named or known))] for one in found]
    right = [value == 1 for value in score]
    columns: dict[str, Any] = {name: [getattr(row, name) for row in rows] for name in ("index", "band", "op", "mode")}
    columns |= {"sample": [0] * len(rows), "strict": right, "answer": right, "score": score}
    columns |= {"error": ["none" if one else "answer" for one in right], "length": [one.length for one in found]}
    columns |= {"truncated": [False] * len(rows), "completion": [one.text for one in found]}
    table = pa.table({name: columns[name] for name in schema.names}, schema=schema)
    for name, own in named.items():
        table = table.append_column(f"{OWN}{own}", pa.array([one.scores[name] for one in found], pa.float64()))
    return table
