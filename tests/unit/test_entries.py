"""Libraries of experience: which entries episodes become, which of them a prompt begins with, and that nothing of them is learnt."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import test_rl_loop as loops
import test_rl_self_play as games
import turn_cases as cases
from hypothesis import given, strategies as st
from killed_rl import payload, run_killed
from lab import Lab, of_kind
from pydantic import ValidationError

from interplay.core.artifact import write_json
from interplay.core.execution import Run
from interplay.core.metrics import read
from interplay.core.model import PermanentError, UserError
from interplay.data import curate, sets
from interplay.data.curate import StepInputs
from interplay.data.steps import turns as entries, turns_spec as steps
from interplay.data.steps.spec import CurateSpec
from interplay.data.trajectory import SEGMENTS, TYPES, Segment, joined_text, segment_rows
from interplay.evaluate import sampling
from interplay.evaluate.spec import EvaluateSpec
from interplay.rl import loop
from interplay.rl.spec import RLSpec
from interplay.rollout.episodes import play_episodes
from interplay.rollout.spec import RetryEpisode
from interplay.rollout.turns import Played
from interplay.tasks.transcripts import MARK
from interplay.tasks.verdict import Row


def entry(found_by: str, text: str, key: str = "e") -> Row:
    return replace(cases.row(found_by, ""), solution=text, key=key)


def problem(prompt: str, solution: str = "", index: int = 0) -> Row:
    return replace(cases.row(prompt, "7"), solution=solution, index=index, key=f"{index:x}")


def episode(*parts: tuple[str, str, float | None]) -> list[Segment]:
    """Turns, what was read after each, and what it was paid."""
    made = []
    for turn, (said, after, paid) in enumerate(parts):
        made += [Segment("action", said, turn, reward=paid), Segment("observation", after, turn)]
    return made[:-1]


def sampled(folder: Path, *samples: tuple[int, bool, list[Segment], bool]) -> StepInputs:
    """(row, whether it is right, segments, truncated) of each sample, in the order of their numbers."""
    numbers = itertools.count()
    columns = [
        {"index": i, "sample": next(numbers), "strict": right, "answer": right, "truncated": cut, "completion": joined_text(one)}
        | {SEGMENTS: segment_rows(one)}
        for i, right, one, cut in samples
    ]
    folder.mkdir(exist_ok=True, parents=True)
    schema = pa.schema([(name, TYPES[name]) for name in columns[0]])
    pq.write_table(pa.Table.from_pylist(columns, schema), folder / "samples.parquet")
    return StepInputs(0, {"data.0": folder.parent / "a", "samples.0.0.0": folder}, 0)


def kept(folder: Path, rows: list[Row]) -> Path:
    sets.write_table(sets.table_of_rows(rows), folder)
    write_json(folder / "stage.json", {"kind": "curate", "digest": folder.name})
    return folder


def pairs(rows: list[Row]) -> list[tuple[str, str]]:
    return [(one.prompt, one.solution) for one in rows]


WON = episode(("1", "lock b?", None), ("2", "lock b?", 0.0), ("3", "", 0.5))
LOST = episode(("9", "lock b?", 0.5), ("8", "", 0.0))


def test_an_episode_is_found_by_its_prompt_and_a_turn_by_what_was_read_before_it(tmp_path: Path) -> None:
    rows = [problem("lock a?"), problem("lock c?", index=1)]
    given = sampled(tmp_path / "s", (0, True, WON, False), (0, False, LOST, False), (1, False, LOST, False))
    whole = entries.library_of_samples(steps.Experience(per_prompt=8), rows, given)
    assert pairs(whole.rows) == [("lock a?", "lock a?1lock b?2lock b?3\n")]
    form = steps.Experience(unit="turn", entry="{outcome}: {said}", right="+", wrong="-", per_prompt=8)
    assert pairs(entries.library_of_samples(form, rows, given).rows) == [
        ("lock a?", "+: 1"),
        ("lock b?", "+: 2"),
        ("lock b?", "+: 3"),
    ]
    paid = steps.Experience(unit="turn", turns="paid", keep="all", per_prompt=8)
    assert set(pairs(entries.library_of_samples(paid, rows, given).rows)) == {
        *(("lock b?", "lock b?3\n"), ("lock a?", "lock a?9\n"), ("lock c?", "lock c?9\n")),
    }
    last = steps.Experience(keep="wrong", entry="{prompt}{last} is {outcome}, not {answer}", per_prompt=8)
    assert pairs(entries.library_of_samples(last, rows, given).rows)[0] == ("lock a?", "lock a?8 is wrong, not 7")


def test_an_entry_names_the_block_of_samples_that_it_was_made_of(tmp_path: Path) -> None:
    blocks = sampled(tmp_path / "first", (0, True, WON, False)), sampled(tmp_path / "second", (0, True, LOST, False))
    given = StepInputs(0, {**blocks[0].folders, "samples.0.0.1": tmp_path / "second"}, 0)
    made = entries.library_of_samples(steps.Experience(per_prompt=8), [problem("lock a?")], given)
    stages = made.tables[entries.FILE]["stage"].to_pylist()
    assert dict(zip([row.solution[-2] for row in made.rows], stages, strict=True)) == {"3": "first", "8": "second"}


def test_a_cut_turn_gives_no_entry_and_no_episode_of_the_kind_is_refused(tmp_path: Path) -> None:
    given = sampled(tmp_path / "s", (0, False, LOST, True))
    form = steps.Experience(unit="turn", keep="all")
    assert pairs(entries.library_of_samples(form, [problem("lock a?")], given).rows) == [("lock a?", "lock a?9\n")]
    with pytest.raises(PermanentError, match=r"none of the episodes of 1 rows is right by strict; sample more, or keep: all"):
        entries.library_of_samples(steps.Experience(), [problem("lock a?")], given)
    with pytest.raises(ValidationError, match="turns: paid goes with unit: turn"):
        steps.Experience(turns="paid")


def test_every_entry_names_what_it_was_made_of(tmp_path: Path) -> None:
    rows = [problem("lock a?")]
    twice = [(0, True, WON, False), (0, False, LOST, False), (0, True, WON, False)]
    made = entries.library_of_samples(steps.Experience(keep="all", per_prompt=8), rows, sampled(tmp_path / "s", *twice))
    table = made.tables["entries"].to_pylist()
    assert [(one["stage"], one["row"], one["sample"], one["outcome"], one["episodes"]) for one in table] == [
        ("s", "a:0", 0, "right", 1),
        ("s", "a:0", 1, "wrong", 1),
    ]
    assert made.counts == {"made": 2, "repeated": 0}, "equal texts of a prompt count once, as in other steps"
    gold = entries.library_of_rows(
        steps.Library(unit="turn"), [problem("p", MARK.join(["x", "q", "y"]), 4)], StepInputs(0, {"data.0": tmp_path / "g"}, 0)
    )
    assert pairs(gold.rows) == [("p", "px\n"), ("q", "qy\n")]
    assert gold.tables["entries"].column("row").to_pylist() == ["g:4", "g:4"]


def test_a_bounded_library_keeps_what_the_most_episodes_gave(tmp_path: Path) -> None:
    rows = [problem(f"r{n}", said, n) for n, said in enumerate(["x", "y", "y", "z", "y", "z"])]
    inputs = StepInputs(0, {"data.0": tmp_path}, 0)
    made = entries.library_of_rows(steps.Library(entry="{said}", unique="text", size=2), rows, inputs)
    assert pairs(made.rows) == [("r1", "y"), ("r3", "z")]
    assert made.tables["entries"].column("episodes").to_pylist() == [3, 2]
    assert made.counts == {"made": 6, "repeated": 3}


SAID = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), min_size=1, max_size=8)


@given(SAID, st.randoms(use_true_random=False), st.sampled_from(["entry", "text"]), st.integers(1, 9), st.booleans())
def test_a_library_does_not_depend_on_the_order_of_its_rows(said: Any, draw: Any, unique: Any, size: int, shuffled: bool) -> None:
    rows = [problem(prompt, text, n) for n, (prompt, text) in enumerate(said)]
    form = steps.Library(unique=unique, size=size, entry="{said}", shuffled=shuffled)
    inputs = StepInputs(0, {"data.0": Path("a")}, 3)
    made = entries.library_of_rows(form, rows, inputs)
    again = entries.library_of_rows(form, draw.sample(rows, len(rows)), inputs)
    assert pairs(made.rows) == pairs(again.rows)
    assert made.tables["entries"].equals(again.tables["entries"])
    plain = entries.library_of_rows(form.model_copy(update={"shuffled": False}), rows, inputs)
    assert sorted(one.prompt for one in made.rows) == sorted(one.prompt for one in plain.rows)
    assert [one.solution for one in made.rows] == [one.solution for one in plain.rows]


def test_a_shuffled_library_has_every_entry_found_by_what_another_one_is_found_by() -> None:
    rows = [problem(f"r{n}", f"s{n}", n) for n in range(6)]
    made = entries.library_of_rows(steps.Library(entry="{said}", shuffled=True), rows, StepInputs(0, {"data.0": Path("a")}, 1))
    assert all(one.prompt[1] != one.solution[1] for one in made.rows)


LIBRARY = entries.Library(
    [entry("lock a 1?", "[a1]", "1"), entry("lock a 2?", "[a2]", "2"), entry("lock b 1?", "[b1]", "3"), entry("c", "[c]", "4")],
    "library x",
)


def shown(query: str, key: str = "0", **given: Any) -> str:
    return LIBRARY.text(steps.Retrieval(**given), query, replace(cases.row("p", ""), key=key))


def test_the_nearest_entries_come_last_and_those_without_a_common_word_not_at_all() -> None:
    assert shown("lock a 2?", k=3) == "[b1][a1][a2]"
    assert shown("b?", k=3) == "[b1]"
    assert shown("other?", k=3) == ""
    assert shown("b?", k=3, shown="({entries}) ") == "([b1]) "


def test_entries_of_the_problem_itself_are_hidden_unless_asked_for() -> None:
    assert shown("lock a 2?", "2", k=2) == "[b1][a1]"
    assert shown("lock a 2?", "2", k=2, own=True) == "[a1][a2]"


def test_entries_are_found_by_the_text_itself_by_chance_or_by_their_place() -> None:
    assert shown("lock a 2?", by="key", k=4) == "[a2]"
    assert shown("lock a", by="key", k=4) == ""
    assert shown("anything", by="first", k=3) == "[a1][a2][b1]"
    drawn = {shown(f"q{n}", by="random", k=1) for n in range(40)}
    assert drawn == {"[a1]", "[a2]", "[b1]", "[c]"}
    assert shown("q", by="random", k=2) == shown("q", by="random", k=2)
    assert {shown("q", by="random", k=1, seed=n) for n in range(20)} == drawn


def test_a_library_that_is_too_small_is_refused() -> None:
    with pytest.raises(UserError, match=r"library x has 4 entries and k = 5; write k: 4"):
        shown("lock", k=5)


# --- contexts of episodes ---


def played(context: dict[str, Any], **given: Any) -> tuple[Played, cases.Setting]:
    episode = RetryEpisode(max_turns=3, feedback="lock b 1?", context={"library": "library", **context}, **given)
    setting = cases.setting(lambda text, sample: "x$", [problem("lock a 2?")])._replace(library=LIBRARY)
    return play_episodes(episode, setting, cases.asked(setting.rows, 2)), setting


def test_an_episode_begins_with_the_entries_of_its_prompt_which_are_no_part_of_what_is_learnt() -> None:
    made, setting = played({"name": "retrieved", "k": 1})
    assert made.prompts == [cases.encode(["[a2]lock a 2?"])[0]] * 2
    written = ["".join(map(chr, row)) for row in made.rollouts.tokens.tolist()]
    assert written == ["x$lock b 1?x$lock b 1?x$"] * 2
    marks = "".join(".o"[int(o)] for o in made.observed[0])  # type: ignore[index]
    assert marks == "..ooooooooo..ooooooooo..", "what is read is observed, and entries are in the prompt alone"
    assert made.excluded is None, "one row for each episode"
    assert [one.text for one in made.segments[0] if one.kind == "context"] == ["[a2]"]  # type: ignore[index]
    assert joined_text(made.segments[0]) == "xlock b 1?xlock b 1?x", "what is judged has no entries"  # type: ignore[index]
    bare = cases.setting(lambda text, sample: "x$", setting.rows)
    play_episodes(RetryEpisode(max_turns=3, feedback="lock b 1?"), bare, cases.asked(setting.rows, 2))
    keys = [[(one.key, one.first, one.count) for one in asked] for asked, _ in setting.engine.asked]  # type: ignore[attr-defined]
    assert keys == [[(one.key, one.first, one.count) for one in asked] for asked, _ in bare.engine.asked], (
        "the noise is the control's"
    )  # type: ignore[attr-defined]


def test_entries_that_are_found_at_each_turn_replace_those_before_and_make_a_row_of_each() -> None:
    made, _ = played({"name": "retrieved", "k": 1, "each": "turn"})
    history = "lock a 2?x$lock b 1?"
    texts = ["".join(map(chr, prompt)) for prompt in made.prompts or []]
    assert texts == ["[a2]lock a 2?", f"[b1]{history}", f"[b1]{history}x$lock b 1?"] * 2
    assert [bool(one) for one in made.excluded] == [True, True, False] * 2  # type: ignore[union-attr]
    assert not made.observed.any(), "a row is the turn alone"  # type: ignore[union-attr]


def test_a_playbook_is_the_first_entries_in_their_order_for_every_prompt() -> None:
    made, _ = played({"name": "playbook", "k": 3, "shown": "<{entries}>"})
    assert made.prompts == [cases.encode(["<[a1][a2][b1]>lock a 2?"])[0]] * 2


def test_what_a_step_shows_is_what_an_episode_shows(tmp_path: Path) -> None:
    inputs = StepInputs(0, {"against.0.0": kept(tmp_path / "l", [*LIBRARY.rows])}, 0)
    made = entries.show_entries(steps.WithEntries(k=1), [problem("lock a 2?"), problem("none")], inputs)
    assert [one.prompt for one in made.rows] == ["[a2]lock a 2?", "none"]
    assert made.counts == {"with_entries": 1, "without": 1}
    turn = entries.show_entries(steps.WithEntries(k=1), [problem(MARK.join(["lock a 2?", "x", "lock b?"]))], inputs)
    assert turn.rows[0].prompt == MARK.join(["[b1]lock a 2?", "x", "lock b?"])


# --- runs ---

inputs = games.inputs


@pytest.fixture(scope="module")
def library(inputs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the expert of the games does, by turn."""
    out = tmp_path_factory.mktemp("library")
    spec = CurateSpec(mix=[1.0], steps=[{"name": "library", "unit": "turn", "size": 30}])
    found = curate.curate_problems(spec, {"data.0": inputs["data.0"]}, out, Run())
    write_json(out / "stage.json", {"kind": "curate", "digest": "l" * 12})
    assert found["size"] == pq.read_table(out / "entries.parquet").num_rows == 30
    return out


