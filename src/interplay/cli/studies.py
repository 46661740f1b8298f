"""Studies from first line to verdicts: `interplay new`, `run`, `settle` and `report`; and `adopt` of models from outside."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
import yaml

from interplay.cli import common, complete_key
from interplay.cli.common import CONFIGS, LOGS, RESULTS, argument, command, flag, option
from interplay.core import artifact, metrics, model
from interplay.kinds.table import length_key
from interplay.study.plan import Plan

NAME = re.compile(r"[a-z0-9_]+(/[a-z0-9_]+)*")
PROFILE = "SNAKEMAKE_PROFILE"
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP)
"""Signals to `interplay run` that Snakemake and its jobs get, too; the end of a terminal as SIGTERM."""
WIDTH = 100
WORDS = "keys of the study, as for `interplay plan`; max_hours=H, max_gpu_hours=H; options of Snakemake"

app = common.new_app()


# -- new ---------------------------------------------------------------------------------------------------------------

HEAD = """# yaml-language-server: $schema={up}../schema/study.json
# Made from the study {source}: all that it says holds here, too, and what follows is added or put in its place.
#   interplay plan {name}     what an edit makes anew, and what it costs
#   interplay run {name}      run what is new; verdicts and page at the end
# Every key: docs/reference/index.md. `interplay list methods` (or tasks, metrics, scales) lists what is known.
defaults:
  - /study/{source}@_here_
  - _self_

question: {question}
"""
ARMS = """
# Arms in addition to those of {source}: {arms}.
# A path lists stages, each starting from the one before it; `set` replaces values of stages, `grid` makes one arm for each value.
# An arm may differ from its `control` in what it declares and in nothing else.
#arms:
#  longer: {{path: {path}, control: {control}, set: {{{stage}.{length}: {twice}}}}}
#  swept: {{path: {path}, control: {control}, grid: {{{stage}.{key}: {values}}}}}
"""
CLAIMS = """
# What you expect, written before the run: bounds on values, or on differences to another arm (0.05: 5 points). They replace
# those of {source} as a whole.
#exploratory: false   # if {source} is exploratory: refuse claims whose power is below 0.8
#claims:
#  - says: More steps help
#    test: {{difference: {metric}, band: {band}, arm: longer, against: {control}, at_least: 0.05}}
"""


@command(app, "new")
def write_study(
    name: Annotated[str, argument("of the new study; with / it lies in a folder")],
    source: Annotated[
        str, option("--from", "the study that it extends (default quickstart)", complete=common.complete_study, metavar="STUDY")
    ] = "quickstart",
    scale: common.Scale = None,
) -> None:
    """Writes a commented study into configs/study, which extends another one, and prints its plan. As written it plans what that
    one plans, so that nothing but the report is new; uncomment an arm, or write your own.

    Examples:
        interplay new my_ablation --from quickstart  # configs/study/my_ablation.yaml
    """
    from interplay.cli import overview
    from interplay.study import expand

    if not NAME.fullmatch(name):
        raise model.UserError(f"{model.shorten_value(name)}: a study's name has a-z, 0-9, _ and / alone, such as my_ablation")
    path = CONFIGS / "study" / f"{name}.yaml"
    if path.exists():
        raise model.UserError(f"{path}: is there already; edit it, or choose another name")
    plan = common.plan_of(expand.study_name(CONFIGS, source), scale)
    artifact.write_atomic(path, _template(name, plan).encode())
    made = common.plan_of(name, plan.scale)
    common.show_parts(*overview.overview_parts(overview.read_overview(made, CONFIGS, RESULTS)), spaced=True)
    at = f" --scale {plan.scale}" if plan.scale != common.default_scale() else ""
    model.print_visible(f"\nwrote {path}\nnext: edit it, then `interplay plan {name}{at}` and `interplay run {name}{at}`")


def _template(name: str, plan: Plan) -> str:
    """The text of a study that extends a plan's."""

    spec = plan.report_spec()
    question = yaml.safe_dump(spec.question, width=10**6, allow_unicode=True).removesuffix("...\n").strip()
    text = HEAD.format(up="../" * name.count("/"), source=plan.study, name=name, question=question)
    trained = [(row, row.path[-1]) for row in spec.arms if row.control and row.path and length_key(row.path[-1].kind)]
    if trained:
        row, stage = next((pair for pair in trained if pair[1].kind == "rl"), trained[0])
        made: Any = plan.stages[stage.digest].spec
        length = str(length_key(stage.kind))
        whole = getattr(made, length)
        pulled = stage.kind == "rl" and hasattr(made.method.loss, "beta")
        arms = ", ".join(spec.arm_names())
        known = {
            "source": plan.study,
            "arms": arms if len(arms) < WIDTH else f"{arms[:WIDTH]}...",
            "path": f"[{', '.join(part.name for part in row.path)}]",
            "control": row.arm,
            "stage": stage.name,
            "length": length,
            "twice": 2 * whole,
            "key": "method.loss.beta" if pulled else length,
            "values": "[0.01, 0.1]" if pulled else f"[{whole // 2}, {whole * 4}]",
            "metric": "strict_pass@1",
            "band": next(iter(spec.bands), "test"),
        }
        text += ARMS.format(**known) + CLAIMS.format(**known)
    return text


