import itertools
from pathlib import Path

import pytest
import report_study as study
from hypothesis import given, strategies as st
from pydantic import ValidationError

from interplay.report.claim_spec import Claim
from interplay.report.stats import contrast, frame, intervals, sequential
from interplay.report.stats.frame import Results
from interplay.report.write import answers, headline
from interplay.results import catalog

LIFTED = [[9] * 20, [10] * 20, [11] * 20]
"""Strict counts of 16 samples on the 20 edge prompts at each seed: 56, 62.5 and 69 %, so +50 points [34, 66] on the base."""
BASE = [2] * 20
"""12.5 %."""


def results(
    root: Path, seeds: int = 3, lifted: list[list[int]] = LIFTED, shared: bool = False, before: list[int] = BASE
) -> Results:
    inputs = {}
    arms = []
    for seed in range(seeds):
        base = "b" if shared else f"b{seed}"
        if base not in inputs:
            inputs[base] = study.write_evaluation(root, base, {4: before}, n=16)
        inputs[f"r{seed}"] = study.write_evaluation(root, f"r{seed}", {4: lifted[seed]}, n=16)
        path = ["base:pretrain:m" if shared else f"base:pretrain:m{seed}"]
        arms += [study.arm("base", seed, path, base), study.arm("rl", seed, [*path, f"rl:rl:r{seed}"], f"r{seed}")]
    return frame.read_results(study.spec(arms), inputs)


def judge(found: Results, **test: object) -> contrast.JudgedClaim:
    return contrast.judge_claim(found, Claim.model_validate({"says": "so", "test": {"band": "edge", **test}}))


DIFFERENCE = {"difference": "strict_pass@1", "arm": "rl", "against": "base"}


@pytest.mark.parametrize(
    ("bound", "verdict"),
    [
        ({"at_least": 0.10}, "supported"),
        ({"at_least": 0.50}, "no information"),
        ({"at_least": 0.70}, "refuted"),
        ({"at_most": 0.70}, "supported"),
        ({"at_most": 0.50}, "no information"),
        ({"at_most": 0.10}, "refuted"),
    ],
)
def test_a_difference_is_judged_by_the_side_its_interval_lies_on(tmp_path: Path, bound: dict, verdict: str) -> None:
    judged = judge(results(tmp_path), **DIFFERENCE, **bound)
    assert judged.verdict == verdict
    assert "for any base, any prompt (3 bases, 20 prompts)" in judged.reason


@pytest.mark.parametrize(
    ("within", "verdict"), [([0.3, 0.9], "supported"), ([0.6, 0.9], "no information"), ([0.0, 0.4], "refuted")]
)
def test_a_value_is_judged_by_whether_its_interval_lies_inside(tmp_path: Path, within: list[float], verdict: str) -> None:
    assert judge(results(tmp_path), value="strict_pass@1", arm="rl", within=within).verdict == verdict


@pytest.mark.parametrize(("bound", "word"), [(0.1, "indicated"), (0.5, "no information"), (0.7, "indicated against")])
def test_many_seeds_on_one_base_indicate_at_most(tmp_path: Path, bound: float, word: str) -> None:
    judged = judge(results(tmp_path, shared=True), **DIFFERENCE, at_least=bound)
    assert judged.verdict == word
    assert judged.reason.endswith("for this base, any prompt (3 runs, 20 prompts), and a verdict needs 3 bases")


@pytest.mark.parametrize("bases", [1, 2])
def test_fewer_than_three_bases_indicate_at_most(tmp_path: Path, bases: int) -> None:
    judged = judge(results(tmp_path, bases), value="strict_pass@1", arm="base", at_least=0.01)
    assert judged.verdict == "indicated"
    assert judged.estimate.value == pytest.approx(0.125)


def test_a_missing_evaluation_is_not_judged_and_named(tmp_path: Path) -> None:
    found = results(tmp_path)
    del found.prompts["r2"]
    judged = judge(found, **DIFFERENCE, at_least=0.1)
    assert judged.verdict == "not judged"
    assert judged.reason == "missing: evaluation r2 of rl at seed 2 is not there"


