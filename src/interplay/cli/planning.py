"""Commands before a run, `interplay plan` and `register`; and what judges and checks results: `judge` and `verify`."""

import json
import textwrap
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interplay.cli import common, complete_key
from interplay.cli.common import CONFIGS, RESULTS, command, flag, option
from interplay.core import artifact, metrics
from interplay.core.model import UserError, plural, print_visible
from interplay.study.plan import Plan

if TYPE_CHECKING:
    from interplay.cli.overview import Overview

app = common.new_app()
KEYS = "keys of the study that differ from its file, as in an arm's `set`: rl.method=gspo, rl.steps=10, seeds.values=[0,1]"


@command(app, "plan")
def plan_stages(
    study: common.AnyStudy = None,
    keys: Annotated[list[str] | None, common.argument(KEYS, complete_key, "KEY=VALUE")] = None,
    scale: common.Scale = None,
    full: Annotated[bool, flag("--full", "explain every new stage and name every field that differs")] = False,
    stages: Annotated[bool, flag("--stages", "list every stage with its state")] = False,
    specs: Annotated[bool, flag("--specs", "every stage with all its settings, as JSON, one stage a line")] = False,
    as_json: Annotated[bool, flag("--json", "the same as JSON")] = False,
    against: Annotated[
        str | None, option("--against", "compare with the lock of another commit, tag or branch", metavar="REV")
    ] = None,
    max_gpu_hours: Annotated[
        float | None, option("--max-gpu-hours", "exit 2 when the new stages need more GPU-hours", **common.HOURS)
    ] = None,
    max_hours: Annotated[
        float | None, option("--max-hours", "exit 2 when they need more hours, one stage after another", **common.HOURS)
    ] = None,
    strict_code: Annotated[bool, flag("--strict-code", "exit 2 when sources of finished stages have changed")] = False,
    gpus: Annotated[str, option("--gpus", "also the time on these numbers of GPUs", metavar="N,...")] = "",
    every: Annotated[bool, flag("--all", "every study at every scale")] = False,
    write: Annotated[bool, flag("--write", "write configs/plans/<study>.<scale>.lock.json")] = False,
    check: Annotated[bool, flag("--check", "fail when a lock differs from the configs; name a field")] = False,
) -> None:
    """Expands a study into its stages and lists which are new, which exist and which no study needs any more; the tokens, FLOPs,
    hours and memory of the new ones; and, for each new stage, the nearest existing one and the first difference. Runs no stage,
    and writes nothing without --write. A reward of the study's own is called once, in a process of its own, on a few completions.
    Exit code 2 where a launch would be refused: a stage needs more memory than its run block declares, a model or file that the
    study names is not here, or a claim has a power below 0.8, by the pilot, and is not marked as exploratory.

    Examples:
        interplay plan edge  # the study at the scale of configs/config.yaml
        interplay plan edge --scale smoke  # at another scale
        interplay plan edge rl.method=gspo rl.steps=10  # with keys of the study changed
        interplay plan edge --against main~3  # compared with the lock of another commit
        interplay plan edge --max-gpu-hours 5  # exit code 2 when it needs more
        interplay plan edge --scale gpu --gpus 1,8,64  # the time on 1, 8 and 64 GPUs
        interplay plan --all --write  # renew the locks in configs/plans
    """
    from interplay.results import estimate, locks

    counts = _gpu_counts(gpus)
    if not study and not (every and (write or check)):
        raise UserError("plan: name a study, or give --all with --write or --check")
    if every and study:
        raise UserError(f"plan: --all is every study; leave out --all or {study}")
    if (write or check) and [key for key in keys or [] if not key.startswith("scale=")]:
        raise UserError("plan: --write and --check are about the files as they are; leave out KEY=VALUE, or edit the study")
    unread: dict[str, Any] = {"--full": full, "--stages": stages, "--specs": specs, "--json": as_json, "--against": against}
    unread |= {"--strict-code": strict_code, "--max-gpu-hours": max_gpu_hours, "--max-hours": max_hours, "--gpus": gpus or None}
    given = [name for name, value in unread.items() if (every or write or check) and value is not None and value is not False]
    if given or (every and scale):
        mode = "--all" if every else "--write or --check"
        raise UserError(f"plan: {[*given, '--scale'][0]} is not read with {mode}; leave it out")
    plans = [common.plan_of(study, scale, keys or [])] if study and not every else common.every_plan()
    if check:
        locks.check_locks(plans, CONFIGS, RESULTS, every)
    if write:
        for path in locks.write_locks(plans, CONFIGS, every):
            print_visible(f"wrote {path}")
    if check or write:
        return
    if against is not None:
        _show_differences(plans[0], against, full, as_json)
        return
    if specs:
        print_visible(plans[0].full_text(), end="")
        return
    seen = _show_overview(plans[0], counts, full, stages, as_json)
    estimate.refuse_over_limits(f"plan {study} at scale {plans[0].scale}", seen.estimate, max_gpu_hours, max_hours)
    estimate.refuse_unfit(f"plan {study} at scale {plans[0].scale}", seen.plan, seen.estimate, RESULTS)
    inputs = list(dict.fromkeys(why for digest, why in seen.lacking.items() if not seen.plan.stages[digest].deps))
    if inputs:  # an engine that is not here may be where the study runs
        more = f"; and {plural(len(inputs) - 1, 'more input')}" if len(inputs) > 1 else ""
        raise UserError(f"plan {study} at scale {seen.plan.scale}: cannot run on this machine: {inputs[0]}{more}")
    if strict_code and seen.drifted:
        raise UserError(f"--strict-code: sources of finished stages have changed: {', '.join(seen.drifted)}")
    _refuse_short(seen)


