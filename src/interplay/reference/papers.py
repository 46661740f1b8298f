"""`docs/papers.md`: paper -> study -> what holds here and what does not. Verdicts and numbers come from `docs/results/`, which
`interplay export STUDY --scale SCALE -o docs/results/STUDY.SCALE.json` writes; none is typed. A result counts as long as its
report is the one of the committed lock; else the study was not run at this commit, and the page says that instead."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from interplay.study.plan import flat_name


class Paper(NamedTuple):
    """A published finding and the study that asks whether it holds here."""

    title: str
    arxiv: str
    study: str
    table: str
    """Table of the study's report that answers."""
    finding: str
    """What was published, in a sentence."""
    row: str = ""
    """Its row in the contrasts of a study that several papers share."""


PAPERS = (
    Paper(
        "On the Interplay of Pre-Training, Mid-Training, and RL", "2512.07783", "edge", "main",
        "RL lifts a model where its pre-training left headroom and the task lies at the edge of what it can do, and hardly "
        "elsewhere.",
    ),
    Paper(
        "On the Interplay of Pre-Training, Mid-Training, and RL, in four minutes", "2512.07783", "quickstart", "main",
        "The same at the smallest size that shows it.",
    ),
    Paper(
        "On the Interplay of Pre-Training, Mid-Training, and RL: extrapolation", "2512.07783", "interplay/extrapolation", "main",
        "RL on problems at the edge widens what can be solved there and beyond; RL within what was pre-trained, or beyond the "
        "edge, does not.",
    ),
    Paper(
        "On the Interplay of Pre-Training, Mid-Training, and RL: pre-training", "2512.07783", "interplay/pretraining", "main",
        "Pre-training saturates what it trains on and lifts what lies beyond hardly at all.",
    ),
    Paper(
        "On the Interplay of Pre-Training, Mid-Training, and RL: exposure", "2512.07783", "interplay/hard_exposure", "main",
        "RL at the edge pays even where pre-training saw next to nothing of its hardest ops, and reaches further where it saw "
        "more.",
    ),
    Paper(
        "On the Interplay of Pre-Training, Mid-Training, and RL: rewards", "2512.07783", "interplay/process_rewards", "main",
        "Rewards for right steps beside the right answer lift pass@1 and, on the hardest ops, pass@128, and cut structural "
        "errors.",
    ),
    Paper(
        "On the Interplay of Pre-Training, Mid-Training, and RL: one budget", "2512.07783", "interplay/budget_split", "main",
        "At one budget a light share of RL after mid-training is best at the edge, and a heavy one beyond it; mid-training and "
        "RL together reach further than RL alone.",
    ),
    Paper(
        "On the Interplay of Pre-Training, Mid-Training, and RL: contexts", "2512.07783", "interplay/contexts", "main",
        "RL carries reasoning over to another context where pre-training held a few seeds of it, even of the easiest problems "
        "alone, and does not where it held none.",
    ),
    Paper(
        "On the Interplay of Pre-Training, Mid-Training, and RL: modes", "2512.07783", "interplay/modes", "main",
        "Pass rates are told over forward and reverse questions together; here each mode stands by itself, beside the answer "
        "prior.",
    ),
    Paper(
        "On the Interplay of Pre-Training, Mid-Training, and RL: paper and code", "2512.07783", "interplay/deviations", "main",
        "Nothing: the paper does not say which of the differences between its text and its released code matter.",
    ),
    Paper(
        "RFT", "2308.01825", "interplay/before_rl", "main",
        "Fine-tuning on a model's own right solutions lifts it beyond what it was when it wrote them.",
    ),
    Paper(
        "LoongRL", "2510.19363", "loongrl/keychain", "chain",
        "RL on questions hidden behind chains of keys teaches reasoning over long contexts that carries over to longer ones, "
        "more than "
        "the same amount of plain multi-hop questions does.",
    ),
    Paper(
        "LongRLVR", "2603.02146", "longrlvr/citation", "main",
        "A reward for citing the useful chunks gives long-context RL a signal where the answer alone gives none.",
    ),
    Paper(
        "From Atomic to Composite", "2512.01970", "atomic/composite", "main",
        "RL composes skills that it never saw composed only where fine-tuning taught the atoms first; fine-tuning on "
        "composites fits "
        "them and does not generalise.",
    ),
    Paper(
        "Cog-DRIFT", "2604.04767", "cog_drift/ladder", "main",
        "Problems that are never solved become trainable when put as multiple choice or cloze, and what is learnt carries over "
        "to the "
        "open form.",
    ),
    Paper(
        "SCRL", "2605.22074", "scrl/subproblems", "main",
        "Rewarding the solved prefix of verifiable subproblems, normalised position by position, beats the outcome alone.",
    ),
    Paper(
        "InT", "2601.14209", "scrl/subproblems", "main",
        "Fine-tuning on a short correction right after the first wrong step, before RL, gives hard problems a start.",
        "int",
    ),
    Paper(
        "Prompt Curriculum Learning", "2510.01135", "curricula/showdown", "main",
        "Drawing prompts whose predicted pass rate is near one half learns as much in less time as drawing and filtering.",
        "pcl",
    ),
    Paper(
        "DRIVE", "2511.06307", "curricula/showdown", "main",
        "After uniform RL, a stage that keeps only the hardest prompts with many rollouts lifts hard tasks further.",
        "retain_hardest",
    ),
    Paper(
        "QwenLong-L1", "2505.17667", "curricula/showdown", "main",
        "Phases of growing context length, with the difficult prompts of earlier phases carried along, stabilise long-context "
        "RL.",
        "phases",
    ),
    Paper(
        "GAIN-RL", "2506.02281", "curricula/showdown", "main",
        "Drawing prompts in the order of how concentrated the angles of their hidden states are speeds RL up more than "
        "twofold.",
        "gain_rl",
    ),
    Paper(
        "D3S", "2509.22115", "curricula/showdown", "main",
        "Keeping the samples whose advantages vary most, and of them the tokens with the largest advantage times entropy, "
        "learns more "
        "from fewer tokens.",
        "d3s",
    ),
    Paper(
        "Single-stream Policy Optimization", "2509.13232", "curricula/showdown", "main",
        "One rollout per prompt with a tracked baseline and prioritised sampling beats groups.",
        "single_stream",
    ),
)  # fmt: skip