def test_where_the_evaluation_that_counts_is_missing_at_one_arm_no_other_stands_for_it(tmp_path: Path) -> None:
    """Evaluation `a` of rl is not there; `b`, of the same problems asked otherwise, would make 0 points 50."""
    inputs, arms = {}, []
    for seed, name in itertools.product(range(3), ("base", "rl")):
        ways = {way: f"{name}{seed}{way}" for way in "ab"}
        for way, digest in ways.items():
            if (name, way) != ("rl", "a"):
                inputs[digest] = study.write_evaluation(tmp_path, digest, {4: [2 if way == "a" else 10] * 20}, n=16)
        path = [f"base:pretrain:m{seed}", *([f"rl:rl:r{seed}"] if name == "rl" else [])]
        arms.append({**study.arm(name, seed, path, ""), "evaluations": ways})
    test = {"difference": "strict_pass@1", "band": "edge", "arm": "rl", "against": "base", "at_least": 0.05}
    found = frame.read_results(study.spec(arms), inputs)
    judged = contrast.judge_claim(found, Claim.model_validate({"says": "so", "test": test}))
    assert judged.verdict == "not judged"
    assert "evaluation rl0a of rl at seed 0 is not there" in judged.reason
    alone = [row.model_copy(update={"evaluations": {"b": row.evaluations["b"]}}) for row in found.spec.arms]
    known = found._replace(spec=found.spec.model_copy(update={"arms": alone}))
    assert contrast.judge_claim(known, Claim.model_validate({"says": "so", "test": test})).estimate.value == 0.0


def test_no_gain_at_any_seed_supports_a_bound_only_as_tight_as_the_prompts_allow(tmp_path: Path) -> None:
    found = results(tmp_path, lifted=[BASE] * 3)
    assert judge(found, **DIFFERENCE, at_most=0.02).verdict == "no information", "20 prompts cannot rule out 2 points"
    assert judge(found, **DIFFERENCE, at_most=0.20).verdict == "supported"


def test_the_json_holds_the_test_the_verdict_and_the_estimate(tmp_path: Path) -> None:
    (entry,) = answers.claims_json([judge(results(tmp_path), **DIFFERENCE, at_least=0.1)])
    assert entry["test"] == {**DIFFERENCE, "band": "edge", "at_least": 0.1}
    assert entry["verdict"] == "supported"
    assert entry["estimate"]["per_seed"] == [0.4375, 0.5, 0.5625]
    assert entry["estimate"]["digests"] == ["r0", "b0", "r1", "b1", "r2", "b2"]


@pytest.mark.parametrize(
    ("bound", "message"),
    [
        ({"value": "strict_pass@1", "within": [80, 100]}, "within = .*fractions, not percent"),
        ({"value": "score", "within": [1.0, 0.8]}, "low <= high"),
        ({"value": "score", "within": [-0.1, 0.8]}, "0 <= low"),
        ({"difference": "strict_pass@1", "against": "base", "at_least": 10}, r"at_least = 10 must lie in \[-1, 1\]: fractions"),
        ({"difference": "strict_pass@1", "against": "base", "at_most": -5}, "at_most = -5 .*not percent"),
        ({"difference": "strict_pass@1", "against": "rl", "at_least": 0.1}, "against = 'rl' is the arm itself"),
        ({"value": "strict_pass@1", "within": [0.0, 1.0]}, "within = .* holds for every result"),
        ({"value": "strict_pass@1", "at_least": 0.0}, r"at_least = 0 holds for every result; .* within \(0, 1\)"),
        ({"value": "strict_pass@1", "at_most": 1.0}, "at_most = 1 holds for every result"),
        ({"difference": "strict_pass@1", "against": "base", "at_least": -1.0}, r"at_least = -1 holds .* within \(-1, 1\)"),
        ({"difference": "strict_pass@1", "against": "base", "margin": 1.0}, "margin = 1 holds for every result"),
    ],
)
def test_a_bound_that_no_metric_can_meet_or_miss_is_refused(bound: dict, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Claim.model_validate({"says": "so", "test": {"band": "edge", "arm": "rl", **bound}})


EFFECT = {"says": "so", "published": {"effect": 40}, "test": {**DIFFERENCE, "band": "edge"}}
MARGIN = {"says": "so", "test": {**DIFFERENCE, "band": "edge", "margin": 0.03}}


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (0.25, 0.70, "reproduced"), (0.25, 0.90, "same sign"), (0.10, 0.30, "same sign"), (0.01, 0.19, "contradicted"),
        (-0.3, 0.19, "contradicted"), (-0.1, 0.3, "no information"), (0.0, 0.9, "no information"),
    ],
)  # fmt: skip
def test_with_a_published_effect_half_of_it_and_twice_are_the_thresholds(low: float, high: float, word: str) -> None:
    assert Claim.model_validate(EFFECT).word(low, high) == word
    turned = Claim.model_validate({**EFFECT, "published": {"effect": -40}})
    assert turned.word(-high, -low) == word


