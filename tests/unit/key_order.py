"""The same configuration with its keys in another order, and what of a plan must stay the same then.

Two orders mean something and are left as they are: that of the keys of axes (and of mappings among their values), which is that of
the words in the names of arms, and that of arms, which is that of rows in tables and figures: the lists that follow it are compared
without their order."""

import json
from collections.abc import Callable
from typing import Any

from interplay.study.plan import Plan

AXES = ("grid", "zip", "one_at_a_time", "nested")
IN_ORDER_OF_ARMS = ("arms", "lineups", "placed")


def reordered(tree: Any, order: Callable[[list[str]], list[str]]) -> Any:
    """The tree with the keys of every map, but for axes, in the order that `order` gives them."""
    if isinstance(tree, dict):
        return {key: tree[key] if key in AXES else reordered(tree[key], order) for key in order(list(tree))}
    return [reordered(item, order) for item in tree] if isinstance(tree, list) else tree


def reversed_maps(tree: Any) -> Any:
    return reordered(tree, lambda keys: keys[::-1])


def meaning(plan: Plan) -> tuple[set[str], dict[str, Any]]:
    """The digests of all stages but the report, and what the report is asked."""
    report = plan.stages[plan.report].as_json()
    asked = {key: _unordered(value) if key in IN_ORDER_OF_ARMS else value for key, value in report["spec"].items()}
    for part in ("tables", "figures"):  # that `controls` lists the study's own arms in
        asked[part] = {name: {**one, "arms": _unordered(one["arms"])} for name, one in asked[part].items()}
    return set(plan.stages) - {plan.report}, {**asked, "deps": report["deps"]}


def _unordered(value: Any) -> Any:
    """The value with every list in it sorted."""
    if isinstance(value, dict):
        return {key: _unordered(item) for key, item in value.items()}
    return sorted(map(_unordered, value), key=lambda item: json.dumps(item, sort_keys=True)) if isinstance(value, list) else value
