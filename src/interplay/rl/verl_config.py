"""A stage of RL as verl's configuration: what differs from its `ppo_trainer.yaml`, and the script that starts it."""

import math
import shlex
import sys
from pathlib import Path
from typing import Any

import yaml

from interplay.core import artifact, execution
from interplay.model.trainer_spec import VERL_FIXED
from interplay.rl.spec import RLSpec

ASSUMED_PROMPT = 1024
"""Tokens of the longest prompt where neither the spec nor the problems say."""
RAW = "{{ messages[0]['content'] }}"
"""A chat template that adds nothing: prompts are texts as the problem sets have them."""
ESTIMATORS = {
    "group": "grpo",
    "leave_one_out": "rloo",
    "length_baseline": "opo",
    "grpo_passk": "grpo_passk",
    "gae": "gae",
}
"""Advantage -> verl's estimator; `whitened` has two, with a baseline and without."""
AGGREGATION = {
    **dict.fromkeys(("dapo", "bnpo", "cispo"), "token-mean"),
    "grpo": "seq-mean-token-mean",
    "dr_grpo": "seq-mean-token-sum-norm",
    "luspo": "seq-mean-token-sum",
}
"""`loss_type` -> verl's `loss_agg_mode`."""
Json = dict[str, Any]


def configuration(spec: RLSpec, how: execution.Run, base: Path, work: Path, longest: int) -> Json:
    """verl's configuration, which its own parser composes on its `ppo_trainer.yaml`. `base`: the model's folder, `work`: where
    data, checkpoints and rollouts lie, `longest`: tokens of the longest prompt."""
    whole = longest + spec.max_completion_length
    spread, group = how.verl, spec.method.allocation.num_generations
    flat: Json = {
        "data.train_files": [str(work / "prompts.parquet")],
        "data.val_files": [str(work / "prompts.parquet")],
        "data.val_max_samples": 1,
        "data.train_batch_size": spec.prompts_per_step,
        "data.max_prompt_length": longest,
        "data.max_response_length": spec.max_completion_length,
        "data.shuffle": False,  # rows lie in the order in which they are drawn
        "data.seed": spec.seed,
        "actor_rollout_ref.model.path": str(base),
        "actor_rollout_ref.model.custom_chat_template": RAW,
        "actor_rollout_ref.model.enable_gradient_checkpointing": how.gradient_checkpointing,
        "actor_rollout_ref.model.use_fused_kernels": spec.blockwise,
        "actor_rollout_ref.rollout.name": "vllm",
        "actor_rollout_ref.rollout.n": group,
        "actor_rollout_ref.rollout.seed": spec.seed,
        "actor_rollout_ref.rollout.temperature": spec.temperature,
        "actor_rollout_ref.rollout.dtype": spec.dtype,
        "actor_rollout_ref.rollout.tensor_model_parallel_size": spread.tensor_model_parallel_size,
        "actor_rollout_ref.rollout.gpu_memory_utilization": spread.gpu_memory_utilization,
        "actor_rollout_ref.rollout.max_model_len": whole,
        "actor_rollout_ref.rollout.max_num_seqs": how.engine_batch,
        **_prefixed("actor_rollout_ref.actor", _actor(spec, how, whole)),
        **_prefixed("algorithm", _algorithm(spec)),
        "reward.num_workers": how.threads,
        "reward.custom_reward_function.path": str(Path(__file__).resolve().with_name("rewards.py")),
        "reward.custom_reward_function.name": "pay",
        "reward.custom_reward_function.reward_kwargs.job": str(work / "job.json"),
        "trainer.nnodes": how.nodes,
        "trainer.n_gpus_per_node": how.gpus // how.nodes,
        "trainer.total_epochs": 1,
        "trainer.total_training_steps": spec.steps,
        "trainer.project_name": "interplay",
        "trainer.experiment_name": work.parent.parent.name,
        "trainer.logger": ["console", "file"],
        "trainer.rollout_data_dir": str(work / "rollouts"),
        "trainer.default_local_dir": str(work / "checkpoints"),
        "trainer.resume_mode": "auto",
        "trainer.save_freq": spread.save_freq,
        "trainer.max_actor_ckpt_to_keep": None if spec.checkpoints else 2,
        "trainer.max_critic_ckpt_to_keep": 2,
        "trainer.test_freq": -1,
        "trainer.val_before_train": False,
        "hydra.run.dir": str(work / "hydra"),
    }
    if learns(spec):
        flat |= {"data.custom_cls.path": str(Path(__file__).resolve().with_name("verl.py")), "data.custom_cls.name": "Draws"}
        flat["data.dataloader_num_workers"] = 0  # a step is drawn when the one before it is done
    if spread.offload:
        flat |= dict.fromkeys((f"actor_rollout_ref.actor.fsdp_config.{one}_offload" for one in ("param", "optimizer")), True)
        flat["actor_rollout_ref.ref.fsdp_config.param_offload"] = True
    if any(one.name == "overlong" for one in spec.method.shaping):
        flat |= _overlong(spec)
    if spec.method.critic:
        flat |= _critic(spec, how, base, whole)
    return {"defaults": ["ppo_trainer", "_self_"], **nested(flat)}


