"""What tokenizers of studies cover and learn from, and the studies whose tasks are facts."""

import shutil
from pathlib import Path

import pytest
from conftest import ROOT

from interplay.core.model import UserError
from interplay.data.spec import ProblemsSpec, TokenizerSpec
from interplay.study.expand import plan_study
from interplay.study.plan import Plan, Stage
from interplay.tasks.families import task_family

CONFIGS = ROOT / "configs"
STUDIES = ["atomic/composite", "taxonomy/recall"]


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CONFIGS, tmp_path / "configs"))


def of_kind(plan: Plan, kind: str) -> list[Stage]:
    return [stage for stage in plan.stages.values() if stage.kind == kind]


def test_bpe_learns_from_the_generated_sets_of_split_train(configs: Path) -> None:
    study = configs / "study/quickstart.yaml"
    study.write_text(study.read_text() + "\ntokenizer: {algorithm: bpe, vocab_size: 300}\n")
    plan = plan_study(configs, "quickstart", "smoke")
    (tokenizer,) = of_kind(plan, "tokenizer")
    learnt = [plan.stages[digest].spec for role, digest in tokenizer.deps.items() if role.startswith("data.")]
    assert [spec.split for spec in learnt if isinstance(spec, ProblemsSpec)] == ["train"]
    assert list(tokenizer.deps) == ["data.0"]


def test_bpe_without_anything_to_learn_from_is_refused_in_one_line(configs: Path) -> None:
    study = configs / "study/quickstart.yaml"
    text = study.read_text().replace("corpus: {band: id, split: train}", "corpus: {band: id, split: rl}")
    study.write_text(text + "\ntokenizer: {algorithm: bpe}\n")
    with pytest.raises(UserError, match="learns from sets of split train") as error:
        plan_study(configs, "quickstart", "smoke")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("scale", ["smoke", "laptop"])
@pytest.mark.parametrize("study", STUDIES)
def test_one_tokenizer_of_words_covers_every_set_of_a_study(study: str, scale: str) -> None:
    plan = plan_study(CONFIGS, study, scale)
    (tokenizer,) = of_kind(plan, "tokenizer")
    assert isinstance(tokenizer.spec, TokenizerSpec)
    assert (tokenizer.spec.algorithm, tokenizer.deps) == ("words", {})
    known = {piece for task in (tokenizer.spec.task, *tokenizer.spec.others) for piece in task_family(task).vocabulary(task)}
    for stage in of_kind(plan, "problems"):
        assert isinstance(stage.spec, ProblemsSpec)
        assert set(task_family(stage.spec.task).vocabulary(stage.spec.task)) <= known


@pytest.mark.parametrize("scale", ["smoke", "laptop"])
@pytest.mark.parametrize("study", STUDIES)
def test_sets_of_facts_hold_every_fact_of_the_world(study: str, scale: str) -> None:
    plan = plan_study(CONFIGS, study, scale)
    found = 0
    for stage in of_kind(plan, "problems"):
        spec = stage.spec
        assert isinstance(spec, ProblemsSpec)
        if spec.split == "train" and spec.task.name != "op_dag" and spec.task.level in ("statement", "parametric"):
            module = task_family(spec.task)
            facts = {module.structure(module.generate(spec.task, 0, index, 1)) for index in range(spec.size)}
            assert module.structure(module.generate(spec.task, 0, spec.size, 1)) in facts
            found += 1
    assert found


def test_the_arms_of_the_composite_study_share_one_base_and_one_world() -> None:
    plan = plan_study(CONFIGS, "atomic/composite", "laptop")
    assert len(of_kind(plan, "pretrain")) == 1
    tasks = [stage.spec.task for stage in of_kind(plan, "problems") if isinstance(stage.spec, ProblemsSpec)]
    assert len({task.model_copy(update={"level": "iid", "zipf": 0.0}) for task in tasks}) == 1
    assert {task.level for task in tasks if task.name == "bios"} == {
        "statement", "parametric", "contextual", "reading", "iid", "composition", "zero_shot"
    }  # fmt: skip
