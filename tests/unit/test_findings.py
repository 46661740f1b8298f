"""The pages of docs/findings/: each number is that of the committed results, and so are the pictures."""

import re
from functools import lru_cache

import numpy as np
import pytest
from conftest import ROOT
from scipy import stats

from interplay.core import artifact
from tools.reference import findings
from tools.reference.findings import CENTRAL, CURRICULA, EDGE, ENTROPY, MANY, ONE, ORDER, SHOWDOWN, TRICKS, Row

PAGES = {path.stem: path.read_text() for path in sorted((ROOT / "docs" / "findings").glob("*.md"))}
TRIPLE = re.compile(r"([+-]?\d+\.\d+) \[([+-]\d+\.\d+), ([+-]\d+\.\d+)\]")
EVERY_32 = "strict_pass@32"
MARGINS, MARGINS_AGAIN = "margins.coffee", "margins_replication.coffee"


@lru_cache
def result(study: str) -> dict:
    return artifact.read_json(ROOT / "docs" / "results" / f"{study}.json.gz")


def gains(arm: str, against: str = "base", study: str = CENTRAL, column: str = "edge", metric: str = ONE) -> np.ndarray:
    return findings.difference(ROOT, Row("", study, arm, against, column, metric))


def test_the_pictures_are_those_of_the_results() -> None:
    assert {path.read_text() for path in findings.files(ROOT)} == set(findings.files(ROOT).values())
    assert {f"finding_{name}.svg" for name in PAGES} == {path.name for path in findings.files(ROOT)}


@pytest.mark.parametrize("study", [ORDER, ENTROPY, CENTRAL, TRICKS, SHOWDOWN])
def test_means_over_bases_are_those_of_the_claims(study: str) -> None:
    every = findings.scores(ROOT, study)
    claims = [one for one in result(study)["claims"] if str(one["test"].get("difference")).startswith("strict_pass@")]
    claims = [one for one in claims if (one["test"]["arm"], one["test"]["band"], one["test"]["difference"]) in every]
    assert len(claims) >= 4
    for claim in claims:
        test = claim["test"]
        values = gains(test["arm"], test["against"], study, test["band"], test["difference"])
        assert values.mean() == pytest.approx(100 * claim["estimate"]["value"], abs=0.11)


def test_an_interval_is_student_s_over_bases() -> None:
    low, high = stats.t.interval(0.95, 5, loc=2.5, scale=np.std([0, 1, 2, 3, 4, 5], ddof=1) / 6**0.5)
    assert findings.stated(np.arange(6.0)) == f"+2.5 [{low:+.1f}, {high:+.1f}]"


