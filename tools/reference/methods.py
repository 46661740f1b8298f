"""`docs/methods.md`: RL method -> paper -> seams, lines of code, the test of its equation. Made from `configs/method/` and from
the members that a method's YAML names; only what no code can say stands here."""

import ast
import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from interplay.core.digest import canonical
from interplay.core.model import parse_model
from interplay.rl import critic, decoding
from interplay.rl.advantages import advantages
from interplay.rl.edits import edits
from interplay.rl.losses import losses
from interplay.rl.requests import continuation, first_requests
from interplay.rl.rewards import shaping
from interplay.rl.samplers import samplers
from interplay.rl.spec import Method
from interplay.rollout import episodes

CODE, PAPER, NOTE, INFERRED = "code", "paper", "note", "inferred"
"""Where the equations were read: the authors' code, the paper's text, a third party's note of it; or what of it we worked out."""


class Mark(NamedTuple):
    """What no code can say of a method."""

    evidence: str
    test: str
    """`file:function` below tests/unit, which checks the equation."""
    oracle: str = "by hand"
    """What the numbers are checked against."""


GROUP, LOSS = (
    "test_rl_advantage.py:test_advantages_are_those_of_trl",
    "test_rl_loss.py:test_loss_gradient_and_metrics_are_those_of_trl",
)
MARKS: dict[str, Mark] = {
    "grpo": Mark(PAPER, GROUP, "TRL, verl"),
    "grpo_verl": Mark(PAPER, LOSS, "TRL, verl"),
    "grpo_interplay": Mark(CODE, LOSS, "TRL"),
    "dapo": Mark(PAPER, LOSS, "TRL, verl"),
    "dr_grpo": Mark(PAPER, LOSS, "TRL, verl"),
    "bnpo": Mark(CODE, LOSS, "TRL"),
    "gspo": Mark(PAPER, LOSS, "TRL, verl"),
    "cispo": Mark(PAPER, LOSS, "TRL, verl"),
    "sapo": Mark(CODE, LOSS, "TRL, verl"),
    "luspo": Mark(CODE, LOSS, "TRL"),
    "vespo": Mark(CODE, "test_rl_losses.py:test_vespo_is_that_of_trl", "TRL"),
    "geo_mean": Mark(
        CODE, "test_rl_losses.py:test_the_geometric_mean_clips_each_token_on_the_side_to_which_its_advantage_pulls", "verl"
    ),
    "gpg": Mark(PAPER, "test_rl_losses.py:test_gpg_has_the_gradient_of_the_policy_gradient_whatever_the_ratio", "verl"),
    "clip_cov": Mark(CODE, "test_rl_losses.py:test_clip_cov_takes_the_gradient_from_tokens_within_its_bounds_alone"),
    "kl_cov": Mark(CODE, "test_rl_losses.py:test_kl_cov_charges_the_tokens_that_covary_most_for_leaving", "verl"),
    "disco": Mark(CODE, "test_rl_losses.py:test_discos_gradient_is_that_of_its_objective_with_its_constraint", "autograd"),
    "disco_ratio": Mark(CODE, "test_rl_losses.py:test_discos_gradient_is_that_of_its_objective_with_its_constraint", "autograd"),
    "hapo_token": Mark(
        CODE, "test_rl_losses.py:test_hapo_widens_the_upper_clip_of_uncertain_tokens_and_the_lower_one_of_certain_ones"
    ),
    "ppo": Mark(PAPER, "test_rl_critic.py:test_they_are_the_sum_of_their_definition", "the definition, verl"),
    "nlpo": Mark(CODE, "test_rl_nucleus.py:test_a_step_is_the_gradient_within_the_nucleus_that_naive_autograd_finds", "autograd"),
    "rloo": Mark(PAPER, "test_rl_advantages.py:test_leaving_itself_out_compares_a_completion_with_the_others", "verl"),
    "reinforce_pp": Mark(PAPER, "test_rl_advantages.py:test_whitening_is_over_the_tokens_of_the_batch", "numpy, verl"),
    "opo": Mark(PAPER, "test_rl_advantages.py:test_the_baseline_weighed_by_length", "verl"),
    "pass_k": Mark(
        PAPER, "test_rl_advantages.py:test_pass_k_in_closed_form_is_the_mean_over_all_groups_of_k", "all choices of k"
    ),
    "lite_ppo": Mark(CODE, GROUP, "TRL"),
    "a_grae": Mark(PAPER, "test_rl_advantages.py:test_a_grae_by_hand"),
    "copo": Mark(CODE, "test_rl_advantages.py:test_copo_gives_whole_prompts_an_advantage_where_their_own_is_zero"),
    "spo_single": Mark(CODE, "test_rl_advantages.py:test_the_tracked_advantage_is_standardised_over_the_batch", "numpy"),
    "xrpo": Mark(
        INFERRED,
        "test_rl_advantages.py:test_xrpo_pays_right_completions_that_are_less_likely_than_their_group_up_to_a_cap",
    ),
    "gtpo_entropy": Mark(NOTE, "test_rl_advantages.py:test_entropy_is_shared_at_each_place_among_the_completions_that_reach_it"),
    "grpo_s": Mark(NOTE, "test_rl_advantages.py:test_entropy_shapes_right_completions_up_and_sure_wrong_ones_down"),
    "spo_segment": Mark(CODE, "test_rl_pieces.py:test_a_segment_is_worth_what_it_adds_to_what_is_to_be_expected"),
    "spo_tree": Mark(CODE, "test_rl_pieces.py:test_a_segment_of_a_tree_is_worth_the_mean_over_its_continuations"),
    "t_ppo": Mark(INFERRED, "test_rl_critic.py:test_a_row_that_goes_on_is_worth_at_its_end_what_it_was_worth_before"),
    "gtpo_conflict": Mark(
        CODE, "test_rl_edits.py:test_wrong_completions_leave_shared_tokens_alone_and_right_ones_weigh_them_twice"
    ),
    "top_entropy": Mark(PAPER, "test_rl_edits.py:test_only_the_most_uncertain_tokens_keep_an_advantage_and_all_still_bear_loss"),
    "c3po": Mark(PAPER, "test_rl_edits.py:test_rows_are_taken_in_random_order_until_the_budget_is_reached"),
    "d3s": Mark(NOTE, "test_d3s.py:test_no_other_rows_have_a_larger_variance", "all subsets"),
    "r3": Mark(
        INFERRED, "test_rl_edits.py:test_a_group_in_which_all_failed_gets_the_latest_past_success_and_the_other_way_round"
    ),
    "guide": Mark(
        INFERRED,
        "test_rl_requests.py:test_only_groups_in_which_all_failed_are_sampled_again_with_a_hint_and_credited_without_it",
    ),
    "icpo": Mark(INFERRED, "test_rl_requests.py:test_steered_failures_are_dropped_and_steered_successes_have_a_bonus_that_falls"),
    "exit": Mark(INFERRED, "test_rl_attempts.py:test_a_step_starts_from_histories_in_proportion_to_the_variance_of_their_groups"),
    "pit": Mark(INFERRED, "test_rl_attempts.py:test_pit_pays_the_gap_to_the_attempt_that_was_shown_by_hand"),
    "icrl": Mark(CODE, "test_rl_requests.py:test_shots_are_annealed_by_phase_in_both_texts"),
    "critique_grpo": Mark(
        INFERRED, "test_rl_requests.py:test_a_wrong_completion_is_shown_once_and_right_refinements_join_its_group_by_hand"
    ),
    "hpt": Mark(CODE, "test_rl_edits.py:test_groups_with_few_successes_give_way_to_the_gold_solution"),
    "campo": Mark(CODE, "test_rl_shaping.py:test_repetition_takes_by_share_or_from_truncated_ones_alone"),
    "hapo_length": Mark(CODE, "test_rl_shaping.py:test_length_is_held_against_the_shortest_right_completion_of_earlier_steps"),
    "mind": Mark(INFERRED, "test_units.py:test_mind_pays_right_completions_less_for_every_further_attempt_by_hand"),
    "kimi_length": Mark(PAPER, "test_rl_shaping.py:test_kimis_length_term_by_hand"),
    "gcpo": Mark(INFERRED, "test_rl_shaping.py:test_a_device_is_paid_where_it_helps_and_charged_where_it_hurts"),
    "overlong": Mark(PAPER, "test_rl_shaping.py:test_overlong_falls_in_a_line_over_the_cache"),
    "ufo": Mark(INFERRED, "test_rl_turns.py:test_ufo_pays_less_for_later_answers_and_charges_repeated_ones_by_hand"),
    "score_first": Mark(INFERRED, "test_rl_turns.py:test_the_kl_term_of_the_first_turn_holds_the_first_turn_alone", "autograd"),
    "score": Mark(
        INFERRED, "test_rl_turns.py:test_score_pays_the_second_answer_for_what_it_mends_and_charges_what_it_spoils_by_hand"
    ),
    "igpo": Mark(NOTE, "test_rl_turns.py:test_igpo_pays_turns_for_what_they_tell_of_the_answer_by_hand"),
    "spiral": Mark(INFERRED, "test_rl_self_play.py:test_each_seat_has_a_baseline_that_is_read_before_it_moves_by_hand"),
    "grpo_process": Mark(PAPER, "test_rl_steps.py:test_a_token_earns_the_rewards_of_the_steps_that_end_behind_it_by_hand"),
    "direct_advantage": Mark(INFERRED, "test_rl_direct.py:test_a_step_is_pulled_to_the_log_ratio_of_its_gain_by_hand"),
    "distil": Mark(INFERRED, "test_rl_distil.py:test_a_step_is_the_gradient_that_naive_autograd_finds", "autograd"),
    "ssrl": Mark(INFERRED, "test_self_search.py:test_what_is_written_as_found_bears_no_loss_by_hand"),
    "scrl": Mark(NOTE, "test_subproblems.py:test_each_position_is_normalised_over_the_group_by_itself"),
}


