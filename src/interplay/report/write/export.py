"""A finished study as one folder that explains itself: page, answers, records, plan, settings, environment, checksums."""

import importlib.metadata
import os
import platform
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import cast

from interplay.core import artifact
from interplay.core.model import UserError
from interplay.report.spec import ReportSpec
from interplay.report.stats import frame, provenance
from interplay.report.write import answers, page, summary
from interplay.results import kept
from interplay.study.plan import Plan

MARK = "export.json"
"""A file that marks a folder as an export, which a later one may replace."""

README = """{title}
{rule}
{question}

Study {study} at scale {scale}, exported from Interplay.

index.html         the report; opens offline in any browser
claims.json        what was asserted, tested, and the verdicts
tables/            every table as CSV, Markdown and LaTeX
figures/           every figure as PNG and SVG
plan.json          every stage: kind, settings, dependencies, digest
records/           <kind>/<digest>/record.json: what each stage measured, with the checksums of the files it made; next to it
                   what tables are made from: counts per prompt, keys of problem sets, curves. No weights, no completions
settings/          the study's and the scale's YAML, as written
requirements.txt   versions of the Python packages that were installed at the export
export.json        study, scale, digest of the report, commit, Python, kind of machine
SHA256SUMS         check with `sha256sum -c SHA256SUMS`

To make it again, in a checkout of Interplay at the commit that export.json names:
`snakemake all --config study={study} scale={scale}`. A stage whose digest is in plan.json is the same stage.
"""


def write_export(plan: Plan, configs: Path, results: Path, out: Path) -> None:
    """Write the export into `out`, which appears whole or not at all; an older export there is replaced, anything else is not.

    Raises UserError when the study is not finished or `out` is no export."""
    report = artifact.folder(results, "report", plan.report)
    if not artifact.done(report):
        command = f"snakemake all --config study={plan.study} scale={plan.scale}"
        raise UserError(f"{report}: {plan.study} is not finished; run `{command}`")
    artifact.check(report)
    _write_whole(out, lambda part: _fill(part, plan, configs, results, report))


def write_drawn(path: Path, out: Path) -> None:
    """Write tables and figures of a summary (`write.summary`) into `out`, under the same conditions."""

    def fill(part: Path) -> None:
        summary.write_files(path, part)
        artifact.write_json(part / MARK, {"from": path.name})

    _write_whole(out, fill)


def _write_whole(out: Path, fill: Callable[[Path], None]) -> None:
    if out.is_symlink() or (out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / MARK).exists()))):
        raise UserError(f"{out}: not an export; name a folder that is new, empty or an older export")
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        fill(part)
        _replace(part, out)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _fill(part: Path, plan: Plan, configs: Path, results: Path, report: Path) -> None:
    spec = cast(ReportSpec, plan.stages[plan.report].spec)
    files: dict[str, kept.Content] = {
        **kept.kept_files(results, plan),
        **{n: report / n for n in artifact.record(report)["files"]},
    }
    for folder, name in (("study", plan.study), ("scale", plan.scale)):
        files[f"settings/{folder}/{name}.yaml"] = configs / folder / f"{name}.yaml"
    title = f"Interplay: {plan.study}"
    files["index.html"] = _page(spec, plan, results).encode()
    files["README.txt"] = README.format(
        title=title, rule="=" * len(title), question=spec.question, study=plan.study, scale=plan.scale
    ).encode()
    files["requirements.txt"] = "".join(f"{line}\n" for line in _packages()).encode()
    kept.write_folder(part, files)
    artifact.write_json(part / MARK, _about(plan))
    names = sorted(str(path.relative_to(part)) for path in part.rglob("*") if path.is_file())
    artifact.write_atomic(part / "SHA256SUMS", "".join(f"{artifact.checksum(part / name)}  {name}\n" for name in names).encode())


def _page(spec: ReportSpec, plan: Plan, results: Path) -> str:
    """The page with its hours and without the names of machines."""
    inputs = {digest: artifact.folder(results, plan.stages[digest].kind, digest) for digest in plan.stages[plan.report].deps}
    of = provenance.of_inputs(spec, inputs)
    telemetry = {digest: {key: value for key, value in known.items() if key != "host"} for digest, known in of.telemetry.items()}
    return page.render_page(answers.answer_study(frame.read_results(spec, inputs)), of._replace(telemetry=telemetry), [])


def _packages() -> list[str]:
    found = {dist.metadata["Name"]: dist.version for dist in importlib.metadata.distributions() if dist.metadata["Name"]}
    return [f"{name}=={version}" for name, version in sorted(found.items(), key=lambda item: item[0].lower())]


def _about(plan: Plan) -> dict[str, str]:
    return {
        "study": plan.study,
        "scale": plan.scale,
        "report": plan.report,
        "commit": artifact.current_commit() or "not from a git repository",
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
    }


def _replace(part: Path, out: Path) -> None:
    """Put `part` in the place of `out`; an older one is moved away first and removed after."""
    old = out.with_name(f".{out.name}.{os.getpid()}.old")
    if out.exists():
        os.replace(out, old)
    os.replace(part, out)
    shutil.rmtree(old, ignore_errors=True)