# -- run ---------------------------------------------------------------------------------------------------------------


@command(app, "run", {"allow_extra_args": True, "ignore_unknown_options": True})
def run_study(
    study: common.Study,
    words: Annotated[list[str] | None, argument(WORDS, complete_key, "KEY=VALUE")] = None,
    scale: common.Scale = None,
    profile: Annotated[str | None, option("--profile", "of Snakemake: local (the default) or slurm")] = None,
    dry: Annotated[bool, flag("--dry-run", "only list the jobs")] = False,
) -> None:
    """Runs what is new of a study and ends with its verdicts and the path of its page. A thin layer over `snakemake all --config
    study=STUDY scale=S`: KEY=VALUE changes a key of the study, as for `interplay plan`; max_hours=H and max_gpu_hours=H refuse a
    launch that takes longer; options that are not listed here go to Snakemake. When a stage fails, the last lines are its cause
    and the next command.

    Examples:
        interplay run edge  # this machine, at the scale of configs/config.yaml
        interplay run edge rl.method=gspo --scale smoke --cores 2  # with a key of the study changed, on two cores
        interplay run edge --profile slurm  # on a cluster
    """
    from interplay.api import single
    from interplay.results import state
    from interplay.study import choices

    given, settings, option = words or [], list[str](), ""
    for word in given:
        option = word if word.startswith("-") else option
        settings += [word] if re.match(r"[\w.]+=", word) and not TAKES_PAIRS.fullmatch(option) else []
    limits = [word for word in settings if word.partition("=")[0] in choices.LIMITS]
    keys = [word for word in settings if word not in limits]
    choices.hour_limits(dict(word.split("=", 1) for word in limits))  # refused here rather than within Snakemake's messages
    _check_profile(profile)
    _check_counts(given)
    _check_options([word for word in given if word not in settings])
    plan = common.plan_of(study, scale, keys)
    single.try_rewards(plan, CONFIGS, RESULTS)
    chosen = [f"study={plan.study}", f"scale={plan.scale}", *limits, *([f"set={shlex.join(keys)}"] if keys else [])]
    more = [word for word in given if word not in settings] + (["--dry-run"] if dry else [])
    code = _run_snakemake(["all", *more, *_profile(profile), "--config", *chosen])
    if not dry or code:
        for line in state.failure_lines(plan, RESULTS, LOGS, bool(keys)) if code else common.report_lines(plan):
            model.print_visible(line)
    if code:
        raise typer.Exit(code)


@command(app, "settle")
def settle_claims(
    study: common.Study,
    scale: common.Scale = None,
    hours: Annotated[
        float | None, option("--hours", "add replicates, look by look, for this many hours at most", **common.HOURS)
    ] = None,
    profile: Annotated[str | None, option("--profile", "of Snakemake: local (the default) or slurm")] = None,
) -> None:
    """Says what the verdicts of a study still need: from the spread of the replicates that are there, how many settle each
    claim, and what they cost. The first number is where the 95 % interval is expected to be below the estimate's distance from
    the bound; the second is where four of five repetitions settle it. To add replicates until a verdict comes is no test, unless
    the study declares beforehand when it looks: with `stopping: {looks: [6, 12, 24]}` and --hours it runs Snakemake for the
    replicates of the next look, judges, and goes on until every claim and fight has stopped, or the hours are used. Stopped
    by anything it goes on where it was. The replicates of a look are the first of seeds.values, in every call.

    Examples:
        interplay settle edge  # replicates and hours for each open claim
        interplay settle edge --hours 8  # add replicates until all claims have stopped
    """
    from interplay.api import frames

    plan = common.plan_of(study, scale)
    whole = common.at_look(plan)
    if hours is not None and not plan.design.get("stopping"):
        at = f"configs/study/{plan.study}.yaml"
        raise model.UserError(
            f"{at}: --hours adds replicates by looks; declare them before the run, `stopping: {{looks: [6, 12]}}`"
        )
    if hours is not None:
        _check_profile(profile)
        _add_replicates(plan, whole, time.monotonic() + hours * 3600, profile)
    for line in frames.settle_lines(whole, RESULTS):
        model.print_visible(line)
    count = frames.next_look(whole, RESULTS) if plan.design.get("stopping") else None
    if count is not None:
        command = shlex.join(["snakemake", "all", "--config", *_config(common.at_look(plan, count))])
        model.print_visible(
            f"next look: {count} replicates: {command}\n`interplay settle {study} --hours H` runs this, and goes on"
        )


