"""RL on verl (`trainer: verl`): its training data, its launch, and its rollouts, metrics and weights as files of an RL stage.
verl runs in processes, and mostly in an environment, of its own: rl/verl_config.py has its configuration, rewards.pay judges."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from tokenizers import Tokenizer

from interplay.core import artifact, execution
from interplay.core.digest import canonical
from interplay.core.metrics import Metrics, Progress, read, telemetry, whole_lines
from interplay.data import audit, foreign, sets, tokenizer as text, trajectory
from interplay.model import folder
from interplay.optim import optimizer
from interplay.rl import advantage_spec, group_advantages, records, rewards, sampler, samplers
from interplay.rl.assembly import offline_outcomes
from interplay.rl.batch import Batch
from interplay.rl.spec import RLSpec
from interplay.rl.verl_config import Json, configuration, learns, write_config

POLL_SECONDS = 5.0
DUMP_SECONDS = 600.0
"""Seconds that verl has to write the rollouts of a step."""
GRACE_SECONDS = 30.0
"""Seconds that verl has to end after SIGTERM."""
DONE = "latest_checkpointed_iteration.txt"
"""verl's file with the step of its last whole checkpoint."""
THEIRS = {
    "loss": "actor/pg_loss",
    "grad_norm": "actor/grad_norm",
    "kl": "actor/kl_loss",
    "clip_fraction": "actor/pg_clipfrac",
    "entropy": "actor/entropy",
    "length": "response_length/mean",
    "truncated": "response_length/clip_ratio",
    "lr": "actor/lr",
}
"""Our name of a metric -> verl's."""

# The launch.


@contextlib.contextmanager
def launched(command: list[str], log: Path, metrics: Path) -> Iterator[subprocess.Popen[bytes]]:
    """verl as a process group of its own, none of which outlives the block; if this process is killed, its standard input
    ends, and it ends itself. verl's file logger writes to `metrics`."""
    here = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": paths, "VERL_FILE_LOGGER_PATH": str(metrics)}
    with open(log, "ab") as file:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": file, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(command, env=environment, start_new_session=True, **pipes)
    try:
        yield process
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_SECONDS)
        process.stdin.close()  # type: ignore[union-attr]


# The run.


def train_with_verl(spec: RLSpec, inputs: dict[str, Path], out: Path, how: execution.Run) -> Json:
    """Train and write what `rl.loop.train_policy` writes, but for `state/`. Resumes from verl's checkpoint in `out/resume` where
    there is one. Raises PermanentError where an audit of its problems failed and at the first loss that is not finite,
    StoppedError after a signal, OSError where verl ends before its last step; its output is `out/resume/verl/log.txt`."""
    audit.refuse_failed(inputs)
    work = (out / "resume" / "verl").resolve()
    work.mkdir(parents=True, exist_ok=True)
    run = Recorder(spec, inputs, out, work)
    command = write_config(work, configuration(spec, how, inputs["init"].resolve() / "model", work, max(run.lengths)), how)
    write_prompts(run, work)
    run.catch_up(ended=True)
    with execution.defer_signals():
        if run.recorded < spec.steps:
            with launched(command, work / "log.txt", run.log) as process:
                run.follow(process)
    for step in sorted({*spec.checkpoints, spec.steps}):
        target = out / "model" if step == spec.steps else out / "checkpoints" / str(step) / "model"
        merge(how, work / "checkpoints" / f"global_step_{step}" / "actor", target, text.tokenizer_folder(inputs["init"]))
    records.finish(out, spec.steps)
    return records.summarise_run(read(out))


def write_prompts(run: "Recorder", work: Path) -> None:
    """Write `prompts.parquet`, verl's training data, a row for each draw in its order; and `job.json`, by which `rewards.pay`
    judges, and `Draws` draws where the sampler learns: the number of a row in the pool is its ground truth."""
    inputs = {role: str(path.resolve()) for role, path in run.inputs.items()}
    data = [inputs[f"data.{i}"] for i in range(len(run.spec.mix))]
    artifact.write_json(work / "job.json", {"spec": canonical(run.spec), "data": data, "inputs": inputs})
    rows = [prompt_row(run.pool, i) for i in run.order()]
    pq.write_table(pa.Table.from_pylist(rows), work / "prompts.parquet", compression="zstd")


