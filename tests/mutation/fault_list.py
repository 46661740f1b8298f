"""One-line faults, each of which some test must find. A fault names no file: its text occurs once in all of src, so a module may
move. The tests nearest to it come first.

Left out because no behaviour differs: a budget judged at the last seed in place of the first one (arms at different seeds have
equal specs but for the seed), and rows in place of whole groups where all groups are of one size."""

from typing import NamedTuple


class Fault(NamedTuple):
    """Replace `old`, which occurs once in src, by `new`: one of these tests must fail."""

    name: str
    old: str
    new: str
    tests: tuple[str, ...]
    """Names of test files without folder and suffix, `unit/test_` left out."""


def fault(name: str, old: str, new: str, *tests: str) -> Fault:
    """With tests as words."""
    return Fault(name, old, new, tests)


ADVANTAGES = [
    fault("advantage_sign", "centred = values - mean[member]", "centred = mean[member] - values", "rl_advantage"),
    fault(
        "bessel", "centred[counted] ** 2) / (size - 1).clamp(min=1)", "centred[counted] ** 2) / size.clamp(min=1)", "rl_advantage"
    ),
    fault(
        "gae_lambda",
        "delta + discount[:, t] * lam * running, running)",
        "delta + discount[:, t] * running, running)",
        "rl_critic",
        "rl_advantages",
    ),
    fault(
        "gae_discount",
        "delta = paid[:, t] + discount[:, t] * later - values[:, t]",
        "delta = paid[:, t] + later - values[:, t]",
        "rl_critic",
    ),
    fault("critic_warmup", "(now.step > judge.spec.warmup_steps)", "(now.step >= judge.spec.warmup_steps)", "rl_critic"),
    fault("leave_one_out", "torch.where(counted, size / (size - 1).clamp(min=1), 1.0)", "torch.ones_like(size)", "rl_advantages"),
]

TURNS = [
    fault(
        "turn_baseline",
        "numbers = [[span.position for span in row] for row in of_turns(batch)]",
        "numbers = [[0 for span in row] for row in of_turns(batch)]",
        "turn_credit",
    ),
    fault("turn_discount", "total = reward + gamma * total", "total = reward + total", "turn_credit"),
    fault("turn_gate", "opened = [reward >= source.gate", "opened = [reward < source.gate", "turn_credit"),
    fault("turn_critic", "gain in zip(spans, values, estimates(", "gain in zip(spans, rewards, estimates(", "turn_credit"),
    fault("turn_ratio", "/ tokens).gather(1, turns) * seen.mask", "/ 1).gather(1, turns) * seen.mask", "turn_credit"),
    fault("own_seat", "weight * earned[*at, other] for other,", "weight * earned[*at, seat] for other,", "seats"),
    fault("past_policies", "in sorted(self.past)[: -self.keep]:", "in sorted(self.past)[: 1 - self.keep]:", "seats"),
    fault("summed_up", "later = number + 1 < len(thread.parts)", "later = number + 2 < len(thread.parts)", "episode_contexts"),
    fault("branch_point", "or one.turn < later.turn]", "or one.turn <= later.turn]", "trajectory_edits"),
    fault(
        "filter", "spec.count else torch.arange(len(batch))", "not spec.count else torch.arange(len(batch))", "trajectory_edits"
    ),
    fault("observed", "return batch, torch.where(read,", "return batch, torch.where(~read,", "trajectory_edits"),
    fault("late_curve", "return (step - 1) / max(steps - 1, 1)", "return (step - 2) / max(steps - 1, 1)", "curves"),
    fault("round_seeds", '"seed": seed + SEED_STRIDE * (number - 1)}', '"seed": seed + SEED_STRIDE * number}', "rounds"),
]