def _config(plan: Plan) -> list[str]:
    """The configuration of Snakemake for the plan of a look."""
    return [f"study={plan.study}", f"scale={plan.scale}", f"set={common.seeds_key(plan.design['seeds']['values'])}"]


def _add_replicates(plan: Plan, whole: Plan, end: float, profile: str | None) -> None:
    """Run look after look until all claims have stopped or the time is over. Exit code 1 with the cause where a stage fails."""
    from interplay.api import frames
    from interplay.results import state

    made = 0
    while (count := frames.next_look(whole, RESULTS)) is not None and count > made and time.monotonic() < end:
        look, made = common.at_look(plan, count), count
        model.print_visible(f"look at {count} replicates: {len(look.stages)} stages in all")
        code = _run_snakemake(["all", *_profile(profile), "--config", *_config(look)], end - time.monotonic())
        if time.monotonic() >= end and code:
            model.print_visible(f"the hours are used; `interplay settle {plan.study} --hours H` goes on where this stopped")
            return
        for line in state.failure_lines(look, RESULTS, LOGS, True) if code else common.report_lines(look):
            model.print_visible(line)
        if code:
            raise typer.Exit(1)


def _profile(given: str | None) -> list[str]:
    """Words for the profile: the given one, else the environment's, else the local one."""
    return ["--profile", given or "local"] if given or not os.environ.get(PROFILE) else []


def _check_profile(given: str | None) -> None:
    """Raises UserError for the name of a profile that Snakemake would not find, where the project has profiles of its own; and
    for an empty one, as of a shell variable that is not set leaves."""
    folder, named = Path("workflows/profiles"), os.environ.get(PROFILE)
    if given == "":
        raise model.UserError("--profile: it is empty; name a profile, such as slurm, or leave --profile out")
    places = [Path(), folder, Path.home() / ".config/snakemake", Path("/etc/xdg/snakemake")]
    if given is None and named and folder.is_dir() and not any((place / named).exists() for place in places):
        raise model.UserError(f"{PROFILE}={named}: no such profile; set the variable to one, or unset it")
    known = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if given and known and "/" not in given and given not in known and not Path(given).exists():
        raise model.UserError(f"--profile {given}: no folder {folder}/{given}{model.nearest_name(given, known)}")


def _check_counts(words: list[str]) -> None:
    """Raises UserError for a number of cores or jobs that Snakemake would refuse, which it does once it has read the plan."""
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        found = re.fullmatch(r"(--cores|--jobs|-[cj](?!=))=?(.*)", word)
        if found is None:
            continue
        option, value = found[1], found[2] or ("" if word.endswith("=") else following)
        every = "all" if "c" in option else "unlimited"
        if value != every and not re.fullmatch("0*[1-9][0-9]*", value):
            raise model.UserError(f"{option} {value or 'without a value'}: must be a number from 1 on, or {every}")


TAKES_PAIRS = re.compile(r"--(resources|res|default-resources|default-res|set-[\w-]+)")
"""Options of Snakemake that NAME=VALUE follow."""
COMMON = re.compile(r"--(cores|jobs)(=.*)?|-[cj]\d*|-[nkq]|--(dry-run|keep-going|quiet|rerun-incomplete)")
"""Options of Snakemake that need not be looked up."""


def _check_options(words: list[str]) -> None:
    """Raises UserError for words that are none of Snakemake's options: it would print all that it has, or take them for targets,
    once it has read the plan."""
    if all(COMMON.fullmatch(word) or (word[:1] != "-" and before[:1] == "-") for before, word in pairwise(["", *words])):
        return
    from snakemake import cli  # half a second

    def refuse(message: str) -> NoReturn:
        raise model.UserError(f"run: {message}; see `snakemake --help`")

    parser = cli.get_argument_parser()
    parser.error = refuse
    read, unknown = parser.parse_known_args(words)
    if odd := next((word for word in unknown if word.startswith("-")), None):
        known = [name for action in parser._actions for name in action.option_strings]
        raise model.UserError(f"run: {odd}: no option of Snakemake{model.nearest_name(odd.partition('=')[0], known)}")
    if read.targets:
        must = "a study at a time, KEY=VALUE and options; `snakemake TARGET --config study=STUDY` makes one target"
        raise model.UserError(f"run: {read.targets[0]}: it takes {must}")


