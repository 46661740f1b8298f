"""A shell completes commands, studies, scales and arms, and nothing is planned for it."""

import os
import subprocess
import sys
from pathlib import Path

import forked
import pytest
from lab import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path)
    for study in ("quickstart", "interplay/budget_split"):
        lab.lock(study)
    (lab.configs / "study/own.yaml").write_text(
        "defaults: [quickstart, _self_]\nknobs: {width: 3}\narms: {kl: {path: [base, rl], control: rl_edge}}\n"
    )
    (lab.results / "by-name/own.smoke/kl[beta=0.1]/rl@0").mkdir(parents=True)
    return lab


def asking(*words: str) -> dict[str, str]:
    """The environment in which bash asks for the last of the words."""
    line = {"COMP_WORDS": " ".join(["interplay", *words]), "COMP_CWORD": str(len(words)), "_INTERPLAY_COMPLETE": "complete_bash"}
    return {**os.environ, **line}


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["pl"], ["plan"]),
        (["plan", "quick"], ["quickstart"]),
        (["plan", "quickstart", "--scale", "sm"], ["smoke"]),
        (["plan", "quickstart", "--stri"], ["--strict-code"]),
        (["explain", "quickstart", "main", "rl_"], ["rl_edge", "rl_hard"]),
        (["compare", "quickstart/rl_e"], ["quickstart/rl_edge"]),
        (["show", "quickstart/ba"], ["quickstart/base/eval@0", "quickstart/base/base@0"]),
        (["show", "quickstart/rl_edge/rl", "@"], ["0"]),  # as Bash breaks quickstart/rl_edge/rl@
        (["rollouts", "interplay/budget_split/third[rl_share", "=", "0.5]/eval", "@", "0"], ["0"]),
        (["store", "pu"], ["push", "pull"]),
        (["explain", "own", "ma"], ["main"]),
        (["explain", "own", "main", "rl_"], ["rl_edge", "rl_hard"]),  # of the study that it extends
        (["compare", "own/k"], ["own/kl[beta=0.1]"]),  # of what was run
        (["plan", "own", "rl.method", "=", "dr_g"], ["dr_grpo"]),
        (["plan", "own", "rl.method.loss.epsilon"], ["rl.method.loss.epsilon=", "rl.method.loss.epsilon_high="]),
        (["plan", "own", "rl.st"], ["rl.steps=", "rl.steps=..."]),  # two, so that Bash puts no blank behind it
        (["plan", "own", "rl.method.loss.importance_sampling_level", "=", "to"], ["token"]),
        (["run", "own", "seeds."], ["seeds.values=", "seeds.vary="]),
        (
            ["plan", "own", "scales.smoke.kinds.rl.optimizer.learning"],
            ["scales.smoke.kinds.rl.optimizer.learning_rate=", "scales.smoke.kinds.rl.optimizer.learning_rate=..."],
        ),
        (["plan", "own", "knobs.wid"], ["knobs.width=", "knobs.width=..."]),
        (["plan", "own", "rl.data.e"], ["rl.data.edge=", "rl.data.edge=..."]),
        (["plan", "own", "eval.num_"], ["eval.num_samples=", "eval.num_samples=..."]),
        (["plan", "no_such_study", "rl.st"], []),
        (["rollouts", "quickstart/rl_edge/eval@0", "--error", "missing_"], ["missing_node", "missing_hop"]),
        (["explain", "no_such_study", "main", "rl"], []),
    ],
)
def test_a_word_is_completed(words: list[str], offered: list[str], lab: Lab) -> None:
    result = forked.run(["interplay"], lab.folder, asking(*words))
    assert result
    assert result.stdout.split() == offered


def test_completion_reads_files_and_loads_no_planner(lab: Lab) -> None:
    run = (
        "import atexit, sys; from interplay.cli import main\n"
        "atexit.register(lambda: print([m for m in ('interplay.study.expand', 'hydra', 'torch', 'rich') if m in sys.modules]))\n"
        "main([])"
    )
    command, asked = [sys.executable, "-c", run], asking("compare", "quickstart/b")
    result = subprocess.run(command, cwd=lab.folder, env=asked, capture_output=True, text=True, timeout=60)
    assert result.stdout.split() == ["quickstart/base", "[]"]
