"""Training, rollouts, GRPO, stacks, memory and a stage of a paper on one GPU, each next to its peers and the machine's limits.

    PYTHONPATH=src python bench/gpu.py --out DIR                              # all parts, some minutes; rows go to DIR/gpu.jsonl
    PYTHONPATH=src python bench/gpu.py --out DIR --parts train --sizes 0.9m   # one part
    PYTHONPATH=src python bench/gpu.py --out DIR --device cpu --tiny          # everything at toy sizes, to see that it runs

Each part is a process of its own with `--seconds` at most. In training and rollouts contestants take turns, and a figure is the
best of `--rounds` of them in wall time, the GPU done with its work; of stacks the best of two at most, of GRPO the best step
from the third on of one run each; of the paper's stage each step is shown. Limits are measured in the part: a bfloat16 product
of 8192 x 8192 random matrices, and a copy in device memory, bytes read and written. MFU is 6 operations a token for each
parameter of a matrix, without attention (`device.model_flops_utilisation`), over that product. The floor of a decoding step is
the larger of two times: weights and keys and values through memory, and its products. Peers: transformers' models in a plain
loop (bfloat16 autocast or weights, sdpa, compiled or not), its `generate` (dynamic cache, and static cache, which it compiles),
and TRL's GRPOTrainer."""

import argparse
import json
import multiprocessing
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, cast

import grpo  # bench/grpo.py
import memory  # bench/memory.py
import stack  # bench/stack.py
import torch
from gemm import quiet  # bench/gemm.py
from gpu_models import OWN, SIZES, Bench, rollout, train  # bench/gpu_models.py

from interplay.core.digest import canonical
from interplay.core.execution import Run
from interplay.data import problems, tokenizer
from interplay.data.spec import ProblemsSpec, TokenizerSpec
from interplay.kinds import stages
from interplay.model import folder
from interplay.rl import assembly, loop as rl_loop
from interplay.rl.reward_spec import OwnReward
from interplay.rl.spec import RLSpec
from interplay.run import workers
from interplay.study import expand
from interplay.train.spec import PretrainSpec


def grpo_step(bench: Bench) -> None:
    """Seconds of a GRPO step, 32 prompts x 8 completions x 64 tokens."""
    bench.limits()
    if bench.args.tiny:
        grpo.PROMPTS = 4
    peers: dict[str, dict[str, Any]] = {
        "bfloat16 autocast": {"bf16": True},
        "bfloat16 weights": {"model_init_kwargs": {"dtype": "bfloat16"}},
    }
    for name, size in bench.sizes("0.9m").items():
        with tempfile.TemporaryDirectory() as work:
            place, steps = Path(work), 3 if bench.args.tiny else 5
            inputs = grpo.prepare(place, steps, size.shape())
            took: dict[str, list[float]] = {}
            for graphs in (False, True):
                how = bench.how(engine_batch=grpo.PROMPTS * grpo.SAMPLES, micro_batch_tokens=65536, cuda_graphs=graphs)
                label = f"{OWN} bfloat16{'' if graphs else ', no cuda_graphs'}"
                took[label] = grpo.ours(inputs, place / f"ours{graphs}", "bfloat16", steps, how, bench.clock)
                bench.emit(contestant=label, steps=took[label])
            for label, setting in peers.items():
                try:
                    rows = {"per_device_train_batch_size": grpo.PROMPTS * grpo.SAMPLES, "use_cpu": bench.args.device == "cpu"}
                    took[f"TRL {label}"] = grpo.trl(inputs, place / "trl", {**rows, **setting}, steps, bench.clock)
                    bench.emit(contestant=f"TRL {label}", steps=took[f"TRL {label}"])
                except Exception as error:
                    bench.emit(contestant=f"TRL {label}", error=f"{type(error).__name__}: {error}"[:300])
            rates = {key: grpo.PROMPTS * grpo.SAMPLES * grpo.NEW / min(value[2:]) for key, value in took.items()}
            for row, _ in bench.compare(rates, size=name):
                bench.emit(**row, seconds=min(took[row["contestant"]][2:]))


