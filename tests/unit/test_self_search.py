"""Search in one's own memory (SSRL): what a completion that writes both sides is worth, what it earns, which of its tokens are learnt
from, and the real dictionary in the place of the written one."""

import pytest
import torch
import turn_cases as cases
from bios_cases import SMALL
from pydantic import ValidationError
from rl_cases import batch_of, now_of

from interplay.data.trajectory import transcript_of
from interplay.rl.edits import edits_after_advantage
from interplay.rl.reward_spec import FormatReward
from interplay.rl.rewards import score_completions
from interplay.rl.spec import RLSpec
from interplay.rollout.episodes import play_episodes
from interplay.rollout.spec import EnvironmentEpisode
from interplay.tasks.environments.spec import SelfSearch
from interplay.tasks.environments.tools import SELF_SEARCH
from interplay.tasks.facts.chains import Fact
from interplay.tasks.facts.people import Problem, world
from interplay.tasks.facts.questions import BIOS
from interplay.tasks.facts.spec import Bios
from interplay.tasks.spec import Verify
from interplay.tasks.transcripts import MARK
from interplay.tasks.verdict import Verdict

TASK = SelfSearch(bios=Bios(**SMALL, level="by_heart"))
BOSS, CITY, OTHER = Fact("Ada", "boss", "Bea"), Fact("Bea", "city", "Rom"), Fact("Ada", "city", "Ulm")
PROBLEM = Problem("by_heart", "terse", 0, (BOSS, CITY), (BOSS, OTHER, CITY))
"""What is the city of the boss of Ada?"""
GOLD = "look(Ada)Ada's boss is Bea. Ada's city is Ulm.\nlook(Bea)Bea's city is Rom.\n\\boxed{Rom}"


def verdict(text: str) -> Verdict:
    return SELF_SEARCH.verify(PROBLEM, text, Verify())


def test_the_gold_is_an_episode_of_look_ups_as_one_text() -> None:
    prompt, solution, answer = SELF_SEARCH.render(PROBLEM, TASK)
    assert (prompt, solution, answer) == ("What is the city of the boss of Ada?\n", GOLD, "Rom")


def test_the_dictionary_holds_all_that_is_known_of_those_on_the_way_and_a_look_up_finds_it() -> None:
    facts = world(TASK.bios).facts
    for index in range(20):
        problem = SELF_SEARCH.generate(TASK, 0, index, 2)
        people = {hop.subject for hop in problem.hops}
        assert {fact[:2]: fact.object for fact in problem.context} == {key: facts[key] for key in facts if key[0] in people}
        assert set(problem.hops) <= set(problem.context)
        bare = BIOS.generate(TASK.bios, 0, index, 2)
        assert (bare.hops, bare.context) == (problem.hops, ())
        assert SELF_SEARCH.structure(problem) != BIOS.structure(bare)


def test_facts_by_heart_keep_their_names_in_the_key() -> None:
    """Two chains over other facts are other questions, even where renaming makes them one."""
    found = {SELF_SEARCH.generate(TASK, 0, index, 2).hops for index in range(200)}
    keys = {SELF_SEARCH.structure(SELF_SEARCH.generate(TASK, 0, index, 2)) for index in range(200)}
    assert len(keys) == len(found) > 40


@pytest.mark.parametrize(
    ("text", "error", "answer"),
    [
        (GOLD, "none", True),
        (GOLD.replace(")", f"){MARK}").replace("\n", f"\n{MARK}"), "none", True),
        ("look(Ada)Ada's boss is Bea.\nlook(Bea)Bea's city is Rom.\n\\boxed{Rom}", "none", True),
        ("look(Ada)Ada's boss is Bea.\nlook(Eve)nothing\nlook(Bea)Bea's city is Rom.\n\\boxed{Rom}", "none", True),
        ("look(Ada)Ada's boss is Cid.\nlook(Bea)Bea's city is Rom.\n\\boxed{Rom}", "wrong_hop", True),
        ("look(Ada)Ada's city is Ulm.\nlook(Bea)Bea's city is Rom.\n\\boxed{Rom}", "missing_hop", True),
        (GOLD.replace("Rom}", "Ulm}"), "answer", False),
        ("Ada's boss is Bea. Bea's city is Rom.\n\\boxed{Rom}", "format", True),
        ("look(Ada)\nlook(Bea)Bea's city is Rom.\n\\boxed{Rom}", "format", True),
        ("\\boxed{Rom}", "format", True),
        (GOLD + "\\boxed{Rom}", "format", True),
        ("look(Ada)Ada's boss is Bea.\n", "truncated", False),
    ],
)
def test_verdicts_worked_by_hand(text: str, error: str, answer: bool) -> None:
    found = verdict(text)
    assert (found.error, found.answer, found.strict) == (error, answer, error == "none")


