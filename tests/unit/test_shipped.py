"""Bases that come with the project: a study at scale coffee starts from them, unless it pre-trains something else."""

import shutil
from pathlib import Path

import pytest
from command_line import interplay
from conftest import ROOT
from lab import Lab, of_kind

from interplay.core import artifact
from interplay.core.model import UserError
from interplay.results import payloads
from interplay.run.graph import Graph, open_graph
from interplay.study import expand
from interplay.study.plan import Plan
from tools import coffee_bases

ASKED = {"study": "coffee", "scale": "coffee"}
BASE = "base: {kind: pretrain, data: {corpus: 1.0}, validation: held_out"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    shutil.copytree(ROOT / payloads.SHIPPED, tmp_path / payloads.SHIPPED)
    monkeypatch.chdir(tmp_path)
    return Lab(tmp_path)


OWN_BASES = (
    "conflicts/credit",
    "conflicts/cures",
    "conflicts/difficulty",
    "conflicts/entropy",
    "conflicts/order",
    "curricula/showdown_replication",
    "edge_bases",
    "edge_replication",
    "interplay/before_rl_bases",
    "interplay/before_rl_replication",
    "interplay/budget_split_bases",
    "interplay/budget_split_replication",
    "interplay/deviations_replication",
    "interplay/exposure_rewards",
    "interplay/extrapolation_bases",
    "interplay/extrapolation_room",
    "interplay/hard_exposure_bases",
    "interplay/hard_exposure_replication",
    "interplay/length_depth",
    "interplay/process_rewards_bases",
    "interplay/rewards_over_steps",
    "interplay/sizes_nano",
    "interplay/sizes_next",
    "interplay/transfer_bases",
    "interplay/transfer_replication",
    "loongrl/needle_map",
    "loongrl/stages",
    "loongrl/stages_bases",
    "margins",
    "margins_replication",
    "open_claims",
    *(
        f"methods/{name}"
        for name in (
            "context_kinds",
            "contexts",
            "critic",
            "experience",
            "in_context",
            "internalise",
            "length_sign_bases",
            "preference_bases",
            "knowledge_conflict",
            "neighbours_bases",
            "pages",
            "prompts_compared",
            "reward_bases",
            "roles",
            "seats",
            "self_play",
            "python_tool",
            "tool_use",
        )
    ),
    *(f"methods/{name}" for name in ("learned_rewards", "mind", "searching", "taught", "taught_more")),
    *(f"methods/{name}" for name in ("pipeline", "retrain_equivalence", "rounds", "zero_variance_bases")),
    *(f"methods/{name}_replication" for name in ("length_sign", "preference", "showdown", "tricks", "unlearn", "zero_variance")),
    *(f"methods/{name}" for name in ("skills", "tools", "turn_branches", "turn_credit", "turns", "zoo_tools")),
    *(f"methods/turn_{world}" for world in ("fight", "fight_grid", "fight_search", "prompts")),
    *(f"numerics/{name}" for name in ("exact", "exact_bases", "exact_factorial")),
    "scrl/credit",
    "taxonomy/recall",
)
"""Studies at coffee of tools, games, facts and classes, and of further bases."""


def plan_of(study: str) -> Plan:
    return expand.plan_study(Path("configs"), study, "coffee")


def launch() -> Graph:
    return open_graph(Path(), ASKED, True)