def stacks(bench: Bench) -> None:
    """Tokens a second of R replicas together, in training and in rollouts."""
    bench.limits()
    replicas, tokens = ([1, 2], 256) if bench.args.tiny else ([1, 8, 64], 4096)
    for work in ("train", "rollouts"):
        how = bench.how(stack=max(replicas))
        with tempfile.TemporaryDirectory() as name:
            shape = stack.shape_of("tiny" if bench.args.tiny else "nano")
            if work == "train":
                inputs = {role: stack.prepare(Path(name), shape, 0, tokens).paths[role] for role in ("corpus", "tokenizer")}
                found = stack.contestants(Path(name), inputs, shape, "bfloat16", tokens, replicas, how)
            else:
                found = stack.rollouts(shape, "bfloat16", 32, replicas, how)
            for label, rate in (rates := stack.measure(found, min(bench.args.rounds, 2), bench.clock)).items():
                more = {"tokens": tokens} if work == "train" else {"sequences": 32}
                bench.emit(work=work, **more, contestant=label, tok_s=rate, of_alone=rate / rates["alone"])


def memories(bench: Bench) -> None:
    """Peak memory of the GPU next to the plan's estimate: of what tensors held, and the same with what CUDA took by itself."""
    times = 1 if bench.args.tiny else 16
    for name, (kind_of, shape, vocab, tokens) in list(memory.SIZES.items())[: 1 if bench.args.tiny else None]:
        memory.SIZES[name] = kind_of, shape, vocab, tokens * times
        with tempfile.TemporaryDirectory() as place:
            results, tuned = memory.Results(Path(place), name), ""
            for kind in ("sft", "rl", "evaluate"):
                spec, deps, run = memory._stage(results, kind, tuned or results.source, name, "bfloat16")
                how, cuda = bench.how(**run), bench.args.device == "cuda"
                if cuda:
                    torch.cuda.empty_cache()
                    torch.cuda.reset_peak_memory_stats()
                digest = results.made(kind, spec, deps, workers.load_function(kind, spec), how)
                tuned = digest if kind == "sft" else tuned
                estimated = stages.peak_memories(results.known)[digest]
                if cuda and estimated is not None:
                    free, total = torch.cuda.mem_get_info()
                    held, own = torch.cuda.max_memory_allocated(), total - free - torch.cuda.memory_reserved()
                    more = {"estimated_mb": estimated.device / 1e6, "tensors_mb": held / 1e6, "context_mb": own / 1e6}
                    most = {"reserved_mb": torch.cuda.max_memory_reserved() / 1e6, "phase": estimated.phase}
                    bench.emit(size=name, kind=kind, **more, **most, estimated_of_measured=estimated.device / (held + own))