def prompt_row(pool: sets.Pool, i: int) -> Json:
    """A draw of a row of the pool, with verl's columns."""
    row = pool.rows[i]
    return {
        "data_source": row.family,
        "prompt": [{"role": "user", "content": row.prompt}],
        "reward_model": {"style": "rule", "ground_truth": str(i)},
        "extra_info": {"index": i, "set": row.set, "problem": row.index},
    }


class Replay:
    """The sampler of a run, which learns from what verl has dumped: a function of the dumps, so that a resumed run goes on."""

    def __init__(self, spec: RLSpec, inputs: dict[str, Path], pool: sets.Pool, dumps: Path) -> None:
        self.spec, self.pool, self.dumps = spec, pool, dumps
        tokenizer, rows = text.load(inputs["init"]), pool.rows
        deck = sampler.PromptSource(
            pool.sizes,
            spec.mix,
            spec.seed,
            steps=spec.steps,
            rows=rows,
            encode=lambda ids: text.encode_texts(tokenizer, [rows[i].prompt for i in ids]),
            offline=offline_outcomes(spec, pool, inputs),
        )
        self.sampler = samplers.build_sampler(spec.method.sampler, deck)
        self.drawn: list[list[int]] = []
        self.learnt = 0

    def draw(self, step: int) -> list[int]:
        """What a step of 1, 2, ... draws, once the step before it is dumped."""
        while len(self.drawn) < step:
            self.learn(len(self.drawn))
            self.drawn.append(self.sampler.select(self.spec.prompts_per_step, len(self.drawn) + 1))
        return self.drawn[step - 1]

    def learn(self, step: int) -> None:
        """Observe the completions of the step that was drawn last, once; 0: nothing."""
        if step <= self.learnt:
            return
        self.learnt = step
        spec, groups = self.spec, dict[str, list[trajectory.Trajectory]]()
        for one in foreign.read_foreign(self._whole(step)):
            groups.setdefault(one.more["info/uid"].partition("_")[0], []).append(one)
        found = []
        for group in groups.values():
            i, texts = int(group[0].more["info/gts"]), [one.completion for one in group]
            rows = [self.pool.rows[i]] * len(texts)
            verdicts = sets.judge_completions(rows, texts, spec.verify())
            paid = rewards.score_completions(spec.reward, rows, texts, verdicts).sequence  # before shaping
            found.append(sampler.outcome_of(i, paid, verdicts))
        order = {i: place for place, i in reversed([*enumerate(self.drawn[step - 1])])}
        self.sampler.observe(step, sorted(found, key=lambda outcome: order[outcome.id]))
        self.sampler.learn(step)

    def _whole(self, step: int) -> Path:
        """The dump of a step, which verl writes in a thread of its own. Raises TimeoutError where it does not come."""
        file, end = self.dumps / f"{step}.jsonl", time.monotonic() + DUMP_SECONDS
        wanted = self.spec.prompts_per_step * self.spec.method.allocation.num_generations
        while not (file.exists() and len(whole_lines(file)) == wanted):
            if time.monotonic() > end:
                raise TimeoutError(f"{file}: not {wanted} rollouts after {DUMP_SECONDS:g} s")
            time.sleep(0.2)
        return file


class Draws(torch.utils.data.Dataset):
    """verl's training data where the sampler learns (`data.custom_cls`): row p is one of step p // prompts_per_step + 1."""

    def __init__(self, data_files: Sequence[str], **_: Any) -> None:
        job = artifact.read_json(Path(data_files[0]).with_name("job.json"))
        self.spec = RLSpec.model_validate(job["spec"])
        self.pool = sets.load_pool([Path(one) for one in job["data"]])
        inputs = {role: Path(path) for role, path in job["inputs"].items()}
        self.replay = Replay(self.spec, inputs, self.pool, Path(data_files[0]).with_name("rollouts"))

    def __len__(self) -> int:
        return self.spec.steps * self.spec.prompts_per_step

    def __getitem__(self, place: int) -> Json:
        step, number = divmod(place, self.spec.prompts_per_step)
        row = prompt_row(self.pool, self.replay.draw(step + 1)[number])
        more = {"raw_prompt": row["prompt"], "index": row["extra_info"]["index"], "tools_kwargs": {}, "interaction_kwargs": {}}
        return {**row, **more, "dummy_tensor": torch.tensor([0], dtype=torch.uint8)}


