"""Self-consistency (S-6.2, AC-6.2.7): pairs of messages of now and before, from comparable contexts, the persona withheld."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from pytest_django import Settings

from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.execute import run_json
from evaluation.scorers.foils import load_foils
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judging import claims_of, entry, prompt_of
from tests.evaluation.measuring import evaluate_agent
from tests.evaluation.pairing import before_and_now, consistency, pairs
from tests.factories import MONDAY, make_agent, make_channel, say, speaking, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


PERSONA = "You are Ada, keeper of the stamp drawer, and you say so."


def test_messages_of_now_are_paired_with_those_before_ac_6_2_1(llm_server: LLMServer, one_claim: object) -> None:
    ada = make_agent("ada")
    before_and_now(ada, ["The stamps are locked.", "Lunch is at noon."], ["The stamps stay locked.", "Lunch was late."])

    consistency(ada)

    assert pairs() == [
        ("The stamps stay locked.", "The stamps are locked."),
        ("Lunch was late.", "Lunch is at noon."),
    ]


def test_only_messages_of_one_channel_are_compared_ac_6_2_2(llm_server: LLMServer, one_claim: object) -> None:
    ada, office, attic = make_agent("ada"), make_channel("office"), make_channel("attic")
    before_and_now(ada, ["The stamps are locked."], ["The raccoon is back."], office)
    before_and_now(ada, ["The raccoon has gone."], ["The stamps stay locked."], attic)
    before_and_now(ada, [], ["Nobody was here before."], make_channel("cellar"))

    consistency(ada)

    rows = EvaluationScore.objects.select_related("message", "compared_with")
    assert len(rows) == 2
    for row in rows:
        assert row.message is not None
        assert row.compared_with is not None
        assert row.message.channel_id == row.compared_with.channel_id


def test_at_most_ten_pairs_are_drawn_with_the_seed_ac_6_2_3(llm_server: LLMServer, one_claim: object) -> None:
    ada = make_agent("ada")
    before_and_now(ada, [f"before {n}" for n in range(15)], [f"now {n}" for n in range(15)])

    found = consistency(ada)
    first = pairs()
    EvaluationRun.objects.all().delete()
    consistency(ada)
    again = pairs()
    EvaluationRun.objects.all().delete()
    consistency(ada, seed=7)

    assert (found.scored, len(first)) == (10, 10)
    assert len({now for now, _ in first}) == len({before for _, before in first}) == 10, "no message is used twice"
    assert again == first
    assert pairs() != first


def test_the_judge_compares_two_messages_and_never_sees_the_persona_ac_6_2_4(llm_server: LLMServer) -> None:
    ada, bob, office = make_agent("ada", system_prompt=PERSONA), make_agent("bob"), make_channel()
    say(office, bob, "Who has the key?", sent_at=MONDAY - timedelta(hours=1))
    before_and_now(ada, ["The key is in the drawer."], ["yo the key is gone lol"], office)

    consistency(ada)

    (body,) = llm_server.bodies
    prompt = prompt_of(body)
    assert "stamp drawer" not in json.dumps(llm_server.bodies)
    earlier, later = prompt.index("<<<EARLIER"), prompt.index("<<<LATER")
    assert (
        earlier < prompt.index("--> Ada: Bob says: Who has the key?") < prompt.index("The key is in the drawer") < later
    )
    assert "Ada acts: yo the key is gone lol" in prompt[later:]
    assert "only whether it stays the same" in prompt
    assert len(claims_of(body)) == 4


def test_both_messages_of_a_pair_are_read_to_their_ends_ac_6_2_4(llm_server: LLMServer, one_claim: object) -> None:
    ada = make_agent("ada")
    before_and_now(ada, ["On and on. " * 500 + "Yours, Ada."], ["And so on. " * 500 + "lol bye"])

    consistency(ada)

    (body,) = llm_server.bodies
    assert all(end in prompt_of(body) for end in ("Yours, Ada.", "lol bye"))


def test_the_score_is_the_mean_over_pairs_and_each_pair_is_stored_ac_6_2_5_ac_6_2_7(
    llm_server: LLMServer, one_claim: object
) -> None:
    llm_server.respond = lambda body: {
        "json": entry(2 if "lol shut\n<<<END" in prompt_of(body) else 8, reasoning="compared")
    }
    ada = make_agent("ada")
    before_and_now(ada, ["It is shut.", "It is open."], ["lol shut", "It is open now."])

    found = consistency(ada)

    assert found.score == 5.0
    rows = {row.message.text: row for row in EvaluationScore.objects.all() if row.message}
    assert {text: (row.score, row.reasoning) for text, row in rows.items()} == {
        "lol shut": (2, "compared"),
        "It is open now.": (8, "compared"),
    }
    assert rows["lol shut"].compared_with is not None
    assert rows["lol shut"].compared_with.text == "It is shut."
    assert rows["lol shut"].context_snippet == "lol shut"


def test_a_past_elsewhere_is_not_comparable_ac_6_2_6(llm_server: LLMServer, one_claim: object) -> None:
    ada = make_agent("ada")
    before_and_now(ada, ["Yes."], [], make_channel("one"))
    before_and_now(ada, [], ["No."], make_channel("two"))

    found = consistency(ada)

    assert (found.score, found.unscored) == (None, 1)
    assert "no channel has messages of the agent both" in EvaluationScore.objects.get().reason


@pytest.mark.parametrize("repeats", [1, 2])
def test_the_summary_says_why_a_dimension_is_not_evaluable_ac_6_2_6(
    llm_server: LLMServer, one_claim: object, repeats: int
) -> None:
    ada = make_agent("ada")
    talk(ada, ["First."], tags={"build": "41"})

    found = evaluate_agent(agent=ada, dimensions=("consistency",), where={"build": "41"}, repeats=repeats)

    dimension = run_json(found)["dimensions"]["consistency"]
    assert dimension["score"] is None
    assert "said nothing before this window" in dimension["reason"]
    assert llm_server.calls == 0


def test_the_cold_start_of_one_dimension_leaves_the_others_alone_ac_6_2_6(
    llm_server: LLMServer, one_claim: PropositionFolder
) -> None:
    one_claim.claims("adherence/_default.yaml", "voice")
    llm_server.always(json=entry(6))
    ada = speaking("ada", ["Only one."])

    found = evaluate_agent(agent=ada, dimensions=("adherence", "consistency"))

    assert (found.overall_score, found.dimensions["consistency"].score) == (6.0, None)


# -- offline (S-6.2, demo)
STEADY = [f"I have counted the {thing}. It is complete. Nobody is to move it." for thing in ("stamps", "coins", "keys")]
EARLIER = [f"I have counted the {n} forms. They are in order, and nobody is to move them." for n in range(10)]
LOUD = [f"omg you guys {n} is my FAVOURITE number!!! like, ever!!!" for n in range(10)]
DRY = [f"{n}, if memory serves; I would not swear to it, though, before lunch." for n in range(10)]


@pytest.mark.parametrize(
    ("earlier", "others", "reason"),
    [
        (EARLIER[:9], (LOUD, DRY), "at least 10 earlier messages, there are 9"),
        (EARLIER, (EARLIER, EARLIER), "cannot be distinguished from those of 2 other agents"),
        (EARLIER, (LOUD[:4], DRY[:4]), "here nobody has so many"),
        (EARLIER, (), "here nobody has so many"),
    ],
)
def test_offline_a_voice_needs_a_past_and_others_that_speak_otherwise(
    settings: Settings, earlier: list[str], others: tuple[list[str], ...], reason: str
) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"
    office = make_channel()
    for slug, texts in zip(("bob", "cyd"), others, strict=False):
        before_and_now(make_agent(slug), texts, [], office)
    ada = make_agent("ada")
    before_and_now(ada, earlier, STEADY, office)

    assert consistency(ada).score is None
    assert reason in EvaluationScore.objects.filter(proposition_id="consistency-manner-of-writing")[0].reason


@pytest.mark.parametrize(("now", "low", "high"), [(EARLIER[:8], 7, 9), (LOUD[:8], 0, 1), (DRY[:8], 0, 2)])
def test_offline_own_words_are_told_from_swapped_ones(
    settings: Settings, now: list[str], low: float, high: float
) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"
    office = make_channel()
    for slug, texts in (("bob", LOUD), ("cyd", DRY)):
        before_and_now(make_agent(slug), texts, [], office)
    ada = make_agent("ada")
    before_and_now(ada, EARLIER, now, office)

    score = consistency(ada).score

    assert score is not None
    assert low <= score <= high


def test_offline_outsiders_are_voices_that_an_agent_is_told_from(settings: Settings) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"
    scores = {}
    for slug, now in (("steady", EARLIER[:8]), ("loud", LOUD[:8]), ("assistant", list(load_foils()["assistant"][:8]))):
        ada, office = make_agent(slug), make_channel(slug)
        for outsider, texts in (("Zoe", LOUD), ("Yan", DRY)):
            for minute, text in enumerate(texts):
                say(office, outsider, text, sent_at=MONDAY - timedelta(hours=2, minutes=minute))
        before_and_now(ada, EARLIER, now, office)
        scores[slug] = consistency(ada).score

    assert scores["steady"] is not None
    assert scores["steady"] > 7
    assert all(score is not None and score < 2 for slug, score in scores.items() if slug != "steady")
    assert "2 outsiders and 4 stock voices" in EvaluationScore.objects.filter(status="scored")[0].reasoning


def test_offline_one_outsider_is_no_contrast_and_the_summary_says_why(settings: Settings) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"
    ada, office = make_agent("ada"), make_channel()
    for minute, text in enumerate(LOUD):
        say(office, "Zoe", text, sent_at=MONDAY - timedelta(hours=2, minutes=minute))
    before_and_now(ada, EARLIER, EARLIER[:8], office)

    found = consistency(ada)

    assert (found.score, found.scored) == (None, 0)
    assert "here only 1 outsider has so many" in found.reason


def test_what_is_computed_without_reading_is_in_no_overall_score(
    settings: Settings, propositions: PropositionFolder
) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"
    cues = "include_personas: true, cues: {supports: [Nobody], contradicts: [omg]}"
    propositions.claims("adherence/_default.yaml", "polite", extra=cues)
    propositions.claims("consistency/_default.yaml", "voice", extra="include_personas: false, measure: voice")
    office = make_channel()
    for slug, texts in (("bob", LOUD), ("cyd", DRY)):
        before_and_now(make_agent(slug), texts, [], office)
    ada = make_agent("ada")
    before_and_now(ada, EARLIER, EARLIER[:8], office)

    summary = evaluate_agent(agent=ada, dimensions=("adherence", "consistency"), where={"build": "41"})

    assert (summary.dimensions["adherence"].score, summary.dimensions["consistency"].score) == (8.0, 9.0)
    assert summary.overall_score == 8.0