def test_together_they_are_small_and_the_studies_of_the_scale_plan_them() -> None:
    shipped = {path.name for path in (ROOT / payloads.SHIPPED).glob("*/*")}
    assert len(shipped) == 4
    assert shipped == set(coffee_bases.bases(expand.plan_study(ROOT / "configs", "coffee", "coffee")))
    files = [path for top in ("bases", "demo") for path in (ROOT / "data" / top).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 4_000_000
    for study, scale in expand.committed(ROOT / "configs"):
        if scale == "coffee" and study not in OWN_BASES:
            made = of_kind(expand.plan_study(ROOT / "configs", study, scale), "pretrain")
            assert made
            assert {stage.digest for stage in made} <= shipped, f"{study} pre-trains bases of its own at coffee"


def test_a_launch_takes_them_over_and_makes_no_corpus_for_them(lab: Lab) -> None:
    graph, plan = launch(), plan_of("coffee")
    bases = coffee_bases.bases(plan)
    assert len(bases) == 4
    assert "pretrain" not in {stage.kind for stage in graph.to_make()}
    wanted = {dep for stage in graph.to_make() for dep in stage.deps.values()}
    corpora = [dep for digest in bases for role, dep in plan.stages[digest].deps.items() if role.startswith("corpus")]
    assert {stage.digest for stage in graph.to_make()}.isdisjoint({*corpora} - wanted)
    assert not lab.results.exists()  # so far it has only looked
    graph.restore()
    for digest in bases:
        out = lab.results / "pretrain" / digest
        artifact.check(out)
        assert (out / "record.json").read_bytes() == (payloads.SHIPPED / "pretrain" / digest / "record.json").read_bytes()


def test_another_pre_training_is_done_here(lab: Lab) -> None:
    lab.edit("study/coffee.yaml", BASE, f"{BASE}, tokens: 1500000")
    made = [stage for stage in launch().to_make() if stage.kind == "pretrain"]
    assert len(made) == 4
    assert {"tokenizer", "corpus"} <= {stage.kind for stage in launch().to_make()}


def test_without_their_folder_they_are_made_here(lab: Lab) -> None:
    shutil.rmtree(payloads.SHIPPED)
    assert sorted(stage.digest for stage in launch().to_make() if stage.kind == "pretrain") == sorted(
        coffee_bases.bases(plan_of("coffee"))
    )


@pytest.mark.parametrize("file", ["model/model.safetensors", "metrics.jsonl"])
def test_a_flipped_byte_is_refused_in_one_line(lab: Lab, capsys: pytest.CaptureFixture[str], file: str) -> None:
    path = sorted((payloads.SHIPPED / "pretrain").glob("*"))[0] / file
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    code, _, said = interplay(capsys, "plan", "coffee", "--scale", "coffee")
    assert (code, said.count("\n")) == (2, 1)
    assert f"{path}: corrupt (checksum differs); restore it (`git checkout {path.parents[file.count('/')]}`)" in said
    with pytest.raises(SystemExit) as stopped:
        launch()
    assert stopped.value.code == 2


def test_a_record_of_other_settings_is_refused(lab: Lab) -> None:
    folder = sorted((payloads.SHIPPED / "pretrain").glob("*"))[0]
    record = artifact.record(folder)
    record["spec"]["tokens"] += 1
    artifact.write_json(folder / "record.json", record)
    with pytest.raises(UserError, match=r"record\.json: its content is that of pretrain/.*git checkout"):
        payloads.restorable_records(lab.results, plan_of("coffee").stages, [])


def test_a_finished_stage_of_ones_own_is_left_as_it_is(lab: Lab) -> None:
    stage = of_kind(plan_of("coffee"), "pretrain")[0]
    out = lab.finish(stage)
    launch().restore()
    assert (out / "payload.bin").exists()


@pytest.mark.slow
def test_they_are_what_pre_training_makes(tmp_path: Path) -> None:
    """To the byte with the libraries and the kind of processor that made them; elsewhere as good."""
    plan = expand.plan_study(ROOT / "configs", "coffee", "coffee")
    digest = coffee_bases.bases(plan)[0]
    shipped = ROOT / payloads.SHIPPED / "pretrain" / digest
    made = coffee_bases.make(plan, digest, tmp_path / "results")
    if coffee_bases.same_machine(artifact.read_json(ROOT / payloads.SHIPPED / coffee_bases.MADE)):
        assert coffee_bases.difference(made, shipped) == ""
    losses = [artifact.record(folder)["metrics"]["eval_loss"] for folder in (made, shipped)]
    assert all(abs(losses[0][band] - losses[1][band]) < 0.02 for band in losses[1])
