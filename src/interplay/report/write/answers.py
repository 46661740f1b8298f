"""A study's answers from its results: tables, figures and verdicts, and their files."""

import math
from pathlib import Path
from typing import Any, NamedTuple

from interplay.core import artifact, metrics, model
from interplay.kinds import stages
from interplay.report import claim_spec
from interplay.report.display_spec import PLAIN, SPENT, Figure
from interplay.report.draw import figures
from interplay.report.metric_spec import measure_of
from interplay.report.spec import ReportArm, ReportSpec
from interplay.report.stats import budget, confounds, contrast, estimate, frame, sequential
from interplay.report.write import latex, tables, text
from interplay.results import locks
from interplay.study.plan import Plan


class Answer(NamedTuple):
    """All of it, in the order in which it is shown."""

    results: frame.Results
    judged: list[contrast.JudgedClaim]
    grids: dict[str, tables.Grid]
    """By table; the differences and the gains of a table are each one of their own."""
    drawings: dict[str, figures.Drawing]
    budgets: list[budget.JudgedMatch]
    contrasts: dict[str, contrast.Comparison]
    """By table with the suffix of contrasts; their differences are among the grids too, for their provenance."""
    controls: confounds.Controlled | None = None
    """What else may explain the gain, where the study has controls."""


def answer_study(results: frame.Results, files: bool = True) -> Answer:
    """Judge every claim, fill every table, draw every figure; without `files`, for its caption and its numbers alone."""
    spec = results.spec
    grids = {}
    for name, table in sorted(spec.tables.items(), key=lambda item: ("op" in item[1].columns, item[0])):
        grids[name] = tables.value_grid(results, table)
        if table.against is None and tables.difference_pairs(results, table):
            grids[f"{name}_differences"] = tables.difference_grid(results, table)
        if table.gain is not None:
            grids[f"{name}{tables.GAIN_SUFFIX}"] = tables.gain_grid(results, table)
    contrasts = {f"{name}{contrast.SUFFIX}": sequential.compare(results, name) for name in spec.tables if name in spec.lineups}
    ordered = sorted(spec.figures.items(), key=_figure_order)
    drawings = {name: figures.draw_figure(results, figure, files) for name, figure in ordered}
    judged = [sequential.judge(results, claim) for claim in spec.claims]
    controls = confounds.judge_controls(results) if spec.controls else None
    return Answer(results, judged, grids, drawings, budget.judge_all(results), contrasts, controls)


CONTROLS = {
    confounds.EXPLAINS: ("no", "✗"),
    confounds.RULED_OUT: ("yes", "✓"),
    confounds.PART: ("open", "≈"),
    confounds.OPEN: ("open", "?"),
}
"""What a control says of the gain -> class of its chip and its sign."""


def control_rows(made: Answer) -> list[dict[str, Any]]:
    """The gain and its controls, as the page shows them."""
    asked, controls = made.results.spec.controls, made.controls
    if asked is None or controls is None:
        return []
    name = made.results.spec.label_of

    def shown(found: estimate.Estimate, metric: str) -> str:
        if not found.seeds:
            return "–"
        return f"{measure_of(metric).shown(found.value, True)} {text.interval_text(found, True, metric, False)}"

    whose, where = f"{name(asked.of)} over {name(asked.against)}", tables.column_label(asked.band, asked.value)
    rows: list[dict[str, Any]] = [
        {"name": whose, "gain": shown(controls.gain, asked.value), "rest": "", "verdict": None, "says": f"the gain on {where}"}
    ]
    for row in controls.rows:
        metric = asked.value if row.arm else "answer_pass@1"
        look, sign = CONTROLS.get(row.word, ("none", "–"))
        numbers = {"gain": shown(row.gain, metric), "rest": shown(row.rest, metric)}
        rows.append({"name": row.name, **numbers, "verdict": {"word": row.word, "look": look, "sign": sign}, "says": row.says})
    return rows


