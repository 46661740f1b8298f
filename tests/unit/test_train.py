import json
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from forked import Script
from logged_cases import unknown

from interplay.core.artifact import read_json
from interplay.core.execution import Run
from interplay.core.metrics import read
from interplay.core.model import PermanentError, UserError
from interplay.data import batches, corpus, problems, sets, tokenizer
from interplay.data.spec import CorpusSpec, ProblemsSpec, TokenizerSpec
from interplay.model import device, folder
from interplay.model.decoder import Decoder
from interplay.model.spec import Shape
from interplay.model.trainer_spec import Optimizer, Schedule
from interplay.tasks.op_dag.spec import OpDag
from interplay.train import lm
from interplay.train.lm import token_losses
from interplay.train.spec import PretrainSpec, SftSpec

SHAPE = Shape(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=16, intermediate_size=48
)
CPU = torch.device("cpu")


def spec_of(**changes) -> PretrainSpec:
    return PretrainSpec(**{"model": SHAPE, "tokens": 12 * 480, "batch_tokens": 512, "dtype": "float32", **changes})


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_inputs(tmp_path_factory.mktemp("inputs"))


def make_inputs(out: Path) -> dict[str, Path]:
    task = OpDag(distractors=(0, 1), operators="+", constants=(1, 2))
    tokenizer.build_tokenizer(TokenizerSpec(task=task), {}, out / "tokenizer", Run())
    for split, size in (("train", 120), ("validation", 16)):
        spec = ProblemsSpec(
            task=task, bands={"id": {3: 1.0}, "edge": {5: 1.0}}, shares={"id": 0.5, "edge": 0.5}, size=size, split=split
        )
        problems.generate_problems(spec, {}, out / split, Run())
    roles = {"tokenizer": out / "tokenizer", "data.0": out / "train"}
    corpus.build_corpus(CorpusSpec(mix=[1.0], sequence_length=64), roles, out / "corpus", Run())
    return {"corpus": out / "corpus", "tokenizer": out / "tokenizer", "validation": out / "validation"}


def model_of(inputs: dict[str, Path]) -> Decoder:
    return folder.init_decoder(SHAPE, tokenizer.load(inputs["tokenizer"]).get_vocab_size(), 0)


def same(a: Path, b: Path) -> bool:
    return all((a / name).read_bytes() == (b / name).read_bytes() for name in ("model/model.safetensors", "metrics.jsonl"))


def test_training_lowers_the_loss_on_text_and_on_held_out_problems(inputs: dict[str, Path], tmp_path: Path) -> None:
    spec = spec_of(tokens=60 * 480, eval_every=30, dtype="bfloat16")
    metrics = lm.train_language_model(spec, inputs, tmp_path, Run())
    assert not unknown("pretrain", spec, tmp_path)
    lines = read(tmp_path)
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses[0] > 3.5
    assert losses[-1] < 0.5 * losses[0]
    held_out = [line for line in lines if "eval_loss/id" in line]
    assert [line["step"] for line in held_out] == [30, 60, metrics["steps"]][-len(held_out) :]
    assert held_out[-1]["eval_loss/id"] < held_out[0]["eval_loss/id"]
    assert metrics["eval_loss"] == {band: held_out[-1][f"eval_loss/{band}"] for band in ("edge", "id")}


def test_the_run_ends_at_the_first_step_that_meets_the_budget(inputs: dict[str, Path], tmp_path: Path) -> None:
    metrics = lm.train_language_model(spec_of(), inputs, tmp_path, Run())
    tokens = [line["tokens"] for line in read(tmp_path) if "tokens" in line]
    assert len(tokens) == metrics["steps"]
    assert tokens[-2] < 12 * 480 <= tokens[-1] == metrics["tokens"]
    assert read(tmp_path)[-2]["lr_factor"] == 0.0


def test_speed_is_told_beside_the_record(inputs: dict[str, Path], tmp_path: Path) -> None:
    lm.train_language_model(spec_of(), inputs, tmp_path, Run())
    told, seen = read_json(tmp_path / "telemetry.json"), [line["tokens"] for line in read(tmp_path) if "tokens" in line]
    assert told["tokens_per_second"] * told["train_seconds"] == pytest.approx(
        seen[-1] - seen[0], rel=0.01
    )  # the first step warms up
    assert 0 < told["mfu"] < 1


def test_learning_rate_zero_returns_the_init(inputs: dict[str, Path], tmp_path: Path) -> None:
    still = Optimizer(learning_rate=0.0, muon_learning_rate=0.0)
    lm.train_language_model(spec_of(optimizer=still), inputs, tmp_path, Run())
    start, end = model_of(inputs).state_dict(), folder.load_decoder(tmp_path / "model").state_dict()
    assert all(torch.equal(value, end[name]) for name, value in start.items())