def run_of(context: dict[str, Any], steps_: int = 2) -> RLSpec:
    episode = {"name": "environment", "max_turns": 4, "context": {"library": "library", **context}}
    method = {"paper": "p", "episode": episode, "allocation": {"name": "fixed", "num_generations": 4}}
    given = {"method": method, "reward": {"name": "outcome"}, "mix": [1.0], "steps": steps_, "prompts_per_step": 4}
    return RLSpec.model_validate({**given, "max_completion_length": 3, "temperature": 1.0})


@pytest.mark.parametrize("context", [{"name": "retrieved", "each": "turn", "by": "key"}, {"name": "playbook", "k": 3}])
def test_a_run_learns_from_what_it_sampled_behind_entries(
    context: Any, inputs: dict[str, Path], library: Path, tmp_path: Path
) -> None:
    spec, given = run_of(context), {**inputs, "library": library}
    loop.train_policy(spec, given, tmp_path, loops.HOW)
    assert all(abs(line["kl_old"]) < 1e-6 for line in read(tmp_path)), "rows are scored behind what they were sampled from"
    (tmp_path / "e").mkdir()
    judged = EvaluateSpec.model_validate(
        {"episode": spec.method.episode.model_dump(), "num_samples": 2, "max_completion_length": 3}
    )
    found = sampling.evaluate_model(
        judged, {"model": inputs["init"], "data": inputs["data.0"], "library": library}, tmp_path / "e", Run()
    )
    assert found["all"]["n"] == 40
    samples = pq.read_table(tmp_path / "e" / "samples.parquet").to_pylist()
    assert any(part["kind"] == "context" for row in samples for part in row[SEGMENTS])