def finished_report(plan: Plan, results: Path) -> Path:
    """The folder of a study's report. Raises UserError when the study is not finished."""
    report = artifact.folder(results, "report", plan.report)
    if not artifact.done(report):
        command = f"snakemake all --config study={plan.study} scale={plan.scale}"
        raise model.UserError(f"{report}: {plan.study} is not finished; run `{command}`")
    artifact.check(report)
    return report


def report_inputs(plan: Plan, results: Path) -> dict[str, Path]:
    """Digest -> artifact of every stage that a study's report may read."""
    stages = [plan.stages[digest] for digest in plan.stages[plan.report].deps.values()]
    return {stage.digest: artifact.folder(results, stage.kind, stage.digest) for stage in stages}


def inputs_by_digest(inputs: dict[str, Path]) -> dict[str, Path]:
    """Digest -> artifact, of the roles that a report is given: each is a digest, of audits `audit.` and one."""
    return {role.rpartition(".")[2]: folder for role, folder in inputs.items()}


def claims_json(judged: list[contrast.JudgedClaim]) -> list[dict]:
    """The content of claims.json."""
    return [
        {
            "says": item.claim.says,
            "source": item.claim.source,
            "test": item.claim.test.model_dump(mode="json", exclude_none=True),
            **({"effect": item.claim.published.effect} if isinstance(item.claim.published, claim_spec.Published) else {}),
            "verdict": item.verdict,
            "reason": item.reason,
            **({"caveat": item.caveat} if item.caveat else {}),
            **({"failing": item.failing.as_json()} if item.failing else {}),
            **({"look": item.look.as_json()} if item.look else {}),
            **({"changed": list(item.changed)} if item.changed else {}),
            **({"exploratory": True} if item.claim.exploratory else {}),
            **({"forecast": item.claim.forecast.model_dump(mode="json", exclude_none=True)} if item.claim.forecast else {}),
            "estimate": estimate.estimate_json(item.estimate),
        }
        for item in judged
    ]


def write_answers(made: Answer, out: Path) -> None:
    """`claims.json`, `tables/`, `figures/` (with the notes of a figure as text) and, where there are any, `budgets.json` and
    `registration.json`: determined by the spec and the results alone."""
    artifact.write_json(out / "claims.json", claims_json(made.judged))
    if made.budgets:
        artifact.write_json(out / "budgets.json", budget.as_json(made.budgets))
    if made.controls:
        artifact.write_json(out / "controls.json", confounds.controls_json(made.controls))
    if made.results.spec.registration:
        artifact.write_json(out / "registration.json", made.results.spec.registration.model_dump(mode="json"))
    question = made.results.spec.question
    own = {name: grid.title for name, grid in made.grids.items()}
    titles = {name: f"{own.get(name) or name.replace('_', ' ')}: {question}" for name in (*made.grids, *made.contrasts)}
    forms = {n: (text.as_csv(g), text.as_markdown(g, titles[n]), latex.grid_float(n, g)) for n, g in made.grids.items()}
    for n, one in made.contrasts.items():
        forms[n] = (text.contrast_csv(one), text.contrast_markdown(one, titles[n]), latex.contrast_float(n, one))
    for name, (*written, table) in forms.items():
        for ending, content in zip(("csv", "md", "tex"), (*written, latex.table_latex(table, latex.REPORT)), strict=True):
            artifact.write_atomic(out / "tables" / f"{name}.{ending}", content.encode())
    for name, drawing in made.drawings.items():
        if drawing.svg:
            artifact.write_atomic(out / "figures" / f"{name}.png", drawing.png)
            artifact.write_atomic(out / "figures" / f"{name}.svg", drawing.svg)
        if drawing.notes:
            artifact.write_atomic(out / "figures" / f"{name}.txt", "".join(f"{note}\n" for note in drawing.notes).encode())