def _refuse_short(seen: "Overview") -> None:
    if seen.power:
        from interplay.report.stats import power  # scipy: a plan without a pilot goes without

        power.refuse_short(seen.plan, seen.power)


def _gpu_counts(text: str) -> list[int]:
    """Numbers of GPUs from the command line."""
    words = text.split(",") if text else []
    if not all(word.isdecimal() and 0 < int(word) <= common.MOST for word in words):
        raise UserError(f"--gpus {text}: must be numbers of GPUs, such as 1,8,64")
    return [int(word) for word in words]


def _show_differences(plan: Plan, revision: str, full: bool, as_json: bool) -> None:
    from interplay.cli import overview
    from interplay.results import locks

    old = locks.lock_of_commit(plan, CONFIGS, RESULTS, revision)
    found = locks.compare_stages(old.stages, plan.stages_json())
    listed = {**locks.differences_json(found), "lacking": old.lacking}
    print_visible(json.dumps(listed, indent=1) if as_json else overview.differences_text(found, old, full))


def _show_overview(plan: Plan, counts: list[int], full: bool, stages: bool, as_json: bool) -> "Overview":
    from interplay.api import single
    from interplay.cli import overview
    from interplay.results import estimate, locks

    rewards = single.try_rewards(plan, CONFIGS, RESULTS)
    stale, unexercised = locks.difference_from_tree(plan, CONFIGS, RESULTS), locks.unexercised(plan, CONFIGS)
    seen = overview.read_overview(plan, CONFIGS, RESULTS, full)
    on = [] if seen.estimate.unknown() else [estimate.schedule_stages(plan, seen.estimate, count) for count in counts]
    if as_json:
        more = {"not_locked": stale, "unexercised": unexercised, "on_gpus": [one._asdict() for one in on], "rewards": rewards}
        print_visible(json.dumps({**overview.overview_json(seen), **more}, indent=1))
    else:
        parts = overview.overview_parts(seen, full, stages, stale, unexercised)
        common.show_parts(*parts, *(["\n".join(rewards)] if rewards else []), spaced=True)
        for one in on:
            hours, busy = metrics.clock(one.hours * 3600), f"{one.busy:.0%} of their time in use"
            print_visible(f"on {plural(one.gpus, 'GPU')}: {hours}, {busy}")
        if counts and not on:
            print_visible("on GPUs: unknown, since the time of some stages is")
    return seen


