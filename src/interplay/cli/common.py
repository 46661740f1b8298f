"""What commands share: where a project's parts lie, and how a study is named."""

import argparse
import math
from collections.abc import Callable
from pathlib import Path

from interplay.schema.base import MOST, shown
from interplay.study import compose
from interplay.study.graph import plan_study
from interplay.study.plan import Plan

CONFIGS = Path("configs")
RESULTS = Path("results")


def study_arguments(parser: argparse.ArgumentParser) -> None:
    """`STUDY [--scale SCALE]`."""
    parser.add_argument("study", help="a file below configs/study, without .yaml")
    scale_argument(parser)


def scale_argument(parser: argparse.ArgumentParser) -> None:
    """`[--scale SCALE]`."""
    parser.add_argument("--scale", help="a file below configs/scale (default: that of configs/config.yaml)")


def default_scale() -> str:
    """The scale of configs/config.yaml."""
    return compose.chosen(CONFIGS, {})[1]


def elsewhere(plan: Plan) -> str:
    """At which other scales there are results, with what to add to the command; empty where the plan has some, or no scale."""
    from interplay.study import elsewhere

    return elsewhere.hint(CONFIGS, RESULTS, plan)


def nothing_of(plan: Plan, where: str) -> str:
    """That nothing of a study is there, and what would change that; `where` else there is something, as of `elsewhere`."""
    command = f"snakemake all --config study={plan.study} scale={plan.scale}"
    return f"{RESULTS}: nothing of {plan.study} at scale {plan.scale} yet; {f'{where}, or ' if where else ''}run `{command}`"


def plan_of(args: argparse.Namespace) -> Plan:
    """The plan of the study that `study_arguments` named."""
    return plan_study(CONFIGS, args.study, args.scale or default_scale())


def is_whole(text: str) -> bool:
    """Whether a text is a whole number from 0 on, and none that is too long to be meant."""
    return text.isdecimal() and len(text) <= len(str(MOST))


def whole(least: int) -> Callable[[str], int]:
    """For argparse: a whole number that is no smaller."""

    def read(text: str) -> int:
        if not is_whole(text) or int(text) < least:
            raise argparse.ArgumentTypeError(f"{shown(text)} is no whole number from {least} on")
        return int(text)

    return read


def amount(text: str) -> float:
    """For argparse: a number that is not negative, such as of hours; not NaN, which every comparison lets pass."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{shown(text)} is no number from 0 on")
    return number