def paper(bench: Bench) -> None:
    """A step of the RL stage of interplay/extrapolation at scale paper, as planned and with larger decoding batches."""
    bench.limits()
    plan = expand.plan_study(Path("configs"), "interplay/extrapolation", "smoke" if bench.args.tiny else "paper")
    stage = next(one for one in plan.stages.values() if one.kind == "rl")
    chain = {digest: one.as_json() for digest, one in plan.stages.items()}
    cost, asked = stages.planned_costs(chain)[stage.digest], stages.peak_memories(chain)[stage.digest]
    read = {role: plan.stages[digest] for role, digest in stage.deps.items() if role.startswith("data.")}
    text, base = (next(one.spec for one in plan.stages.values() if one.kind == kind) for kind in ("tokenizer", "pretrain"))
    rl = cast(RLSpec, stage.spec)
    part, steps, whole = 4, 2, rl.prompts_per_step
    with tempfile.TemporaryDirectory() as work:
        place, few = Path(work), {"size": max(16, whole)}
        inputs = {"init": place / "init"}
        for role, one in read.items():
            inputs[role] = place / role
            problems.generate_problems(cast(ProblemsSpec, one.spec).model_copy(update=few), {}, inputs[role], bench.how())
            said = {"kind": "problems", "digest": role, "spec": canonical(one.spec), "deps": {}}
            (inputs[role] / "stage.json").write_text(json.dumps(said))
        tokenizer.build_tokenizer(cast(TokenizerSpec, text), {"data.0": inputs["data.0"]}, inputs["init"], Run())
        shape, vocab = cast(PretrainSpec, base).model, tokenizer.load(inputs["init"]).get_vocab_size()
        assert shape is not None
        decoder = folder.init_decoder(shape, vocab, 0)
        folder.save_decoder(decoder, inputs["init"] / "model", inputs["init"] / "tokenizer")
        paid = OwnReward(function="bench.py:reward", source=memory.REWARD)  # a random model earns nothing, and would not learn
        planned = stage.run.model_dump() | bench.how().model_dump(include={"gpus", "threads"})
        tuned = {"engine_batch": 4 * stage.run.engine_batch, "micro_batch_tokens": 65536}
        for label, run, share in (("as planned", {}, part), ("tuned", tuned, part), ("tuned, whole", tuned, 1))[
            : bench.args.paper
        ]:
            update = {"reward": paid, "prompts_per_step": max(4, whole // share), "steps": steps}
            spec, how = rl.model_copy(update=update), Run(**planned | run)
            state, learner = assembly.assemble_run(spec, inputs, how, place / label)
            if bench.args.device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            for step in range(1, (steps if share > 1 else 1) + 1):
                spent, started = {"sampler": 0.0, "rollout": 0.0, "update": 0.0}, bench.clock()
                values = rl_loop.one_step(state, learner, place / label, step, spent)
                took = bench.clock() - started
                held = torch.cuda.max_memory_allocated() / 1e9 if bench.args.device == "cuda" else 0.0
                more = {f"{name}_s": value for name, value in spent.items()}
                hours = took * share * rl.steps / 3600
                rate, drawn = values["completion_tokens"] / spent["rollout"], values["completion_tokens"]
                row = {
                    "setting": label,
                    "prompts": update["prompts_per_step"],
                    "step": step,
                    "seconds": took,
                    **more,
                    "tokens": drawn,
                }
                bench.emit(**row, rollout_tok_s=rate, peak_gb=held, hours_of_stage=hours)
            del state, learner
        said = {"flops": cost.flops, "planned_hours": (cost.flops or 0) / 1e14 / 3600}
        bench.emit(setting="plan", **said, planned_gb=asked.device / 1e9 if asked else 0.0)


PARTS = {"train": train, "rollout": rollout, "grpo": grpo_step, "stack": stacks, "memory": memories, "paper": paper}


def run_part(bench: Bench) -> None:
    """In a process of its own, so that an error on the GPU ends no other part."""
    torch.set_num_threads(8 if bench.args.device == "cuda" else 1)
    started = time.monotonic()
    try:
        PARTS[bench.part](bench)
    except Exception:
        traceback.print_exc()
        bench.emit(error=traceback.format_exc()[-600:])
    bench.emit(seconds_of_part=time.monotonic() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="benchmarks/gpu")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--seconds", type=float, default=600, help="of a part at most")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--paper", type=int, default=3, help="settings of the part paper")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="peers not compiled")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    if args.device == "cuda" and not Path("/dev/nvidia0").exists():
        raise SystemExit("no GPU here; --device cpu --tiny shows that it runs")
    Path(args.out).mkdir(parents=True, exist_ok=True)
    quiet()
    fork = multiprocessing.get_context("fork")  # CUDA starts in each part, what is imported is there
    for part in args.parts:
        for sizes in [[size] for size in args.sizes] if part == "train" else [args.sizes]:
            own = argparse.Namespace(**{**vars(args), "sizes": sizes})
            process = fork.Process(target=run_part, args=(Bench(own, part),))
            process.start()
            process.join(args.seconds)
            if process.is_alive():
                process.kill()
                print(f"part {part} {sizes}: ended after {args.seconds:.0f} seconds", flush=True)
                process.join()


if __name__ == "__main__":
    main()