@pytest.mark.parametrize(
    ("bound", "low", "high", "word"),
    [
        ({}, -0.02, 0.03, "equivalent"), ({}, -0.02, 0.04, "no information"), ({}, 0.04, 0.06, "refuted"),
        ({"at_least": 0.0}, -0.02, 0.03, "equivalent"), ({"at_least": 0.0}, 0.0, 0.02, "supported"),
        ({"at_least": 0.1}, -0.02, 0.02, "refuted"), ({"at_most": 0.0}, -0.01, 0.05, "no information"),
    ],
)  # fmt: skip
def test_a_margin_lets_a_tie_be_shown(bound: dict, low: float, high: float, word: str) -> None:
    claim = Claim.model_validate({**MARGIN, "test": {**MARGIN["test"], **bound}})
    assert claim.word(low, high) == word


def test_a_published_effect_stands_on_the_page_in_place_of_a_bound(tmp_path: Path) -> None:
    found = results(tmp_path)
    judged = contrast.judge_claim(found, Claim.model_validate({**EFFECT, "published": {"effect": 40, "source": "Figure 1"}}))
    assert judged.verdict == "reproduced"
    (shown,) = headline.forest_rows(answers.Answer(found, [judged], {}, {}, [], {}))
    assert shown["claimed"] == "published +40 points (Figure 1)"
    (entry,) = answers.claims_json([judged])
    assert catalog.claim_lines([entry], {})[2].startswith(f"{'':16}published +40; for ")


ends = st.floats(-1, 1).map(lambda number: round(number, 2))


