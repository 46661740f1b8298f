"""The answer at the top of a page and its claims as rows: what leads, in which words, and what is said of what did not act."""

import math
from pathlib import Path
from typing import Any

import report_study as study

from interplay.report.shown_spec import SHARE
from interplay.report.stats import frame, provenance
from interplay.report.write import answers, headline, page

LOW, HIGH = [1, 0, 1, 0, 1] * 5, [3, 4, 3, 4, 4] * 5
ID = [4, 4, 4, 3] * 6


def claim(says: str, arm: str = "rl", against: str | None = "base", **bound: Any) -> dict[str, Any]:
    test = {"difference" if against else "value": "strict_pass@1", "band": "edge" if against else "id", "arm": arm}
    return {"says": says, "test": {**test, **({"against": against} if against else {}), **bound}}


MASTERS = claim("The base masters it", "base", None, within=[0.8, 1.0])
LIFTS = claim("RL lifts the edge", at_least=0.1)
HARMS = claim("RL harms the edge", at_most=-0.1)


def answer(root: Path, claims: list[dict[str, Any]], seeds: int = 3, rl: list[int] = HIGH, lacks: int = 0) -> answers.Answer:
    """A study of two arms; the evaluations of RL at the last `lacks` seeds are not there."""
    inputs, arms = {}, []
    for seed in range(seeds):
        inputs[f"b{seed}"] = study.write_evaluation(root, f"b{seed}", {2: ID, 4: [*LOW[seed:], *LOW[:seed], seed]})
        arms.append(study.arm("base", seed, [f"base:pretrain:p{seed}"], f"b{seed}"))
        arms.append(study.arm("rl", seed, [f"base:pretrain:p{seed}", f"rl:rl:m{seed}"], f"r{seed}", control="base"))
        if seed < seeds - lacks:
            inputs[f"r{seed}"] = study.write_evaluation(root, f"r{seed}", {2: ID, 4: [*rl, 4 - seed]})
    spec = study.spec(arms, tables={"main": {"columns": ["id", "edge"], "cells": ["strict_pass@1"]}}, claims=claims)
    return answers.answer_study(frame.read_results(spec, inputs))


def test_the_first_claim_about_a_difference_that_has_a_verdict_leads(tmp_path: Path) -> None:
    made = headline.make_headline(answer(tmp_path, [MASTERS, LIFTS, HARMS]))
    assert (made.lead, made.change, made.verdict.word) == ("RL lifts the edge", "15 % → 89 %", "supported")
    assert made.details.startswith("strict pass@1 on edge, base → rl: +74.0 points, 95 % interval ")
    assert made.details.endswith(" for any base, any prompt (3 bases, 26 prompts).")
    assert made.others[:2] == ["2 of 3 claims are supported.", "Refuted: “RL harms the edge”."]


TOOK = {"completions": 96, "prompt_tokens": 480, "completion_tokens": 960}


def repeated(root: Path, claims: list[dict[str, Any]], differs: dict[str, Any]) -> headline.Headline:
    """Of a study of `base`, `rl` and `again`, whose RL has another seed and what `differs`."""
    inputs, arms = {}, []
    for seed in range(3):
        inputs[f"p{seed}"] = study.write_record(root, f"p{seed}", "pretrain", {"seed": seed}, {})
        for arm, strict, own in (
            ("base", LOW, None),
            ("rl", HIGH, {"seed": seed}),
            ("again", HIGH, {"seed": 1000 + seed, **differs}),
        ):
            path, model = [f"base:pretrain:p{seed}"], f"p{seed}"
            if own is not None:
                model = f"{arm}-m{seed}"
                inputs[model] = study.write_record(
                    root, model, "rl", {**study.RL, **own}, TOOK, {"init": f"p{seed}", "data": "set"}
                )
                path.append(f"rl:rl:{model}")
            counts = {2: ID, 4: [*strict[seed:], *strict[:seed], seed]}
            inputs[f"{arm}{seed}"] = study.write_evaluation(root, f"{arm}{seed}", counts, model=model)
            arms.append(study.arm(arm, seed, path, f"{arm}{seed}"))
    spec = study.spec(arms, tables={"main": {"columns": ["edge"], "cells": ["strict_pass@1"]}}, claims=claims)
    return headline.make_headline(answers.answer_study(frame.read_results(spec, inputs)))


