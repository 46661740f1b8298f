"""The tutorials: each file is planned, and the commands do what their page says. Here at smoke, of two pages; at coffee, with the
outputs that the pages show, all of them among the slow tests."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from conftest import ROOT, Laboratory
from transformers import Qwen3Config, Qwen3ForCausalLM

from interplay.data import tokenizer
from interplay.study.expand import plan_study
from tools.site import examples

pytestmark = pytest.mark.workflow
PAGES = [ROOT / f"docs/tutorials/{name}.md" for name in ("first", "loss", "kl", "mix", "reward", "data", "after", "world")]
AT_SMOKE = ("first", "after")
"""Every kind of command is in these; of the studies of the others a test makes the plans."""
LAST = "$ interplay run opened"
"""The second study with a world of the reader's own, with which a page ends: it runs at coffee alone."""
FAILS = "broken"
"""The study of which a page shows how it fails."""


@pytest.fixture(scope="module")
def project(finished: Laboratory, tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    """Data and base of the tutorials at smoke are the quickstart's, which is made."""
    made = new_project(tmp_path_factory.mktemp("tutorials") / "project")
    made.take_data(finished, "pretrain")
    return made


def new_project(folder: Path) -> Laboratory:
    """Without plans, with the data of the project and with a small model where a page has its reader link one."""
    made = Laboratory(folder)
    (made.folder / "data/external").mkdir(parents=True)
    for folder in ("bases", "demo"):
        (made.folder / "data" / folder).symlink_to(ROOT / "data" / folder)
    made.env |= {"INTERPLAY_STORE": "0", "OMP_NUM_THREADS": "1"}
    smol = made.folder / "data/external/smol"
    words = tokenizer.character_tokenizer("".join(map(chr, range(10, 127))))
    tokenizer.save(words, smol)
    (smol / "chat_template.jinja").write_text("{% for message in messages %}{{ message['content'] }}{% endfor %}|")
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
    }
    config = Qwen3Config(vocab_size=words.get_vocab_size(), head_dim=16, max_position_embeddings=512, **sizes)
    Qwen3ForCausalLM(config).save_pretrained(smol)
    return made


def outcomes(page: Path, at: Laboratory, scale: str) -> Iterator[tuple[examples.Command, examples.Outcome]]:
    """What the commands of a page do at a scale. Untrained models leave no class of errors in particular."""

    def run(command: examples.Command, folder: Path) -> examples.Outcome:
        line = command.line.replace("--scale coffee", f"--scale {scale}")
        line = line if scale == "coffee" else line.replace("--error missing_node", "--failed")
        made = at.run("sh", "-c", f"{line} 2>&1") if scale == "coffee" else at.run(*shlex.split(line))  # as a terminal has it
        return examples.Outcome(made.returncode, made.stdout + made.stderr)

    text = page.read_text()
    return examples.follow(text if scale == "coffee" else text.partition(LAST)[0], at.folder, run)


def loose(text: str) -> str:
    """Without what differs by processor, by time and between machines."""
    text = re.sub(r"\b[0-9a-f]{12}\b", "#", text)
    return re.sub(r" +", " ", re.sub(r"[-+−]?\d[\d.,]*", "#", text))


def test_every_study_of_a_tutorial_is_planned_at_both_scales(project: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    names = set()
    for page in PAGES:
        for path, text in (step for step in examples.steps(page.read_text()) if not isinstance(step, examples.Command)):
            (project.folder / path).write_text(text)
            names |= {Path(path).stem} if path.endswith(".yaml") else set()
    monkeypatch.chdir(project.folder)
    assert names == {"mine", "losses", "pull", "mixes", "short", "own", "mirrored", "opened", FAILS}
    for name in sorted(names):
        base = plan_study(project.folder / "configs", "mine", "coffee").stages
        made = plan_study(project.folder / "configs", name, "coffee").stages
        assert name in ("own", "mirrored", "opened") or len(made.keys() & base.keys()) > len(base) / 2, (
            "a tutorial starts from what the first one made"
        )
        plan_study(project.folder / "configs", name, "smoke")


def test_the_commands_of_the_tutorials_work_at_smoke(project: Laboratory) -> None:
    for page in (page for page in PAGES if page.stem in AT_SMOKE):
        for command, outcome in outcomes(page, project, "smoke"):
            assert (outcome.code != 0) == (f"run {FAILS}" in command.line), f"{page.name}: {command.line}\n{outcome.said[-2000:]}"
            if command.line.startswith("interplay run") and FAILS not in command.line:
                assert "report: " in outcome.said


@pytest.mark.slow
def test_every_command_of_the_tutorials_prints_at_coffee_what_its_page_shows(tmp_path: Path) -> None:
    """In a project in which nothing is finished: `plan` shows where its times come from."""
    project, wrong = new_project(tmp_path / "project"), list[str]()
    for page in PAGES:
        for command, outcome in outcomes(page, project, "coffee"):
            # which completions there are differs by processor
            as_shown = (
                outcome.code == 0 if "rollouts" in command.line else examples.agrees(loose(command.shown), loose(outcome.said))
            )
            wrong += [] if as_shown else [f"{page.name}: {command.line}\n{outcome.said[-2000:]}"]
    assert not wrong, "\n\n".join(wrong)