LOSSES = [
    fault(
        "padding_mask",
        "inside = torch.arange(self.tokens.shape[1]) < self.lengths[:, None]",
        "inside = torch.arange(self.tokens.shape[1]) <= self.lengths[:, None]",
        "rl_update",
        "rl_loss",
    ),
    fault(
        "dapo_weight", "return active / (max(batch_tokens, 1) / minibatches)", "return active / max(batch_tokens, 1)", "rl_loss"
    ),
    fault("grpo_weight", ".clamp(min=1) * len(mask))", ".clamp(min=1))", "rl_loss"),
    fault(
        "engine_ratio",
        "return seen.by.exp((seen.old_logp.detach() - seen.sampled) * seen.mask)",
        "return seen.by.exp((seen.sampled - seen.old_logp.detach()) * seen.mask)",
        "rl_loss",
        "rl_update",
    ),
    fault(
        "clip",
        "torch.clamp(ratio, 1 - low, 1 + high) * advantage",
        "torch.clamp(ratio, 1 - high, 1 + low) * advantage",
        "rl_loss",
    ),
    fault("clip_delta", "capped = ratio if delta is None else ratio.clamp(max=delta)", "capped = ratio", "rl_loss", "rl_losses"),
    fault("entropy_sign", "loss = loss - spec.entropy_coef * bonus", "loss = loss + spec.entropy_coef * bonus", "rl_update"),
    fault("k3", "by.expm1(log_ratio) - log_ratio", "by.expm1(log_ratio) + log_ratio", "rl_loss"),
    fault("kl_weight", "return per_token + beta * kl, {", "return per_token - beta * kl, {", "rl_loss", "handed_over"),
    fault(
        "truncated",
        "return batch.mask() & ~batch.truncated[:, None] if",
        "return batch.mask() & batch.truncated[:, None] if",
        "rl_update",
    ),
    fault(
        "sequence_ratio",
        "mean = seen.by.wide(sequence_mean(difference, seen.mask, seen.by), difference.shape[1])",
        "mean = difference",
        "rl_loss",
    ),
]

STEPS = [
    fault("off_policy_base", "torch.where(foreign, batch.logprobs[rows], old)", "old", "handed_over"),
    fault(
        "old_policy", "if steps_per_batch > 1 and parts else None", "if steps_per_batch > 9 and parts else None", "handed_over"
    ),
    fault(
        "whole_groups",
        "here = member * spec.minibatches // max(groups, 1) == number",
        "here = torch.arange(len(member)) * spec.minibatches // max(len(member), 1) == number",
        "handed_over",
    ),
    fault("iterations", "for _ in range(spec.method.loss.num_iterations):", "for _ in range(1):", "handed_over"),
    fault(
        "reference",
        "(one.requires_grad_(False) for one in frozen), strict=True)",
        "(policy for _ in frozen), strict=True)",
        "rl_loop",
    ),
    fault(
        "progress",
        "memory=run.memory,\n        step=step,\n        progress=progress_at(step, spec.steps),",
        "memory=run.memory,\n        step=step,\n        progress=step / spec.steps,",
        "handed_over",
    ),
    fault("memory_resume", 'run.memory.load(state.get("memory", {}), memory)', "run.memory.load({}, {})", "handed_over"),
    fault(
        "sampler_resume",
        'run.sampler.load_state_dict(state["sampler"], distributed.with_prefix(tensors, SAMPLER))',
        "pass",
        "handed_over",
        "rl_curricula",
    ),
    fault("sampler_learns", "        run.sampler.learn(step)", "        pass", "handed_over"),
    fault(
        "rl_rate",
        "run.critic.optimizers if run.critic else ())], factor)",
        "run.critic.optimizers if run.critic else ())], 1.0)",
        "handed_over",
    ),
    fault(
        "others_weights",
        "stacked([draw.decoder for draw in draws])",
        "stacked([draw.decoder for draw in reversed(draws)])",
        "stacked_rollouts",
        "stacked_rl",
    ),
    fault(
        "others_groups",
        "(kept + torch.arange(replicas, device=kept.device)[:, None] * dead.shape[1])",
        "kept",
        "stacked_rollouts",
    ),
    fault(
        "rollout_noise",
        'seed=random.stream_key(spec.seed, "rollout", step),',
        'seed=random.stream_key(spec.seed, "rollout"),',
        "handed_over",
    ),
    fault(
        "rollout_temperature",
        "temperature=spec.temperature,\n        top_p=1.0,",
        "temperature=1.0,\n        top_p=1.0,",
        "handed_over",
    ),
    fault("score_temperature", "token, copied, dtype) / temperature, dim=-1)", "token, copied, dtype), dim=-1)", "rl_update"),
    fault(
        "tracker",
        "self.b[outcome.id] = self.rho * self.b[outcome.id] + outcome.n - passed",
        "self.b[outcome.id] = self.b[outcome.id] + outcome.n - passed",
        "samplers",
    ),
]

