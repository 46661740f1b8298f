"""The `report` stage and its self-contained page, also of an unfinished study."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jinja2

from interplay.core import artifact
from interplay.core import metrics as surroundings
from interplay.core.artifact import write_atomic
from interplay.core.execution import Run
from interplay.core.model import plural
from interplay.report.draw import collapse, diagram
from interplay.report.inspect import lineage
from interplay.report.spec import ReportSpec
from interplay.report.stats import budget, contrast, frame, notes, provenance
from interplay.report.stats.provenance import Behind
from interplay.report.write import answers, ledger, present
from interplay.report.write.answers import Answer

# The report stage, and its page: one self-contained file that shows the verdicts, the plan, the numbers and what they cost.
#
# The page is a view: it also shows what the digest does not determine (hours, hosts), so it is no payload and can be made
# again.


PAGE = "report.html"
MATCHES = {"matched": "yes", "not matched": "no", "not judged": "none"}
ACROSS, ACROSS_PHONE = 8, 3
"""Boxes side by side in the picture of the plan."""


class Gap(NamedTuple):
    """A missing stage that waits for no other, and how many wait for it."""

    label: str
    digest: str
    kind: str
    why: str
    waiting: int


def run(spec: ReportSpec, inputs: dict[str, Path], out: Path, how: Run) -> dict[str, Any]:
    """Write the report of a study. `inputs` maps the digest of every stage it may read to that stage's artifact.

    Returns the verdicts and every table's numbers."""
    made = answers.answer_study(frame.read(spec, inputs))
    answers.write_answers(made, out)
    view(made, provenance.of_inputs(spec, inputs), out)
    return answers.metrics(made)


def again(spec: ReportSpec, inputs: dict[str, Path], out: Path) -> None:
    """Make the page of a finished report again, and nothing else of it."""
    view(answers.answer_study(frame.read(spec, inputs)), provenance.of_inputs(spec, inputs), out)


def view(made: Answer, of: Behind, out: Path, gaps: list[Gap] | None = None) -> Path:
    """Write the page; returns its path. With `gaps` it is one of an unfinished study, and says so at the top."""
    write_atomic(out / PAGE, html(made, of, gaps or []).encode())
    return out / PAGE


def html(made: Answer, of: Behind, gaps: list[Gap]) -> str:
    """The page: style, script and figures inside it, no request to anywhere."""
    loader = jinja2.PackageLoader("interplay.report")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    spec = made.results.spec
    entries = ledger.entries(spec, of)
    anchors = ledger.anchors(entries)
    figures = [present.figure(name, made) for name in made.drawings]
    return environment.get_template("page.html.jinja").render(
        spec=spec,
        gaps=gaps,
        summary=summary(made),
        caveats=notes.caveats_of(made.results, frame.arms(spec)),
        facts=_facts(made, of),
        claims=[present.claim(item) for item in made.judged],
        plans=_plans(of, anchors),
        reuse=ledger.reuse(spec, of),
        budgets=budget.arm_costs(spec, of),
        matches=[{"chip": MATCHES[item.verdict], **item._asdict()} for item in made.budgets],
        results=[figure for figure in figures if figure["x"] != "step"],
        curves=[figure for figure in figures if figure["x"] == "step"],
        tables=[present.table(name, grid) for name, grid in made.grids.items()],
        contrasts=[present.fight(name, one) for name, one in made.contrasts.items()],
        provenance=present.provenance_data(
            spec, made.grids | {n: contrast.grid(one) for n, one in made.contrasts.items()}, of, anchors
        ),
        spent=budget.stage_costs(of),
        where=budget.where_and_when(of),
        entries=entries,
        most=ledger.MOST_MEMBERS,
        anchors=anchors,
        arms=lineage.arms(made.results),
        overlaps=lineage.overlaps(made.results),
        environment=surroundings.versions(),
    )


def summary(made: Answer) -> str:
    """`Of 3 claims 2 are supported and 1 gives no information.`"""
    counts = {verdict: sum(item.verdict == verdict for item in made.judged) for verdict in present.CHIPS}
    parts = [f"{count} {_verb(count, verdict)} {verdict}" for verdict, count in counts.items() if count]
    return f"Of {plural(len(made.judged), 'claim')} {_listed(parts)}." if made.judged else "The study makes no claim."


def _verb(count: int, verdict: str) -> str:
    if verdict == "no information":
        return "gives" if count == 1 else "give"
    return "is" if count == 1 else "are"


def _facts(made: Answer, of: Behind) -> Mapping[str, str]:
    """The line under the title: what this is, how large, how dear."""
    spec = made.results.spec
    seeds = len({arm.seed for arm in spec.arms})
    done = sum(of.done(digest) for digest in of.stages)
    stages = f"{done}" if done == len(of.stages) else f"{done} of {len(of.stages)} done"
    return {
        "study": spec.study,
        "scale": spec.scale,
        "arms": f"{len(frame.arms(spec))} × {plural(seeds, 'seed')}",
        "stages": stages,
        "time": f"{budget.total_hours(of)} of work",
    }


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _plans(of: Behind, anchors: dict[str, str]) -> dict[str, str]:
    """The picture of the plan as SVG, for a wide and for a narrow page."""
    states = {digest: _state(of, digest) for digest in of.stages}
    nodes, edges = collapse.picture(of.stages, states, anchors)
    return {"wide": diagram.diagram_svg(nodes, edges, ACROSS), "narrow": diagram.diagram_svg(nodes, edges, ACROSS_PHONE)}


def _state(of: Behind, digest: str) -> str:
    if of.done(digest):
        return "done"
    return notes.state_of(of.why.get(digest, ""))


# The page of an unfinished study: what is there, and what is missing and why. A view in `by-name`, never an artifact.


def render_partial(spec: ReportSpec, stages: Mapping[str, Mapping[str, Any]], results: Path, out: Path) -> Path:
    """Write tables, figures, claims and page into `out`; returns the page. `stages`: the plan as JSON, dependencies first."""
    shutil.rmtree(out, ignore_errors=True)
    why = notes.missing_reasons(stages, results, results.parent / "logs")
    folders = {digest: artifact.folder(results, stage["kind"], digest) for digest, stage in stages.items()}
    inputs = {digest: path for digest, path in folders.items() if stages[digest]["kind"] != "report"}
    made = answers.answer_study(frame.read(spec, inputs)._replace(why=why))
    answers.write_answers(made, out)
    return view(made, provenance.of_plan(stages, results, why), out, gaps(stages, why))


def gaps(stages: Mapping[str, Mapping[str, Any]], why: Mapping[str, str]) -> list[Gap]:
    """What has to be mended or run first, failures before the rest, with the number of stages that wait for each."""
    waiting: dict[str, set[str]] = {}
    """Digest -> the missing stages that it waits for."""
    for digest, stage in stages.items():
        deps = [artifact.split_ref(ref)[0] for ref in stage["deps"].values()]
        waiting[digest] = {dep for dep in deps if dep in why}.union(*(waiting[dep] for dep in deps))
    waiting = {digest: of for digest, of in waiting.items() if stages[digest]["kind"] != "report"}
    found = [_gap(stages[digest], why[digest], digest, waiting) for digest in notes.missing_roots(stages, why)]
    return sorted(found, key=lambda gap: notes.state_of(gap.why) != "failed")


def _gap(stage: Mapping[str, Any], why: str, digest: str, waiting: Mapping[str, set[str]]) -> Gap:
    return Gap(stage["label"], digest, stage["kind"], why, sum(digest in of for of in waiting.values()))