@given(
    st.tuples(ends, ends).map(sorted),
    ends.filter(lambda end: 0 < abs(end) < 1),
    st.sampled_from(["published", "at_least", "at_most"]),
    st.booleans(),
)
def test_the_words_partition_all_cases(interval: list[float], at: float, form: str, tied: bool) -> None:
    """Of the conditions of the glossary, each with those before it denied, just one holds, and its word is the verdict."""
    low, high = interval
    if form == "published":
        claim = Claim.model_validate({**EFFECT, "published": {"effect": 100 * at}})
        e, below, above = (at, low, high) if at > 0 else (-at, -high, -low)
        conditions = {"contradicted": above < e / 2, "reproduced": e / 2 <= below and above <= 2 * e, "same sign": below > 0}
    else:
        margin = {"margin": 0.2} if tied else {}
        claim = Claim.model_validate({"says": "so", "test": {**DIFFERENCE, "band": "edge", form: at, **margin}})
        inside, outside = (low >= at, high < at) if form == "at_least" else (high <= at, low > at)
        conditions = {"supported": inside, "refuted": outside, "equivalent": tied and low >= -0.2 and high <= 0.2}
    firsts = [word for word, holds in conditions.items() if holds][:1] or ["no information"]
    assert claim.word(low, high) == firsts[0]
    exclusive = ("supported", "refuted") if form != "published" else ("contradicted", "reproduced")
    assert not all(conditions[word] for word in exclusive)


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ({"test": {}}, "one of at_least, at_most, or margin, or published.effect"),
        ({"test": {"at_least": 0.1}, "published": {"effect": 4}}, "published.effect gives the thresholds"),
        ({"test": {}, "published": {"effect": 0}}, "effect = 0 has no sign"),
        ({"test": {"margin": -0.1}}, "margin = -0.1 must be above 0"),
        ({"test": {"at_least": 0.1}, "requires": [{"acts": "rl", "headroom": {"arm": "base"}}]}, "a premise is one of"),
        ({"test": {"at_least": 0.1}, "requires": [{"above": {"arm": "rl", "than": "answer_prior"}}]}, "has no answer prior"),
        ({"test": {"at_least": 0.1}, "requires": [{"headroom": {"arm": "rl", "high": 60}}]}, "high = 60 .*not percent"),
        (
            {"test": {"at_least": 0.1}, "requires": [{"headroom": {"arm": "rl", "low": 0.5, "high": 0.4}}]},
            "low = 0.5 must be below",
        ),
        ({"test": {"at_least": 0.1}, "requires": [{"improves": {"arm": "rl", "against": "rl"}}]}, "is the arm itself"),
        ({"test": {"at_least": 0.1}, "requires": [{"headroom": {"arm": "rl", "value": "strct"}}]}, "strct"),
        (
            {"test": {"at_least": 0.1}, "requires": [{"improves": {"arm": "rl", "against": "base", "recorded": "rl"}}]},
            "recorded takes a value, a key of the stage's record",
        ),
    ],
)
def test_a_claim_without_one_threshold_or_with_a_premise_that_is_none_is_refused(claim: dict, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Claim.model_validate({"says": "so", **claim, "test": {**DIFFERENCE, "band": "edge", **claim["test"]}})


def with_premise(found: Results, premise: dict) -> contrast.JudgedClaim:
    test = {"band": "edge", **DIFFERENCE, "at_least": 0.1}
    return contrast.judge_claim(found, Claim.model_validate({"says": "so", "requires": [premise], "test": test}))


@pytest.mark.parametrize(
    ("premise", "failed"),
    [
        ({"headroom": {"arm": "base"}}, ""),
        ({"headroom": {"arm": "base", "low": 0.2}}, "no headroom: strict_pass@1 of base on edge is 12.5"),
        ({"headroom": {"arm": "base", "high": 0.1}}, "and 5.0 to 10.0 is required"),
        ({"above": {"arm": "rl", "than": 0.25}}, ""),
        ({"above": {"arm": "base", "than": 0.25}}, "not above 25.0"),
        ({"above": {"arm": "rl", "value": "answer_pass@1", "than": "answer_prior"}}, "not above the answer prior, 90.0"),
        ({"improves": {"arm": "rl", "against": "base", "by": 0.2}}, ""),
        ({"improves": {"arm": "base", "against": "rl"}}, "the positive control fails"),
        ({"improves": {"arm": "sft", "against": "base"}}, "is missing: the study has no arm 'sft'"),
        ({"acts": "rl"}, ""),
    ],
)
def test_a_claim_whose_premise_fails_is_not_tested_and_says_why(tmp_path: Path, premise: dict, failed: str) -> None:
    found = results(tmp_path)
    found.records["r0"]["metrics"] = {"band": {"edge": {"prior_pass@1": 0.9}}}
    judged = with_premise(found, premise)
    assert judged.verdict == ("not tested" if failed else "supported")
    assert failed in judged.reason


def test_a_premise_about_what_runs_record_fails_where_the_treatment_did_not_move_it(tmp_path: Path) -> None:
    """Entropies of 0.2 and 0.1 nats at the end of RL, of three bases each; 0.09 to 0.11 nats apart."""
    inputs, arms = {}, []
    for seed, apart in enumerate((0.09, 0.10, 0.11)):
        for arm, entropy in (("price", 0.1), ("bonus", 0.1 + apart)):
            inputs |= {f"{arm}{seed}": study.write_record(tmp_path, f"{arm}{seed}", "rl", {}, {"entropy_last": entropy})}
            inputs |= {f"e{arm}{seed}": study.write_evaluation(tmp_path, f"e{arm}{seed}", {4: BASE}, n=16)}
            arms.append(study.arm(arm, seed, [f"base:pretrain:m{seed}", f"rl:rl:{arm}{seed}"], f"e{arm}{seed}"))
    found = frame.read_results(study.spec(arms), inputs)

    def judged(by: float, **other: str) -> contrast.JudgedClaim:
        lever = {"arm": "bonus", "against": "price", "recorded": "rl", "value": "entropy_last", "by": by, **other}
        test = {"difference": "strict_pass@1", "band": "edge", "arm": "bonus", "against": "price", "at_most": 0.5}
        return contrast.judge_claim(found, Claim.model_validate({"says": "so", "requires": [{"improves": lever}], "test": test}))

    assert judged(0.05).verdict == "supported"
    assert judged(0.09).verdict == "not tested", "Student's interval of the three reaches from 0.075 to 0.125"
    assert "entropy_last of bonus on rl minus price is 0.1" in judged(0.09).reason
    assert "the record of rl bonus0 has no 'entropy_lst'; did you mean" in judged(0.05, value="entropy_lst").reason


RATES = [10, 10, 11, 9, 12, 12]
"""Strict samples of 16 on each prompt after RL, 2 before it."""
FAILS = {"recorded": "rl", "value": "reward_last", "below": "reward_first"}


def some_fail(root: Path, last: list[float | None], rates: list[int] = RATES, **given: object) -> Results:
    """A base for each, whose RL starts at a reward of 0.2 and ends at `last`; a run that ends at none leaves its base as it was."""
    inputs, arms = {}, []
    for seed, (reward, right) in enumerate(zip(last, rates, strict=True)):
        inputs |= {f"e{seed}": study.write_evaluation(root, f"e{seed}", {4: BASE}, n=16)}
        inputs |= {f"f{seed}": study.write_evaluation(root, f"f{seed}", {4: [right] * 20}, n=16)}
        inputs |= {f"r{seed}": study.write_record(root, f"r{seed}", "rl", {}, {"reward_first": 0.2, "reward_last": reward})}
        path = [f"base:pretrain:m{seed}"]
        arms += [study.arm("base", seed, path, f"e{seed}"), study.arm("rl", seed, [*path, f"rl:rl:r{seed}"], f"f{seed}")]
    return frame.read_results(study.spec(arms, **given), inputs)


def failing(found: Results, at_least: float = 0.3, **rule: object) -> contrast.JudgedClaim:
    test = {"band": "edge", **DIFFERENCE, "at_least": at_least}
    return contrast.judge_claim(found, Claim.model_validate({"says": "so", "test": test, "fails": {**FAILS, **rule}}))


def test_a_claim_about_bases_that_do_not_fail_states_how_many_do_and_the_mean_over_all(tmp_path: Path) -> None:
    found = some_fail(tmp_path, [0.5, 0.5, 0.5, 0.5, 0.1, 0.5], [*RATES[:4], 0, 11])
    assert judge(found, **DIFFERENCE, at_least=0.3).verdict == "no information", "over all bases"
    judged = failing(found)
    assert (judged.verdict, judged.estimate.bases, judged.estimate.seeds) == ("supported", 5, (0, 1, 2, 3, 5))
    assert "for any base, any prompt (5 bases, 20 prompts), where it does not fail" in judged.reason
    every = judge(found, **DIFFERENCE, at_least=0.3).estimate
    assert judged.caveat == (
        "1 of 6 bases failed (seed 4: -12.5, reward_last of rl 0.1, below reward_first 0.2), a share of 0 to 64 %; "
        f"over all {100 * every.value:+.1f} [{100 * every.low:+.1f}, {100 * every.high:+.1f}] points"
    )
    (entry,) = answers.claims_json([judged])
    assert (entry["failing"]["lost"], entry["failing"]["bases"]) == (1, 6)
    assert judged.caveat in catalog.claim_lines([entry], {})[3]
    (shown,) = headline.forest_rows(answers.Answer(found, [judged], {}, {}, [], {}))
    assert (shown["change"], shown["caveat"]) == ("12 % → 64 %", judged.caveat), "of the bases that did not fail"


@pytest.mark.parametrize(
    ("last", "rule", "verdict", "said"),
    [
        ([0.5] * 6, {}, "supported", ""),
        ([0.5] * 6, {"most": 0.5}, "supported", ""),
        ([0.5] * 6, {"most": 0.4}, "no information", "perhaps more than 40% of bases fail"),
        ([0.1] * 4 + [0.5] * 2, {"most": 0.2}, "indicated against", "more than 20% of bases fail"),
        ([0.1] * 4 + [0.5] * 2, {}, "indicated", "a verdict needs 3 bases"),
        ([0.1] * 6, {}, "no information", "every base failed"),
        ([None] + [0.5] * 5, {}, "supported", ""),
        ([float("nan")] + [0.5] * 5, {"above": 0.9, "below": None}, "supported", ""),
        ([0.95] + [0.5] * 5, {"above": 0.9, "below": None}, "supported", ""),
        ([0.5] * 6, {"value": "reward_lst"}, "not judged", "has no 'reward_lst'; did you mean 'reward_last'"),
    ],
)  # fmt: skip
def test_the_share_of_bases_that_fail_counts_where_the_claim_bounds_it(
    tmp_path: Path, last: list[float | None], rule: dict, verdict: str, said: str
) -> None:
    judged = failing(some_fail(tmp_path, last), **rule)
    assert judged.verdict == verdict
    assert said in judged.reason
    if judged.failing:
        assert judged.failing.lost == sum(reward not in (0.5,) for reward in last)
        assert judged.failing.share == intervals.share_interval(judged.failing.lost, 6)


def test_a_look_leaves_out_the_bases_that_failed_and_widens_the_share_too(tmp_path: Path) -> None:
    found = some_fail(tmp_path, [0.5, 0.1, 0.5, 0.5, 0.5, 0.5], stopping={"looks": [4, 6], "beta": None})
    test = {"band": "edge", **DIFFERENCE, "at_least": 0.45}
    judged = sequential.judge(found, Claim.model_validate({"says": "so", "test": test, "fails": FAILS}))
    assert judged.look is not None
    assert judged.failing is not None
    assert judged.look.number == 2
    assert (judged.estimate.bases, judged.failing.bases) == (5, 6)
    assert judged.failing.share == intervals.share_interval(1, 6, judged.look.bound.level)


@given(st.tuples(ends, ends).map(sorted), st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted), st.floats(0, 1), ends)
def test_the_words_partition_all_cases_with_a_share_that_may_fail(effect: list, share: list, most: float, at: float) -> None:
    claim = Claim.model_validate(
        {"says": "so", "test": {**DIFFERENCE, "band": "edge", "at_least": at}, "fails": {**FAILS, "most": most}}
    )
    refuted = effect[1] < at or share[0] > most
    supported = effect[0] >= at and share[1] <= most
    assert not (refuted and supported)
    word = claim.word(*effect, (share[0], share[1]))
    assert word == ("refuted" if refuted else "supported" if supported else "no information")