def learns(spec: RLSpec) -> bool:
    """Whether what a step draws depends on the rewards of those before it."""
    chosen = spec.method.sampler
    return chosen.name not in VERL_FIXED or getattr(chosen, "by", "") == "pass_rate"


def _prefixed(prefix: str, values: Json) -> Json:
    return {f"{prefix}.{key}": value for key, value in values.items()}


def nested(flat: Json) -> Json:
    """Dotted keys as a tree."""
    tree: Json = {}
    for key, value in flat.items():
        *above, last = key.split(".")
        here = tree
        for part in above:
            here = here.setdefault(part, {})
        here[last] = value
    return tree


def _actor(spec: RLSpec, how: execution.Run, whole: int) -> Json:
    """Of the policy: its passes, its loss and its optimiser."""
    loss: Any = spec.method.loss
    return {
        "strategy": how.verl.strategy,
        "ulysses_sequence_parallel_size": how.verl.ulysses_sequence_parallel_size,
        "use_torch_compile": how.compile,
        "use_dynamic_bsz": True,
        "ppo_max_token_len_per_gpu": tokens_per_gpu(how, whole),
        "ppo_mini_batch_size": spec.prompts_per_step // spec.minibatches,
        "ppo_epochs": loss.num_iterations,
        "data_loader_seed": spec.seed,
        "entropy_from_logits_with_chunking": True,
        "entropy_coeff": loss.entropy_coef,
        "use_kl_loss": bool(loss.beta),
        "kl_loss_coef": loss.beta,
        "kl_loss_type": loss.kl_estimator,
        "loss_agg_mode": loss.loss_agg_mode or AGGREGATION[loss.loss_type],
        "loss_scale_factor": spec.max_completion_length,
        **_policy_loss(loss),
        "grad_clip": spec.optimizer.max_grad_norm or 1e9,
        **_prefixed("optim", _optimizer(spec, spec.optimizer.learning_rate)),
    }


def tokens_per_gpu(how: execution.Run, whole: int) -> int:
    """Tokens of one pass of a GPU: as many as the run block says, and its share of the longest sequence at least."""
    return max(how.micro_batch_tokens, math.ceil(whole / how.verl.ulysses_sequence_parallel_size))


def _policy_loss(loss: Any) -> Json:
    """The loss, and where it clips."""
    low, high = getattr(loss, "epsilon", 0.2), getattr(loss, "epsilon_high", None)
    high, cap, mode = low if high is None else high, getattr(loss, "delta", None) or 1e9, loss.name
    if loss.name == "clipped" and loss.loss_type == "cispo":
        mode, low, high = "cispo", 1.0 if loss.cispo_epsilon_low is None else loss.cispo_epsilon_low, high - 1
    elif loss.name == "clipped":
        mode = "vanilla" if loss.importance_sampling_level == "token" else "gspo"
    elif loss.name == "dppo":
        mode, cap = f"dppo_{loss.divergence}", loss.ratio_cap
    more: Json = {"policy_loss.dro_beta": loss.dro_beta} if loss.name == "dro" else {}
    if loss.name == "sapo":
        more = {"tau_pos": loss.sapo_temperature_pos, "tau_neg": loss.sapo_temperature_neg}
    clips = {"clip_ratio": low, "clip_ratio_low": low, "clip_ratio_high": high, "clip_ratio_c": cap}
    return {"policy_loss.loss_mode": mode, **clips, **more}


def _optimizer(spec: RLSpec, rate: float) -> Json:
    """AdamW on the spec's schedule. A cosine that ends where it began is verl's only constant rate whose warm-up counts from
    1."""
    chosen = spec.optimizer
    return {
        "lr": rate,
        "betas": [chosen.adam_beta1, chosen.adam_beta2],
        "weight_decay": chosen.weight_decay,
        "clip_grad": chosen.max_grad_norm or 1e9,
        "lr_scheduler_type": "cosine",
        "lr_warmup_steps": round(spec.schedule.warmup_ratio * spec.steps),
        "min_lr_ratio": 1.0 if spec.schedule.name == "constant" else spec.schedule.min_ratio,
        "zero_indexed_step": False,
    }