def load(root: Path) -> dict[str, Method]:
    """The methods of `configs/method/`, by name."""
    files = sorted((root / "configs" / "method").glob("*.yaml"))
    return {file.stem: parse_model(Method, yaml.safe_load(file.read_text(encoding="utf-8")), file.name) for file in files}


def page(root: Path) -> str:
    """docs/methods.md."""
    methods = load(root)
    parts = [
        "# RL methods",
        "Made by `make docs` from `configs/method/`. A study takes one with `/method@stages.<stage>.method: <name>`. `seams`: "
        "where a method differs from `grpo`; `lines`: code of the functions that stand there, without docstrings. `evidence`: "
        "where the equations were read (code: the authors' own; paper; note: a third party's account), or `inferred` where part "
        "of them is ours, which the YAML says. What is checked by hand is checked on numbers worked out by hand; "
        "what is checked against verl, also in `test_verl.py`, which says how to run it. [How to add one](guide/extending.md).",
        "| method | paper | seams | lines | equation test | oracle | evidence |\n| --- | --- | --- | --- | --- | --- | --- |\n"
        + "\n".join(_line(name, method, methods["grpo"]) for name, method in methods.items()),
    ]
    return "\n\n".join(parts) + "\n"


def _line(name: str, method: Method, usual: Method) -> str:
    seams = differing(method, usual)
    code = {function for seam in seams for function in functions(method, seam)}
    mark, lines = MARKS[name], sum(map(lines_of, code))
    test = f"`{mark.test.replace('.py:', '.py` `')}`"
    return f"| `{name}` | {method.paper} | {', '.join(seams) or '-'} | {lines} | {test} | {mark.oracle} | {mark.evidence} |"