def test_two_runs_give_the_same_bytes_and_another_seed_gives_others(inputs: dict[str, Path], tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        lm.train_language_model(spec_of(seed=seed), inputs, tmp_path / name, Run())
    assert same(tmp_path / "a", tmp_path / "b")
    assert not same(tmp_path / "a", tmp_path / "c")


def test_a_corpus_in_shards_trains_to_the_bytes_of_the_same_rows_in_one(inputs: dict[str, Path], tmp_path: Path) -> None:
    whole = corpus.load_rows([inputs["corpus"]])
    cut = whole.tokens.shape[0] // 3
    shards = {}
    for number, part in enumerate((slice(None, cut), slice(cut, None))):
        shards[f"corpus.{number}"] = tmp_path / str(number)
        shards[f"corpus.{number}"].mkdir()
        for name, array in whole._asdict().items():
            np.save(tmp_path / str(number) / f"{name}.npy", array[part])
    lm.train_language_model(spec_of(), inputs, tmp_path / "whole", Run())
    lm.train_language_model(
        spec_of(), {**{role: path for role, path in inputs.items() if role != "corpus"}, **shards}, tmp_path / "shards", Run()
    )
    assert same(tmp_path / "whole", tmp_path / "shards")


def test_accumulating_gradients_changes_them_by_float_noise_only(inputs: dict[str, Path]) -> None:
    gradients, losses = [], []
    for micro in (512, 128, 64):
        model = model_of(inputs)
        course = lm.prepare(spec_of(), inputs, Run(micro_batch_tokens=micro))
        losses.append(lm.backward(model, course, lm.split_step(course, np.arange(8))))
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert course.rows_per_pass == 1
    for gradient, value in zip(gradients[1:], losses[1:], strict=True):
        assert value == pytest.approx(losses[0], rel=1e-6)
        assert (gradient - gradients[0]).abs().max() < 1e-6


def test_isolated_packing_gives_the_loss_of_each_problem_alone(inputs: dict[str, Path]) -> None:
    model, rows = model_of(inputs), corpus.load_rows([inputs["corpus"]])
    batch = batches.batch_of_rows(rows, np.arange(4), CPU)
    packed = token_losses(model, batch, torch.float32)
    alone = []
    for row in range(4):
        for number in range(1, int(rows.segments[row].max()) + 1):
            chosen = rows.segments[row] == number
            ids = torch.from_numpy(rows.tokens[row][chosen].astype(np.int64))[None]
            bears = torch.from_numpy(rows.loss[row][chosen] == 1)
            logits = model.logits(model.hidden(ids, torch.arange(ids.shape[1])[None]))[0, :-1]
            alone.append(F.cross_entropy(logits, ids[0, 1:], reduction="none")[bears[1:]])
    # The batch is in order of length, so compare the losses as sets.
    torch.testing.assert_close(packed.sort().values, torch.cat(alone).sort().values, rtol=1e-5, atol=1e-5)


def test_causal_packing_attends_across_the_problems_of_a_row(inputs: dict[str, Path], tmp_path: Path) -> None:
    roles = {"tokenizer": inputs["tokenizer"], "data.0": inputs["validation"]}
    corpus.build_corpus(CorpusSpec(mix=[1.0], sequence_length=64, packing="causal"), roles, tmp_path, Run())
    model, rows = model_of(inputs), corpus.load_rows([tmp_path])
    batch = batches.batch_of_rows(rows, np.array([0]), CPU)
    ids = torch.from_numpy(rows.tokens[:1].astype(np.int64))
    logits = model.logits(model.hidden(ids, torch.arange(64)[None]))[0, :-1]
    bears = torch.from_numpy(rows.loss[0, 1:] == 1)
    expected = F.cross_entropy(logits, ids[0, 1:], reduction="none")[bears]
    torch.testing.assert_close(token_losses(model, batch, torch.float32), expected, rtol=1e-5, atol=1e-5)


def test_loss_by_band_is_the_mean_over_the_bands_solution_tokens(inputs: dict[str, Path]) -> None:
    model, encoder = model_of(inputs), tokenizer.load(inputs["tokenizer"])
    held_out = lm.load_validation(inputs["validation"], inputs["tokenizer"], 64)
    for pass_tokens in (10_000, 100):
        found = lm.loss_by_band(model, held_out, pass_tokens, torch.float32, CPU)
        for band in ("id", "edge"):
            losses = []
            for row in sets.read_table(inputs["validation"]).to_pylist():
                if row["band"] == band:
                    ids = torch.tensor([[*encoder.encode(row["prompt"] + row["solution"]).ids, 1]])
                    logits = model.logits(model.hidden(ids, torch.arange(ids.shape[1])[None]))[0, :-1]
                    losses.append(F.cross_entropy(logits, ids[0, 1:], reduction="none")[len(row["prompt"]) - 1 :])
            assert found[band] == pytest.approx(torch.cat(losses).mean().item(), rel=1e-4)


def test_sft_starts_from_the_init_and_keeps_its_tokenizer(inputs: dict[str, Path], tmp_path: Path) -> None:
    lm.train_language_model(spec_of(), inputs, tmp_path / "base", Run())
    still = Optimizer(learning_rate=0.0, muon_learning_rate=0.0)
    spec = SftSpec(tokens=600, batch_tokens=512, optimizer=still)
    lm.train_language_model(spec, {"corpus": inputs["corpus"], "init": tmp_path / "base"}, tmp_path / "sft", Run())
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        assert (tmp_path / "base/model" / name).read_bytes() == (tmp_path / "sft/model" / name).read_bytes()


def test_declared_checkpoints_are_kept_and_the_last_equals_the_model(inputs: dict[str, Path], tmp_path: Path) -> None:
    steps = lm.prepare(spec_of(), inputs, Run()).steps
    lm.train_language_model(spec_of(checkpoints=[2, steps]), inputs, tmp_path, Run())
    early, last, final = (
        tmp_path / part / "model.safetensors" for part in ("checkpoints/2/model", f"checkpoints/{steps}/model", "model")
    )
    assert last.read_bytes() == final.read_bytes() != early.read_bytes()


def test_a_loss_that_is_not_finite_fails_for_good_and_names_the_step(inputs: dict[str, Path], tmp_path: Path) -> None:
    wild = Optimizer(name="adamw", learning_rate=1e30, max_grad_norm=0.0)
    schedule = Schedule(name="constant", warmup_ratio=0.0)
    with pytest.raises(PermanentError, match=r"^step [2-9] of \d+: loss [^\n]* gradient norm (nan|inf); [^\n]*$"):
        lm.train_language_model(spec_of(optimizer=wild, schedule=schedule), inputs, tmp_path, Run())


def test_a_batch_of_broken_rows_and_a_checkpoint_past_the_end_are_refused(inputs: dict[str, Path]) -> None:
    with pytest.raises(UserError, match="batch_tokens = 500: must be a multiple of the corpus' sequence_length, 64"):
        lm.prepare(spec_of(batch_tokens=500), inputs, Run())
    with pytest.raises(UserError, match="checkpoints: 900 is not among the steps"):
        lm.prepare(spec_of(checkpoints=[900]), inputs, Run())


def test_matrix_parameters_count_a_tied_embedding_once_and_an_untied_one_as_the_head() -> None:
    tied = device.matrix_parameters(Decoder(SHAPE, 50))
    untied = device.matrix_parameters(Decoder(SHAPE.model_copy(update={"tie_word_embeddings": False}), 50))
    # Per layer q 32x32, k and v 16x32, o 32x32, three of 48x32; and 50x32 of the head.
    assert tied == untied == 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 48 * 32) + 50 * 32