AFTERWARDS = {
    "order": {
        "MSR - RSM is ": Row("", ORDER, "MSR", "RSM", "edge", MANY),
        "and SR - RS ": Row("", ORDER, "SR", "RS", "edge", MANY),
        "and not after it is worth ": Row("", ORDER, "MR", "RM", "beyond", MANY),
        "nothing is seen there, SR - RS ": Row("", ORDER, "SR", "RS", "beyond", MANY),
        "pass@16 of SR - S beyond the edge ": Row("", ORDER, "SR", "S", "beyond", MANY),
        "of MR - M ": Row("", ORDER, "MR", "M", "beyond", MANY),
    },
    "entropy": {
        "over bonus is ": Row("", ENTROPY, "price", "bonus", "edge", less=("greedy", ONE)),
        "bonus over GRPO ": Row("", ENTROPY, "bonus", "grpo", "edge", less=("greedy", ONE)),
        "price over GRPO ": Row("", ENTROPY, "price", "grpo", "edge", less=("greedy", ONE)),
        "In one sample the price is ": Row("", ENTROPY, "price", "grpo", "edge"),
        "and the bonus ": Row("", ENTROPY, "bonus", "grpo", "edge"),
        "at the likeliest completion ": Row("", ENTROPY, "price", "grpo", "greedy"),
        "with 32 samples ": Row("", ENTROPY, "price", "grpo", "edge", EVERY_32),
        "] and ": Row("", ENTROPY, "bonus", "grpo", "greedy"),
        "+0.6] and ": Row("", ENTROPY, "bonus", "grpo", "edge", EVERY_32),
    },
    "methods": {
        "at the edge ": Row("", TRICKS, "raised_clip", "grpo", "edge"),
        "the price is ": Row("", TRICKS, "price", "grpo", "edge", MANY),
        "points at the edge and ": Row("", TRICKS, "price", "grpo", "beyond", MANY),
        "beyond it, the bonus ": Row("", TRICKS, "bonus", "grpo", "edge", MANY),
        "+2.0] and ": Row("", TRICKS, "bonus", "grpo", "beyond", MANY),
        "the price keeps more, ": Row("", TRICKS, "price", "grpo", "id"),
        "and the bonus less, ": Row("", TRICKS, "bonus", "grpo", "id"),
        "cost the edge ": Row("", CURRICULA, "retain_hardest", "uniform", "edge"),
    },
    "bases": {
        f"| {name.split(',')[0]}{',' + name.split(',')[1] if ',' in name else ''} | ": Row("", CENTRAL, over, "base", "edge")
        for name, (over, _) in findings.TREATMENTS.items()
    }
    | {
        f" | {np.std(gains(over), ddof=1):.1f} | ": Row("", EDGE, runs, "base", "edge")
        for over, runs in findings.TREATMENTS.values()
    },
}
"""Page -> the words before a number that no claim has -> what it is of."""


@pytest.mark.parametrize("page", PAGES)
def test_every_interval_of_a_finding_is_a_claim_s_or_computed_over_bases(page: str) -> None:
    words = " ".join(PAGES[page].split())
    known = set()
    for before, row in AFTERWARDS[page].items():
        said = findings.stated(findings.difference(ROOT, row))
        assert f"{before}{said}" in words
        known.add(said)
    for study in (ORDER, ENTROPY, CENTRAL, findings.CONTEXTS, TRICKS, CURRICULA, SHOWDOWN, MARGINS, MARGINS_AGAIN):
        of = result(study)
        known |= {stated(one["estimate"][key] for key in ("value", "low", "high")) for one in of["claims"]}
        known |= {stated(one["difference"]) for fight in of["contrasts"].values() for one in fight.values() if one["adjusted"]}
    for study in {"entropy": (ENTROPY,), "methods": (TRICKS, MARGINS)}.get(page, ()):
        entropies = [one["estimate"] for one in result(study)["claims"] if one["test"].get("difference") == "entropy_last"]
        known |= {f"{one['value']:+.3f} [{one['low']:+.3f}, {one['high']:+.3f}]" for one in entropies}
    if page == "entropy":
        known.add(findings.stated(gains("price", "bonus", ENTROPY)[1:]))
    found = {f"{float(value):+.{digits(value)}f} [{low}, {high}]" for value, low, high in TRIPLE.findall(PAGES[page])}
    assert found
    assert found - known == set()


def stated(ends) -> str:
    value, low, high = (100 * end for end in ends)
    return f"{value:+.1f} [{low:+.1f}, {high:+.1f}]"


def digits(number: str) -> int:
    return len(number.partition(".")[2])


def test_the_verdicts_of_a_page_are_the_claims() -> None:
    for page, studies, open_or_refuted in (
        ("order", (ORDER,), 4),
        ("entropy", (ENTROPY,), 4),
        ("methods", (TRICKS, CURRICULA, SHOWDOWN, MARGINS), 11),
    ):
        verdicts = {}
        for one in (claim for study in studies for claim in result(study)["claims"]):
            scale = 1 if "entropy_last" in one["test"].values() else 100
            value, low, high = (scale * one["estimate"][key] for key in ("value", "low", "high"))
            places = 3 if scale == 1 else 1
            verdicts[f"{value:+.{places}f} [{low:+.{places}f}, {high:+.{places}f}]"] = one["verdict"]
        rows = re.findall(r"^\|.*\| ([+-][^|]*\]) \| \**([a-z ]+?)\**(?: within 5)? \|$", PAGES[page], re.MULTILINE)
        listed = [(said, verdict) for said, verdict in rows if verdict != "equivalent"]
        assert len(listed) >= 6
        assert all(verdicts[said] == verdict for said, verdict in listed)
        assert sum(verdict in ("refuted", "no information") for _, verdict in listed) == open_or_refuted