AGAIN = claim("Chance alone changes little", "again", "rl", at_most=0.3)


def test_a_claim_about_an_arm_and_its_repeat_leads_only_where_no_other_has_a_verdict(tmp_path: Path) -> None:
    assert repeated(tmp_path / "both", [AGAIN, LIFTS], {}).lead == "RL lifts the edge"
    assert repeated(tmp_path / "value", [AGAIN, MASTERS], {}).lead == "The base masters it"
    alone = repeated(tmp_path / "alone", [AGAIN], {})
    assert (alone.lead, alone.verdict and alone.verdict.word) == ("Chance alone changes little", "supported")


def test_an_arm_that_differs_in_more_than_seeds_is_no_repeat(tmp_path: Path) -> None:
    assert repeated(tmp_path, [AGAIN, LIFTS], {"temperature": 0.5}).lead == "Chance alone changes little"


def test_a_claim_that_is_contradicted_leads_with_that_word(tmp_path: Path) -> None:
    made = answer(tmp_path, [HARMS])
    assert headline.make_headline(made).verdict == headline.Verdict("refuted", "no", "✗")
    written = page.render_page(made, provenance.of_inputs(made.results.spec, made.results.folders), [])
    assert '<p class="answer no"><span class="word">Refuted:</span> RL harms the edge: <b>15 % → 89 %</b></p>' in written


def test_with_one_base_a_claim_is_indicated(tmp_path: Path) -> None:
    made = answer(tmp_path, [LIFTS, HARMS, claim("It is about a half more", at_least=0.75)], seeds=1)
    verdicts = [headline.page_verdict(item) for item in made.judged]
    assert [one.word for one in verdicts] == ["indicated", "indicated against", "no information"]
    assert len({one.sign for one in verdicts}) == 3, "told apart without colour"
    lead = headline.make_headline(made)
    assert (lead.lead, lead.change) == ("RL lifts the edge", "14 % → 90 %")
    assert lead.details.endswith("for this base, any prompt (1 run, 26 prompts).")


def test_a_claim_that_is_not_tested_never_leads(tmp_path: Path) -> None:
    made = answer(tmp_path, [claim("RL costs nothing", at_least=-0.03), MASTERS], rl=LOW)
    idle = made.judged[0]._replace(verdict="not tested", reason="rl did not act: rl left the weights as they were")
    made = made._replace(judged=[idle, made.judged[1]])
    assert headline.page_verdict(idle) == headline.Verdict("not tested", "none", "–")
    lead = headline.make_headline(made)
    assert lead.lead == "The base masters it"
    assert "Not tested: “RL costs nothing”." in lead.others


def test_training_that_changed_nothing_is_said_with_its_reward(tmp_path: Path) -> None:
    inputs = {"b": study.write_evaluation(tmp_path, "b", {4: LOW}), "r": study.write_evaluation(tmp_path, "r", {4: LOW})}
    for kind, digest in (("pretrain", "p"), ("rl", "m")):
        inputs[digest] = study.write_record(tmp_path, digest, kind, {}, {})
        path = inputs[digest] / "record.json"
        path.write_text(path.read_text().replace('"files": {}', '"files": {"model/model.safetensors": [8, "same"]}'))
    study.write_steps(inputs["m"], reward=[0.0, 0.0, 0.0])
    arms = [study.arm("base", 0, ["base:pretrain:p"], "b"), study.arm("rl", 0, ["base:pretrain:p", "rl:rl:m"], "r")]
    results = frame.read_results(study.spec(arms), inputs)
    assert headline.idle_sentences(results) == ["Stage rl of rl did not change the model: every reward was 0."]