TRAINING = [
    fault("data_order", 'generator("epoch", seed, epoch).perm', 'generator("epoch", epoch).perm', "handed_over"),
    fault(
        "loss_mask",
        "bears = within >= np.repeat(np.maximum(encoded.prompts, 1)",
        "bears = within > np.repeat(np.maximum(encoded.prompts, 1)",
        "corpus",
    ),
    fault("label_shift", "before, following = targets - 1, ids[targets]", "before, following = targets, ids[targets]", "train"),
    fault("mix_shares", "total = min(size[-1] / share for size, share", "total = max(size[-1] / share for size, share", "corpus"),
    fault(
        "validation_mask",
        "part.lengths) >= np.repeat(first, part.lengths)",
        "part.lengths) > np.repeat(first, part.lengths)",
        "train",
    ),
    fault("lr_warmup", "return step / warmup", "return (step - 1) / warmup", "handed_over"),
    fault("lr_decay", "passed = step - (steps - decay)", "passed = 0", "handed_over"),
    fault("lr_direction", "left = 1 - passed / decay", "left = passed / decay", "handed_over"),
    fault("lr_floor", "return spec.min_ratio + (1 - spec.min_ratio) * shape", "return shape", "handed_over"),
    fault("clipping", 'max_grad_norm or float("inf"))', 'float("inf"))', "optim", "handed_over"),
    fault(
        "weight_decay",
        '{"params": vectors, "weight_decay": 0.0}]',
        '{"params": vectors, "weight_decay": spec.weight_decay}]',
        "handed_over",
    ),
    fault(
        "muon_scale",
        "math.sqrt(max(1.0, matrix.size(-2) / matrix.size(-1)))",
        "math.sqrt(matrix.size(-2) / matrix.size(-1))",
        "optim",
    ),
    fault("muon_nesterov", 'torch._foreach_lerp(grads, buffers, group["momentum"])', "buffers", "optim"),
    fault(
        "token_count_resume",
        "state = saved\n        distributed.restore_training(tensors, job.m",
        "_ = saved\n        distributed.restore_training(tensors, job.m",
        "train",
    ),
    fault("dpo_ratio", "return self.chosen - self.ref_chosen, self", "return self.chosen + self.ref_chosen, self", "prefer"),
    fault(
        "dpo_reference",
        "other = completion_logps(setup.reference, prompts, completions, setup.dtype)",
        "other = completion_logps(setup.policy, prompts, completions, setup.dtype)",
        "prefer",
    ),
    fault(
        "reward_margin",
        "a.score - b.score for a, b in zip(good, bad",
        "b.score - a.score for a, b in zip(good, bad",
        "reward_model",
    ),
    fault("npo_reference", "(logps.logp - logps.reference))", "logps.logp)", "unlearn"),
    fault("npo_base", "reference = solution_logps(setup.base, batch, size, setup)[0]", "reference = logp.detach()", "unlearn"),
]

EVALUATION = [
    fault(
        "noise_key",
        'return random.stream_key("prompt", row.prompt)',
        'return random.stream_key("prompt", row.index)',
        "handed_over",
    ),
    fault(
        "eval_temperature",
        "temperature=spec.temperature,\n        top_p=spec.top_p",
        "temperature=1.0,\n        top_p=spec.top_p",
        "handed_over",
    ),
    fault("eval_top_p", "top_p=spec.top_p,\n        top_k=spec.top_k", "top_p=1.0,\n        top_k=spec.top_k", "handed_over"),
    fault("eval_seed", "seed=spec.seed,\n        eos=special.eos", "seed=0,\n        eos=special.eos", "handed_over"),
    fault(
        "first_sample", "Request(p, k, spec.first_sample, spec.num_samples)", "Request(p, k, 0, spec.num_samples)", "handed_over"
    ),
    fault(
        "nll",
        "scored = columns >= np.maximum(problems.prompts, 1)[rows]",
        "scored = columns > np.maximum(problems.prompts, 1)[rows]",
        "nll",
    ),
    fault("answer_prior", "return (same - 1) / np.maximum(total - 1, 1)", "return same / np.maximum(total, 1)", "evaluate"),
    fault(
        "pass_at_k",
        "np.clip((samples - passes)[..., None] - drawn, 0, None)",
        "np.clip((samples - passes)[..., None], 0, None)",
        "score",
    ),
    fault("verifier_order", "if needs[place] & ~valued:", "if needs[place] & ~needs[place]:", "op_dag_verify"),
    fault("verifier_parents", "if step.letters != set(letters):", "if not step.letters >= set(letters):", "op_dag_verify"),
    fault("chain_hops", "lengths = [hops if question else hops + 1", "lengths = [hops + 1 if question else hops + 1", "keychain"),
]