def differing_answers(spec: dict[str, Any], inputs: dict[str, Path], out: Path, scratch: Path) -> list[str]:
    """Verdicts, tables and budgets of a finished report that are not those of its inputs' scores, a line for each file and one
    for the record. They are made again in an empty folder; figures are not drawn again."""
    known = ReportSpec.model_validate({**spec, "figures": {}})
    made, record, found = answer_study(frame.read_results(known, inputs_by_digest(inputs))), artifact.record(out), list[str]()
    write_answers(made, scratch)
    artifact.write_json(scratch / ".metrics", record_metrics(made))
    changed = stages.leaf_differences(record["metrics"], artifact.read_json(scratch / ".metrics"))
    for key, (before, now) in list(changed.items())[:1]:
        found.append(f"{out / 'record.json'}: {key} is {before!r}, by the scores {now!r}")
    for name in [path.relative_to(scratch) for path in sorted(scratch.rglob("*")) if path.is_file()]:
        if (out / name).exists() and (out / name).read_bytes() != (scratch / name).read_bytes():
            lines = [(folder / name).read_text().splitlines() for folder in (out, scratch)]
            at = next((n for n, pair in enumerate(zip(*lines, strict=False)) if pair[0] != pair[1]), min(map(len, lines)))
            before, now = ((of[at : at + 1] or ["its end"])[0].strip() for of in lines)
            found.append(f"{out / name}: line {at + 1} is {before!r}, by the scores {now!r}")
    return found


def record_metrics(made: Answer) -> dict[str, Any]:
    """For the record: the verdicts and every table's numbers."""
    found = {name: _contrast_numbers(one) for name, one in made.contrasts.items()}
    return {
        "claims": [
            {
                "says": item.claim.says,
                "verdict": item.verdict,
                "reason": f"{item.reason}; caveat: {item.caveat}" if item.caveat else item.reason,
            }
            for item in made.judged
        ],
        "tables": {
            name: {"/".join(key): _interval(cell.estimate) for key, cell in grid.cells.items()}
            for name, grid in made.grids.items()
        },
        **({"contrasts": found} if found else {}),
    }


# What was declared before there were results, next to what was found.

CHANGED = "changed after seeing data"
UNREGISTERED = "Not registered: nothing shows that claims and thresholds were there before the results; read them as exploratory."


def registration_lines(spec: ReportSpec) -> list[str]:
    """When the study was registered, and what was changed since, but for its claims, which say so themselves."""
    of = spec.registration
    if of is None:
        return [UNREGISTERED] if spec.claims else []
    committed = locks.first_commit(Path(of.file))
    proof = f"committed in {committed}" if committed else "not committed, so nothing proves the date"
    at = f" at commit {of.commit}" if of.commit else ""
    late = " after there were results of its treatments" if of.late else ""
    lines = [f"Registered {of.date} UTC{at}{late}: {of.file}, {proof}."]
    lines += [f"Registered again after data: {', '.join(of.again)}."] if of.again else []
    lines += [f"The file {of.file} was edited since it was written."] if of.edited else []
    of_claims = tuple(f"claims[{claim.says}]" for claim in spec.claims)
    for change in of.changes:
        if not change.key.startswith(of_claims):
            lines.append(f"C{CHANGED[1:]}: {change.said()}.")
    return lines + (["The study marks all its claims as exploratory."] if of.exploratory else [])


def look_text(item: contrast.JudgedClaim) -> str:
    """`Look 2 of 3, at 12 replicates: boundary 2.96, futility 0.55, ...`; empty of a study without looks."""
    look, test = item.look, item.claim.test
    if look is None:
        return ""
    measure, signed = measure_of(test.metric), test.difference is not None
    said = f"Look {look.number} of {look.of}, at {look.replicates} replicates: boundary {look.bound.efficacy:.2f}"
    said += f", futility {look.bound.futility:.2f}" if look.bound.futility else ""
    said += f", nominal level {look.bound.level:.2g}; {'stopped' if look.stopped else 'open'}"
    if math.isnan(look.interval[0]):
        return said
    low, high = (measure.shown(end, signed) for end in look.interval)
    return f"{said}. 95 % interval after stopping: {low} to {high} {measure.unit_of(signed)}".rstrip()