def test_a_failed_arm_leaves_its_claims_not_judged_and_the_rest_answers(tmp_path: Path) -> None:
    made = answer(tmp_path, [LIFTS, MASTERS], lacks=3)
    assert [headline.page_verdict(item).word for item in made.judged] == ["not judged", "supported"]
    lead = headline.make_headline(made)
    assert (lead.lead, lead.change) == ("The base masters it", "94 %")
    assert lead.others == ["Not judged: “RL lifts the edge”."]
    missing, _ = headline.forest_rows(made)
    assert (missing["picture"], missing["number"], missing["change"]) == ("", "", "")
    commands = [command for command, _ in headline.next_commands(made, None, [("rl/rl/seed0", "abc")])]
    assert commands == ["interplay show abc", "interplay run toy --scale smoke"]


def test_some_missing_seeds_leave_a_number_without_a_verdict(tmp_path: Path) -> None:
    made = answer(tmp_path, [LIFTS], lacks=1)
    (row,) = headline.forest_rows(made)
    assert (row["verdict"].word, row["number"][:1]) == ("not judged", "+")
    assert "is not there" in row["reason"]


def test_a_study_without_claims_leads_with_the_widest_difference_of_its_first_table(tmp_path: Path) -> None:
    made = headline.make_headline(answer(tmp_path, []))
    assert (made.lead, made.change) == ("Largest difference on edge strict pass@1", "base 15.4 % → rl 89.4 %")
    assert made.details == "The study makes no claim; this is the largest difference of the first table."


def test_nothing_evaluated_is_said(tmp_path: Path) -> None:
    made = headline.make_headline(answer(tmp_path, [LIFTS], seeds=1)._replace(judged=[], grids={}))
    assert made.lead == "No evaluation is finished yet"


def test_the_largest_difference_outside_the_claims_is_said_to_be_chosen_afterwards(tmp_path: Path) -> None:
    made = headline.make_headline(answer(tmp_path, [claim("Nothing is forgotten", band="id", at_least=-0.05)]))
    said = "Outside the claims, the only difference, chosen after the fact: rl − base, strict pass@1 on edge, +74.0 points"
    assert made.others[-1].startswith(said)


def test_rows_of_one_unit_share_a_scale_and_name_what_they_show(tmp_path: Path) -> None:
    rows = headline.forest_rows(answer(tmp_path, [LIFTS, HARMS, MASTERS]))
    zero = [row["picture"].split('class="mark" x1="')[-1].split('"')[0] for row in rows[:2]]
    assert zero == ["130.0", "130.0"]
    assert rows[0]["said"].startswith("+74.0 points, 95 % interval ")
    assert (rows[0]["claimed"], rows[2]["claimed"]) == ("claimed at least 10 points", "claimed 80 to 100 %")


def test_a_row_shows_the_margin_within_which_two_are_equal(tmp_path: Path) -> None:
    rows = headline.forest_rows(answer(tmp_path, [claim("No worse", at_least=0.0, margin=0.03), claim("The same", margin=0.05)]))
    assert [row["claimed"] for row in rows] == ["claimed at least 0 points, equal within 3", "claimed −5 to 5 points"]


def test_minus_is_for_numbers_and_not_for_hyphens() -> None:
    assert headline.minus("pre-trained -1.5 [-2, +3] rl-2") == "pre-trained −1.5 [−2, +3] rl-2"


def test_of_the_other_supported_claims_the_first_about_another_arm_is_quoted(tmp_path: Path) -> None:
    below = claim("The base is below", "base", "rl", at_most=-0.1)
    made = headline.make_headline(answer(tmp_path, [LIFTS, claim("RL lifts it much", at_least=0.5), below]))
    assert made.others == ["3 of 3 claims are supported, also “The base is below”: 89 % → 15 %."]


def test_a_claimed_bound_is_shown_as_it_was_written() -> None:
    """A bound of 1.25 points is not 1.2, beside which an interval from 1.23 on would look like a verdict."""
    assert headline._range(0.0125, math.inf, SHARE, "points") == "at least 1.25 points"
    assert headline._range(-0.05, 0.1, SHARE, "points") == "−5 to 10 points"