def _run_snakemake(words: list[str], seconds: float | None = None) -> int:
    """Snakemake in a process group of its own, to which signals are passed on, so that they reach its jobs as well: these save
    and stop, as they do after so many seconds. Ctrl-Z suspends all of them. It also stops when this process is killed
    (`forkserver.end_with_launcher`)."""
    from interplay.results import state
    from interplay.run import forkserver

    if not Path("Snakefile").exists() and not {"-s", "--snakefile"} & {*words}:
        raise model.UserError("Snakefile: no such file here; run from the root of the project")
    life = os.pipe()
    environment = {**os.environ, forkserver.LAUNCHER: str(life[0]), state.SWITCH: "0"}  # said here, after what Snakemake says
    command = [sys.executable, "-m", "snakemake", *words]
    with subprocess.Popen(command, env=environment, pass_fds=life[:1], process_group=0) as process:

        def pass_on(number: int, frame: object) -> None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.killpg(process.pid, signal.SIGTERM if number == signal.SIGHUP else number)
                if number == signal.SIGTSTP:
                    os.kill(os.getpid(), signal.SIGSTOP)
                    os.killpg(process.pid, signal.SIGCONT)

        passed = [number for number in PASSED_ON if signal.getsignal(number) != signal.SIG_IGN]  # nohup ignores SIGHUP
        before = {number: signal.signal(number, pass_on) for number in passed}
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(seconds)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            return process.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            for end in life:
                os.close(end)


# -- report ------------------------------------------------------------------------------------------------------------


@command(app, "report")
def locate_report(study: common.Study, scale: common.Scale = None) -> None:
    """Prints the verdicts of a study's claims with their numbers, and the path of its report. Where arms have failed or are
    unfinished, it writes a partial report that lists what is missing, and why.

    Examples:
        interplay report edge  # what was found, and where the page lies
    """
    for line in common.report_lines(common.plan_of(study, scale)):
        model.print_visible(line)


# -- models from outside -------------------------------------------------------------------------------------------------


@command(app, "adopt")
def adopt_model(
    folder: Annotated[
        Path, argument("a Hugging Face model folder, a GGUF file, or a finished artifact: OTHER/results/KIND/DIGEST")
    ],
    study: Annotated[
        str | None,
        option(
            "--study",
            "the study that will use the model, new or not; names the file in the output",
            complete=common.complete_study,
        ),
    ] = None,
    stage: Annotated[str, option("--stage", "the stage's name there (default base)")] = "base",
    inputs: Annotated[bool, flag("--inputs", "of an artifact: adopt all that it depends on, too")] = False,
) -> None:
    """Adds a model from outside to the graph as a stage, so that studies can start from it. Its identity is the content of its
    files.

    Examples:
        interplay adopt /models/base  # a Hugging Face folder
    """
    from interplay.api import single

    if study and not re.fullmatch(r"[\w-]+(/[\w-]+)*", study):
        raise model.UserError(f"--study = {study!r}: must be a file's name below {CONFIGS}/study, without .yaml")
    if not stage.isidentifier():
        raise model.UserError(f"--stage = {stage!r}: must be a word, such as base")
    if (folder / "record.json").exists():
        made = single.adopt_artifacts(folder, RESULTS, inputs)
        model.print_visible(f"adopted {', '.join(made)}" if made else f"{folder.name} was here already, complete")
        return
    is_gguf = folder.suffix == ".gguf" and folder.is_file()
    if not is_gguf and not (folder / "config.json").exists():
        raise model.UserError(
            f"{folder}: neither a model (config.json, or a .gguf file) nor a finished artifact (record.json); name one"
        )
    checksum, out, made_now = (single.adopt_gguf if is_gguf else single.adopt_model)(folder, RESULTS, stage)
    parameters = artifact.record(out)["metrics"]["parameters"]
    model.print_visible(f"{'adopted' if made_now else 'here already:'} {out}, {metrics.quantity(parameters)} parameters")
    place = f"{CONFIGS}/study/{study}.yaml" if study else "a study"
    model.print_visible(f"in {place}{'' if not study or Path(place).exists() else ' (a new file)'}:\n")
    model.print_visible(f"stages:\n  {stage}: {{kind: source, sha256: {checksum}}}")
    model.print_visible(f"arms:\n  {stage}: {{path: [{stage}]}}")
