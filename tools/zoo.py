"""Compare the runs of the studies methods/zoo, zoo_tools and turn_credit with the numbers that are committed of them.

    interplay run methods/zoo --scale coffee        # every method, in some minutes; the others likewise
    python -m tools.zoo                             # compare all; or name methods
    python -m tools.zoo --write                     # commit what there is now

Numbers are of the last step, reward and right answers of the whole run. On a machine like that which made them they are equal;
on another, where sums are rounded otherwise and a sampled token differs now and then, they lie within `TOLERANCES`. A method that
takes no optimiser step, leaves the weights as they were or is paid the same at every step is named."""

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

from interplay.core import artifact, metrics
from interplay.study.expand import plan_study

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests/golden/zoo.json"
STUDIES, SCALE = ("methods/zoo", "methods/zoo_tools", "methods/turn_credit"), "coffee"
CONTROLS = {"paid", "again", "informed", "brief", "masked", "foresees", "preferred", "entropic", "fading", "warmed"}
"""Arms of the last that are no method of their own: controls, and one setting next to credit each."""
TOLERANCES = {"reward": 0.1, "strict": 0.08, "entropy": 0.1, "kl": 0.05, "kl_old": 0.01, "grad_norm": 0.5}
"""Metric -> the largest difference to the committed number; of grad_norm as a share of it."""


def stages() -> dict[str, tuple[str, str, str]]:
    """Method -> the first study that has it, the digest of its run, and that of the model it starts from."""
    found = dict[str, tuple[str, str, str]]()
    for study in STUDIES:
        plan = plan_study(ROOT / "configs", study, SCALE)
        for stage in plan.stages.values():
            name = stage.label.split("/")[0]
            if stage.kind == "rl" and name not in CONTROLS:
                found.setdefault(name, (study, stage.digest, artifact.ref_digest(stage.deps["init"])))
    return found


def measure(results: Path, digest: str, init: str) -> dict[str, Any]:
    """The numbers of one run, and what keeps it from being a test of its method."""
    out = artifact.folder(results, "rl", digest)
    lines, record = metrics.read(out), artifact.record(out)
    found: dict[str, Any] = {name: lines[-1][name] for name in TOLERANCES if name in lines[-1]}
    found |= {name: sum(line[name] for line in lines) / len(lines) for name in ("reward", "strict")}
    weights = [(artifact.find(results, of) / "model/model.safetensors").read_bytes() for of in (digest, init)]
    still = (
        "no optimiser step"
        if record["metrics"]["optimizer_steps"] == 0
        else "weights unchanged"
        if weights[0] == weights[1]
        else ""
    )
    flat = "" if len({line["reward"] for line in lines}) > 1 else "paid the same at every step"
    numbers = {name: metrics.round_significant(float(number)) for name, number in found.items()}
    return {**numbers, "still": "; ".join(filter(None, (still, flat)))}


def differences(found: dict[str, Any], known: dict[str, Any]) -> list[str]:
    """Metrics that are not what was committed, in words."""
    wrong = []
    for name in [name for name in TOLERANCES if name in known or name in found]:
        if not (name in known and name in found):
            wrong.append(f"{name} is only {'committed' if name in known else 'measured'}")
            continue
        room = TOLERANCES[name] * (abs(known[name]) if name == "grad_norm" else 1)
        if not math.isclose(found[name], known[name], rel_tol=0, abs_tol=room):
            wrong.append(f"{name} is {found[name]:g}, committed {known[name]:g}, within {room:.2g}")
    return wrong


def main() -> int:
    """Exit code 1 where a run is not there or differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*")
    parser.add_argument("--write", action="store_true", help="commit the numbers of these runs")
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    asked = parser.parse_args()
    known: dict[str, Any] = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    failed = 0
    for name, (study, digest, init) in stages().items():
        if asked.methods and name not in asked.methods:
            continue
        out = artifact.folder(asked.results, "rl", digest)
        if not artifact.done(out):
            print(f"{name}: not there; `interplay run {study} --scale {SCALE}`, or `snakemake {out}/record.json` alone")
            failed += 1
            continue
        found = measure(asked.results, digest, init)
        said = [] if asked.write else differences(found, known[name]) if name in known else ["nothing is committed of it"]
        print(f"{name}: {'; '.join([*(said or ['as committed']), *filter(None, [found['still']])])}")
        failed += bool(said)
        if asked.write:
            known[name] = found
    if asked.write:
        GOLDEN.parent.mkdir(exist_ok=True)
        rows = [f"  {json.dumps(name)}: {json.dumps(known[name])}" for name in sorted(known)]
        GOLDEN.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