def test_other_entries_make_other_rollouts(inputs: dict[str, Path], library: Path, tmp_path: Path) -> None:
    """Doctor-R1, TRAD and ACE act: what is shown changes what is written."""
    said = {}
    for name, context in {"nearest": {}, "random": {"by": "random"}, "book": {"name": "playbook", "k": 3}}.items():
        (tmp_path / name).mkdir()
        episode = run_of({"name": "retrieved", **context}).method.episode.model_dump()
        judged = EvaluateSpec.model_validate({"episode": episode, "num_samples": 4, "max_completion_length": 3})
        given = {"model": inputs["init"], "data": inputs["data.0"], "library": library}
        sampling.evaluate_model(judged, given, tmp_path / name, Run())
        said[name] = pq.read_table(tmp_path / name / "samples.parquet")["completion"].to_pylist()
    assert len({tuple(one) for one in said.values()}) == 3


@pytest.mark.slow
def test_a_killed_run_with_a_library_ends_with_the_same_bytes(inputs: dict[str, Path], library: Path, tmp_path: Path) -> None:
    spec, given = run_of({"name": "retrieved", "each": "turn"}, 6), {**inputs, "library": library}
    loop.train_policy(spec, given, tmp_path / "whole", loops.HOW)
    run_killed(spec, given, tmp_path / "killed", loops.HOW, [(3, 0.02)])
    assert payload(tmp_path / "killed") == payload(tmp_path / "whole")


