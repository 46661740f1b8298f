"""Single stages outside of a launch: what was made elsewhere enters results/, one stage is made again in a scratch folder, and a
study's own rewards are called before it runs; evaluations leave as logs of Inspect."""

import contextlib
import datetime
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from interplay.core import artifact, digest, execution
from interplay.core.keys import parse_model
from interplay.core.metrics import aligned, short
from interplay.core.model import KeyPlace, UserError
from interplay.kinds import stages, table
from interplay.model.spec import SourceSpec
from interplay.rl.reward_spec import OwnReward, terms_of
from interplay.rl.spec import RLSpec
from interplay.run.stage import run_stage
from interplay.study.locate import locate_error
from interplay.study.plan import Plan, Stage

# A Hugging Face folder as a source stage, or a finished artifact of another tree. Everything is checked first, then copied file
# by file, the record last: a copy that is broken off leaves no record. Nothing is moved, nothing that has a record is touched,
# and doing it twice does it once.

COPIED_FILES = ("stage.json", "telemetry.json")
"""Files of an artifact that come along though the record does not list them."""


def adopt_model(origin: Path, results: Path, name: str) -> tuple[str, Path, bool]:
    """Copy a model folder into `results/source/` and record it; `name` is its stage in a study. Returns its checksum, by which a
    study names it, its artifact's folder, and whether it was made now. Raises UserError when it is damaged, incomplete or of a
    shape that no stage can run; then nothing is left."""
    checksum = artifact.model_checksum(origin)
    _check_model(origin)
    stage = Stage.make("source", SourceSpec(sha256=checksum), {}, execution.Run(path=str(origin.resolve())), f"stages.{name}")
    out = artifact.folder(results, "source", stage.digest)
    if artifact.done(out):
        artifact.check(out)
        return checksum, out, False
    artifact.write_json(out / "stage.json", stage.as_json())
    run_stage(out)
    return checksum, out, True


def adopt_gguf(file: Path, results: Path, name: str) -> tuple[str, Path, bool]:
    """`adopt_model` of a GGUF file, whose weights enter as the float32 values that they encode. Raises UserError as
    `adopt_model` does, and where the file is not readable."""
    with tempfile.TemporaryDirectory(prefix="interplay-") as scratch:
        convert_gguf(file, Path(scratch))
        return adopt_model(Path(scratch), results, name)


def convert_gguf(file: Path, folder: Path) -> None:
    """Write the model of a GGUF file, dequantised to float32, and its tokenizer into `folder`. The weights keep the rounding of
    the file. Raises UserError when the package `gguf` is missing or the file is not readable."""
    # Imported here, since both take seconds and are rarely needed.
    import torch

    try:
        import gguf  # noqa: F401  (transformers reads the file with it)
    except ImportError:
        raise UserError(f"{file}: reading GGUF needs the package gguf; pip install 'interplay[gguf]'") from None
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        model = AutoModelForCausalLM.from_pretrained(
            str(file.parent),
            gguf_file=file.name,
            dtype=torch.float32,
            quantization_config=GgufConfig(dequantize=True),
            trust_remote_code=False,
        )
        tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name, trust_remote_code=False)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise UserError(f"{file}: not readable as a GGUF model ({type(error).__name__}: {error})") from None
    model.config.dtype = "float32"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _check_model(folder: Path) -> None:
    """Load model and tokenizer once, from where they are."""
    from interplay.data.tokenizer import load as load_tokenizer, special
    from interplay.model.folder import load_decoder, weight_files

    weight_files(folder)
    try:
        vocabulary = load_decoder(folder).vocab_size
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{folder / 'config.json'}: not the config of a whole model ({type(error).__name__}: {error})") from None
    try:
        size = load_tokenizer(folder).get_vocab_size()
    except UserError:
        raise
    except Exception as error:  # the tokenizers library raises bare Exception
        raise UserError(f"{folder / 'tokenizer.json'}: not readable as a tokenizer ({error})") from None
    if size > vocabulary:
        raise UserError(f"{folder}: tokenizer.json has {size} tokens, but config.json says vocab_size = {vocabulary}")
    special(folder)


