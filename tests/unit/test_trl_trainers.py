"""SFT, preferences and reward models on TRL's trainers: their steps are those of the native trainers, a wrong option shows, a killed
run goes on, and what TRL lacks is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import world
from devices_cases import LM, Results
from killed_stage import kill_once_saved
from test_prefer import pair_set
from trl import DPOConfig

from interplay.core import artifact, metrics
from interplay.core.execution import Run
from interplay.core.keys import parse_model
from interplay.core.model import KeyPlace, Model, UserError
from interplay.data import corpus
from interplay.data.spec import CorpusSpec
from interplay.kinds.table import KINDS
from interplay.run.workers import load_function
from interplay.study.check import check_stage
from interplay.study.plan import Stage
from interplay.train import trl

ADAMW = {"name": "adamw", "learning_rate": 1e-3}
PAIRS: dict[str, Any] = {"mix": [1.0], "steps": 5, "pairs_per_step": 8, "max_length": 128, "optimizer": ADAMW, "checkpoints": [2]}
SPECS: dict[str, dict[str, Any]] = {
    "sft": {"tokens": 5 * 900, "batch_tokens": 1024, "optimizer": {**ADAMW, "weight_decay": 0.1}, "checkpoints": [2]},
    "prefer": PAIRS,
    "reward_model": {**PAIRS, "margin": "score", "center_rewards_coefficient": 0.1},
}
HOW = Run(micro_batch_tokens=600)
"""Several passes a step."""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("results")
    base, pairs = world.model(place, "a" * 12), pair_set(place, "b" * 12)
    corpus.build_corpus(CorpusSpec(mix=[1.0], sequence_length=128), {"tokenizer": base, "data.0": pairs}, place / "corpus", HOW)
    return {"init": base, "data.0": pairs, "validation": pairs, "corpus": place / "corpus"}


def made(kind: str, trainer: str, inputs: dict[str, Path], out: Path, **more: Any) -> list[dict[str, Any]]:
    spec = KINDS[kind].spec(trainer=trainer, **SPECS[kind] | more)
    load_function(kind, spec)(spec, inputs, out, HOW)
    return metrics.read(out)


def differing(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> list[str]:
    """`step name` of every value that is not the same; TRL logs no `nll` of its own."""
    names = [(a, b, name) for a, b in zip(one, other, strict=True) for name in a if name != "nll"]
    return [f"{a['step']} {name}" for a, b, name in names if b[name] != pytest.approx(a[name], rel=1e-5, abs=1e-6)]


@pytest.mark.parametrize("kind", SPECS)
def test_five_steps_are_those_of_the_native_trainer(kind: str, inputs: dict[str, Path], tmp_path: Path) -> None:
    one, other = (made(kind, name, inputs, tmp_path / name) for name in ("native", "trl"))
    assert differing(one, other) == []
    assert len({line["loss"] for line in one if "loss" in line}) >= 5
    files = [{str(path.relative_to(tmp_path / name)) for path in (tmp_path / name).rglob("*.*")} for name in ("native", "trl")]
    assert files[0] == files[1] >= {"model/model.safetensors", "checkpoints/2/model/config.json"}


@pytest.mark.parametrize("loss_type", ["ipo", "robust", "apo_down"])
def test_further_losses_are_the_native_ones(loss_type: str, inputs: dict[str, Path], tmp_path: Path) -> None:
    more = {"loss_type": loss_type, "steps": 2, "label_smoothing": 0.2 if loss_type == "robust" else 0.0}
    one, other = (made("prefer", name, inputs, tmp_path / name, **more) for name in ("native", "trl"))
    assert differing(one, other) == []


def test_a_wrong_beta_in_one_of_them_shows_in_the_loss(
    inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = made("prefer", "native", inputs, tmp_path / "native", steps=2)
    planted: Callable[..., DPOConfig] = lambda **given: DPOConfig(**{**given, "beta": 0.2})  # noqa: E731
    monkeypatch.setattr(trl.trl, "DPOConfig", planted)
    wrong = differing(native, made("prefer", "trl", inputs, tmp_path / "trl", steps=2))
    assert {"1 grad_norm", "2 loss"} <= set(wrong)  # policy and reference start as one, so the first loss is log 2 with any


# --- kills, several processes ---

SCRIPT = """
import json, sys
from pathlib import Path
from interplay.core.execution import Run
from interplay.train import trl
from interplay.train.spec import PreferSpec
out, spec, inputs = sys.argv[1:]
roles = {role: Path(path) for role, path in json.loads(inputs).items()}
trl.prefer_with_trl(PreferSpec.model_validate_json(spec), roles, Path(out), Run(micro_batch_tokens=600, save_minutes=0.0))
"""


def test_a_killed_run_ends_with_the_bytes_of_one_that_was_not(inputs: dict[str, Path], tmp_path: Path) -> None:
    spec = KINDS["prefer"].spec(**{**PAIRS, "trainer": "trl", "steps": 40})
    how = Run(micro_batch_tokens=600, save_minutes=0.0)
    whole = trl.prefer_with_trl(spec, inputs, tmp_path / "whole", how)  # type: ignore[arg-type]
    roles = artifact.to_json({role: str(path) for role, path in inputs.items()}).decode()
    kill_once_saved(SCRIPT, tmp_path / "killed", [spec.model_dump_json(), roles], "resume/state/state.json")
    assert trl.prefer_with_trl(spec, inputs, tmp_path / "killed", how) == whole  # type: ignore[arg-type]
    for name in ("model/model.safetensors", "checkpoints/2/model/model.safetensors", "metrics.jsonl"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_two_processes_end_as_one_process_and_go_on_where_they_are_killed(killed: bool, tmp_path: Path) -> None:
    """Of two native processes that are stopped a fast test is in `test_devices_ends`, of one of TRL that is killed above."""
    results, kept = Results(tmp_path / "results"), tmp_path / "kept"
    spec = KINDS["sft"].spec(tokens=12 * 480, batch_tokens=512, optimizer=ADAMW, trainer="trl")
    roles = {"corpus": results.corpus, "init": results.model, "validation": results.held_out}
    one = load_function("sft", spec)(spec, {role: artifact.find(results.path, of) for role, of in roles.items()}, kept, Run(**LM))
    out = results.ask("sft", spec, roles, processes=2, **LM)
    if killed:
        results.kill_after(out, 3)
    made = results.make(out)
    assert made.returncode == 0, made.stderr
    assert ("going on from" in made.stderr) == killed
    assert artifact.record(out)["metrics"]["eval_loss"] == pytest.approx(one["eval_loss"], rel=1e-4)


# --- what it expresses ---

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("sft", {"optimizer": {"name": "muon"}}, r"optimizer\.name = muon: TRL has adamw; write that, or trainer: native"),
    ("sft", {"dtype": "int8"}, r"dtype = int8: TRL has float32 or bfloat16"),
    ("sft", {"position_jumps": {"probability": 0.1}}, r"position_jumps\.probability = 0\.1: TRL has 0"),
    ("prefer", {"loss_type": "kto"}, r"loss_type = kto: TRL has sigmoid or hinge or ipo or robust or sppo_hard"),
    ("prefer", {"label_smoothing": 0.1}, r"label_smoothing = 0\.1: TRL has 0"),
    ("prefer", {"rpo_alpha": 1.0}, r"rpo_alpha = 1\.0: TRL has 0"),
    ("reward_model", {"heads": 2}, r"heads = 2: TRL has 1"),
    ("reward_model", {"blockwise": True}, r"blockwise = True: TRL has False"),
]


def parsed(kind: str, trainer: str = "trl", **more: Any) -> Model:
    return parse_model(KINDS[kind].spec, {**SPECS[kind], "trainer": trainer, **more}, KeyPlace("s.yaml", ("stages", kind)))


@pytest.mark.parametrize(("kind", "more", "said"), REFUSED, ids=[said for _, _, said in REFUSED])
def test_what_trl_does_not_express_is_refused_with_the_remedy(kind: str, more: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=rf"^s\.yaml: stages\.{kind}: trainer = trl: {said}"):
        parsed(kind, **more)
    assert parsed(kind, "native", **more)


@pytest.mark.parametrize(
    ("kind", "run", "said"),
    [
        ("sft", {"processes": 3}, r"run\.processes = 3: trainer trl shares 8 rows of a step evenly; write 1"),
        ("prefer", {"processes": 3}, r"run\.processes = 3: trainer trl shares 8 pairs of a step evenly; write 1"),
        ("reward_model", {"segment_steps": 2}, r"run\.segment_steps = 2: trainer trl has none; write 0"),
    ],
)
def test_what_the_run_block_asks_of_it_is_checked_at_planning(kind: str, run: dict[str, Any], said: str) -> None:
    rows = Stage.make("corpus", CorpusSpec(mix=[1.0], sequence_length=128), {}, Run(), "rows")
    stage = Stage.make(kind, parsed(kind), {"init": "m" * 12, "corpus": rows.digest}, Run(**run), kind)
    with pytest.raises(UserError, match=rf"^s\.yaml: stages\.{kind}\.{said}"):
        check_stage(stage, {one.digest: one for one in (stage, rows)}, KeyPlace("s.yaml", ("stages", kind)))