def test_a_library_whose_characters_the_model_lacks_is_refused_before_the_first_step(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    kept(tmp_path / "l", [entry("k", "Ω")] * 2)
    with pytest.raises(UserError, match="library l: the model has another tokenizer than its entries"):
        loop.train_policy(run_of({"name": "retrieved"}), {**inputs, "library": tmp_path / "l"}, tmp_path / "o", loops.HOW)


# --- plans ---

STUDY = "methods/experience"


def test_a_study_reads_one_library_in_rl_and_evaluation_and_a_fresh_one_in_each_round(tmp_path: Path) -> None:
    plan = Lab(tmp_path).plan(STUDY)
    reads = [stage for stage in plan.stages.values() if "library" in stage.deps]
    assert {stage.kind for stage in reads} == {"rl", "evaluate"}
    arms = {row.arm: row for row in plan.stages[plan.report].spec.arms}  # type: ignore[attr-defined]

    def rounds(arm: str) -> list[Any]:
        return [plan.stages[part.digest] for part in arms[arm].path if part.kind == "rl"]

    stale, fresh = rounds("stale"), rounds("refreshed")
    assert len({stage.deps["library"] for stage in stale}) == 1
    assert stale[0].deps["library"] == fresh[0].deps["library"], "the first round reads what the base did"
    assert stale[1].deps["library"] != fresh[1].deps["library"]
    sampled_by = plan.stages[fresh[1].deps["library"]].deps["samples.0.0.0"]
    assert plan.stages[sampled_by].deps["model"] == fresh[0].digest
    judged = [stage for stage in of_kind(plan, "evaluate") if stage.deps["model"] == fresh[1].digest and "library" in stage.deps]
    own = [plan.stages[plan.stages[stage.deps["library"]].deps["samples.0.0.0"]].deps["model"] for stage in judged]
    assert own == [fresh[1].digest], "of an evaluation, before is the model that is evaluated"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("library: losses", "library: lossses", r"context\.library = 'lossses': no such problem set; did you mean 'losses'"),
        ("library: book, k: '${knobs.notes}'", "library: book, k: 9999", r"k = 9999: there are 1000 entries at most; write k: 1000"),
        ("turns: unpaid}]", "turns: all, unit: episode}]", r"each = 'turn': finds entries by what was read.*; write unit: turn there"),
        ("library: losses", "library: test", "data.test is of split test, which nothing is trained on"),
        ("against: [wins]", "against: [test]", "data.test is of split test, which nothing is trained on"),
        ("against: [wins], k: '${knobs.k}'", "against: [wins], k: 3000", r"k = 3000: there are 1000 entries at most; write k: 1000"),
        ("unique: text}", "unique: text, entry: fixed}", r"entry"),
        ("name: playbook, library: book", "name: playbook, by: key, library: book", "by"),
    ],
)  # fmt: skip
def test_a_library_that_cannot_be_read_is_refused_in_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    lab = Lab(tmp_path)
    lab.edit(f"study/{STUDY}.yaml", old, new)
    with pytest.raises(UserError, match=message) as caught:
        lab.plan(STUDY)
    assert "\n" not in str(caught.value)