def adopt_artifacts(origin: Path, results: Path, inputs: bool) -> list[str]:
    """Copy a finished artifact of another results tree, with `inputs` also all its dependencies, from the data up. Returns the
    digests that were not here before. Raises UserError at the first whose identity or payload is not what its record says."""
    origin = origin.resolve()
    tree = origin.parent.parent
    if tree == results.resolve():
        raise UserError(f"{origin}: already in {results}")
    digests = [origin.name]
    if inputs:
        digests = artifact.closure(digests, lambda digest: artifact.record(artifact.find(tree, digest))["deps"].values())
    wanted = [artifact.find(tree, digest) for digest in digests]
    for folder in reversed(wanted):
        _check_artifact(folder)
    return [folder.name for folder in wanted if _copy(folder, results)]


def _check_artifact(folder: Path) -> None:
    record = artifact.record(folder)
    if not {"kind", "digest", "versions", "spec", "deps", "metrics", "files"} <= record.keys():
        raise UserError(f"{folder / 'record.json'}: not the record of a stage")
    if record["kind"] not in table.KINDS:
        raise UserError(f"{folder / 'record.json'}: kind = {record['kind']!r}: no such kind; known: {', '.join(table.KINDS)}")
    found = stages.digest_of_content(record)
    if not found == record["digest"] == folder.name:
        raise UserError(
            f"{folder / 'record.json'}: what it says gives digest {found}, but it is recorded as {record['digest']} in "
            f"{folder.name}; it was altered, or written by sources that hash otherwise"
        )
    artifact.check(folder)


def _copy(folder: Path, results: Path) -> bool:
    """Copy what the record lists, the record last; returns whether it was missing."""
    record = artifact.record(folder)
    out = artifact.folder(results, record["kind"], record["digest"])
    with artifact.lease(out):
        if artifact.done(out):
            if said := stages.differing_records(out, folder):
                raise UserError(said)
            artifact.check(out)
            return False
        for name in [*record["files"], *(name for name in COPIED_FILES if (folder / name).exists())]:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            artifact.copy_atomic(folder / name, out / name)
        (out / "failure.json").unlink(missing_ok=True)
        artifact.copy_atomic(folder / "record.json", out / "record.json")
    return True


# One stage again, in a scratch folder.


def prepare_scratch(stage: Mapping[str, Any], results: Path, scratch: Path) -> Path:
    """Write the stage's `stage.json` below `scratch` and link its inputs there; returns the folder that it will be made in.

    Raises UserError when an input is not finished, or when something was made in that folder before."""
    out = artifact.folder(scratch / "results", stage["kind"], stage["digest"])
    if out.exists():
        raise UserError(f"{out}: made there before; remove it, or give another folder with --into")
    for role, ref in stage["deps"].items():
        folder = next((path.parent for path in results.glob(f"*/{artifact.ref_digest(ref)}/record.json")), None)
        if folder is None:
            raise UserError(f"{ref}: not finished in {results}, and {stage['digest']} reads it as {role}; make it first")
        link = artifact.folder(scratch / "results", folder.parent.name, folder.name)
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(folder.absolute(), target_is_directory=True)
    artifact.write_json(out / "stage.json", {**stage, "label": stage.get("label", ""), "run": stage.get("run", {})})
    return out