def test_six_operations_per_parameter_and_token_over_the_peak() -> None:
    assert device.model_flops_utilisation(1_000_000, 20_000.0, 400e9) == pytest.approx(0.3)


STAGE = """
import json, sys
from pathlib import Path
from interplay.core.execution import Run
from interplay.train.spec import PretrainSpec
from interplay.train import lm
spec, inputs, out = PretrainSpec(**json.loads(sys.argv[1])), json.loads(sys.argv[2]), Path(sys.argv[3])
lm.train_language_model(spec, {role: Path(path) for role, path in inputs.items()}, out, Run(save_minutes=0))
"""


def start(spec: PretrainSpec, inputs: dict[str, Path], out: Path) -> Script:
    roles = json.dumps({role: str(path) for role, path in inputs.items()})
    return Script(STAGE, spec.model_dump_json(), roles, str(out))


def test_killed_and_started_again_the_bytes_are_those_of_an_uninterrupted_run(inputs: dict[str, Path], tmp_path: Path) -> None:
    spec = spec_of(tokens=40 * 480, eval_every=7, checkpoints=[5, 20])
    lm.train_language_model(spec, inputs, tmp_path / "whole", Run())
    steps = lm.prepare(spec, inputs, Run()).steps
    saved = []
    for _ in range(2):
        process = start(spec, inputs, tmp_path / "killed")
        pointer, before = tmp_path / "killed/resume/state.json", saved[-1] if saved else 0
        end = time.monotonic() + 120
        while not (pointer.exists() and read_json(pointer)["step"] >= before + 6):
            assert process.poll() is None, process.errors.read_text()
            assert time.monotonic() < end
            time.sleep(0.005)
        process.kill()
        saved.append(read_json(pointer)["step"])
    assert saved[0] < saved[1] < steps
    process = start(spec, inputs, tmp_path / "killed")
    assert process.wait() == 0, process.errors.read_text()
    assert same(tmp_path / "whole", tmp_path / "killed")
    for step in (5, 20):
        both = [tmp_path / run / f"checkpoints/{step}/model/model.safetensors" for run in ("whole", "killed")]
        assert both[0].read_bytes() == both[1].read_bytes()