@command(app, "register")
def register_study(
    study: common.AnyStudy = None,
    scale: common.Scale = None,
    forecasts: Annotated[bool, flag("--forecasts", "only show how the forecasts of all registered studies did")] = False,
    late: Annotated[bool, flag("--late", "although there are results of the treatment: marked as registered after data")] = False,
) -> None:
    """Freezes what a study declares before there are results of what it is about: claims with their thresholds, premises and
    forecasts, arms, stages, data, sizes, seeds and the stopping rule, in configs/registered/<study>.<scale>.json. Commit it: the
    commit is the proof of the date. The report then shows forecasts next to results, and every later change as changed after
    seeing data. Refused where a treatment has a record already, and where a claim lacks power (see `interplay plan`). Before
    there are results a repetition replaces the file; afterwards, with --late, it adds to it.

    Examples:
        interplay register edge  # then commit the file, and run the study
        interplay register --forecasts  # how well they are calibrated
    """
    if bool(study) == forecasts:
        raise UserError("register: name a study, or give --forecasts")
    print_visible("\n".join(_forecast_lines()) if study is None else _register(study, scale, late))


def _forecast_lines() -> list[str]:
    """Each forecast next to its result, and how often they hold."""
    from interplay.api import frames
    from interplay.report.write import answers

    lines, held, brier = [], list[bool](), list[float]()
    for path in sorted((CONFIGS / "registered").rglob("*.json")):
        study, _, scale = path.relative_to(CONFIGS / "registered").with_suffix("").as_posix().rpartition(".")
        for item in frames.judged_claims(common.at_look(common.plan_of(study, scale)), RESULTS):
            if item.claim.forecast is not None:
                lines.append(f"{study} at {scale}, {item.claim.says}: {answers.forecast_text(item)}; {item.verdict}")
                found = answers.forecast_scores(item)
                held += [] if found.held is None else [found.held]
                brier += [] if found.brier is None else [found.brier]
    if held:
        lines.append(f"intervals: {sum(held)} of {len(held)} hold the estimate; four of five should")
    if brier:
        lines.append(f"probabilities: mean Brier score {sum(brier) / len(brier):.2f} of {len(brier)}; 0.25 says 50% of all")
    return lines or ["no registered study has a forecast"]


def _register(study: str, scale: str | None, late: bool) -> str:
    """Write the registration of a study; returns what to commit. Raises UserError where it may not be registered."""
    from interplay.cli import overview
    from interplay.results import locks, state, storage
    from interplay.study import plan as plans

    plan = common.plan_of(study, scale)
    spec = plan.report_spec()
    claims, rows = spec.claims, spec.arms
    if not claims:
        raise UserError(f"register {study}: the study makes no claims; write what you expect under `claims`")
    free = plan.design["exploratory"] or all(one.exploratory for one in claims)
    if plan.pilot is None and not free:
        remedy = f"give it one (`scales: {{{plan.scale}: {{pilot: ...}}}}`), or mark the study `exploratory: true`"
        raise UserError(f"register {study}: no pilot at scale {plan.scale}, so that no claim has a known power; {remedy}")
    seen = overview.read_overview(plan, CONFIGS, RESULTS)
    _refuse_short(seen)
    there = [one for one in plans.treatments(plan.stages, rows) if seen.states[one].state in state.FINISHED]
    scores = storage.bundle_path(plan)
    has_data = bool(there) or scores.exists()
    if has_data and not late:
        what = f"{plural(len(there), 'stage')} of its treatments" if there else str(scores)
        named = f", such as {plan.address(plan.stages[there[0]])}," if there else ""
        raise UserError(f"register {study}: {what}{named} are finished; --late registers it as after data")
    path = plans.registration_path(CONFIGS, plan.study, plan.scale)
    known = plans.read_registrations(path) if has_data else []
    looks = spec.stopping.looks if spec.stopping else []
    made = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        "commit": locks.head_commit(),
        "late": has_data,
        "design": plan.design,
        "plan": plans.stages_by_look(plan.stages, rows, looks),
    }
    artifact.write_json(path, {"registrations": [*known, plans.with_checksum(made)]})
    again = common.plan_of(study, scale)
    written = [path, *(locks.write_locks([again], CONFIGS, False) if plan.lock_path(CONFIGS).exists() else [])]
    when = " after data" if has_data else ""
    return f"registered{when}: {plural(len(claims), 'claim')}; commit {' and '.join(map(str, written))}"


