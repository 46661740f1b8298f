"""The audit of a task, by itself and as the stage `audit`: what its verifier pays (`tasks.audit`), and whether its problems are
what they should be."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from interplay.core import artifact, execution, model
from interplay.data import problems, sets
from interplay.data.spec import AuditSpec, ProblemsSpec
from interplay.tasks.audit import BOUND, WAITED, Finding, OutOfTime, TimeLimit, audit_verifier
from interplay.tasks.families import judge_family
from interplay.tasks.family import Environment, Game, Generator
from interplay.tasks.spec import Verify
from interplay.tasks.turn_audit import SECONDS, Shown, audit_turns, steps_again
from interplay.tasks.verdict import Row

Played = Sequence[tuple[str, list[str], list[Shown]]]
"""Problem, actions, steps."""


class Elsewhere:
    """A process with another hash seed, which serves one audit after the other: most of what it costs is its imports."""

    def __enter__(self) -> "Elsewhere":
        self.process: subprocess.Popen[str] | None = None
        self.said = tempfile.TemporaryFile("w+")
        return self

    def __exit__(self, *raised: object) -> None:
        if self.process:
            with self.process:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.communicate(timeout=TO_END)
                self.process.kill()
        self.said.close()

    def asked(self, spec: ProblemsSpec, count: int, actions: Sequence[tuple[str, list[str]]]) -> tuple[list[str], list[Any]]:
        """The first rows as the process generates them, and the steps of actions in problems. Raises UserError where it fails, or
        takes longer than all episodes of an audit may."""
        self.process = self.process or self._start()
        try:
            with TimeLimit(SECONDS):
                return self._answer(self.process, json.dumps([spec.model_dump(mode="json"), count, actions]))
        except OutOfTime:
            why = f"no answer within {WAITED * SECONDS:g} s"
        except EOFError:
            self.said.seek(0)
            why = (self.said.read().strip().splitlines() or ["it ended without a word"])[-1]
        self.process.kill()
        with contextlib.suppress(BrokenPipeError), self.process:
            self.process = None
        raise model.UserError(
            f"audit of {_task_name(spec.task)}: with PYTHONHASHSEED={OTHER_SEED} the problems cannot be generated again: {why}"
        )

    def _answer(self, process: subprocess.Popen[str], question: str) -> tuple[list[str], list[Any]]:
        """What the process answers. Raises EOFError where it ends first."""
        assert process.stdin
        assert process.stdout
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(question + "\n")
            process.stdin.flush()
        for line in process.stdout:  # a package may print, too
            if line.startswith(ANSWER):
                rows, steps = json.loads(line.removeprefix(ANSWER))
                return rows, steps
        raise EOFError

    def _start(self) -> subprocess.Popen[str]:
        code = "from interplay.data import audit; audit.answer_audits()"
        self.said.seek(0)
        self.said.truncate()  # an earlier process may have said why it ended
        where = {"PYTHONHASHSEED": OTHER_SEED, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        return subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
            env=os.environ | where,
            text=True,
            errors="replace",
        )


ANSWER = "rows and steps: "
"""What a line of an answer begins with."""
TO_GENERATE, FEWEST = 1.0, 10
"""CPU seconds for each problem of an audit, of all together and of FEWEST at least: a dataset of another package may search for
hours."""
TO_END = 10
"""Seconds that the process has to end once nothing more is asked: a package may have left a thread in it."""


def answer_audits() -> None:
    """Of the process of `Elsewhere`: for each line of spec, count and actions a line of rows and steps."""
    asked = os.fdopen(os.dup(sys.stdin.fileno()))
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())  # a package that reads would wait, or take what is asked next
    for line in asked:
        spec, count, actions = json.loads(line)
        rows = problems.first_rows(ProblemsSpec.model_validate(spec), execution.Run(), count)
        family = judge_family(rows[0].family)
        steps = [steps_again(family, family.loads(problem), said) for problem, said in actions]  # type: ignore[arg-type]
        print(f"\n{ANSWER}{json.dumps([[row_text(row) for row in rows], steps])}", flush=True)


def audit_problems(
    spec: ProblemsSpec, how: execution.Run, rows: Sequence[Row], there: Elsewhere, played: Played = ()
) -> list[Finding]:
    """The checks of generated problems, the first rows of the spec: a process with another hash seed generates the same and plays
    the same, no prompt is there again and again, and another split has none of their prompts. Of environments, whose prompt need
    not show the problem, the problem in place of the prompt."""
    # Of the others the largest split: in a small one most problems that are generated are thrown away.
    count, other = len(rows), spec.model_copy(update={"split": "rl" if spec.split == "train" else "train"})
    again, steps = there.asked(spec, count, [one[:2] for one in played])
    odd = [one[1] for one, found in zip(played, steps, strict=True) if json.dumps(one[2]) != json.dumps(found)]
    changed = [row for row, text in zip(rows, again, strict=True) if text != row_text(row)]
    family = judge_family(rows[0].family)
    said = "graph" if isinstance(family, Environment) else "prompt"
    prompts = Counter(getattr(row, said) for row in rows)
    repeats = (len(rows) - len(prompts)) / len(rows)
    shared = {getattr(row, said) for row in problems.first_rows(other, how, count)} & set(prompts)
    known = isinstance(family, Generator) and family.shared(family.loads(rows[0].graph))  # facts that all splits have
    leak = 0.0 if known else len(shared) / len(prompts)
    return [
        Finding("hash seed", bool(changed), len(changed) / len(rows), 0.0, repr(changed[0].prompt[:200]) if changed else ""),
        Finding("duplicate", repeats > REPEATS, repeats, REPEATS, repr(prompts.most_common(1)[0][0][:200])),
        Finding("split leak", leak > 0, leak, 0.0, repr(min(shared)[:200]) if leak else ""),
        *(
            [Finding("played elsewhere", bool(odd), len(odd) / len(played), 0.0, str(odd[0])[:200] if odd else "")]
            if played
            else []
        ),
    ]


REPEATS = 0.5
"""The largest share of rows whose prompt an earlier row has."""
OTHER_SEED = "4242"
"""PYTHONHASHSEED of the process that generates problems again."""


def row_text(row: Row) -> str:
    """All that a row says, as text."""
    return json.dumps([row.prompt, row.solution, row.answer, row.graph])


# The stage.


def audit_set(spec: AuditSpec, inputs: dict[str, Path], out: Path, how: execution.Run) -> dict[str, Any]:
    """Write `audit.json`, all findings. Metrics: rows audited, and the names of the checks that failed."""
    made = artifact.record(inputs["data"])
    source = ProblemsSpec.model_validate(made["spec"]) if made["kind"] == "problems" else None
    every = sets.read_rows(inputs["data"], 0)
    if source and source.calibrated:  # by the rows: their calibration is no input of an audit
        drawn = {band: sorted({row.op for row in every if row.band == band}) for band in source.calibrated}
        source = problems.with_ops(source, {band: ops or source.calibrated[band] for band, ops in drawn.items()})
    rows = every[: spec.rows]
    again = problems.first_rows(source, how, min(len(rows), AGAIN)) if source else []
    findings = audit_rows(rows, source, how, again)
    artifact.write_json(out / "audit.json", [finding._asdict() for finding in findings])
    return {"rows": len(rows), "failed": [finding.check for finding in findings if finding.failed]}


def audit_rows(
    rows: Sequence[Row], spec: ProblemsSpec | None, how: execution.Run, again: Sequence[Row], there: Elsewhere | None = None
) -> list[Finding]:
    """All checks of these rows and, where they were generated, of their generator; `again`: the first rows of its spec. `there`:
    the other process, where it serves several audits."""
    judge = partial(sets.judge_completion, Verify())
    family = judge_family(rows[0].family)
    chance = family.chance if isinstance(family, Environment) else BOUND
    with TimeLimit(0.0):
        found = audit_verifier(rows, judge, max(chance, BOUND))
    if isinstance(family, Game) or chance >= 1:  # what is right depends on the play, not on an answer
        found = [finding for finding in found if finding.check in OF_GAMES]
    turns, played = audit_turns(family, rows, judge) if isinstance(family, Environment) else ([], [])
    if not spec:
        return [*found, *turns]
    with contextlib.nullcontext(there) if there else Elsewhere() as other:
        return [*found, *turns, *audit_problems(spec, how, again, other, played)]


def audit_task(task: Any, op: int, count: int, there: Elsewhere | None = None) -> list[Finding]:
    """All checks of problems of a task at one op. Raises UserError where the task has no such op, or takes longer than
    TO_GENERATE allows for its problems."""
    spec = ProblemsSpec(task=task, bands={"all": {op: 1.0}}, shares={"all": 1.0}, size=count, split="train")
    most = TO_GENERATE * max(count, FEWEST)
    try:
        with TimeLimit(most):
            rows = problems.first_rows(spec, execution.Run(), count)
    except OutOfTime:
        took = f"{count} problems take more than {most:g} s of CPU time, or {WAITED * most:g} s of the clock"
        raise model.UserError(
            f"audit of {_task_name(task)}: op = {op}: {took}; set an easier `config`, another op, or fewer --rows"
        ) from None
    return audit_rows(rows, spec, execution.Run(), rows[:AGAIN], there)


def _task_name(task: Any) -> str:
    return getattr(task, "function", None) or getattr(task, "dataset", task.name)


def kept_findings(folder: Path) -> list[str]:
    """The findings of a finished audit, a line each."""
    return [finding_line(Finding(**one)) for one in artifact.read_json(folder / "audit.json")]


def finding_line(finding: Finding) -> str:
    """A finding as a line of text."""
    due, example = f" (due {finding.due:.0%})" if finding.due else "", f"  {finding.example}" if finding.failed else ""
    return f"{'FAILED' if finding.failed else 'ok':7} {finding.check:16} {finding.earned:6.0%}{due}{example}"


AGAIN = 16
"""Problems that are generated again."""
OF_GAMES = ("gold", "empty", "echo", "executes", "repeatable", "exception", "slow", "consistent")
"""Checks that hold for games, too."""


def refuse_failed(inputs: dict[str, Path]) -> None:
    """Raises PermanentError where a stage depends on an audit (role `audit.<i>`) that failed."""
    for role, folder in inputs.items():
        failed = artifact.record(folder)["metrics"]["failed"] if role.startswith("audit.") else []
        if failed:
            remedy = "correct the task (`interplay show` has the completions that were paid), or write accept_audit: REASON"
            raise model.PermanentError(f"{role}: the audit {folder.name} of its problems failed: {', '.join(failed)}; {remedy}")
