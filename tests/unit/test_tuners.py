"""Trainers of methods/contexts: an example whose embeddings are tuned while all else is frozen, and sources that a target weighs."""

import math
import runpy
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import world
from bios_cases import SMALL
from conftest import ROOT

from interplay.core.artifact import write_json
from interplay.core.digest import canonical
from interplay.core.execution import Run
from interplay.data import problems, sets, tokenizer
from interplay.data.spec import ProblemsSpec, TokenizerSpec
from interplay.model import folder
from interplay.tasks.facts.spec import Bios
from interplay.tasks.verdict import Row

TUNERS = runpy.run_path(str(ROOT / "configs/study/methods/tuners.py"))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = tmp_path_factory.mktemp("results")
    found = {"init": results / "pretrain" / ("m" * 12)}
    for number, (digest, band, level) in enumerate(
        (("a" * 12, "ctx", "contextual"), ("b" * 12, "mem", "parametric"), ("c" * 12, "target", "contextual"))
    ):
        out = found[f"data.{number}"] = results / "problems" / digest
        spec = ProblemsSpec(
            task=Bios(**SMALL, level=level), bands={band: {1: 1.0}}, shares={band: 1.0}, size=30, split="train", unique=False
        )
        problems.generate_problems(spec, {}, out, Run())
        write_json(out / "stage.json", {"kind": "problems", "digest": digest, "spec": canonical(spec), "deps": {}})
    made = TUNERS["prefixed"]([asdict(row) for row in sets.read_rows(found["data.0"], 0)])
    sets.write_table(sets.table_of_rows([Row(**{**row, "transforms": ()}) for row in made]), found["data.0"])
    tokenizer.build_tokenizer(TokenizerSpec(task=Bios(**SMALL), algorithm="words"), {}, found["init"], Run())
    decoder = folder.init_decoder(world.SHAPE, tokenizer.load(found["init"]).get_vocab_size(), 0)
    folder.save_decoder(decoder, found["init"] / "model", found["init"] / "tokenizer")
    return found


def test_the_tuned_tokens_alone_move_and_stay_near_the_example(inputs: dict[str, Path], tmp_path: Path) -> None:
    spec, weights, losses = SimpleNamespace(seed=0, mix=[1.0]), {}, {}
    for radius in (0.0, 0.1, 5.0):
        out = tmp_path / str(radius)
        losses[radius] = TUNERS["tune_prompt"](spec, inputs, out, Run(), radius=radius, steps=8)
        weights[radius] = dict(folder.load_decoder(out / "model").named_parameters())
    moved = {
        name: (one - weights[0.0][name]).norm(dim=-1)
        for name, one in weights[5.0].items()
        if not torch.equal(one, weights[0.0][name])
    }
    places = tokenizer.encode_texts(tokenizer.load(inputs["init"]), [TUNERS["PLACES"]])[0]
    assert {name: sorted(rows.nonzero().flatten().tolist()) for name, rows in moved.items()} == {
        "model.embed_tokens.weight": sorted(places)
    }
    assert losses[0.1]["distance"] == pytest.approx(0.1, rel=1e-4)  # at its bound
    assert losses[5.0]["distance"] > 0.1
    assert losses[5.0]["prompt_loss"] < losses[0.0]["prompt_loss"]


def test_a_projection_by_hand() -> None:
    assert TUNERS["project"](torch.tensor([[3.0, 4.0], [0.3, 0.4]]), 1.0).tolist() == [
        pytest.approx([0.6, 0.8]),
        pytest.approx([0.3, 0.4]),
    ]


def test_the_policy_over_sources_by_hand() -> None:
    """Rewards 2 and -1, in units of the largest 1 and -0.5; of equal weights the mean is 0.25, so logits move by 0.5 (0.75, -0.75)."""
    assert TUNERS["source_step"](torch.zeros(2), torch.tensor([2.0, -1.0]), 1.0).tolist() == pytest.approx([0.375, -0.375])
    theta = torch.tensor([math.log(3.0), 0.0])
    assert TUNERS["source_step"](theta, torch.tensor([0.0, 4.0]), 2.0).tolist() == pytest.approx([math.log(3.0) - 0.375, 0.375])


def test_sources_are_weighed_by_what_they_do_for_the_target(inputs: dict[str, Path], tmp_path: Path) -> None:
    spec = SimpleNamespace(seed=0, mix=[0.3, 0.3, 0.4])
    found = {
        learned: TUNERS["learn_sources"](spec, inputs, tmp_path / str(learned), Run(), target="target", learned=learned, steps=6)
        for learned in (False, True)
    }
    assert found[False]["weight_ctx"] == found[False]["weight_mem"] == 0.5
    assert found[True]["weight_ctx"] + found[True]["weight_mem"] == pytest.approx(1.0)
    assert found[True]["weight_ctx"] != 0.5
    one, other = (
        torch.nn.utils.parameters_to_vector(folder.load_decoder(tmp_path / str(k) / "model").parameters()) for k in found
    )
    assert not torch.equal(one, other)