@command(app, "judge")
def judge_study(
    what: Annotated[
        list[str],
        common.argument(
            "a study; or files of results from elsewhere: lm-eval's samples_*.jsonl, Inspect's .eval, verifiers' results.jsonl, "
            "or .csv, .tsv, .jsonl, .parquet with an item, a score, and a system (else each file is one)",
            common.complete_study,
            "study|file...",
        ),
    ],
    scale: common.Scale = None,
    score: Annotated[str | None, option("--score", "of files: the score (default: the first)", metavar="NAME")] = None,
    against: Annotated[str | None, option("--against", "of files: system to compare with (default: the first)")] = None,
    cluster: Annotated[str | None, option("--cluster", "of files: column of the groups of items", metavar="COLUMN")] = None,
    margin: Annotated[float | None, option("--margin", "of files: largest difference that counts as none, as 0.02")] = None,
    by_file: Annotated[bool, flag("--by-file", "each file is a system of its own")] = False,
) -> None:
    """Judges the claims and fights of a study anew from the records that are there, finished or not, and prints the verdicts with
    their numbers and the confounds that the records show. `interplay report` prints those of the finished report.

    Of files it compares systems: paired by item, by clusters where there are, p-values adjusted together, with what the items
    would find and how many a difference needs. No study is needed.

    Examples:
        interplay judge edge  # what the records say now
        interplay judge a/samples_gsm8k_1.jsonl b/samples_gsm8k_1.jsonl  # two models by lm-eval
        interplay judge scores.csv --against base --cluster subject  # a table with item, system, score, subject
    """
    if len(what) > 1 or Path(what[0]).suffix in (".jsonl", ".eval", ".csv", ".tsv", ".parquet"):
        from interplay.api import foreign

        for line in foreign.judge_files([Path(name) for name in what], score, against, cluster, margin, by_file):
            print_visible(line)
        return
    of_files = {"--score": score, "--against": against, "--cluster": cluster, "--margin": margin, "--by-file": by_file or None}
    if given := next((name for name, value in of_files.items() if value is not None), None):
        raise UserError(f"judge {what[0]}: {given} is of files; leave it out, or name files of results")
    from interplay.api import frames

    for line in frames.verdict_lines(common.at_look(common.plan_of(what[0], scale)), RESULTS):
        print_visible(line)


@command(app, "verify")
def verify_results(
    what: Annotated[
        str | None,
        common.argument(
            "a study, or a stage by its digest or by-name path (default: everything in results/)", common.complete_stage
        ),
    ] = None,
    scale: common.Scale = None,
    segments: Annotated[
        int | None, option("--segments", "also make this many random segments of the study's stages again", min=1, metavar="K")
    ] = None,
    seed: Annotated[int | None, option("--seed", "of the draw of segments (default: a random one)", min=0, metavar="N")] = None,
    output: Annotated[
        Path | None, option("--output", "with --segments: write a certificate", short="-o", metavar="FILE.json")
    ] = None,
    certificate: Annotated[
        Path | None, option("--certificate", "check a certificate against the plan and the results here", metavar="FILE.json")
    ] = None,
) -> None:
    """Checks finished stages: files by the checksums of their records, records by their digests, and, by computing them again
    without training, verdicts by completions, scores by verdicts, tables and claims by scores, and one digest with two contents.
    With --segments it also makes random parts of runs and evaluations again on this machine, in a temporary folder. Lists the
    stages whose source files have changed since. Exit code 1 where something differs.

    Examples:
        interplay verify  # everything in results
        interplay verify edge  # what a study uses
        interplay verify edge --segments 5 -o edge.certificate.json  # and five random segments, made again here
        interplay verify --certificate edge.certificate.json  # whether it holds for what is here
    """
    if certificate is not None:
        if what or segments:
            raise UserError("verify: --certificate names its study itself; leave the others out")
        _check_certificate(certificate)
        return
    if segments and what is None:
        raise UserError("verify: --segments is of a study; name one")
    plan = None if segments is None else common.plan_of(str(what), scale)
    if segments is None and (seed is not None or output):
        raise UserError(f"verify: {'--output' if output else '--seed'} belongs to --segments; add it, or leave this out")
    _check_files(what, scale)
    if plan and segments:
        _check_segments(plan, segments, seed, output)