def merge(how: execution.Run, checkpoint: Path, target: Path, tokenizer: Path) -> None:
    """Weights of all GPUs as one Hugging Face folder, by verl's own merger."""
    part = target.with_name(target.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    command = [how.verl.python or sys.executable, "-m", "verl.model_merger", "merge", "--backend", "fsdp"]
    made = subprocess.run([*command, "--local_dir", checkpoint, "--target_dir", part], capture_output=True, text=True)
    if made.returncode:
        raise OSError(made.returncode, f"verl's model merger: {last_line(made.stderr)}", str(checkpoint))
    folder.copy_files(tokenizer, part, folder.TOKENIZER_FILES)
    if not (tokenizer / "chat_template.jinja").exists():
        (part / "chat_template.jinja").unlink(missing_ok=True)  # that of RAW, which verl saved
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    part.rename(target)


def last_line(output: str) -> str:
    """What an output ends with."""
    return next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "it said nothing")


class Recorder:
    """Reads what verl logs and dumps, step by step, into the metrics and records of a stage."""

    def __init__(self, spec: RLSpec, inputs: dict[str, Path], out: Path, work: Path) -> None:
        self.spec, self.inputs, self.out, self.work = spec, inputs, out, work
        self.tokenizer: Tokenizer = text.load(inputs["init"])
        self.pool = sets.load_pool([inputs[f"data.{i}"] for i in range(len(spec.mix))])
        prompts = [row.prompt for row in self.pool.rows]
        text.check_prompt_lengths(self.tokenizer, prompts, spec.max_prompt_length)
        self.lengths = [len(ids) for ids in text.encode_texts(self.tokenizer, prompts)]
        self.done = self._restored()
        """The step of the checkpoint that verl goes on from."""
        self.log = work / f"metrics.{self.done}.jsonl"
        self.metrics, self.progress = Metrics(out, self.done), Progress(spec.steps, "steps", self.done)
        self.replay = Replay(spec, inputs, self.pool, work / "rollouts")
        self.recorded = max((line["step"] for line in read(out)), default=0)

    def _restored(self) -> int:
        """Make the last checkpoint up to which every step was logged and dumped the one to resume from, and remove what is later:
        verl saves a step before it logs it."""
        place, logged, whole = self.work / "checkpoints", self.logged(), 0
        tracked = int((place / DONE).read_text()) if (place / DONE).exists() else 0
        while whole + 1 in logged and self._dumped(whole + 1):
            whole += 1
        saved = {int(path.name.rpartition("_")[2]): path for path in place.glob("global_step_*")}
        done = max((step for step in saved if step <= min(whole, tracked)), default=0)
        if done:
            artifact.write_atomic(place / DONE, str(done).encode())
        else:
            (place / DONE).unlink(missing_ok=True)
        for step, path in saved.items():
            if step > done:
                shutil.rmtree(path, ignore_errors=True)
        for file in self._logs():
            if int(file.stem.rpartition(".")[2]) >= done:
                file.unlink()
        for file in (self.work / "rollouts").glob("*.jsonl"):
            if int(file.stem) > done:
                file.unlink()
        return done

    def _logs(self) -> list[Path]:
        return sorted(self.work.glob("metrics.*.jsonl"), key=lambda file: int(file.stem.rpartition(".")[2]))

    def logged(self) -> dict[int, Json]:
        """Step -> its metrics, of the last start of verl that made it."""
        found = [json.loads(line) for file in self._logs() for line in whole_lines(file)]
        return {one["step"]: one["data"] for one in found}

    def _dumped(self, step: int) -> bool:
        file = self.work / "rollouts" / f"{step}.jsonl"
        return file.exists() and file.read_bytes().endswith(b"}\n")

    def order(self) -> list[int]:
        """Rows of the pool as the sampler draws them; with dynamic sampling, which draws more, those of three runs. Of a sampler
        that learns any rows, as many: `Draws` takes their place."""
        spec = self.spec
        if learns(spec):
            return [i % len(self.pool.rows) for i in range(spec.steps * spec.prompts_per_step)]
        chosen, last = self.replay.sampler, spec.steps * (3 if spec.method.edits else 1)
        return [i for step in range(1, last + 1) for i in chosen.select(spec.prompts_per_step, min(step, spec.steps))]

    def follow(self, process: "subprocess.Popen[bytes]") -> None:
        """Until verl has ended and all its steps are recorded."""
        ended = False
        while not ended:
            ended, stopping = process.poll() is not None, execution.stop_requested()
            self.catch_up(ended)
            if stopping:  # asked before, so that what verl had logged by then is recorded
                raise execution.StoppedError(f"stopped at step {self.recorded} of {self.spec.steps}")
            if not ended:
                time.sleep(POLL_SECONDS)
        if process.returncode or self.recorded < self.spec.steps:
            log = self.work / "log.txt"
            said = f"verl ended with code {process.returncode} after step {self.recorded} of {self.spec.steps}"
            raise OSError(process.returncode, f"{said}: {last_line(log.read_text(errors='replace'))}", str(log))

    def catch_up(self, ended: bool) -> None:
        """Record the steps that are complete: verl writes the rollouts of one while it makes the next."""
        logged = self.logged()
        while (step := self.recorded + 1) in logged and (ended or step + 1 in logged) and self._dumped(step):
            self.record(step, logged[step])
            self.recorded = step
        self.metrics.sync()

    def record(self, step: int, theirs: Json) -> None:
        """Judge the rollouts of a step and write what every RL stage writes of one."""
        critic, values = self.spec.method.critic, {name: float(theirs[key]) for name, key in THEIRS.items() if key in theirs}
        if warming := critic is not None and step <= critic.warmup_steps:  # verl updates no policy then, and logs nothing of it
            values |= {"loss": 0.0, "grad_norm": 0.0}
        optimizer.check_finite(step, self.spec.steps, values["loss"], values["grad_norm"])
        spec, batch = self.spec, self.batch(step)
        chosen, paid = spec.method.advantage, batch.rewards.double()
        if isinstance(chosen, advantage_spec.GroupAdvantage):
            advantage = group_advantages.compared(chosen, paid, batch.groups)
        else:  # verl does not dump its own
            advantage, _ = group_advantages.standardised(paid, batch.groups)
        values = {
            **records.measure_step(batch, advantage),
            **records.sampled_counts(batch),
            **records.drawn_shares(batch, self.pool),
            **values,
            "prompt_tokens": float(sum(self.lengths[i] for i in batch.ids.tolist())),
            "optimizer_steps": float(not warming and spec.updates_per_step()),
            "trained_tokens": float(batch.lengths.sum()),
            **self.sampler_metrics(step),
        }
        records.write_step(self.out, step, spec, self.pool, batch, advantage, self.tokenizer.decode_batch)
        self.metrics.write(step, **values)
        self.progress.update(step, reward=values["reward"], strict=values["strict"], entropy=values["entropy"])
        telemetry(self.out, seconds_per_step=theirs.get("timing_s/step", 0.0))

    def sampler_metrics(self, step: int) -> dict[str, float]:
        """What the sampler says of itself after a step."""
        if not learns(self.spec):
            return {}
        self.replay.draw(step)
        self.replay.learn(step)
        return {f"sampler/{name}": value for name, value in self.replay.sampler.metrics().items()}

    def batch(self, step: int) -> Batch:
        """The rollouts of a step, judged again. Their tokens are those of their texts, since verl dumps texts."""
        spec, dumped = self.spec, list(foreign.read_foreign(self.work / "rollouts" / f"{step}.jsonl"))
        ids, texts = [int(one.more["info/gts"]) for one in dumped], [one.completion for one in dumped]
        rows = [self.pool.rows[i] for i in ids]
        verdicts = sets.judge_completions(rows, texts, spec.verify())
        groups: dict[str, int] = {}
        for one in dumped:
            groups.setdefault(one.more["info/uid"].partition("_")[0], len(groups))
        limit, encoded = spec.max_completion_length, text.encode_texts(self.tokenizer, texts)
        lengths = torch.tensor([min(len(tokens) + 1, limit) for tokens in encoded])
        blank = torch.zeros(len(rows), int(lengths.max()), dtype=torch.int64)
        parts = rewards.score_completions(spec.reward, rows, texts, verdicts).parts
        return Batch(
            row=torch.arange(len(rows)),
            ids=torch.tensor(ids),
            groups=torch.tensor([groups[one.more["info/uid"].partition("_")[0]] for one in dumped]),
            prompts=[[] for _ in rows],
            tokens=blank,
            lengths=lengths,
            logprobs=blank.float(),
            truncated=torch.tensor([len(tokens) >= limit for tokens in encoded]),
            completions=texts,
            verdicts=verdicts,
            right=rewards.right_by(spec.reward, verdicts),
            rewards=torch.tensor([one.reward for one in dumped], dtype=torch.float64),
            parts={name: torch.tensor(values, dtype=torch.float64) for name, values in parts.items()},
        )
