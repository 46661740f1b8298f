"""RL on verl: what it expresses, its configuration for its own parser, its data and reward, its launch, and what a run leaves."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
import trl_cases
import verl_cases
from pydantic import ValidationError

from interplay.core import artifact, execution, metrics
from interplay.core.execution import Run, Verl
from interplay.core.model import PermanentError, UserError
from interplay.data import sets
from interplay.kinds.formulas import Reinforcement
from interplay.model.spec import Load, config_size
from interplay.rl import sampler, samplers, verl, verl_config
from interplay.rl.spec import RLSpec
from interplay.run.graph import check_external
from interplay.run.workers import load_function
from interplay.study.plan import Stage
from interplay.tasks.spec import Verify

GROUP = {"name": "group", "std_epsilon": 1e-6}
HOW = Run(gpus=16, nodes=2, threads=4, verl=Verl(tensor_model_parallel_size=2, ulysses_sequence_parallel_size=2, offload=True))
QWEN = {
    **{"model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28, "vocab_size": 152064},
    **{"num_key_value_heads": 4, "intermediate_size": 18944},
}


def spec_of(method: dict[str, Any] | None = None, **more: Any) -> RLSpec:
    usual = {"dtype": "bfloat16", "engine": "vllm", "trainer": "verl", "mix": [1.0], "steps": 40, "prompts_per_step": 128}
    given = {"paper": "p", "advantage": GROUP, **(method or {})}
    return RLSpec(**{**usual, "max_completion_length": 2048, "reward": {"name": "outcome"}, **more, "method": given})


# --- what it expresses ---

KL = {"name": "kl", "kl_coef": 0.01, "target_kl": 0.1}
FULL = {"name": "dynamic_sampling", "max_num_gen_batches": None, "metric": "acc"}
EXPRESSED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"algorithm.adv_estimator": "grpo", "actor.policy_loss.loss_mode": "vanilla", "actor.loss_agg_mode": "token-mean"}),
    (
        {
            "advantage": {"name": "group", "scale_rewards": "none"},
            "loss": {"name": "clipped", "loss_type": "dr_grpo", "beta": 0.04},
        },
        {"algorithm.norm_adv_by_std_in_grpo": False, "actor.loss_agg_mode": "seq-mean-token-sum-norm", "actor.use_kl_loss": True},
    ),
    (
        {
            "minibatches": 16,
            "shaping": [{"name": "overlong", "cache_share": 0.2, "weight": 0.5}],
            "edits": [FULL],
            "loss": {"name": "clipped", "loss_type": "bnpo", "epsilon_high": 0.28, "delta": 10.0},
        },
        {
            "algorithm.filter_groups": {"enable": True, "metric": "acc"},
            "actor.ppo_mini_batch_size": 8,
            "actor.clip_ratio_high": 0.28,
            "actor.clip_ratio_c": 10.0,
            "reward.reward_kwargs.overlong_buffer_cfg.len": 410,
        },
    ),
    (
        {
            "advantage": {"name": "gae"},
            "critic": {"name": "value_head", "warmup_steps": 3},
            "shaping": [KL],
        },
        {
            "algorithm.adv_estimator": "gae",
            "algorithm.lam": 0.95,
            "algorithm.kl_ctrl.type": "adaptive",
            "trainer.critic_warmup": 4,
        },
    ),
    (
        {
            "advantage": {"name": "leave_one_out"},
            "loss": {"name": "gpg", "loss_type": "bnpo", "vllm_importance_sampling_clip_max": 2.0},
        },
        {"algorithm.adv_estimator": "rloo", "algorithm.rollout_correction": {"rollout_is": "token", "rollout_is_threshold": 2.0}},
    ),
    (
        {"advantage": {"name": "whitened", "baseline": "none", "gamma": 0.99}, "loss": {"name": "dppo", "divergence": "kl"}},
        {"algorithm.adv_estimator": "reinforce_plus_plus", "algorithm.gamma": 0.99, "actor.policy_loss.loss_mode": "dppo_kl"},
    ),
    (
        {"advantage": {"name": "whitened"}, "loss": {"name": "dro"}},
        {"algorithm.adv_estimator": "reinforce_plus_plus_baseline", "actor.policy_loss.dro_beta": 0.1},
    ),
    (
        {"advantage": {"name": "length_baseline"}, "loss": {"name": "sapo"}},
        {"algorithm.adv_estimator": "opo", "actor.tau_neg": 1.05, "actor.loss_agg_mode": "seq-mean-token-mean"},
    ),
    (
        {"loss": {"name": "clipped", "loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 3e-4}},
        {"actor.policy_loss.loss_mode": "gspo", "actor.clip_ratio_low": 3e-4, "actor.clip_ratio_high": 3e-4},
    ),
    (
        {
            "advantage": {"name": "grpo_passk", "scale_rewards": "none"},
            "loss": {"name": "clipped", "loss_type": "cispo", "epsilon_high": 5.0},
        },
        {"algorithm.adv_estimator": "grpo_passk", "actor.policy_loss.loss_mode": "cispo", "actor.clip_ratio_high": 4.0},
    ),
    (
        {
            "minibatches": 2,
            "loss": {"name": "clipped", "loss_type": "cispo", "epsilon_high": 5.0, "loss_agg_mode": "seq-mean-token-mean"},
        },
        {
            "actor.policy_loss.loss_mode": "cispo",
            "actor.clip_ratio_low": 1.0,
            "actor.clip_ratio_high": 4.0,
            "actor.loss_agg_mode": "seq-mean-token-mean",
        },
    ),
]
CISPO_ROWS = {"loss_type": "cispo", "loss_agg_mode": "token-mean", "importance_sampling_level": "sequence"}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"dtype": "float32"}, r"trainer = verl: dtype = float32: verl has bfloat16; write that, or trainer: native"),
    ({"engine": "hf"}, r"engine = hf: verl has vllm"),
    ({"method": {"advantage": {"name": "group"}}}, r"method\.advantage\.std_epsilon = 0\.0001: verl has 1e-06"),
    ({"method": {"advantage": {"name": "remax"}}}, r"method\.advantage\.name = remax: verl has group or leave_one_out"),
    ({"method": {"edits": [{"name": "dynamic_sampling"}]}}, r"method\.edits\.0\.max_num_gen_batches = 3: verl has null"),
    ({"method": {"sampler": {"name": "pcl"}}}, r"method\.sampler\.name = pcl: verl has uniform"),
    (
        {"method": {"sampler": {"name": "format_ladder"}, "edits": [FULL]}},
        r"method\.sampler\.name = format_ladder: verl has uniform or easy_to_hard or hard_first",
    ),
    ({"minibatches": 4}, r"method\.loss\.loss_type = dapo: verl has bnpo or grpo or dr_grpo or luspo"),
    ({"method": {"loss": {"name": "clipped", **CISPO_ROWS}}}, r"importance_sampling_level = sequence: verl has token; write"),
    ({"method": {"loss": {"name": "clip_cov"}}}, r"method\.loss\.name = clip_cov: verl has clipped"),
    ({"method": {"loss": {"name": "clipped", "delta": 0.5}}}, r"method\.loss\.delta = 0\.5: verl has null"),
    ({"reward": {"name": "shuffled"}}, r"reward\.name = shuffled: verl has outcome"),
    ({"reward": {"sum": [{"reward": {"name": "length", "budget": 9}}]}}, r"reward\.sum\.0\.reward\.name = length: verl has"),
    ({"schedule": {"name": "linear"}}, r"schedule\.name = linear: verl has constant"),
    (
        {"method": {"advantage": {"name": "gae"}, "critic": {"name": "value_head", "lam": 1.0}}},
        r"method\.critic\.lam = 1\.0: verl has 0\.95",
    ),
]


def at(tree: Any, dotted: str) -> Any:
    for part in dotted.split("."):
        tree = tree[part]
    return tree


def configured(method: dict[str, Any], place: Path, base: Path = Path("/base"), how: Run = HOW) -> dict[str, Any]:
    return verl_config.configuration(spec_of(method), how, base, place, 1024)


@pytest.mark.parametrize(("method", "expected"), EXPRESSED)
def test_a_method_is_said_in_verls_words(method: dict[str, Any], expected: dict[str, Any], tmp_path: Path) -> None:
    tree = configured(method, tmp_path)
    found = {key: at(tree["actor_rollout_ref"] if key.startswith("actor.") else tree, key) for key in expected}
    assert found == expected


@pytest.mark.parametrize(("more", "said"), REFUSED)
def test_what_verl_lacks_is_refused_with_the_remedy(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        spec_of(**more)


@pytest.mark.parametrize(
    ("run", "spec", "said"),
    [
        ({"gpus": 0, "nodes": 1}, {}, "GPUs, equally many on each node"),
        ({"gpus": 9}, {}, "write a multiple of 2"),
        ({"gpus": 16, "verl": Verl(tensor_model_parallel_size=3)}, {}, "must divide the 8 GPUs of a node"),
        ({"gpus": 6, "nodes": 1, "verl": Verl()}, {}, "shares the 1024 completions of an optimiser step evenly"),
        ({}, {"checkpoints": [15]}, "checkpoint 15 is not at a multiple of save_freq, 10"),
        ({"nodes": 1, "gpus": 2, "processes": 2, "verl": Verl()}, {}, "trainer verl starts its own; write 1, and run.gpus"),
    ],
)
def test_a_run_block_that_verl_cannot_follow_is_refused(run: dict[str, Any], spec: dict[str, Any], said: str) -> None:
    misfit = spec_of(**spec).run_misfit(HOW.model_copy(update=run))
    assert misfit is not None
    assert said in misfit[1]


# --- verl's own parser and classes ---


installed = pytest.mark.skipif(importlib.util.find_spec("verl") is None, reason="verl is not installed")


@installed
def test_verls_classes_accept_the_configurations(tmp_path: Path) -> None:
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf
    from verl.trainer.ppo import core_algos, reward, utils
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    base = min((trl_cases.ROOT / "data/bases/pretrain").iterdir()) / "model"
    text = "".join(sorted(one for one in json.loads((base / "tokenizer.json").read_text())["model"]["vocab"] if len(one) == 1))
    for number, (method, _) in enumerate(EXPRESSED):
        place = tmp_path / str(number)
        verl_config.write_config(place, configured(method, place, base), HOW)
        with initialize_config_dir(str(place), version_base=None):
            config = compose("verl", overrides=["hydra.searchpath=[pkg://verl.trainer.config]"])
        OmegaConf.resolve(config)
        validate_config(config, utils.need_reference_policy(config), utils.need_critic(config))
        algorithm = omega_conf_to_dataclass(config.algorithm)
        actor, *_ = (omega_conf_to_dataclass(config.actor_rollout_ref[name]) for name in ("actor", "rollout"))
        assert core_algos.get_adv_estimator_fn(algorithm.adv_estimator)
        assert core_algos.get_policy_loss_fn(actor.policy_loss.loss_mode)
        assert actor.optim.lr == 1e-4
        assert reward.get_custom_reward_fn(config).args[0].__name__ == "pay"
        tokenizer = omega_conf_to_dataclass(config.actor_rollout_ref.model).tokenizer
        said = [{"role": "user", "content": text}]
        assert tokenizer.apply_chat_template(said, add_generation_prompt=True, tokenize=False) == text


@installed
def test_verls_loader_takes_prompts_from_a_sampler_that_learns_and_goes_on(inputs: dict[str, Path], tmp_path: Path) -> None:
    from omegaconf import OmegaConf
    from torchdata.stateful_dataloader import StatefulDataLoader
    from verl.trainer.ppo.utils import create_rl_dataset, create_rl_sampler
    from verl.utils.dataset.rl_dataset import collate_fn

    spec = short(method={"sampler": {"name": "edge_of_competence"}})
    recorder = verl.Recorder(spec, inputs, tmp_path / "out", tmp_path)
    verl.write_prompts(recorder, tmp_path)
    config = OmegaConf.create(verl_config.configuration(spec, Run(gpus=1), tmp_path, tmp_path, 99)).data
    (tmp_path / "rollouts").mkdir()

    def loader() -> Any:
        rows = create_rl_dataset(config.train_files, config, None, None)
        workers, order = config.dataloader_num_workers, create_rl_sampler(config, rows)
        return StatefulDataLoader(dataset=rows, batch_size=4, num_workers=workers, collate_fn=collate_fn, sampler=order)

    def dump(step: int, ids: list[int]) -> None:
        texts = [
            (place, i, recorder.pool.rows[i].solution[: None if n < step + place else 3])
            for place, i in enumerate(ids)
            for n in range(8)
        ]
        said = [{"input": "", "output": text, "gts": str(i), "score": 0.0, "uid": f"{place}_0_0"} for place, i, text in texts]
        (tmp_path / f"rollouts/{step}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in said))

    first = loader()
    batches, drawn = iter(first), list[list[int]]()
    for step in (1, 2, 3):
        state, drawn = first.state_dict(), [*drawn, next(batches)["index"].tolist()]
        dump(step, drawn[-1])
    again = loader()
    again.load_state_dict(state)
    assert next(iter(again))["index"].tolist() == drawn[-1]
    assert drawn == [recorder.replay.draw(step) for step in (1, 2, 3)]


@installed
def test_verls_entry_point_parses_the_file_that_the_launcher_names(tmp_path: Path) -> None:
    verl_config.write_config(tmp_path, configured(EXPRESSED[2][0], tmp_path), HOW)
    command = [sys.executable, "-m", "verl.trainer.main_ppo", "--config-dir", tmp_path, "--config-name", "verl", "--cfg", "job"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    assert f"rollout_data_dir: {tmp_path}/rollouts" in said
    assert "norm_adv_by_std_in_grpo: true" in said


@pytest.mark.slow
def test_trls_parser_accepts_the_configuration_that_is_shown(tmp_path: Path) -> None:
    from trl import GRPOConfig, TrlParser

    command = [sys.executable, "-m", "interplay", "show", "methods/engines/grpo_trl/rl@0", "--scale", "smoke", "--trainer-config"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, cwd=trl_cases.ROOT).stdout
    (tmp_path / "trl.yaml").write_text(said)
    (config,) = TrlParser(GRPOConfig).parse_args_and_config(["--config", str(tmp_path / "trl.yaml")])
    assert (config.num_generations, config.max_completion_length, config.learning_rate) == (8, 48, 1e-3)


def test_a_launch_asks_for_the_interpreter_of_verls_environment() -> None:
    def starts(python: str) -> None:
        check_external([Stage.make("rl", spec_of(), {}, HOW.model_copy(update={"verl": Verl(python=python)}), "rl")])

    starts(sys.executable)
    if importlib.util.find_spec("verl") is None:
        for absent in ("", "/no/such/python"):
            with pytest.raises(UserError, match=r"verl is not installed here; write the interpreter .* to run\.verl\.python, or"):
                starts(absent)


# --- the run ---

STEPS = 4


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return trl_cases.inputs(tmp_path_factory.mktemp("verl"))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(verl_cases.stand_in(tmp_path / "package")))
    monkeypatch.setattr(verl, "POLL_SECONDS", 0.05)


def short(**more: Any) -> RLSpec:
    usual: dict[str, Any] = {"steps": STEPS, "prompts_per_step": 4, "max_completion_length": 96, "reward": {"name": "process"}}
    return spec_of(**{**usual, "checkpoints": [2], **more})


def run(inputs: dict[str, Path], out: Path, **more: Any) -> list[dict[str, Any]]:
    spec = short(**more)
    values = load_function("rl", spec)(spec, inputs, out, Run(gpus=1, verl=Verl(save_freq=2)))
    assert values["steps"] == STEPS
    return metrics.read(out)


@pytest.mark.usefixtures("package")
def test_a_run_leaves_what_every_rl_stage_leaves(inputs: dict[str, Path], tmp_path: Path) -> None:
    lines = run(inputs, tmp_path / "rl")
    assert [line["strict"] for line in lines] == [0.5] * STEPS
    assert [line["effective_ratio"] for line in lines] == [1.0] * STEPS
    assert [line["loss"] for line in lines] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert {line["completions"] for line in lines} == {32}
    rollouts = pq.read_table(tmp_path / "rl/rollouts.parquet").to_pylist()
    assert {(row["strict"], row["reward"], row["advantage"] > 0) for row in rollouts} == {(True, 1.0, True), (False, 0.0, False)}
    history = pq.read_table(tmp_path / "rl/history.parquet").to_pylist()
    assert {(row["n"], row["passes"]) for row in history} == {(8, 4)}
    drawn = verl.Recorder(spec_of(steps=STEPS, prompts_per_step=4), inputs, tmp_path / "again", tmp_path / "work")
    assert [row["index"] for row in history] == [drawn.pool.rows[i].index for i in drawn.order()]
    for folder in ("model", "checkpoints/2/model"):
        assert (tmp_path / "rl" / folder / "config.json").exists()
        assert not (tmp_path / "rl" / folder / "chat_template.jinja").exists()


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("member", "logged"),
    [
        pytest.param({"name": "edge_of_competence"}, 0, marks=pytest.mark.slow),
        ({"name": "learned_mixture", "by": "op", "undrawn": "decay"}, 4),
    ],
)
def test_a_sampler_that_learns_draws_by_what_verl_dumped(
    member: dict[str, Any], logged: int, inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adaptive = {"sampler": member}
    monkeypatch.setenv("DIES", "saved 4")
    with pytest.raises(OSError, match="after step 3 of 4"):
        run(inputs, tmp_path / "rl", method=adaptive)
    lines = run(inputs, tmp_path / "rl", method=adaptive)
    assert len({name for line in lines for name in line if name.startswith("sampler/")}) == logged
    drawn = [row["index"] for row in pq.read_table(tmp_path / "rl/history.parquet").to_pylist()]
    pool = sets.load_pool([inputs["data.0"]])
    chosen = samplers.build_sampler(
        short(method=adaptive).method.sampler, sampler.PromptSource(pool.sizes, [1.0], 0, steps=STEPS, rows=pool.rows)
    )
    expected = []
    for step in range(1, STEPS + 1):
        ids = chosen.select(4, step)
        texts = {i: [pool.rows[i].solution[: None if (n + step) % 2 else 3] for n in range(8)] for i in ids}
        each = {i: sets.judge_completions([pool.rows[i]] * 8, texts[i], Verify()) for i in ids}
        chosen.observe(step, [sampler.outcome_of(i, [float(v.strict) for v in each[i]], each[i]) for i in ids])
        chosen.learn(step)
        expected += [pool.rows[i].index for i in ids]
    assert drawn == expected


@pytest.mark.usefixtures("package")
@pytest.mark.slow
@pytest.mark.parametrize("dies", ["saved 2", "saved 3"])
def test_a_run_that_breaks_off_goes_on_from_the_last_step_that_was_saved_and_logged(
    dies: str, inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A death after the last save is in the test of samplers above."""
    whole = run(inputs, tmp_path / "whole")
    monkeypatch.setenv("DIES", dies)
    with pytest.raises(OSError, match=r"verl ended with code 1 after step \d of 4: out of luck"):
        run(inputs, tmp_path / "rl")
    assert run(inputs, tmp_path / "rl") == whole
    for name in ("rollouts", "history"):
        one, other = (pq.read_table(tmp_path / place / f"{name}.parquet") for place in ("whole", "rl"))
        assert one.equals(other)