def _algorithm(spec: RLSpec) -> Json:
    """The advantage, the KL term of rewards, dynamic sampling, and the correction for the engine."""
    chosen: Any = spec.method.advantage
    whitened = "reinforce_plus_plus" + ("_baseline" if getattr(chosen, "baseline", "") == "group" else "")
    found: Json = {
        "adv_estimator": ESTIMATORS.get(chosen.name, whitened),
        "norm_adv_by_std_in_grpo": getattr(chosen, "scale_rewards", "none") == "group",
        "gamma": getattr(chosen, "gamma", 1.0),
        "lam": getattr(chosen, "lam", 1.0),
    }
    for term in spec.method.shaping:
        if term.name == "kl":
            control = {"kl_coef": term.kl_coef, "type": "adaptive" if term.target_kl else "fixed", "horizon": term.horizon}
            found |= {"use_kl_in_reward": True, "kl_penalty": term.kl_estimator, **_prefixed("kl_ctrl", control)}
            found |= {"kl_ctrl.target_kl": term.target_kl} if term.target_kl else {}
    for edit in spec.method.edits:
        if edit.name == "dynamic_sampling":
            metric = "acc" if edit.metric == "acc" else "reward"
            found |= {"filter_groups.enable": True, "filter_groups.metric": metric}
    if most := getattr(spec.method.loss, "vllm_importance_sampling_clip_max", None):
        found |= {"rollout_correction.rollout_is": "token", "rollout_correction.rollout_is_threshold": most}
    return found


def _overlong(spec: RLSpec) -> Json:
    """DAPO's penalty, which verl's reward manager of that name adds."""
    limit = spec.max_completion_length
    (term,) = (one for one in spec.method.shaping if one.name == "overlong")
    cache = term.cache if term.cache_share is None else max(1, round(term.cache_share * limit))
    buffer = {"enable": True, "len": cache, "penalty_factor": term.weight, "log": False}
    return {
        "reward.reward_manager.name": "dapo",
        "reward.reward_kwargs.max_resp_len": limit,
        **_prefixed("reward.reward_kwargs.overlong_buffer_cfg", buffer),
    }


def _critic(spec: RLSpec, how: execution.Run, base: Path, whole: int) -> Json:
    """A value function that begins with the policy's weights."""
    chosen = spec.method.critic
    assert chosen is not None
    values = {
        "strategy": how.verl.strategy,
        "model.path": str(base),
        "model.enable_gradient_checkpointing": how.gradient_checkpointing,
        "ppo_mini_batch_size": spec.prompts_per_step,
        "ppo_epochs": chosen.num_iterations,
        "ppo_max_token_len_per_gpu": tokens_per_gpu(how, whole),
        "ulysses_sequence_parallel_size": how.verl.ulysses_sequence_parallel_size,
        "cliprange_value": chosen.cliprange_value or 1e9,
        **_prefixed("optim", _optimizer(spec, chosen.learning_rate)),
    }
    return {"trainer.critic_warmup": chosen.warmup_steps + 1, **_prefixed("critic", values)}


def write_config(place: Path, tree: Json, how: execution.Run) -> list[str]:
    """Write `verl.yaml`, composed on verl's `ppo_trainer`, and `verl.sh`, which starts it; returns the command. verl's own parser
    reads the file by `--config-dir PLACE --config-name verl`."""
    written = yaml.safe_dump(tree, sort_keys=False)
    artifact.write_atomic(place / "verl.yaml", written.encode())
    artifact.write_atomic(place / "verl.sh", script(place, how).encode())
    return ["bash", str(place / "verl.sh")]


def script(place: Path, how: execution.Run) -> str:
    """A bash script that starts verl, over several machines of a Slurm job through Ray, and ends what it started. Where its
    standard input is a pipe, that of the stage, its group ends with it."""
    python, gpus = shlex.quote(how.verl.python or sys.executable), how.gpus // how.nodes
    start = f"{python} -m verl.trainer.main_ppo --config-dir {shlex.quote(str(place))} --config-name verl < /dev/null"
    lines = ["#!/bin/bash", "set -u", "[ -p /dev/stdin ] && { (cat > /dev/null; kill -TERM 0) <&0 & }"]
    if how.nodes > 1:
        step = f'srun --overlap --nodes=1 --ntasks=1 --gpus-per-node={gpus} --nodelist="$node"'
        ray = f"{step} {python} -m ray.scripts.scripts start --num-gpus={gpus} --disable-usage-stats --block"
        known = "import ray; ray.init(log_to_driver=False); print(sum(node['Alive'] for node in ray.nodes()))"
        lines += [
            'nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST")); node=${nodes[0]}',
            'address=$(getent ahostsv4 "$node" | cut -d" " -f1 | head -n 1)',
            "port=$((20000 + SLURM_JOB_ID % 20000)); export RAY_ADDRESS=$address:$port",
            f'{ray} --head --node-ip-address="$address" --port="$port" &',
            f'for node in "${{nodes[@]:1}}"; do {ray} --address="$RAY_ADDRESS" & done',
            f'until [ "$({python} -c "{known}" 2> /dev/null | tail -n 1)" = {how.nodes} ]; do sleep 5; done',
            "node=${nodes[0]}",
        ]
        start = f"{step} {start}"
    return "\n".join([*lines, start, "code=$?", "kill $(jobs -p) 2> /dev/null", "exit $code"]) + "\n"
