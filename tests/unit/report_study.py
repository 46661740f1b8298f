"""Artifacts with known numbers, written as the stages write them, for the tests of the report."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from interplay.report.spec import ReportSpec

Counts = dict[int, list[int]]
"""Op -> number of strictly right samples of each of its prompts."""

RL = {"steps": 3, "prompts_per_step": 8, "max_completion_length": 16, "minibatches": 1, "temperature": 1.0}
RL["reward"] = {"name": "outcome"}
RL["method"] = {"allocation": {"num_generations": 4}, "loss": {"num_iterations": 1, "beta": 0.0}}
"""Spec of an rl stage, as far as the report reads it: 3 x 8 x 4 = 96 completions."""
BANDS = {"id": [2, 3], "edge": [4]}


def write_evaluation(
    root: Path, digest: str, counts: Counts, n: int = 4, extra_answers: int = 0, data: str = "test", model: str = "m",
    partly: float = 0.0, band: str | None = None,
) -> Path:  # fmt: skip
    """An evaluation whose prompts have the given strict counts; `extra_answers` more samples have only the answer right. A sample that
    is not strictly right scores `partly`. The band is that of the op, or `band`."""
    rows = []
    prompts = [(op, right) for op, rights in counts.items() for right in rights]
    for index, (op, right) in enumerate(prompts):
        named = band or next(name for name, ops in BANDS.items() if op in ops)
        for sample in range(n):
            strict, answer = sample < right, sample < right + extra_answers
            place = {"index": index, "sample": sample, "band": named, "op": op, "mode": "forward"}
            rows.append({**place, "strict": strict, "answer": answer, "score": np.float32(1.0 if strict else partly)})
    out = write_record(root, digest, "evaluate", {"num_samples": n}, {}, {"model": model, "data": data})
    pd.DataFrame(rows).to_parquet(out / "samples.parquet")
    return out


def write_record(root: Path, digest: str, kind: str, spec: dict, metrics: dict, deps: dict[str, str] | None = None) -> Path:
    """A finished artifact with nothing but its record."""
    out = root / kind / digest
    out.mkdir(parents=True)
    record = {"kind": kind, "digest": digest, "versions": {}, "spec": spec, "deps": deps or {}, "metrics": metrics, "files": {}}
    (out / "record.json").write_text(json.dumps(record))
    return out


def write_steps(folder: Path, **values: list[float]) -> None:
    """`metrics.jsonl` with one line per step."""
    length = len(next(iter(values.values())))
    lines = [json.dumps({"step": step + 1, **{key: series[step] for key, series in values.items()}}) for step in range(length)]
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))


def arm(name: str, seed: int, path: list[str], evaluation: str, control: str | None = None) -> dict:
    """One arm at one seed; path entries are `name:kind:digest`."""
    stages = [dict(zip(("name", "kind", "digest"), entry.split(":"), strict=True)) for entry in path]
    return {"arm": name, "seed": seed, "control": control, "path": stages, "evaluations": {"eval": evaluation}}


def spec(arms: list[dict], **given: object) -> ReportSpec:
    """A report's spec over `BANDS`."""
    plain = {"study": "toy", "scale": "smoke", "question": "Does it add up?", "source": "by hand", "arms": arms, "bands": BANDS}
    plain |= {"trained_ops": {item["arm"]: [2, 3] for item in arms}, "tables": {}, "figures": {}, "claims": []}
    return ReportSpec.model_validate({**plain, **given})


def write_problems(
    root: Path, digest: str, ops: list[int], keys: list[str], origins: list[str] | None = None, kind: str = "problems"
) -> Path:
    """A problem set with these ops and structural keys; without `origins` its rows were first made in it."""
    out = write_record(root, digest, kind, {}, {"size": len(ops)})
    pd.DataFrame({"index": range(len(ops)), "op": ops, "key": keys, "origin": origins or [""] * len(ops)}).to_parquet(
        out / "problems.parquet"
    )
    return out