REPORT = [
    fault("share_level", "stats.beta.ppf(self.level / 2, right,", "stats.beta.ppf(self.level, right,", "report_stats"),
    fault("t_level", "stats.t.isf(level / 2 / count, freedom)", "stats.t.isf(level / count, freedom)", "report_stats"),
    fault("t_freedom", "t_quantile(len(values) - 1) * values.std", "t_quantile(len(values)) * values.std", "report_stats"),
    fault("prompts_left_out", "np.sqrt(self.between + self.within)", "np.sqrt(self.between)", "report_stats"),
    fault("holm", "np.arange(len(p), 0, -1)))", "len(p)))", "report_contrast", "report_stats"),
    fault(
        "difference",
        "prompt_scores(one, metric) - prompt_scores(other, metric)",
        "prompt_scores(other, metric) - prompt_scores(one, metric)",
        "report_estimate",
        "report_claims",
    ),
    fault("verdict_side", "if high < least or low > most:", "if low < least or high > most:", "report_claims"),
    fault("mlflow_arm", 'found |= {"arm": place.arm, "group"', 'found |= {"arm": place.stage, "group"', "track"),
]

PLANS = [
    fault(
        "digest_deps",
        "_dumps(canonical(hashed_deps(deps)))",
        "_dumps(sorted(hashed_deps(deps)))",
        "identity",
    ),
    fault("digest_versions", "{_dumps(found)},{text},", "{_dumps(sorted(found))},{text},", "identity"),
    fault("later_field", "holds_older = bool(old) and canonical(item) in old", "holds_older = bool(old)", "identity"),
    fault(
        "seeds_varied",
        "own = context.seeds()[0] if seeded and name not in vary else seed",
        "own = seed",
        "study",
    ),
    fault("seed_offset", 'filled["seed"] = seed + (getattr(spec', 'filled["seed"] = seed or (getattr(spec', "study"),
    fault(
        "arm_label",
        'label = f"{arm}/{name}@{own}" if stage.marks',
        'label = f"{name}@{own}" if stage.marks',
        "study",
    ),
    fault("budget", "if found > match.tolerance:", "if found > 1:", "budget"),
    fault(
        "undeclared",
        "if not any(key == one or key.startswith",
        "if declared and not any(key == one or key.startswith",
        "contrast",
    ),
    fault("declared_in_vain", "if _is_equal(arm, control, key):", "if not key:", "contrast"),
    fault("cost", "return Fraction(5 * rollouts * cap, 3)", "return Fraction(4 * rollouts * cap, 3)", "cost"),
    fault("experts", "idle = sparse * (count - used) * expert", "idle = sparse * count * expert", "cost"),
    fault("kept_layer", "token = 4 * size.width + 2 * queries +", "token = 4 * size.width + queries +", "planned_memory"),
    fault(
        "gpu_full", "0 < run.gpu_memory_gb * 1e9 < known.device:", "0 < run.gpu_memory_gb * 1e9 < known.host:", "planned_memory"
    ),
    fault("checksum", "path.stat().st_size != size or checksum(path) != digest:", "path.stat().st_size != size:", "store"),
    fault("verified", "if artifact.checksum(file.path) == file.sha256 else", "if artifact.checksum(file.path) else", "gc"),
    fault("atomic", "yield part\n        os.replace(part, path)", "yield part\n        shutil.copyfile(part, path)", "store"),
    fault("paired_control", 'return f"{control}{tag}"', "return next(iter(found))", "arms"),
]

FAULTS = [*ADVANTAGES, *TURNS, *LOSSES, *STEPS, *TRAINING, *EVALUATION, *REPORT, *PLANS]
