"""From stages to the few boxes of a diagram, with labels cut to their width."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from interplay.core.model import escape_control
from interplay.core.references import CORPUS, is_corpus_role, without_shard
from interplay.report.draw.diagram import Edge, Node

MOST = 40
"""Boxes that one screen shows. When more remain, stages of one name and kind with alike inputs are one box, whatever their
specs."""
STATES = ("failed", "unfinished", "running", "missing", "new", "done")
"""A box has the first state that any of its stages has."""
ENTITIES = {'"': "#quot;", "[": "#91;", "]": "#93;", "<": "#lt;", ">": "#gt;", "#": "#35;", "&": "#amp;"}
ROLES = {"corpus": "corpus", "tokenizer": "tokenizer", "model": "model", "samples": "evaluate", "evaluation": "evaluate"}
ROLES |= {"offline": "evaluate", **dict.fromkeys(("data", "validation", "against"), "problems")}
"""The kind of a stage that is known by its role alone, since its record is not at hand."""


def picture(
    stages: Mapping[str, Mapping[str, Any]], states: Mapping[str, str], hrefs: Mapping[str, str] | None = None, most: int = MOST
) -> tuple[dict[str, Node], list[Edge]]:
    """Nodes and edges for `diagram.svg` and `mermaid`. `stages` by digest; `states` and `hrefs` by digest, as far as known.

    Dependencies that `stages` lacks stand for themselves, named by their role. The report's edges are left out but for those
    to what nothing else reads: it depends on every stage."""
    whole = _with_placeholders(stages)
    groups = _groups(whole, coarse=False)
    if len(set(groups.values())) > most:
        groups = _groups(whole, coarse=True)
    members: dict[str, list[str]] = defaultdict(list)
    for digest, group in groups.items():
        members[group].append(digest)
    nodes = {group: _node(whole, digests, states, hrefs or {}) for group, digests in members.items()}
    edges = {
        (groups[dep.split("@")[0]], groups[digest], CORPUS if is_corpus_role(role) else role): None
        for digest, stage in whole.items()
        for role, dep in stage["deps"].items()
        if stage["kind"] != "report"
    }
    read = {source for source, _, _ in edges}
    for digest, stage in whole.items():
        if stage["kind"] == "report":
            ends = {groups[dep] for dep in stage["deps"].values()} - read
            edges |= {(end, groups[digest], "data"): None for end in sorted(ends, key=list(members).index)}
    return nodes, [Edge(*edge) for edge in edges]


def mermaid(nodes: Mapping[str, Node], edges: list[Edge]) -> str:
    """The same graph as Mermaid text, which GitHub and many editors draw."""
    ids = {key: f"n{number}" for number, key in enumerate(nodes)}
    lines = ["flowchart TD"]
    for key, node in nodes.items():
        below = " ".join(filter(None, [node.kind, f"×{node.times}" if node.times > 1 else node.digest, node.note]))
        lines.append(f'  {ids[key]}["{_quoted(node.label)}<br/>{_quoted(below)}"]:::{node.state}')
    pairs = dict.fromkeys((edge.source, edge.target) for edge in edges)
    lines += [f"  {ids[source]} --> {ids[target]}" for source, target in pairs]
    styles = {"failed": "stroke:#c0262d,stroke-width:3px", "unfinished": "stroke-dasharray:9 3"}
    styles |= dict.fromkeys(("new", "missing"), "stroke-dasharray:4 3")
    used = {node.state for node in nodes.values()}
    return "\n".join([*lines, *(f"  classDef {state} {style}" for state, style in styles.items() if state in used)]) + "\n"


def _quoted(text: str) -> str:
    """With what Mermaid or a page would take for its own written as entities."""
    return "".join(ENTITIES.get(character, character) for character in escape_control(" ".join(text.split())))


def _with_placeholders(stages: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The stages, those that they depend on before them, and a bare entry for each dependency that is not among them."""
    whole: dict[str, Mapping[str, Any]] = {}

    def visit(digest: str, role: str) -> None:
        if digest in whole:
            return
        stage = stages.get(digest, {"kind": ROLES.get(role.split(".")[0], role), "spec": {"absent": digest}, "deps": {}})
        for name, dep in stage["deps"].items():
            visit(dep.split("@")[0], name)
        whole[digest] = {**stage, "digest": digest}

    for digest in stages:
        visit(digest, "")
    return whole


def _groups(stages: Mapping[str, Mapping[str, Any]], coarse: bool) -> dict[str, str]:
    """Digest -> key of its box: a hash over kind, spec without seeds, the boxes of its dependencies, and its level, so that
    boxes never form a circle."""
    groups: dict[str, str] = {}
    levels = _levels(stages)
    for digest, stage in stages.items():
        deps = {role: groups[dep.split("@")[0]] + dep.partition("@")[2] for role, dep in stage["deps"].items()}
        if stage["kind"] == "evaluate":
            deps.pop("model", None)
        spec: Any = _without_seeds(stage["spec"])
        if coarse and "absent" not in spec and stage["kind"] != "report":
            spec, deps = _short(stage), {role: dep for role, dep in deps.items() if not role.startswith("data.")}
        text = json.dumps([stage["kind"], spec, deps, levels[digest]], sort_keys=True)
        groups[digest] = hashlib.sha256(text.encode()).hexdigest()[:12]
    return groups


def _levels(stages: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """How many evaluations in a row decided what a stage is made from: a set that is curated by samples of the base stands
    above the base, and what is trained on it above other stages that differ from it in nothing else."""
    levels: dict[str, int] = {}
    for digest, stage in stages.items():
        below = [dep.split("@")[0] for dep in stage["deps"].values()]
        steps = [levels[dep] + (stages[dep]["kind"] == "evaluate" and stage["kind"] != "report") for dep in below]
        levels[digest] = max(steps, default=0)
    return levels


def _without_seeds(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_seeds(item) for key, item in value.items() if key != "seed"}
    return [_without_seeds(item) for item in value] if isinstance(value, list) else value


def _node(
    stages: Mapping[str, Mapping[str, Any]], digests: list[str], states: Mapping[str, str], hrefs: Mapping[str, str]
) -> Node:
    found = [states.get(digest, "missing") for digest in digests]
    state = next((name for name in STATES if name in found), found[0])
    done = found.count("done")
    note = f"{done} of {len(digests)} done" if 0 < done < len(digests) else state if state not in ("done", "new") else ""
    names = list(dict.fromkeys(stage_name(stages[digest]) for digest in digests))
    shorts = list(dict.fromkeys(_short(stages[digest]) for digest in digests))
    label = names[0] if len(names) == 1 else shorts[0] if len(shorts) == 1 else f"{shorts[0]} …"
    href = next((hrefs[digest] for digest in digests if digest in hrefs), "")
    return Node(label, stages[digests[0]]["kind"], state, ", ".join(digests), href, note, len(digests))


def stage_name(stage: Mapping[str, Any]) -> str:
    """`rl_edge/rl/seed0` -> `rl_edge/rl`, `base/base/seed0` -> `base`, `data.edge` and its shards -> `edge`,
    `stages.base.corpus` -> `base corpus`; a digest where there is no label."""
    parts = without_shard(str(stage.get("label") or stage["digest"])).split("/")
    if len(parts) > 2:
        arm, name = "/".join(parts[:-2]), parts[-2]
        return name if arm == name else f"{arm}/{name}"
    return parts[0].removeprefix("data.").removeprefix("stages.").replace(".", " ")


def _short(stage: Mapping[str, Any]) -> str:
    """The name without the arm."""
    return stage_name(stage).rsplit("/", 1)[-1]