def shorten_stage(stage: Mapping[str, Any], steps: int) -> dict[str, Any]:
    """The stage with so many steps: a stage of its own, since a schedule that spans the run spans fewer steps then.

    Raises UserError for kinds that have no steps, and for more steps than the stage has."""
    spec = dict(stage["spec"])
    key = table.length_key(stage["kind"])
    if key == "steps":
        whole, value = spec["steps"], steps
    elif key == "tokens":
        whole, value = -(-spec["tokens"] // spec["batch_tokens"]), steps * spec["batch_tokens"]
    else:
        raise UserError(f"--steps: a stage of kind {stage['kind']} has no steps; leave it out to make the whole stage")
    if not 1 <= steps <= whole:
        raise UserError(f"--steps = {steps}: must lie in 1..{whole}, the steps of the whole stage")
    kept = {"checkpoints": [step for step in spec["checkpoints"] if step <= steps]} if "checkpoints" in spec else {}
    model = parse_model(table.KINDS[stage["kind"]].spec, {**spec, key: value, **kept}, KeyPlace(stage["digest"]))
    made = digest.digest(stage["kind"], model, stage["deps"])
    label = f"{stage.get('label', '')}, {steps} of {whole} steps"
    return {**stage, "spec": digest.canonical(model), "digest": made, "label": label}


def compare_bytes(made: Path, known: Path) -> list[str]:
    """What differs between the result in scratch and the record in results/, a line each; [] when all bytes agree."""
    from interplay.results import check  # torch: not for what is copied

    one, other = artifact.record(known), artifact.record(made)
    names = dict.fromkeys([*one["files"], *other["files"]])
    rows = []
    for name in names:
        before, now = one["files"].get(name), other["files"].get(name)
        if before is None or now is None:
            rows.append([name, "only in the record" if now is None else "only in scratch"])
        elif before != now:
            where = check.first_difference(known / name, made / name) if (known / name).exists() else ""
            size = f"{before[0]} bytes in both" if before[0] == now[0] else f"{before[0]} -> {now[0]} bytes"
            rows.append([name, f"{size}; {where}" if where else size])
    changed = stages.leaf_differences(one["metrics"], other["metrics"])
    rows += [[f"metric {key}", f"{short(old)} -> {short(new)}"] for key, (old, new) in changed.items()]
    return aligned(rows)


# Rewards of the user's own, called when a study is planned: in a process of their own, on problems of the data that the stage
# reads. What they paid is kept next to the study under the digest of all that was asked, so that a reward is called once.

TRIAL_LIMIT = 90
"""Seconds after which the process is ended that holds a reward: its start, the problems and the reward's own limit."""
TRIAL_SWITCH = "INTERPLAY_TRY_REWARDS"
"""Environment variable; 0: rewards are first called in the run."""


def try_rewards(plan: Plan, configs: Path, results: Path) -> list[str]:
    """Call each reward of the study's own that some stage to make uses; a line for each with what it pays, or with the set that
    is not here yet. Raises UserError, with the key and with file and line of the reward, where it fails."""
    folder, lines = (configs / "study" / plan.study).parent, dict[str, None]()
    paying = [(stage, stage.spec.reward) for stage in plan.stages.values() if isinstance(stage.spec, RLSpec)]
    for stage, reward in [(stage, term) for stage, whole in paying for term in terms_of(whole)]:
        if not isinstance(reward, OwnReward) or artifact.done(artifact.folder(results, stage.kind, stage.digest)):
            continue
        data = {role: plan.stages[artifact.ref_digest(dep)] for role, dep in stage.deps.items() if role.startswith("data")}
        asked = {role: _trial_set(one, results) for role, one in data.items()}
        if lacking := [data[role].label for role, one in asked.items() if one is None]:
            lines[f"reward {reward.function}: first called in the run, since {', '.join(lacking)} is not made yet"] = None
            continue
        if os.environ.get(TRIAL_SWITCH) == "0":
            lines[f"reward {reward.function}: first called in the run, since {TRIAL_SWITCH} is 0"] = None
            continue
        question = {"reward": digest.canonical(reward), "sets": list(asked.values())}
        kept = folder / "__pycache__" / f"{hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()[:16]}.reward"
        found = artifact.read_json(kept) if kept.exists() else _ask_reward(question)
        if "error" in found:
            raise _refused_reward(found, reward.function, stage.label, plan, configs)
        with contextlib.suppress(OSError):  # a folder that others own
            artifact.write_json(kept, found)
        if "left" in found:
            lines[f"reward {reward.function} {found['left']}; what it pays is first seen in the run"] = None
            continue
        paid = ", ".join(f"{name} {short(value)}" for name, value in found["paid"])
        names = ", ".join(dict.fromkeys(one.label for one in data.values()))
        lines[f"reward {reward.function} pays on average of {found['problems']} problems of {names}: {paid}"] = None
    return list(lines)


def _refused_reward(found: dict[str, Any], function: str, label: str, plan: Plan, configs: Path) -> UserError:
    """The line on a reward that failed: its key in the study, and file and line of its code."""
    named = found["file"] == function.rpartition(":")[0]  # as the study names it; else a module that it calls
    file = (configs / "study" / plan.study).parent / found["file"] if named else found["file"]
    stage = label.rpartition("/")[2].partition("@")[0]
    place = KeyPlace(f"{configs.name}/study/{plan.study}.yaml", ("stages", stage, "reward", "name"))
    remedy = f"correct it, or set {TRIAL_SWITCH}=0 where it cannot run here"
    return locate_error(
        place.error(f"{file}:{found['line']}: {found['error']}; {remedy}", function), configs, plan.study, plan.scale
    )


def _trial_set(stage: Stage, results: Path) -> dict[str, Any] | None:
    """Where rows of a problem set come from; None: from a stage that is not made yet."""
    out = artifact.folder(results, stage.kind, stage.digest)
    known = stage.kind == "problems" and not stage.deps  # not where a calibration chooses the ops
    if stage.kind == "dataset" or (known and getattr(stage.spec, "transform", None) is None):
        return {"kind": stage.kind, "spec": digest.canonical(stage.spec), "path": stage.run.path}
    return {"folder": str(out)} if artifact.done(out) and (out / "problems.parquet").exists() else None


def _ask_reward(question: dict[str, Any]) -> dict[str, Any]:
    """The answer of `rl.custom.answer_trial` in a process of its own."""
    words = [sys.executable, "-c", "from interplay.rl import custom; custom.answer_trial()"]
    file = str(question["reward"]["function"]).rpartition(":")[0]
    try:
        made = subprocess.run(words, input=json.dumps(question), capture_output=True, text=True, timeout=TRIAL_LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return {"left": f"does not end within {TRIAL_LIMIT} s"}
    if made.returncode == 0 and made.stdout:
        return dict(json.loads(made.stdout))
    said = (made.stderr.strip().splitlines() or [""])[-1]
    return {"error": f"ends the process (exit code {made.returncode}) {said}".rstrip(), "file": file, "line": 1}


# Evaluations as logs of Inspect: one for each evaluation of an arm at a seed.


def write_inspect(plan: Plan, results: Path, out: Path) -> list[Path]:
    """Write `ARM.EVALUATION.SEED.eval` for each finished evaluation at the end of an arm whose samples are here; the model is the
    arm, so that its seeds are runs of one. Raises UserError where there is none."""
    from interplay.data import sets, trajectory  # they load NumPy, which a plan does without

    spec, made = plan.report_spec(), []
    for arm in spec.arms:
        for name, first in sorted(arm.evaluations.items()):
            folders = [artifact.folder(results, "evaluate", block) for block in spec.blocks_of(first)]
            if not all(artifact.done(folder) and (folder / "samples.parquet").exists() for folder in folders):
                continue
            rows = [row for folder in folders for row in trajectory.read_samples(folder)]
            data = artifact.find(results, artifact.record(folders[0])["deps"]["data"])
            asked = sets.read_problems(data, {row["index"] for row in rows}, ("prompt", "answer"))
            for row in rows:
                problem = asked.get(row["index"], {"prompt": "", "answer": ""})
                row |= {"prompt": problem["prompt"], "target": problem["answer"]}
            out.mkdir(parents=True, exist_ok=True)
            finished = datetime.datetime.fromtimestamp((folders[0] / "record.json").stat().st_mtime, datetime.UTC)
            called = re.sub(r"[^\w.-]+", "_", f"{arm.arm}.{name}.{arm.seed}")
            made.append(out / f"{called}.eval")
            write_log(made[-1], f"{plan.study}/{arm.arm}", f"{plan.study}/{name}", finished.isoformat(timespec="seconds"), rows)
    if not made:
        raise UserError(f"{plan.study} at scale {plan.scale}: no finished evaluation has its samples here; run it, or pull them")
    return made


def write_log(path: Path, model: str, task: str, created: str, rows: list[dict[str, Any]]) -> None:
    """A `.eval` file, which Inspect and `interplay judge` read, of samples: the columns of `samples.parquet`, with `prompt` and
    `target` of the problem. Scores are strict and answer, C or I, and score; an epoch is a sample."""
    samples, summaries = {}, []
    for row in rows:
        said = {"role": "assistant", "content": row["completion"]}
        head = {"id": row["index"], "epoch": row["sample"] + 1, "input": row["prompt"], "target": row["target"]}
        head["scores"] = {name: {"value": "C" if row[name] else "I"} for name in ("strict", "answer")}
        head["scores"]["score"] = {"value": row["score"]}
        head["metadata"] = {name: row[name] for name in ("band", "op", "mode", "error", "length")}
        choice = {"message": said, "stop_reason": "max_tokens" if row["truncated"] else "stop"}
        messages = [{"role": "user", "content": row["prompt"]}, said]
        output = {"model": model, "choices": [choice]}
        samples[f"samples/{row['index']}_epoch_{row['sample'] + 1}.json"] = {**head, "messages": messages, "output": output}
        summaries.append({**head, "completed": True})
    means = {name: sum(float(row[name]) for row in rows) / len(rows) for name in ("strict", "answer", "score")}
    scores = [{"name": name, "scorer": name, "metrics": {"mean": {"name": "mean", "value": at}}} for name, at in means.items()]
    items, epochs = {row["index"] for row in rows}, max(row["sample"] for row in rows) + 1
    about = {"created": created, "task": task, "model": model, "config": {"epochs": epochs}}
    about["dataset"] = {"name": task, "samples": len(items), "sample_ids": sorted(items)}
    results = {"total_samples": len(rows), "completed_samples": len(rows), "scores": scores}
    header = {"version": 2, "status": "success", "eval": about, "results": results}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {"header.json": header, "summaries.json": summaries, **samples}.items():
            archive.writestr(name, json.dumps(content, ensure_ascii=False))


def trainer_config(digest: str, stages: Mapping[str, Mapping[str, Any]], results: Path) -> str:
    """The configuration of an RL stage that another trainer computes, whether its inputs are there or not."""
    from interplay.rl.verl_config import ASSUMED_PROMPT, configuration

    stage, (init, step) = stages[digest], artifact.split_ref(stages[digest]["deps"].get("init", ""))
    trainer, how = stage["spec"].get("trainer", "native"), execution.Run(**stage.get("run", {}))
    if stage["kind"] != "rl" or trainer == "native":
        raise UserError(f"{stage['label']}: the trainer {trainer} of kind {stage['kind']} has no configuration to show")
    spec, out = RLSpec.model_validate(stage["spec"]), artifact.folder(results, "rl", digest).resolve() / "resume"
    longest = spec.max_prompt_length or ASSUMED_PROMPT
    if trainer == "verl":
        base = artifact.at_step(artifact.folder(results, stages[init]["kind"], init).resolve(), step) / "model"
        return yaml.safe_dump(configuration(spec, how, base, out / "verl", longest), sort_keys=False)
    from interplay.rl.trl import settings

    return yaml.safe_dump(settings(spec, how, out.parent, longest), sort_keys=False)