def test_ends_from_both_arms_reach_as_far_as_theirs_do_and_further_up_near_zero(tmp_path: Path) -> None:
    rare = [[1] * 3 + [0] * 17, [2] * 2 + [0] * 18, [1] * 4 + [0] * 16]
    found = results(tmp_path, before=[1] + [0] * 19, lifted=rare)
    plain, made = (judge(found, **DIFFERENCE, at_most=0.05, **of).estimate for of in ({}, {"interval": "arms"}))
    one, other = (judge(found, value="strict_pass@1", arm=arm, at_most=0.5).estimate for arm in ("rl", "base"))
    assert (made.low, made.high) == intervals.interval_of_arms(one.spread, other.spread, plain.spread)
    assert made.high - made.value > made.value - made.low, "skewed"
    assert made.high > plain.high
    apart = plain.spread._replace(
        between=one.spread.between + other.spread.between, within=one.spread.within + other.spread.within
    )
    assert intervals.interval_of_arms(one.spread, other.spread, apart)[1] > made.high, "arms that are not paired say less"


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ({"test": {"value": "strict_pass@1", "band": "edge", "arm": "rl", "at_least": 0.1, "interval": "arms"}}, "of shares"),
        ({"fails": {"recorded": "rl", "value": "reward_last"}}, "give one of below, above"),
        ({"fails": FAILS, "test": {"recorded": "rl", "value": "reward_last", "arm": "rl", "at_least": 0.1}}, "judged by itself"),
    ],
)
def test_a_rule_for_failed_bases_that_is_none_is_refused(claim: dict, message: str) -> None:
    test = {**DIFFERENCE, "band": "edge", "at_least": 0.1}
    with pytest.raises(ValidationError, match=message):
        Claim.model_validate({"says": "so", "test": test, **claim})
