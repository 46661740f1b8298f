import fcntl
import functools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from command_line import interplay
from conftest import ROOT, Laboratory, copy_configs

from interplay.core import artifact
from interplay.core.digest import canonical
from interplay.kinds.stages import ABSENT, flat_leaves, leaf_differences, non_default_leaves
from interplay.kinds.table import KINDS
from interplay.results import locks
from interplay.rl.spec import RLSpec
from interplay.study.expand import plan_study

LOCKS = sorted((ROOT / "configs/plans").glob("*.lock.json"))


def planned(study: str, scale: str) -> list[dict[str, Any]]:
    return list(plan_study(ROOT / "configs", study, scale).stages_json().values())


@functools.cache
def edge() -> list[dict[str, Any]]:
    """Planned once a test asks for it, which one worker of two does."""
    return planned("edge", "laptop")


def stage_of(label: str, stages: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return next(stage for stage in stages or edge() if stage["label"] == label)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Configs and locks, and no results."""
    copy_configs(tmp_path, locks=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_stage(project: Path, label: str) -> Path:
    stage = stage_of(label)
    out = project / "results" / stage["kind"] / stage["digest"]
    out.mkdir(parents=True)
    (out / "stage.json").write_text(json.dumps(stage))
    return out


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for dotted, value in flat.items():
        *path, last = dotted.split(".")
        here = tree
        for key in path:
            here = here.setdefault(key, {})
        here[last] = value
    return with_lists(tree)


def with_lists(tree: Any) -> Any:
    """Members at 0, 1, ... are those of a list."""
    if not isinstance(tree, dict):
        return tree
    made = {key: with_lists(value) for key, value in tree.items()}
    listed = made and all(key.isdigit() and isinstance(value, dict) for key, value in made.items())
    return list(made.values()) if listed else made


def members(spec: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    """The names of union members of which another leaf is listed: that of a default member is none of the differences."""
    names = {key: value for key, value in flat_leaves(spec).items() if key.endswith(".name")}
    return {key: value for key, value in names.items() if any(leaf.startswith(key.removesuffix("name")) for leaf in said)}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_what_differs_from_the_defaults_is_enough_to_make_the_whole_spec_again(lock: Path) -> None:
    for stage in planned(*lock.name.removesuffix(".lock.json").split(".")):
        if stage["kind"] != "report":
            said = non_default_leaves(stage["kind"], stage["spec"])
            assert (
                canonical(KINDS[stage["kind"]].spec.model_validate(nested(said | members(stage["spec"], said)))) == stage["spec"]
            )


def test_a_value_at_its_default_is_not_told_and_one_beside_it_is() -> None:
    method = {"paper": "x", "loss": {"name": "clipped", "epsilon": 0.2, "beta": 0.1}}
    spec = canonical(RLSpec.model_validate({"method": method, "mix": [1.0], "steps": 4}))
    assert non_default_leaves("rl", spec) == {"method.paper": "x", "method.loss.beta": 0.1, "mix": [1.0], "steps": 4}


def test_a_spec_that_the_schema_no_longer_knows_is_told_whole() -> None:
    assert non_default_leaves("rl", {"steps": 4, "gone": True}) == {"steps": 4, "gone": True}
    assert non_default_leaves("retired", {"a": {"b": 1}}) == {"a.b": 1}


def test_leaves_keep_lists_of_scalars_whole_and_number_others() -> None:
    assert flat_leaves({"a": [1, 2], "b": [{"c": 1}], "d": {}, "e": None}) == {"a": [1, 2], "b.0.c": 1, "d": {}, "e": None}


def test_a_difference_names_what_one_side_lacks() -> None:
    assert leaf_differences({"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"d": 2}}) == {"b.c": (2, ABSENT), "b.d": (ABSENT, 2)}


def test_a_stage_is_found_by_the_beginning_of_its_digest_or_by_its_path(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digest = stage_of("rl_edge/rl@1")["digest"]
    names = (digest, digest[:7], f"results/rl/{digest}")
    said = {interplay(capsys, "show", name)[1] for name in names}
    assert len(said) == 1
    assert said.pop().startswith(f"rl {digest}\n"), "several studies have it, under names of their own"
    assert interplay(capsys, "show", "edge/rl_edge/rl@1")[1].startswith(f"rl {digest}  rl_edge/rl@1\n")


def test_a_path_may_name_the_scale_and_leave_out_a_seed_that_does_not_matter(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    smoke = planned("edge", "smoke")
    digest = stage_of("base/base@0", smoke)["digest"]
    assert interplay(capsys, "show", "edge.smoke/rl_edge/base")[1].startswith(f"pretrain {digest}")
    code, _, error = interplay(capsys, "show", "edge/rl_edge/rl")
    assert code == 2
    assert "names several stages; write one of rl_edge/rl@0, rl_edge/rl@1" in error


def test_the_scale_of_a_path_may_be_given_beside_it(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    smoke = planned("edge", "smoke")
    said = interplay(capsys, "show", "edge/rl_edge/base", "--scale", "smoke")[1]
    assert said.startswith(f"pretrain {stage_of('base/base@0', smoke)['digest']}")


@pytest.fixture
def shared(project: Path) -> Path:
    """Two locks that call one problem set by names of their own, the other study's first by the alphabet."""
    path = project / "configs/plans/edge.laptop.lock.json"
    lock = json.loads(path.read_text())
    lock["stages"]["problems"] = [line.replace(" data.test", " data.other") for line in lock["stages"]["problems"]]
    (project / "configs/plans/another.laptop.lock.json").write_text(json.dumps({**lock, "study": "another"}))
    return project


def test_data_go_by_the_names_of_the_study_whose_path_was_given(shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    test = stage_of("data.test")["digest"]
    said = interplay(capsys, "show", "edge/rl_edge/eval@0")[1]
    assert f"{test}  data   problems  data.test" in said
    assert "data.other" not in said + interplay(capsys, "lineage", "edge/rl_edge/eval@0")[1]


def test_of_a_digest_that_studies_share_data_whose_names_differ_have_none(
    shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = interplay(capsys, "show", stage_of("rl_edge/eval@0")["digest"])[1]
    needs = said.split("\nneeds\n")[1]
    row = next(line for line in needs.splitlines() if stage_of("data.test")["digest"] in line)
    assert row.split()[1:] == ["data", "problems", "missing"]
    assert "data.other" not in said


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fffffffffff", "names no stage in results/ or configs/plans"),
        ("edge/rl_edg/rl@0", "did you mean 'rl_edge/rl@0'?"),
        ("egde/rl_edge/rl@0", "did you mean 'edge'?"),
        ("edge", "is a study; name one of its stages, such as edge/"),
        ("edge/", "is a study; name one of its stages, such as edge/"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused_with_the_nearest(
    name: str, message: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, error = interplay(capsys, "show", name)
    assert (code, out) == (2, "")
    assert message in error
    assert "//" not in error
    assert error.count("\n") == 1


def test_a_beginning_that_several_stages_share_lists_them(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digests = {digest for path in (ROOT / "configs/plans").rglob("*.lock.json") for digest in locks.read_lock(path).stages}
    sharing: dict[str, list[str]] = {}
    for digest in sorted(digests):
        sharing.setdefault(digest[:3], []).append(digest)
    beginning, pair = next((start, found) for start, found in sharing.items() if len(found) == 2)
    code, _, error = interplay(capsys, "show", beginning)
    assert code == 2
    assert all(digest in error for digest in pair)


def test_what_a_stage_needs_and_what_needs_it_stand_with_their_states(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_stage(project, "data.edge")
    _, out, _ = interplay(capsys, "show", "edge/rl_edge/rl@0")
    needs, needed = out.split("\nneeds\n")[1].split("\nneeded by\n")
    assert f"{stage_of('data.edge')['digest']}  data.0  problems  data.edge    new" in needs
    assert f"{stage_of('base/base@0')['digest']}  init    pretrain  base/base@0  missing" in needs
    assert stage_of("rl_edge/eval@0")["digest"] in needed
    assert re.search(r"plans     .*\bedge\.laptop\b", out)


def test_full_adds_the_values_at_their_defaults(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    brief = interplay(capsys, "show", "edge/rl_edge/rl@0")[1]
    full = interplay(capsys, "show", "edge/rl_edge/rl@0", "--full")[1]
    assert "method.loss.epsilon" not in brief
    assert re.search(r"^  method.loss.epsilon +0\.2$", full, re.MULTILINE)
    assert "optimizer.learning_rate" in brief


def test_a_failed_stage_tells_its_message_and_the_end_of_its_log(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = write_stage(project, "rl_edge/rl@0")
    (out / "failure.json").write_text(json.dumps({"message": "step 7: the loss is not finite"}))
    log = project / "logs/rl" / f"{out.name}.log"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"line {number}\n" for number in range(50)))
    _, said, _ = interplay(capsys, "show", out.name)
    assert "state     failed: step 7: the loss is not finite" in said
    assert said.endswith("line 48\n  line 49\n")
    assert "line 20\n" not in said


def test_the_state_of_a_stage_follows_what_lies_in_its_folder(tmp_path: Path) -> None:
    out = tmp_path / "rl" / "0123456789ab"
    assert artifact.state_of(out).name == "missing"
    out.mkdir(parents=True)
    assert artifact.state_of(out).name == "new"
    (out / "telemetry.json").write_text("{}")
    assert artifact.state_of(out) == ("unfinished", "stopped before its first save")
    (out / "resume").mkdir()
    (out / "resume/state.json").write_text('{"step": 12}')
    assert artifact.state_of(out) == ("unfinished", "goes on from step 12")
    with open(out / "lease", "w") as lease:
        fcntl.flock(lease, fcntl.LOCK_EX)
        assert artifact.state_of(out) == ("running", "step 12")
    assert artifact.state_of(out).name == "unfinished"
    (out / "record.json").write_text("{}")
    assert artifact.state_of(out) == ("done", "")


def test_a_finished_stage_tells_metrics_cost_and_files(
    finished: Laboratory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(finished.folder)
    folder = next((finished.folder / "results/rl").iterdir())
    record = json.loads((folder / "record.json").read_text())
    code, said, _ = interplay(capsys, "show", folder.name)
    assert code == 0
    assert "state     done" in said
    reward = {end: f"{record['metrics'][f'reward_{end}']:.7g}" for end in ("first", "last")}
    assert f"{reward['first']} -> {reward['last']}" in said
    assert "1 attempt" in said
    assert all(name in said for name in record["files"])
    assert "not here" not in said
    code, _, error = interplay(capsys, "show", f"{folder.name}@3")
    assert code == 2
    assert "keeps no checkpoint of step 3" in error


def test_an_evaluation_stands_as_a_table_with_a_row_per_band_and_op(
    finished: Laboratory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(finished.folder)
    folder = next((finished.folder / "results/evaluate").iterdir())
    metrics = json.loads((folder / "record.json").read_text())["metrics"]
    _, said, _ = interplay(capsys, "show", folder.name)
    rows = {line.split()[0]: line.split() for line in said.split("\nmetrics\n")[1].split("\n\n")[0].splitlines()[1:]}
    for band, cell in metrics["band"].items():
        assert rows[band][1] == str(cell["n"])
        assert rows[band][2] == f"{100 * cell['strict_pass@1']:.1f}"