def forecast_text(item: contrast.JudgedClaim) -> str:
    """What was expected of a claim, and how that compares with what was found; empty without a forecast."""
    forecast, measure = item.claim.forecast, measure_of(item.claim.test.metric)
    if forecast is None:
        return ""
    scores, said = forecast_scores(item), []
    if forecast.interval is not None:
        low, high = (f"{end:+g}" if item.claim.test.difference else f"{end:g}" for end in forecast.interval)
        unit = measure.unit_of(item.claim.test.difference is not None)
        held = {True: ", which holds it", False: ", which misses it", None: ""}[scores.held]
        said.append(f"{low} to {high} {unit}".rstrip() + held)
    if forecast.probability is not None:
        brier = "" if scores.brier is None else f" (Brier score {scores.brier:.2f})"
        said.append(f"{forecast.probability:.0%} that it comes out for the claim{brier}")
    return "; ".join(said)


class ForecastScores(NamedTuple):
    """How a forecast did; None where it says nothing of it, or there is no verdict."""

    held: bool | None
    """Whether the interval holds the estimate."""
    brier: float | None
    """(probability - 1 or 0)^2 (Brier, Monthly Weather Review 78, 1950)."""


def forecast_scores(item: contrast.JudgedClaim) -> ForecastScores:
    """Of one claim; a verdict that says nothing is not one for the claim."""
    forecast, value = item.claim.forecast, item.estimate.value * measure_of(item.claim.test.metric).factor
    judged = item.estimate.seeds and item.verdict not in (claim_spec.NOT_JUDGED, claim_spec.NOT_TESTED)
    if forecast is None or not judged:
        return ForecastScores(None, None)
    held = None if forecast.interval is None else forecast.interval[0] <= value <= forecast.interval[1]
    right = item.verdict in (*claim_spec.FOR, claim_spec.INDICATED)
    return ForecastScores(held, None if forecast.probability is None else (forecast.probability - right) ** 2)


def _figure_order(item: tuple[str, Figure]) -> tuple[int, str]:
    return (["axis", *SPENT, *PLAIN].index("axis" if item[1].is_axis() else item[1].x), item[0])


def _interval(found: estimate.Estimate) -> list[Any]:
    """[estimate, low, high], null where missing."""
    return [estimate.plain_number(number) for number in found[:3]]


def _contrast_numbers(made: contrast.Comparison) -> dict[str, dict[str, Any]]:
    """`name/column/metric` -> what was chosen, difference, its interval, noise floor, p-values, verdict; null where missing."""
    found = {}
    for block in made.blocks:
        for row in block.rows:
            numbers = {"floor": block.floor.size, "p": row.p, "adjusted": row.adjusted}
            found["/".join((row.chosen.name, block.column, block.metric))] = {
                "arm": row.chosen.arm,
                "value": estimate.plain_number(row.estimate.value),
                "difference": _interval(row.gap),
                **{key: estimate.plain_number(number) for key, number in numbers.items()},
                "verdict": row.verdict,
            }
    return found


# Arms that repeat another one with another trainer (`replicate_with` of a study).


CURVES = ("loss", "grad_norm", "entropy", "kl", "kl_old")
"""Metrics of RL that all trainers log."""
MOST_ROUNDING = 1e-3
"""Largest difference of two curves, as a share of the curve's largest value, that passes for rounding."""


def repetitions(results: frame.Results) -> dict[str, dict[str, str]]:
    """Trainer -> arm -> the arm that differs from it in that trainer alone."""
    found: dict[str, dict[str, str]] = {}
    arms = {row.arm: row for row in results.spec.arms}
    for row in results.spec.arms:
        if row.control in arms and (trainer := _other_trainer(results, arms[row.control], arms[row.arm])):
            found.setdefault(trainer, {})[row.control] = row.arm
    return found


