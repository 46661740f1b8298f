"""A finished study as one folder that explains itself: page, answers, records, plan, settings, environment, checksums."""

import importlib.metadata
import os
import platform
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from interplay.core import artifact, model
from interplay.report.stats import contrast, frame, provenance
from interplay.report.write import answers, page, paper, summary
from interplay.results import catalog, payloads
from interplay.study.plan import Plan

MARK = "export.json"
"""A file that marks a folder as an export, which a later one may replace."""

README = Path(__file__).parent.parent / "templates" / "export.txt"


def write_export(plan: Plan, configs: Path, results: Path, out: Path) -> None:
    """Write the export into `out`, which appears whole or not at all; an older export there is replaced, anything else is not.

    Raises UserError when the study is not finished or `out` is no export."""
    report = answers.finished_report(plan, results)
    _write_whole(out, lambda part: _fill(part, plan, configs, results, report))


def write_drawn(path: Path, out: Path) -> None:
    """Write tables and figures of a summary (`write.summary`) into `out` with an index of them, under the same conditions."""

    made, known = summary.read_summary(path), artifact.read_json(path)
    lines = [f"# {known['study']} at scale {known['scale']}", "", known["question"], ""]
    lines += [f"- {claim['verdict']}: {claim['says']}" for claim in known["claims"]]
    lines += [f"\n![{name}](figures/{name}.svg)\n\n{one.caption}" for name, one in made.drawings.items() if one.svg]
    lines += ["", *(f"- [{name}](tables/{name}.md)" for name in (*made.grids, *made.contrasts))]

    def fill(part: Path) -> None:
        answers.write_answers(made, part)
        (part / "claims.json").unlink()
        artifact.write_atomic(part / "README.md", ("\n".join(lines) + "\n").encode())
        artifact.write_json(part / MARK, {"from": path.name})

    _write_whole(out, fill)


def paper_of_study(plan: Plan, results: Path, out: Path, look: paper.Look) -> None:
    """The paper of a finished study."""
    answers.finished_report(plan, results)
    spec = catalog.report_spec(plan)
    made = answers.answer_study(frame.read_results(spec, answers.report_inputs(plan, results)))
    _write_paper(made, contrast.claims_json(made.judged), paper.papers_of_plan(plan, spec.source), out, look)


def paper_of_summary(path: Path, plan: Plan | None, out: Path, look: paper.Look) -> None:
    """The paper of a summary (`write.summary`), which has no training curves; `plan`: of its study, for what that builds on."""
    made, known = summary.read_summary(path), artifact.read_json(path)
    papers = paper.papers_of_plan(plan, catalog.report_spec(plan).source) if plan else []
    _write_paper(made, known["claims"], papers, out, look)


def _write_paper(made: answers.Answer, claims: Sequence[Mapping], papers: list[str], out: Path, look: paper.Look) -> None:
    def fill(part: Path) -> None:
        paper.fill_paper(part, made, claims, papers, look)
        artifact.write_json(part / MARK, {"study": made.results.spec.study, "scale": made.results.spec.scale})

    _write_whole(out, fill)


def _write_whole(out: Path, fill: Callable[[Path], None]) -> None:
    if out.is_symlink() or (out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / MARK).exists()))):
        raise model.UserError(f"{out}: not an export; name a folder that is new, empty or an older export")
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        fill(part)
        _replace(part, out)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _fill(part: Path, plan: Plan, configs: Path, results: Path, report: Path) -> None:
    files: dict[str, payloads.Content] = {
        **payloads.kept_files(results, plan),
        **{n: report / n for n in artifact.record(report)["files"]},
    }
    for folder, name in (("study", plan.study), ("scale", plan.scale)):
        files[f"settings/{folder}/{name}.yaml"] = configs / folder / f"{name}.yaml"
    title = f"Interplay: {plan.study}"
    spec, inputs = catalog.report_spec(plan), answers.report_inputs(plan, results)
    of = provenance.of_inputs(spec, inputs)  # with its hours and without the names of machines
    telemetry = {digest: {key: value for key, value in known.items() if key != "host"} for digest, known in of.telemetry.items()}
    made = answers.answer_study(frame.read_results(spec, inputs))
    files["index.html"] = page.render_page(made, of._replace(telemetry=telemetry), []).encode()
    facts = {"question": spec.question, "study": plan.study, "scale": plan.scale}
    text = README.read_text(encoding="utf-8").format(title=title, rule="=" * len(title), **facts)
    files["README.txt"] = text.encode()
    packages = {dist.metadata["Name"]: dist.version for dist in importlib.metadata.distributions() if dist.metadata["Name"]}
    lines = [f"{name}=={version}\n" for name, version in sorted(packages.items(), key=lambda item: item[0].lower())]
    files["requirements.txt"] = "".join(lines).encode()
    payloads.write_folder(part, files)
    about = {
        "study": plan.study,
        "scale": plan.scale,
        "report": plan.report,
        "commit": artifact.current_commit() or "not from a git repository",
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
    }
    artifact.write_json(part / MARK, about)
    names = sorted(str(path.relative_to(part)) for path in part.rglob("*") if path.is_file())
    artifact.write_atomic(part / "SHA256SUMS", "".join(f"{artifact.checksum(part / name)}  {name}\n" for name in names).encode())


def _replace(part: Path, out: Path) -> None:
    """Put `part` in the place of `out`; an older one is moved away first and removed after."""
    old = out.with_name(f".{out.name}.{os.getpid()}.old")
    if out.exists():
        os.replace(out, old)
    os.replace(part, out)
    shutil.rmtree(old, ignore_errors=True)