def differing(method: Method, usual: Method) -> list[str]:
    """The seams at which two methods differ."""
    keys = [key for key in Method.model_fields if key != "paper"]
    return [key for key in keys if canonical(getattr(method, key)) != canonical(getattr(usual, key))]


def functions(method: Method, seam: str) -> list[Callable[..., Any]]:
    """The functions behind a method's members at a seam."""
    specs = getattr(method, seam)
    found: list[Any] = []
    for spec in specs if isinstance(specs, list) else [specs] if specs else []:
        for members in TABLES.get(seam, ()):
            member = members.get(spec.name)
            found += list(member) if isinstance(member, tuple) else [member]
    return [function for function in found if callable(function)]


TABLES: dict[str, tuple[dict[str, Any], ...]] = {
    "sampler": (samplers.MEMBERS,),
    "allocation": (first_requests.ALLOCATION,),
    "prompting": (first_requests.PROMPTING,),
    "continuation": (continuation.CONTINUATION,),
    "episode": (episodes.MEMBERS,),
    "shaping": (shaping.MEMBERS, shaping.OF_TURNS),
    "edits": (edits.BEFORE, edits.AFTER),
    "advantage": (advantages.MEMBERS,),
    "loss": (losses.MEMBERS,),
    "critic": (critic.MEMBERS,),
    "decoding": (decoding.MEMBERS,),
}
"""Seam -> its tables of members."""


def lines_of(function: Callable[..., Any]) -> int:
    """Lines of code of a function or class, without docstrings, comments and blank lines."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return len(ast.unparse(tree).splitlines())