def test_log_odds_of_the_order_are_those_of_the_results() -> None:
    words = " ".join(PAGES["order"].split())
    for metric, before in ((ONE, "falls from "), (MANY, " to ")):
        shares = [findings.difference(ROOT, Row("", ORDER, arm, "base", "edge", metric)) for arm in ("MSR", "RSM")]
        base = findings.scores(ROOT, ORDER)["base", "edge", metric]
        odds = [np.log((one + base) / (100 - one - base)) for one in shares]
        mean, low, high = findings.estimate(odds[0] - odds[1])
        assert f"{before}{mean:.2f} [{low:.2f}, {high:.2f}]" in words


def test_each_base_has_the_sign_of_the_mean_where_the_page_says_so() -> None:
    for arm, against in findings.USUAL[1:]:
        assert (gains(arm, against, ORDER) < 0).all()
    gaps = [findings.difference(ROOT, row) for row in list(AFTERWARDS["entropy"].values())[:3]]
    assert [int((np.sign(gap) == np.sign(gap.mean())).sum()) for gap in gaps] == [8, 8, 7]
    assert "eight bases of eight" in PAGES["entropy"]
    assert f"Base 0 loses {-gains('bonus', 'grpo', ENTROPY)[0]:.1f} points" in PAGES["entropy"]


def test_the_spreads_of_the_bases_are_those_of_the_results() -> None:
    page = PAGES["bases"]
    words = " ".join(page.split())
    for name, (over, runs) in findings.TREATMENTS.items():
        row = re.search(rf"^\| {name} \|.*\| (\S+) \|.*\| (\S+) \|$", page, re.MULTILINE)
        assert row
        assert row.groups() == tuple(f"{np.std(one, ddof=1):.1f}" for one in (gains(over), gains(runs, study=EDGE)))
    rl, few = gains("rl_edge"), gains("rl_edge", study=EDGE)
    free, spread = len(rl) - 1, rl.std(ddof=1)
    low, high = spread * np.sqrt(free / stats.chi2.ppf([0.975, 0.025], free))
    assert f"is {spread:.1f}, its 95 % interval {low:.1f} to {high:.1f}" in words
    assert f"goes from {rl.min():.0f} to {rl.max():.0f} points" in words
    _, least, most = findings.estimate(few)
    assert f"holds {((least < rl) & (rl < most)).sum()} of the 24 bases" in words
    assert not least < rl.mean() < most
    assert np.ptp(few) < 3
    noise = 37.5 / 200**0.5
    assert f"{noise:.1f} points at 200 problems. Without it {(spread**2 - noise**2) ** 0.5:.1f} of the {spread:.1f}" in words
    assert f"the bases still have {(spread**2 - noise**2 - 4**2) ** 0.5:.1f}" in words
    (edges,) = (note for note in result(CENTRAL)["grids"]["main"]["notes"] if note.startswith("edge, "))
    seeds = [result(CENTRAL)["seeds"].index(int(seed)) for seed in re.search(r"op 7 \(seeds ([^)]*)\)", edges)[1].split(", ")]
    narrower = [gains(arm)[seeds].std(ddof=1) for arm in ("rl_edge", "mid_rl")]
    assert (
        f"the {len(seeds)} bases whose edge is op 7 the SD of RL's gain is {narrower[0]:.1f}, and {narrower[1]:.1f} of" in words
    )
    orders = [gains(arm, "MSR", ORDER).std(ddof=1) for arm, against in findings.USUAL if against == "MSR"]
    assert f"SDs of {min(orders):.1f} to {max(orders):.1f} over six bases" in words
    assert f"bases has {gains('R', study=ORDER).std(ddof=1):.1f}" in words
    assert f"SFT against RL (SD {gains('gold', 'rl_edge').std(ddof=1):.1f})" in words
    others = gains("some", "none", findings.CONTEXT_BASES, "b_high", EVERY_32)[1:]
    assert f"{others[0]:.1f} and {others[1]:.1f}" in words