def test_a_reward_is_the_outcome_and_a_little_for_the_form_by_hand() -> None:
    texts = [GOLD, "\\boxed{Rom}", GOLD.replace("Rom}", "Ulm}"), "\\boxed{Ulm}"]
    found = score_completions(FormatReward(weight=0.2), [None] * 4, texts, [verdict(text) for text in texts])
    assert found.sequence == pytest.approx([1.0, 0.8, 0.2, 0.0])
    assert found.parts == {"outcome": [1.0, 1.0, 0.0, 0.0], "form": [1.0, 0.0, 1.0, 0.0]}


def test_what_is_written_as_found_bears_no_loss_by_hand() -> None:
    """A token a character, an end token behind them; the second row breaks off in what it finds."""
    texts = ["look(A)xy\nlook(B)z\n!", "look(A)xy"]
    lengths = [len(text) + 1 for text in texts]
    batch = batch_of([1.0, 0.0], [0, 0], lengths, completions=texts)
    now = now_of(edits=[{"name": "information_mask"}], offsets=lambda tokens, text: list(range(len(tokens))))
    kept, advantage, bears = edits_after_advantage(batch, torch.ones(batch.tokens.shape), batch.mask(), now)
    read = ["".join(c for c, bear in zip(f"{text}$", row, strict=False) if bear) for text, row in zip(texts, bears, strict=True)]
    assert read == ["look(A)look(B)!$", "look(A)$"]
    assert (kept.row.tolist(), float(advantage.min())) == ([0, 1], 1.0)
    open_end = batch_of([1.0], [0], [7], completions=["<i>bc\n"])
    now = now_of(edits=[{"name": "information_mask", "begin": "<i>", "end": "</i>"}], offsets=now.offsets)
    bears = edits_after_advantage(open_end, torch.ones(1, 7), open_end.mask(), now)[2]
    assert bears[0].tolist() == [True] * 3 + [False] * 3 + [True], "the end of a line in it, too"


# --- the real dictionary ---


def says(text: str, sample: int) -> str:
    """Writes its own findings, all of them wrong, up to an answer, in one go."""
    told = text.partition("?\n")[2]
    if "Rom" in told:
        return "\\boxed{Rom}$"
    return ("look(Bea)Bea's city is Ulm.\n" if "Bea" in told else "look(Ada)Ada's boss is Cid.\nlook(Cid)") + "\\boxed{Ulm}$"


def test_the_real_dictionary_takes_over_where_a_look_up_ends() -> None:
    row = cases.row(SELF_SEARCH.render(PROBLEM, TASK).prompt, "Rom", "self_search", SELF_SEARCH.dumps(PROBLEM))
    given = cases.setting(says, [row])._replace(
        problem=lambda row: SELF_SEARCH.loads(row.graph), verify=lambda row, text: verdict(text)
    )
    real = play_episodes(EnvironmentEpisode(stop=")"), given, cases.asked([row], 2))
    assert [transcript_of(one) for one in real.segments or ()] == [GOLD.replace(")", f"){MARK}").replace("\n", f"\n{MARK}")] * 2
    assert real.turns is not None
    assert [turn.verdict for turn in real.turns[0]][-1] == verdict(GOLD)
    assert not real.rollouts.truncated.any()
    own = play_episodes(EnvironmentEpisode(), given, cases.asked([row]))
    assert [transcript_of(one) for one in own.segments or ()] == ["look(Ada)Ada's boss is Cid.\nlook(Cid)\\boxed{Ulm}"], (
        "nobody stops it"
    )
    tokens = real.rollouts.tokens[0, : int(real.rollouts.lengths[0])].tolist()
    assert "".join(map(chr, tokens)) == f"{GOLD}$", "no end token stands in the context"
    assert real.observed is not None
    written = "".join(chr(token) for token, read in zip(tokens, real.observed[0].tolist(), strict=False) if not read)
    assert written == "look(Ada)look(Bea)\\boxed{Rom}$"


def test_a_turn_that_stops_at_the_limit_is_not_cut() -> None:
    row = cases.row("q?\n", "Rom", "self_search", SELF_SEARCH.dumps(PROBLEM))
    given = cases.setting(lambda text, sample: "look(Ada)" if "Ada" not in text else "$", [row])
    found = play_episodes(
        EnvironmentEpisode(stop=")", max_turns=2), given._replace(problem=lambda row: PROBLEM), cases.asked([row])
    )
    assert found.turns is not None
    assert len(found.turns[0]) == 2


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(ValidationError, match="must be by_heart"):
        SelfSearch(bios=Bios(level="in_context"))
    method = {"paper": "p", "episode": {"name": "environment"}, "edits": [{"name": "information_mask"}]}
    with pytest.raises(ValidationError, match=r"information_mask does not go with method.episode = environment"):
        RLSpec.model_validate({"method": method, "mix": [1.0], "steps": 1, "reward": {"name": "format"}})
    begun = {"paper": "p", "prompting": {"name": "prefix"}, "edits": [{"name": "information_mask"}]}
    with pytest.raises(ValidationError, match=r"information_mask does not go with method.prompting = prefix"):
        RLSpec.model_validate({"method": begun, "mix": [1.0], "steps": 1, "reward": {"name": "format"}})