@pytest.mark.usefixtures("package")
def test_steps_in_which_verl_trains_the_critic_alone_have_no_loss(inputs: dict[str, Path], tmp_path: Path) -> None:
    method = {"advantage": {"name": "gae"}, "critic": {"name": "value_head", "warmup_steps": 2}}
    lines = run(inputs, tmp_path / "rl", method=method)
    assert [(line["loss"], line["grad_norm"], line["optimizer_steps"]) for line in lines[:2]] == [(0, 0, 0)] * 2
    assert [line["loss"] for line in lines[2:]] == pytest.approx([0.3, 0.4])
    assert lines[-1]["optimizer_steps"] > 0


def test_problems_whose_audit_failed_are_not_trained_on(inputs: dict[str, Path], tmp_path: Path) -> None:
    artifact.write_json(tmp_path / "audit/record.json", {"metrics": {"failed": ["empty"]}, "files": {}})
    with pytest.raises(PermanentError, match=r"audit\.0: .* failed: empty"):
        run({**inputs, "audit.0": tmp_path / "audit"}, tmp_path / "rl")


@pytest.mark.usefixtures("package")
def test_a_signal_ends_verl_and_its_group(inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIES", "hang 3")
    work = tmp_path / "rl/resume/verl"
    with monkeypatch.context() as signalled:
        signalled.setattr(execution, "stop_requested", lambda: (work / "died").exists())
        with pytest.raises(execution.StoppedError, match="stopped at step 1 of 4"):
            run(inputs, tmp_path / "rl")
    wait_until_gone(json.loads((work / "starts.jsonl").read_text())["pid"])
    assert [line["step"] for line in metrics.read(tmp_path / "rl")] == [1]
    assert len(run(inputs, tmp_path / "rl")) == STEPS


def is_gone(pid: int) -> bool:
    """Whether a process has ended; where nothing reaps orphans it stays as a zombie."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until_gone(pid: int) -> None:
    end = time.monotonic() + 30
    while not is_gone(pid):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_verl_ends_when_the_stage_is_killed(tmp_path: Path) -> None:
    package, tree = verl_cases.stand_in(tmp_path / "package"), configured({}, tmp_path)
    (package / "verl/trainer/main_ppo.py").write_text(
        f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    command = verl_config.write_config(tmp_path, tree, Run(gpus=1))
    code = (
        "from pathlib import Path; from interplay.rl import verl; import time\n"
        f"with verl.launched({command}, Path({str(tmp_path / 'log.txt')!r}), Path('m')): time.sleep(600)"
    )
    paths = os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")])
    stage = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": paths})
    while not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text()):
        assert stage.poll() is None
        time.sleep(0.05)
    stage.send_signal(signal.SIGKILL)
    stage.wait()
    wait_until_gone(int((tmp_path / "pid").read_text()))


def test_several_nodes_are_steps_of_the_slurm_job(tmp_path: Path) -> None:
    bin_, seen = tmp_path / "bin", tmp_path / "seen"
    bin_.mkdir()
    python = bin_ / "python"
    for name, text in {
        "srun": f'echo srun "$@" >> {seen}; while [ "${{1#--}}" != "$1" ]; do shift; done; exec "$@"',
        "scontrol": 'echo "node1 node2" | tr " " "\\n"',
        "getent": 'echo "10.0.0.1 STREAM node1"',
        "python": f'echo python "$@" >> {seen}; case "$*" in *"ray; ray.init"*) echo 2;; *--block*) sleep 60;; *) exit 7;; esac',
    }.items():
        (bin_ / name).write_text(f"#!/bin/bash\n{text}\n")
        (bin_ / name).chmod(0o755)
    how = HOW.model_copy(update={"verl": Verl(python=str(python))})
    command = verl_config.write_config(tmp_path, configured({}, tmp_path), how)
    environment = {
        **os.environ,
        "PATH": f"{bin_}:{os.environ['PATH']}",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_JOB_ID": "20003",
    }
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, timeout=60)
    said = seen.read_text().splitlines()
    steps = sorted(line for line in said if line.startswith("srun"))
    assert done.returncode == 7
    assert len(steps) == 3
    assert all(step.startswith("srun --overlap --nodes=1 --ntasks=1 --gpus-per-node=8 --nodelist=node") for step in steps)
    assert [("--head" in step, "--address=10.0.0.1:20003" in step, "main_ppo" in step) for step in steps].count(
        (True, False, False)
    ) == 1
    assert any("node2" in step and "--address=10.0.0.1:20003" in step for step in steps)
    assert any("node1" in step and f"--config-dir {tmp_path} --config-name verl" in step for step in steps)


def test_the_reward_is_that_of_the_loop_on_every_row(inputs: dict[str, Path], tmp_path: Path) -> None:
    recorder = verl.Recorder(spec_of(steps=1, reward={"name": "process"}), inputs, tmp_path, tmp_path)
    verl.write_prompts(recorder, tmp_path)
    rows = pq.read_table(tmp_path / "prompts.parquet").to_pylist()
    assert len(rows) == 128
    found = importlib.util.spec_from_file_location(
        "own", verl_config.configuration(recorder.spec, HOW, Path("b"), tmp_path, 9)["reward"]["custom_reward_function"]["path"]
    )
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    for row in rows[:20]:
        problem = recorder.pool.rows[row["extra_info"]["index"]]
        assert (problem.set, problem.index) == (row["extra_info"]["set"], row["extra_info"]["problem"])
        assert row["prompt"] == [{"role": "user", "content": problem.prompt}]
        for text, right in ((problem.solution, 1.0), (problem.prompt, 0.0)):
            paid = module.pay(
                "op_dag", text, row["reward_model"]["ground_truth"], row["extra_info"], job=str(tmp_path / "job.json")
            )
            assert paid == {"score": right, "acc": right}


# --- memory ---


def test_memory_of_a_gpu_is_that_of_its_shares() -> None:
    size, spec = (
        config_size(QWEN),
        spec_of({"loss": {"name": "clipped", "beta": 0.1}}, max_prompt_length=1024).model_dump(mode="json"),
    )
    how = Run(gpus=8, gpu_memory_gb=80, gradient_checkpointing=True, micro_batch_tokens=4096)
    found = Reinforcement().memory(Load(spec, how, size, 3072))
    assert found is not None
    assert size.parameters == pytest.approx(7.6e9, rel=0.01)
    assert found.parts["states"] == 20 * size.parameters / 8  # weights, gradients, two moments, and the reference
    assert found.phase == "sampling"
    less = how.model_copy(update={"verl": Verl(offload=True, gpu_memory_utilization=0.3)})
    freed = Reinforcement().memory(Load(spec, less, size, 3072))
    assert freed is not None
    assert freed.phase == "update"
    assert freed.parts["logits"] == 10.0 * 4096 * 152064
    assert freed.host - found.host == 20 * size.parameters