def _check_files(what: str | None, scale: str | None) -> None:
    """Everything that needs no training."""
    folders, unfinished, drift = _chosen_folders(what, scale)
    from interplay.api import certify  # torch: not for a mistyped study

    checked = certify.find_damage(folders, RESULTS)
    for wrong in checked.found:
        print_visible(wrong.line)
    for line in drift:
        print_visible(textwrap.fill(line, 100))
    size = metrics.quantity(checked.size)
    total = f"{plural(len(folders), 'finished stage')} ({plural(checked.files, 'file')}, {size} bytes)"
    if checked.found:
        stages = len({wrong.stage for wrong in checked.found})
        remedy = "`interplay store pull` restores what the remote has, and a stage whose folder is removed is made again"
        said = f"interplay: verify: {stages} of {total} differ from their records or contradict themselves; {remedy}"
        typer.echo(said, err=True)
        raise typer.Exit(1)
    print_visible(f"{total}: all as recorded, no contradiction{f'; {unfinished} not finished' if unfinished else ''}")


def _chosen_folders(what: str | None, scale: str | None) -> tuple[list[Path], int, list[str]]:
    """Folders of the finished stages to check, the number of unfinished stages of the study, and lines on sources that have
    changed since."""
    from interplay.results import state
    from interplay.study import expand

    if what is None:
        folders = [artifact.folder(RESULTS, one.kind, digest) for digest, one in sorted(state.scan_results(RESULTS).items())]
    elif what in expand.studies(CONFIGS):
        plan = common.plan_of(what, scale)
        folders = [artifact.folder(RESULTS, stage.kind, digest) for digest, stage in plan.stages.items()]
    else:
        known, (digest, _) = common.find_stage(what, scale)
        folders = [artifact.folder(RESULTS, known.stages[digest]["kind"], digest)]
        if not artifact.done(folders[0]):
            raise UserError(f"{folders[0]}: not finished, so there is nothing to verify")
    finished = [folder for folder in folders if artifact.done(folder)]
    drifted = state.drifted_stages(RESULTS, [(folder.parent.name, folder.name) for folder in finished])
    return finished, len(folders) - len(finished), state.drift_advisory(drifted)


def _check_segments(plan: Plan, count: int, seed: int | None, output: Path | None) -> None:
    """Make segments again, each said when it is done, and write the certificate."""
    from interplay.api import certify

    segments, unfinished = certify.study_segments(plan, RESULTS)
    if not segments:
        raise UserError(common.no_results(plan, common.hint_other_scale(plan)))
    drawn = uuid.uuid4().int % 2**32 if seed is None else seed
    checked = certify.check_segments(
        certify.draw(segments, count, drawn),
        lambda one: certify.remake_segment(one, RESULTS),
        lambda one: print_visible(f"{one.segment.name()}: {one.difference or 'equal'} ({one.seconds} s)"),
    )
    found = certify.certificate(plan, segments, checked, drawn, RESULTS)
    if output:
        artifact.write_json(output, found)
    print_visible(certify.summary(found, output))
    if unfinished:
        print_visible(f"{plural(unfinished, 'stage')} not finished: the certificate does not cover them")
    if found["result"] != certify.CERTIFIED:
        raise typer.Exit(1)


def _check_certificate(file: Path) -> None:
    from interplay.api import certify

    found = certify.read_certificate(file)
    wrong = certify.contradicted(found, common.plan_of(found["study"], found["scale"]), RESULTS)
    print_visible("\n".join([*wrong, f"{file}: does not hold for what is here"] if wrong else [certify.summary(found, None)]))
    if wrong:
        raise typer.Exit(1)
