"""Estimates of committed results in words, each in the unit of its metric."""

from collections.abc import Mapping
from typing import Any

from interplay.report.metric_spec import measure_of

ABSENT = "no number: what it needs is missing"


def of_claim(claim: Mapping[str, Any]) -> str:
    """`strict pass@1 of rl − base on edge: +28.4 [+22.3, +34.6] points over 3 seeds.`; of what records hold `in` its stage."""
    test = claim["test"]
    if claim["estimate"]["value"] is None:
        return f"{ABSENT}."
    subject = f"{test['arm']} − {test['against']}" if "against" in test else test["arm"]
    where = f"on {test['band']}" if test["band"] else f"in {test['recorded']}"
    beware = f" Beware: {claim['caveat']}." if "caveat" in claim else ""
    return f"{_metric(test).replace('_', ' ')} of {subject} {where}: {estimate(claim)}.{beware}"


def estimate(claim: Mapping[str, Any]) -> str:
    """`+28.4 [+22.3, +34.6] points over 3 seeds`"""
    found, test = claim["estimate"], claim["test"]
    if found["value"] is None:
        return ABSENT
    return f"{_interval(_metric(test), 'against' in test, found['value'], found['low'], found['high'])} {target(found['over'])}"


def target(over: str) -> str:
    """What an interval is for, or in results of before that was stated what it is uncertain over."""
    return f"{'for' if over.startswith(('any base', 'this base')) else 'over'} {over}"


def of_contrast(metric: str, entry: Mapping[str, Any]) -> str:
    """`+3.1 [+0.2, +6.0] points, noise floor 1.2, adjusted p 0.040`: against its rival."""
    value, low, high = entry["difference"]
    if value is None or entry["floor"] is None or entry["adjusted"] is None:
        return ABSENT
    floor = measure_of(metric).shown(entry["floor"])
    return f"{_interval(metric, True, value, low, high)}, noise floor {floor}, adjusted p {entry['adjusted']:.3f}"


def _metric(test: Mapping[str, Any]) -> str:
    return str(test.get("value") or test.get("difference"))


def _interval(metric: str, signed: bool, *ends: float | None) -> str:
    """Value, low and high with their unit; of one run that has no interval, the value alone."""
    unit = measure_of(metric)
    value, *limits = (unit.shown(number, signed) for number in ends if number is not None)
    return f"{value} [{', '.join(limits)}] {unit.unit_of(signed)}".replace(" [] ", " ").rstrip()
