"""The bios family: worlds, paths, problems, how they read, and their keys."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from bios_cases import CHAIN, LEVELS, LOOKUP, SMALL, places, tasks
from hypothesis import given, strategies as st

from interplay.core.execution import Run
from interplay.core.keys import parse_model
from interplay.core.model import KeyPlace, UserError
from interplay.core.random import stream
from interplay.data import problems, sets, tokenizer
from interplay.data.spec import SPLITS, ProblemsSpec
from interplay.tasks.facts import people
from interplay.tasks.facts.chains import Fact
from interplay.tasks.facts.people import draw_person, paths, world
from interplay.tasks.facts.questions import BIOS, question, sentence, sentences, step
from interplay.tasks.facts.spec import ATTRIBUTES, COMPOSITES, Bios
from interplay.tasks.families import multihop_item
from interplay.tasks.spec import Verify
from interplay.tasks.verdict import Row


@given(st.data())
def test_every_problem_is_solved_from_its_prompt_and_its_gold_solution_is_strictly_right(data: st.DataObject) -> None:
    task = data.draw(tasks())
    seed, index, op = data.draw(places(task))
    problem = BIOS.generate(task, seed, index, op)
    prompt, solution, answer = BIOS.render(problem, task)
    assert BIOS.solve(prompt, task) == answer == problem.answer
    verdict = BIOS.verify(problem, solution, Verify(extra_nodes="penalised"))
    assert (verdict.strict, verdict.answer, verdict.score, verdict.error, verdict.said) == (True, True, 1.0, "none", answer)
    assert (problem.op, problem.mode) == (op, task.level)
    assert BIOS.loads(BIOS.dumps(problem)) == problem == BIOS.generate(task, seed, index, op)


@given(st.data())
def test_a_chain_meets_nobody_twice_and_needs_the_context_as_its_level_says(data: st.DataObject) -> None:
    task = data.draw(tasks(but="reading"))
    problem = BIOS.generate(task, *data.draw(places(task)))
    met = [problem.hops[0].subject, *(hop.object for hop in problem.hops)]
    assert all(hop.object == after.subject for hop, after in zip(problem.hops, problem.hops[1:], strict=False))
    assert len(set(met)) == len(met)
    parametric = [hop.relation in task.weights() for hop in problem.hops]
    assert [hop not in problem.context for hop in problem.hops] == parametric
    assert not {fact.relation for fact in problem.context} & task.weights()
    expected = {"statement": {True}, "parametric": {True}, "contextual": {False}, "in_context": {False}, "by_heart": {True}}
    assert set(parametric) == expected.get(task.level, {True, False})


@given(st.data())
def test_the_context_says_one_thing_of_each_person_and_relation_and_keeps_people_together(data: st.DataObject) -> None:
    task = data.draw(tasks("in_context"))
    problem = BIOS.generate(task, *data.draw(places(task)))
    assert len({fact[:2] for fact in problem.context}) == len(problem.context)
    low, high = task.distractors
    assert low <= len(problem.context) - problem.op <= high
    subjects = [fact.subject for fact in problem.context]
    runs = [name for i, name in enumerate(subjects) if i == 0 or subjects[i - 1] != name]
    assert len(runs) == len(set(subjects))


@given(st.data(), st.sampled_from([0.0, 1.0]))
def test_reading_asks_as_often_as_there_are_facts_in_its_context_and_answers_in_turn(data: st.DataObject, zipf: float) -> None:
    task = data.draw(tasks("reading")).model_copy(update={"zipf": zipf})
    problem = BIOS.generate(task, *data.draw(places(task)))
    assert set(problem.hops) <= set(problem.context)
    assert len({fact[:2] for fact in problem.context}) == len(problem.context) == problem.op
    prompt, solution, answer = BIOS.render(problem, task)
    asked = prompt.removeprefix(" ".join(map(step, problem.context)))
    assert asked.count("?") == solution.count(".") == problem.op
    assert solution == " ".join(map(step, problem.hops)) + f" \\boxed{{{answer}}}"
    assert answer == problem.hops[-1].object
    assert BIOS.item(problem) is None


def test_half_of_the_contexts_of_reading_have_one_relation_and_questions_repeat() -> None:
    task = Bios(level="reading", parametric=0.0)
    problems = [BIOS.generate(task, 0, index, 6) for index in range(400)]
    one = sum(len({fact.relation for fact in problem.context}) == 1 for problem in problems)
    assert 160 <= one <= 240  # four deviations of 10
    asked = sum(len(set(problem.hops)) for problem in problems) / 400
    assert abs(asked - 6 * (1 - (5 / 6) ** 6)) < 0.15  # of 6 draws from 6


def test_zipf_draws_people_by_rank() -> None:
    people = tuple("abcd")
    draw = stream("a test")
    counts = Counter(draw_person(draw, people, 1.0) for _ in range(10_000))
    weights = {"a": 12 / 25, "b": 6 / 25, "c": 4 / 25, "d": 3 / 25}  # 1, 1/2, 1/3, 1/4 of 25/12
    assert all(abs(counts[name] / 10_000 - weight) < 0.02 for name, weight in weights.items())


@given(st.data())
def test_with_one_distractor_the_asked_relation_never_stands_alone_in_the_context(data: st.DataObject) -> None:
    task = data.draw(tasks("contextual")).model_copy(update={"distractors": (1, 4)})
    problem = BIOS.generate(task, *data.draw(places(task)))
    assert sum(fact.relation == problem.hops[-1].relation for fact in problem.context) >= 2


@pytest.mark.parametrize("distractors", [2, 4, 8])
def test_neither_much_said_of_a_person_nor_standing_apart_tells_which_fact_a_composite_needs(distractors: int) -> None:
    task = Bios(level="iid", distractors=(distractors, distractors))
    rules = {"most": 0.0, "fewest": 0.0, "no end": 0.0}
    expected = asked = 0.0
    for index in range(1500):
        problem = BIOS.generate(task, 0, index, 2)
        needed = problem.hops[-1]
        alike = [fact for fact in problem.context if fact.relation == needed.relation]
        if needed not in alike:
            continue
        said = Counter(fact.subject for fact in problem.context)
        ends = {fact.object for fact in problem.context}
        chosen = {
            "most": [fact for fact in alike if said[fact.subject] == max(said[other.subject] for other in alike)],
            "fewest": [fact for fact in alike if said[fact.subject] == min(said[other.subject] for other in alike)],
            "no end": [fact for fact in alike if fact.subject not in ends] or alike,
        }
        for rule, among in chosen.items():
            rules[rule] += (needed in among) / len(among)
        expected, asked = expected + 1 / len(alike), asked + 1
    assert asked > 700
    assert all(abs(right - expected) / asked < 0.06 for right in rules.values()), (rules, expected, asked)


@given(tasks("iid"), st.integers(2, 3))
def test_the_paths_of_the_three_levels_are_disjoint_whole_and_as_defined(task: Bios, hops: int) -> None:
    by_level = {level: set(paths(task, hops)[level]) for level in COMPOSITES}
    everything = set().union(*by_level.values())
    assert len(everything) == sum(map(len, by_level.values()))
    weights, unseen = task.weights(), set(task.unseen())
    links = [name for name in task.all_relations() if name not in ATTRIBUTES]
    tails = [(name,) for name in task.all_relations()]
    for _ in range(hops - 1):
        tails = [(first, *tail) for first in links for tail in tails]
    assert everything == {path for path in tails if len({name in weights for name in path}) == 2}
    assert by_level["zero_shot"] == {path for path in everything if unseen & set(path)}
    for place in range(hops):
        assert {p[place] for p in by_level["composition"]} <= {p[place] for p in by_level["iid"]}
    assert 1 <= len(by_level["composition"]) <= max(1, round(task.held_out * (len(everything) - len(by_level["zero_shot"]))))


def test_held_out_paths_are_as_many_as_asked_where_there_is_room() -> None:
    found = paths(Bios(relations=8, attributes=4, zero_shot=2, held_out=0.3), 2)
    # Parametric and contextual: 4 relations and 2 attributes each. Without zero_shot, 3 of each: 2 * 3 * (3 + 2) = 30 paths.
    assert {level: len(each) for level, each in found.items()} == {"iid": 21, "composition": 9, "zero_shot": 2 * 4 * 6 - 30}


def test_levels_ask_only_paths_of_their_own() -> None:
    for level in COMPOSITES:
        task = Bios(**SMALL, level=level)
        asked = {tuple(hop.relation for hop in BIOS.generate(task, 0, index, 2).hops) for index in range(400)}
        assert asked == set(paths(task, 2)[level])


def test_relations_of_zero_shot_stand_among_the_atoms_but_in_no_composite_of_training() -> None:
    unseen = set(Bios(**SMALL).unseen())
    assert len(unseen) == 2
    assert len(unseen & Bios(**SMALL).weights()) == 1

    def related(level: str, op: int) -> set[str]:
        task = Bios(**SMALL, level=level)
        return {hop.relation for index in range(300) for hop in BIOS.generate(task, 0, index, op).hops}

    assert unseen <= related("parametric", 1) | related("contextual", 1)
    assert not unseen & (related("iid", 2) | related("composition", 2))


def test_a_world_hangs_on_its_keys_and_not_on_level_surface_or_distractors() -> None:
    worlds = [world(Bios(**SMALL, level=level, surface=surface)) for level in LEVELS for surface in ("terse", "prose")]
    assert all(each == worlds[0] for each in worlds)
    assert world(Bios(**SMALL, world=1)).people != worlds[0].people
    one = worlds[0]
    names = [*one.people, *(value for values in one.values.values() for value in values)]
    assert len(set(names)) == len(names) == 12 + 2 * 4
    assert len(one.facts) == 12 * (3 + 1) == len(one.order)
    assert all(person != there for (person, _), there in one.facts.items())


def test_names_are_one_of_a_kind_also_where_there_are_many() -> None:
    many = world(Bios(people=5000, attributes=8, values=500))
    names = {*many.people, *(value for values in many.values.values() for value in values)}
    assert len(names) == 5000 + 8 * 500
    assert all(name.isalpha() and name.istitle() and len(name) == 6 for name in names)


@pytest.mark.parametrize("level", ["statement", "parametric"])
def test_every_parametric_fact_is_in_a_set_of_their_number_and_twice_in_one_of_twice_that(tmp_path: Path, level: str) -> None:
    task = Bios(**SMALL, level=level)
    facts = world(task).facts
    for times in (1, 2):
        for split in ("train", "test"):
            spec = ProblemsSpec(
                task=task, bands={"mem": {1: 1.0}}, shares={"mem": 1.0}, size=times * len(facts), split=split, seed=times
            )
            out = tmp_path / f"{level}{times}{split}"
            problems.generate_problems(spec, {}, out, Run())
            found = Counter(BIOS.loads(text).hops[0] for text in sets.read_table(out)["graph"].to_pylist())
            assert found == Counter({Fact(*about, there): times for about, there in facts.items()})


def test_splits_of_what_is_not_learnt_by_heart_share_no_key(tmp_path: Path) -> None:
    for level in ("contextual", "iid", "zero_shot", "in_context"):
        keys: dict[str, set[str]] = {}
        op = 2 if level != "contextual" else 1
        for split, own in SPLITS.items():
            spec = ProblemsSpec(task=Bios(level=level), bands={"b": {op: 1.0}}, shares={"b": 1.0}, size=60, split=split)
            problems.generate_problems(spec, {}, tmp_path / level / split, Run())
            keys[split] = set(sets.read_table(tmp_path / level / split)["key"].to_pylist())
            assert {int(key, 16) % 100 in own for key in keys[split]} == {True}
        assert len(set().union(*keys.values())) == sum(map(len, keys.values()))


def test_facts_and_questions_read_as_written_here() -> None:
    assert BIOS.render(CHAIN, Bios()) == (
        "Bea's boss is Cid. Bea's friend is Dov. Dov's boss is Ada. Who is the boss of the mother of Ada?\n",
        "Ada's mother is Bea. Bea's boss is Cid. \\boxed{Cid}",
        "Cid",
    )
    prose = CHAIN._replace(surface="prose", form=1)
    assert BIOS.render(prose, Bios()).prompt == (
        "The boss of Bea is Cid. Dov is the friend of Bea. Dov's boss is Ada. Who is the boss of the mother of Ada?\n"
    )
    assert BIOS.render(prose, Bios()).solution == BIOS.render(CHAIN, Bios()).solution
    reading = CHAIN._replace(mode="reading", hops=(CHAIN.context[2], CHAIN.context[1], Fact("Bea", "city", "Rome")))
    assert BIOS.render(reading, Bios()) == (
        "Bea's boss is Cid. Bea's friend is Dov. Dov's boss is Ada. "
        "Who is the boss of Dov? Who is the friend of Bea? What is the city of Bea?\n",
        "Dov's boss is Ada. Bea's friend is Dov. Bea's city is Rome. \\boxed{Rome}",
        "Rome",
    )
    city = CHAIN._replace(hops=(Fact("Ada", "city", "Rome"),), context=())
    assert question(city) == "What is the city of Ada?"
    stub = city._replace(mode="statement")
    assert BIOS.render(stub, Bios()) == ("Ada's city is ", "Rome.", "Rome")
    assert [BIOS.render(stub._replace(surface="prose", form=form), Bios()).prompt for form in (1, 2)] == [
        "The city of Ada is ",
        "Ada's city is ",
    ]


@given(st.lists(st.tuples(st.sampled_from(["Ada", "Bea", "Cid"]), st.sampled_from(["boss", "city"]), st.just("Dov"))))
def test_sentences_of_every_form_are_read_back(facts: list[tuple[str, str, str]]) -> None:
    given_facts = [Fact(*fact) for fact in facts]
    for form in range(3):
        text = " ".join(sentence(fact, "prose", form + number) for number, fact in enumerate(given_facts))
        assert sentences(text) == given_facts
        assert sentences(text + " And so on.") is None


def test_a_solver_is_not_misled_by_a_prompt_that_says_two_things_or_too_little() -> None:
    with pytest.raises(ValueError, match="contradicts itself"):
        BIOS.solve("Ada's boss is Bea. Ada's boss is Cid. Who is the boss of Ada?\n", Bios())
    with pytest.raises(ValueError, match="no fact about 'boss' of Ada"):
        BIOS.solve("Bea's boss is Cid. Who is the boss of Ada?\n", Bios())
    with pytest.raises(ValueError, match="not a prompt"):
        BIOS.solve("Why?\n", Bios())


def test_an_item_has_a_document_for_each_person_and_points_at_the_facts_that_the_answer_needs() -> None:
    whole = CHAIN._replace(mode="in_context", context=(*CHAIN.context, CHAIN.hops[0]))
    item = BIOS.item(whole)
    assert item is not None
    assert [(p.title, p.sentences) for p in item.paragraphs] == [
        ("Bea", ("Bea's boss is Cid.", "Bea's friend is Dov.")),
        ("Dov", ("Dov's boss is Ada.",)),
        ("Ada", ("Ada's mother is Bea.",)),
    ]
    assert item.supporting == ((2, 0), (0, 0))
    assert (item.question, item.answers, item.hops) == ("Who is the boss of the mother of Ada?", ("Cid",), 2)
    assert item.steps == ("Ada's mother is Bea.", "Bea's boss is Cid.")
    assert BIOS.item(CHAIN) is None
    assert BIOS.item(whole._replace(form=1, surface="prose")) != item


def test_rows_of_facts_in_the_context_are_items_and_those_of_facts_by_heart_are_not(tmp_path: Path) -> None:
    for level, op, there in (("in_context", 2, True), ("contextual", 1, True), ("iid", 2, False), ("parametric", 1, False)):
        spec = ProblemsSpec(task=Bios(level=level), bands={"b": {op: 1.0}}, shares={"b": 1.0}, size=20, split="train")
        problems.generate_problems(spec, {}, tmp_path / level, Run())
        rows = [Row(set=0, **{**row, "transforms": ()}) for row in sets.read_table(tmp_path / level).to_pylist()]
        items = [multihop_item(row) for row in rows]
        assert {item is not None for item in items} == {there}
        assert len({item.id for item in items if item}) == (20 if there else 0)


def test_a_key_ignores_order_wording_and_the_names_in_the_context_alone() -> None:
    swapped = {"Bea": "Dov", "Dov": "Bea", "Ada": "Cid", "Cid": "Ada"}

    def renamed(fact: Fact) -> Fact:
        return Fact(swapped[fact.subject], fact.relation, swapped[fact.object])

    other = LOOKUP._replace(
        hops=tuple(map(renamed, LOOKUP.hops)), context=tuple(map(renamed, LOOKUP.context[::-1])), surface="prose", form=2
    )
    assert BIOS.structure(other) == BIOS.structure(LOOKUP)
    assert BIOS.structure(LOOKUP._replace(hops=(LOOKUP.context[0],))) == BIOS.structure(LOOKUP)
    assert BIOS.structure(LOOKUP._replace(context=(LOOKUP.hops[0],))) != BIOS.structure(LOOKUP)


def test_a_key_keeps_the_names_of_parametric_facts() -> None:
    def renamed(problem: people.Problem, old: str, new: str) -> people.Problem:
        def change(fact: Fact) -> Fact:
            return Fact(*(new if part == old else part for part in fact))

        return problem._replace(hops=tuple(map(change, problem.hops)), context=tuple(map(change, problem.context)))

    assert BIOS.structure(renamed(CHAIN, "Cid", "Eli")) == BIOS.structure(CHAIN)
    assert BIOS.structure(renamed(CHAIN, "Dov", "Eli")) == BIOS.structure(CHAIN)
    assert BIOS.structure(renamed(CHAIN, "Ada", "Eli")) != BIOS.structure(CHAIN)
    assert BIOS.structure(renamed(CHAIN, "Bea", "Eli")) != BIOS.structure(CHAIN)
    fact = CHAIN._replace(mode="parametric", hops=CHAIN.hops[:1], context=())
    assert BIOS.structure(fact) != BIOS.structure(fact._replace(mode="statement"))
    assert (BIOS.shared(fact), BIOS.shared(fact._replace(mode="statement")), BIOS.shared(CHAIN)) == (True, True, False)


@given(st.data())
def test_the_vocabulary_cuts_every_text_of_a_task_into_a_few_tokens_and_names_are_one(data: st.DataObject) -> None:
    task = data.draw(tasks())
    problem = BIOS.generate(task, *data.draw(places(task)))
    prompt, solution, _ = BIOS.render(problem, task)
    words = tokenizer.word_tokenizer(BIOS.vocabulary(task))
    ids, lengths = tokenizer.encode_all(words, [prompt, solution])
    assert words.decode(ids.tolist()) == prompt + solution
    assert set(prompt + solution) <= set(BIOS.alphabet(task))
    if task.level == "statement":
        assert lengths.tolist() in ([2, 2], [3, 2])
    elif task.surface == "terse":
        asked = 4 * problem.op if task.level == "reading" else problem.op + 3
        assert lengths.tolist() == [4 * len(problem.context) + asked, 4 * problem.op + 3]


def test_another_process_makes_the_same_problems() -> None:
    code = (
        "from interplay.tasks.facts.spec import Bios\nfrom interplay.tasks.facts.questions import BIOS\n"
        "for level, op in (('iid', 2), ('in_context', 3), ('parametric', 1)):\n"
        "    task = Bios(level=level, world=3)\n"
        "    problem = BIOS.generate(task, 1, 7, op)\n"
        "    print(BIOS.dumps(problem), BIOS.structure(problem))\n"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        )
        for seed in ("1", "2")
    ]
    assert runs[0].stdout == runs[1].stdout
    task = Bios(level="iid", world=3)
    assert runs[0].stdout.startswith(BIOS.dumps(BIOS.generate(task, 1, 7, 2)))


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"relations": 17}, "task.relations = 17: should be less than or equal to 16"),
        ({"people": 5}, "task.people = 5: should be greater than or equal to 10"),
        ({"distractors": [4, 2]}, "low <= high"),
        ({"parametric": 0.0}, "raise parametric"),
        ({"parametric": 1.0}, "lower parametric"),
        ({"relations": 2, "zero_shot": 2}, "outside zero_shot; lower zero_shot"),
        ({"level": "zero_shot", "zero_shot": 0}, "give their number"),
        ({"level": "composition", "held_out": 0.0}, "needs held_out"),
        ({"level": "composition", "relations": 5}, "two relations of each sort"),
        ({"level": "in_context", "relations": 1, "parametric": 1.0, "attributes": 0}, "lower parametric"),
        ({"level": "by_heart", "relations": 1, "parametric": 0.5}, "raise parametric"),
        ({"distractors": [0, 10000]}, "fewer than the possible contextual facts"),
    ],
)
def test_a_task_that_cannot_be_is_refused_in_one_line(keys: dict, says: str) -> None:
    with pytest.raises(UserError, match=says) as error:
        parse_model(Bios, {"name": "bios", **keys}, KeyPlace("study.yaml", ("task",)))
    assert "\n" not in str(error.value)


def test_more_people_than_there_are_names_are_refused() -> None:
    with pytest.raises(UserError, match="people and values take 400080 names; there are 250000"):
        parse_model(Bios, {"people": 400_000, "attributes": 4, "values": 20}, KeyPlace("task"))


def test_more_hops_than_a_level_has_are_refused() -> None:
    with pytest.raises(UserError, match=r"op 2 lies outside 1\.\.1"):
        BIOS.generate(Bios(level="contextual"), 0, 0, 2)
    with pytest.raises(UserError, match=r"op 7 lies outside 1\.\.6"):  # half of 12 people
        BIOS.generate(Bios(level="reading", people=12, relations=6, attributes=6), 0, 0, 7)