def _other_trainer(results: frame.Results, one: ReportArm, other: ReportArm) -> str:
    """The trainer of `other`, where the stages of the two arms differ in nothing else; "" where they do, or are not all done."""
    paths = [[stage.digest for stage in row.path] for row in (one, other)]
    same = [settings_without(results, path, "trainer") for path in paths]
    if not same[0] or same[0] != same[1]:
        return ""
    trainers = [{results.records[digest]["spec"].get("trainer", "native") for digest in path} for path in paths]
    added = trainers[1] - trainers[0]
    return added.pop() if len(added) == 1 else ""


def settings_without(results: frame.Results, digests: list[str], left: str) -> list[Any]:
    """Kind, spec without one key, and inputs of each stage, inputs among these stages by their places; empty where not all are
    done."""
    found, places = list[Any](), {digest: str(place) for place, digest in enumerate(digests)}
    for record in [results.records.get(digest) for digest in digests]:
        if record is None:
            return []
        refs = {role: artifact.split_ref(ref) for role, ref in record["deps"].items()}
        inputs = {role: (places.get(digest, digest), step) for role, (digest, step) in refs.items()}
        found.append((record["kind"], {key: value for key, value in record["spec"].items() if key != left}, inputs))
    return found


def implementation_lines(results: frame.Results) -> list[str]:
    """A line for each claim whose verdict changes with the trainer, and one that counts the claims whose verdict does not."""
    lines = []
    for trainer, arms in repetitions(results).items():
        equal = 0
        for claim in results.spec.claims:
            test = claim.test
            if test.arm not in arms:
                continue
            there = {"arm": arms[test.arm], "against": arms.get(test.against or "", test.against)}
            repeated = claim.model_copy(update={"test": test.model_copy(update=there)})
            one, other = (contrast.judge_claim(results, each).verdict for each in (claim, repeated))
            if claim_spec.NOT_JUDGED in (one, other):
                continue
            equal += one == other
            if one != other:
                lines.append(
                    f"Depends on the implementation: {claim.says}: {one} of {test.arm}, {other} of {there['arm']} ({trainer})"
                )
        lines += [f"The verdicts of {model.plural(equal, 'claim')} are the same with {trainer}"] if equal else []
    return lines


def repetition_lines(results: frame.Results) -> list[str]:
    """How far the curves of an arm and of its repetition agree, for as many steps as both sampled the same completions."""
    lines = []
    for trainer, arms in repetitions(results).items():
        for arm, twin in arms.items():
            paths = {(row.arm, row.seed): row.path for row in results.spec.rows_of(arm, twin)}
            for seed in sorted({seed for _, seed in paths}):
                pairs = zip(*(paths.get((name, seed), []) for name in (arm, twin)), strict=False)
                for one, other in [(a, b) for a, b in pairs if a.digest != b.digest]:
                    folders = [results.folders.get(stage.digest) for stage in (one, other)]
                    curves = [metrics.read(out) for out in folders if out is not None]
                    if len(curves) == 2:
                        lines.append(f"{twin} repeats {arm} with {trainer}, seed {seed}, {one.name}: {agreement(*curves)}.")
    return lines


def agreement(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> str:
    """In words: for how many steps both sampled the same completions, and at which of these a curve first differs by more than
    rounding."""
    same, parted = 0, ""
    largest = {name: max((abs(line[name]) for line in one if name in line), default=0.0) for name in CURVES}
    for a, b in zip(one, other, strict=False):
        if any(a.get(name) != b.get(name) for name in ("reward", "completion_tokens", "answer")):
            break
        same += 1
        for name in CURVES:
            if not parted and name in a and name in b and abs(a[name] - b[name]) > MOST_ROUNDING * max(largest[name], 1e-6):
                parted = (
                    f"{name} parts at step {a['step']} ({a[name]:.4g} and {b[name]:.4g}) though the completions were the same"
                )
    which = ", ".join(name for name in CURVES if largest[name])
    said = parted or f"{which} are equal there to {MOST_ROUNDING:.1%} of their largest value"
    return f"the same completions for the first {same} of {len(one)} steps; {said}" if same else "no step sampled the same"