SCALES = ("laptop", "gpu", "paper")
"""Scales whose results count, as they are shown. At smoke nothing is learnt."""
NOT_RUN = "not run at this commit"
ID = re.compile(r"\d{4}\.\d{5}")


def page(root: Path, papers: tuple[Paper, ...] = PAPERS) -> str:
    """The page, of the locks and results below `root`."""
    parts = [
        "# Papers: what holds here",
        "Generated by `make docs` from `docs/results/`. Models here are small and tasks synthetic, so a finding that does not "
        "hold here "
        "may hold where it was published. A study's file says what is claimed and how it is tested; verdicts are by 95 % "
        "intervals.",
        "\n".join(["| paper | study | here |", "| --- | --- | --- |", *(_line(root, paper) for paper in papers)]),
        *(_section(root, paper) for paper in papers),
    ]
    return "\n\n".join(parts) + "\n"


def results(root: Path, study: str) -> dict[str, dict[str, Any]]:
    """Scale -> the committed summary, for scales at which it is of the committed lock's report."""
    found = {}
    for scale in SCALES:
        result = _read(root / "docs" / "results" / f"{flat_name(study, scale)}.json")
        lock = _read(root / "configs" / "plans" / f"{study}.{scale}.lock.json")
        if result and lock and result["report"] == lock["report"]:
            found[scale] = result
    return found


def claims(paper: Paper, result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The claims of a study that are about the paper: those whose source names it, and those that name no paper."""
    return [claim for claim in result["claims"] if paper.arxiv in (ID.findall(claim["source"]) or [paper.arxiv])]


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _line(root: Path, paper: Paper) -> str:
    said = []
    for scale, result in results(root, paper.study).items():
        verdicts = [claim["verdict"] for claim in claims(paper, result)]
        verdicts += [entry["verdict"] for _, entry in _fights(paper, result)]
        counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))
        said.append(f"{scale}: {counts or 'nothing is claimed of it'}")
    link = f"[{paper.title}](https://arxiv.org/abs/{paper.arxiv})"
    return f"| {link} | [{paper.study}](#{_anchor(paper)}) | {'; '.join(said) or NOT_RUN} |"


def _anchor(paper: Paper) -> str:
    """GitHub's anchor of the paper's heading."""
    return re.sub(r"[^\w\- ]", "", _heading(paper).lower()).replace(" ", "-")


def _heading(paper: Paper) -> str:
    return f"{paper.title} ({paper.arxiv})"


def _section(root: Path, paper: Paper) -> str:
    lines = [f"## {_heading(paper)}", "", f"Published: {paper.finding}", ""]
    lines.append(f"Study `configs/study/{paper.study}.yaml`, table `{paper.table}`{f', row `{paper.row}`' if paper.row else ''}.")
    found = results(root, paper.study)
    for scale, result in found.items():
        lines += ["", f"At scale {scale} (report `{result['report']}`):", ""]
        lines += [f"- **{claim['verdict']}**: {claim['says']}. {_number(claim)}" for claim in claims(paper, result)]
        lines += [f"- **{entry['verdict']}** ({where}): {_fight(entry)}" for where, entry in _fights(paper, result)]
    return "\n".join(lines if found else [*lines, "", f"Here: {NOT_RUN}."])


def _number(claim: Mapping[str, Any]) -> str:
    found, test = claim["estimate"], claim["test"]
    if found["value"] is None:
        return "No number: what it needs is missing."
    subject = f"{test['arm']} − {test['against']}" if "against" in test else test["arm"]
    metric = str(test.get("value") or test.get("difference")).replace("_", " ")
    return (
        f"{metric} of {subject} on {test['band']}: {_interval(found['value'], found['low'], found['high'])} over {found['over']}."
    )


def _fights(paper: Paper, result: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """(where, entry) of the paper's row in each contrast of the study."""
    return [
        (" ".join(key.split("/")[-2:]).replace("_", " "), entry)
        for fight in result.get("contrasts", {}).values()
        for key, entry in fight.items()
        if paper.row and re.match(rf"{re.escape(paper.row)}(\[[^/]*\])?/", key)
    ]


def _fight(entry: Mapping[str, Any]) -> str:
    """`+3.1 [+0.2, +6.0] points against its rival; noise floor 1.2, adjusted p 0.04`."""
    value, low, high = entry["difference"]
    if value is None or entry["floor"] is None or entry["adjusted"] is None:
        return "no number: what it needs is missing"
    rest = f"noise floor {100 * entry['floor']:.1f}, adjusted p {entry['adjusted']:.3f}"
    return f"{_interval(value, low, high)} points, {rest}"


def _interval(value: float, low: float, high: float) -> str:
    return f"{100 * value:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"
