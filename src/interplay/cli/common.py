"""What commands share: where a project's parts lie, and how a study is named."""

import argparse
from pathlib import Path

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


def plan_of(args: argparse.Namespace) -> Plan:
    """The plan of the study that `study_arguments` named."""
    return plan_study(CONFIGS, args.study, args.scale or default_scale())