def test_what_a_base_shows_before_rl_does_not_tell_its_gain() -> None:
    words = " ".join(PAGES["bases"].split())
    for metric in (ONE, EVERY_32):
        before = findings.scores(ROOT, CENTRAL)["base", "edge", metric]
        assert f"(r = {np.corrcoef(gains('rl_edge'), before)[0, 1]:.2f})" in words


def test_bases_agree_on_what_they_never_solve_only_where_their_bands_differ() -> None:
    grid, seeds = result(CENTRAL)["grids"]["main"], [seed for seed in result(CENTRAL)["seeds"] if seed != 216]
    place = grid["columns"].index("hard") * len(grid["metrics"]) + grid["metrics"].index(EVERY_32)
    hard = {arm: np.array(grid["rows"][arm][place][5:]) for arm in ("rl_edge", "gold", "mid_rl")}
    same = "204, 207, 211, 213, 214, 215, 219, 221, 222"
    assert any(f"op 8–12 (seeds {same}); no op, left out (seed 216)" in note for note in grid["notes"])
    pairs = (("rl_edge", "gold"), ("rl_edge", "mid_rl"), ("gold", "mid_rl"))
    every = [np.corrcoef(hard[one], hard[other])[0, 1] for one, other in pairs]
    of = [seeds.index(int(seed)) for seed in same.split(", ")]
    among = [np.corrcoef(hard[one][of], hard[other][of])[0, 1] for one, other in pairs]
    words = " ".join(PAGES["bases"].split())
    assert f"(r = {min(every):.2f} to {max(every):.2f})" in words
    assert "it is {:.2f}, {:.2f} and {:.2f}".format(*among) in words


def test_the_spread_of_a_change_is_that_of_another_random_stream() -> None:
    words = " ".join(PAGES["methods"].split())
    changes = [gains(arm, "grpo", TRICKS) for arm in ("top", "batch", "sequences", "raised_clip")]
    other = gains("again", "uniform", CURRICULA)
    spreads = sorted(one.std(ddof=1) for one in changes)
    assert f"standard deviations of {spreads[0]:.1f} to {spreads[-1]:.1f} points" in words
    assert f"so does the A/A pair, {other.std(ddof=1):.1f}" in words
    assert f"from {min(map(np.min, changes)):.0f} to {max(map(np.max, [*changes, other])):+.0f} points" in words
    assert all(max(map(abs, findings.estimate(one)[1:])) <= 2.5 + 0.05 for one in changes)
    assert f"gains {gains('grpo', study=TRICKS).mean():.0f} points" in words
    level = {key: findings.scores(ROOT, TRICKS)[key].mean() for key in findings.scores(ROOT, TRICKS)}
    assert (
        f"from {level['base', 'edge', ONE]:.0f} to {level['grpo', 'edge', ONE]:.0f} %; 16 samples reach {level['grpo', 'edge', MANY]:.0f}"
        in words
    )
    kept = [findings.scores(ROOT, SHOWDOWN)[arm, "id", ONE].mean() for arm in ("ppo", "grpo")]
    assert f"to {kept[0]:.0f} %, where GRPO leaves {kept[1]:.0f}" in words
    assert f"reaches {level['grpo', 'beyond', ONE]:.0f} %, with {level['grpo', 'beyond', MANY]:.0f} in 16 samples" in words
