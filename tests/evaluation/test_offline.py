"""The offline judge answers only what it can see, and says *unscored* to the rest."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from agents.kit.models import LLMCall
from agents.kit.text.ngrams import ngrams_of, typical_recurrence
from agents.swarm.guards import agent_rules, refusal
from evaluation.judge.asking import score_proposition
from evaluation.judge.offline import check_draft
from evaluation.judge.verdicts import Verdict
from evaluation.propositions.rules import GUARDED
from evaluation.propositions.schema import Cues
from evaluation.scorers.context import Context, Event, Window
from evaluation.scorers.fluency import repetition_value
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.drafting.proposing import make_ada
from tests.evaluation.judging import LABEL, claim

pytestmark = pytest.mark.django_db
CUES = Cues(supports=["beet", "/farm(er)?s?/"], contradicts=["tofu"])


@pytest.mark.parametrize("guard", GUARDED)
def test_each_guard_judges_a_draft_at_the_gate(guard: str, propositions: PropositionFolder) -> None:
    propositions.write(
        "adherence/_default.action.yaml",
        f"""
        dimension: adherence
        level: action
        propositions:
          - {{id: only, claim: "{{{{agent_name}}}} makes nothing up", rule: {{only: {{{guard}: "It is here and it is for us."}}}}}}
        """,
    )
    made_up = {
        "form": '{"text": "It is here."}',
        "language": "Das ist hier und nicht für uns.",
        "words": "Refunds arrive tomorrow.",
        "modality": "It must be here.",
        "limits": "It is only here.",
        "names": "It is here, says Oscar.",
    }
    draft = made_up.get(guard, 'It is not "free": pay 5 euros today at www.example.com with `--now`.')

    def score(text: str) -> int | None:
        [(_, verdict)] = check_draft(agent_slug="ada", text=text, channel_kind="dm", is_reply=False, cues=False)
        return verdict.value

    assert (score("It is here for us."), score(draft)) == (9, 0)


def test_a_polish_keeps_the_rules_that_the_draft_keeps(propositions: PropositionFolder) -> None:
    propositions.write(
        "adherence/ada.yaml",
        """
        dimension: adherence
        agent_id: ada
        propositions:
          - {id: calm, claim: "{{agent_name}} is calm", rule: {contains_none: ["!"]}}
          - {id: often, claim: "{{agent_name}} often says ahoy", rule: {contains_any: [ahoy]}, of_ten: 5}
          - {id: loud, claim: "{{agent_name}} shouts", inverted: true, rule: {matches: shout}}
          - {id: asks, claim: "{{agent_name}} asks briefly", precondition: asks_something, rule: {max_words: 4}}
        """,
    )
    rules = agent_rules(make_ada())
    cases = {"It is hot.": "", "It is hot!": "rules", "I shout it.": "rules", "Is it not so hot today?": "rules"}

    assert {text: all(rule(text) for rule in rules) for text in cases} == {text: not why for text, why in cases.items()}
    assert "rule" in refusal("It is hot.", "It is hot!", rules=rules)
    assert refusal("It is hot!", "It is hot!!", rules=rules) == ""


@pytest.fixture(autouse=True)
def _offline(settings: Settings) -> None:
    settings.JUDGE_MODEL, settings.JUDGE_BASE_URL = "offline:lexical-1", "http://127.0.0.1:9"


def said(*texts: str) -> Context:
    return Context(
        agent_name="Ada", window=Window(tuple(Event("action", "Ada", t) for t in texts), 0, ()), own_messages=True
    )


def about(text: str) -> Context:
    """One message judged; the cue words around it are other people's."""
    around = Window((Event("stimulus", "Ada", "Tofu! Beet!", speaker="Bob"),), 0, ())
    return Context(agent_name="Ada", window=around, message=Event("action", "Ada", text))


def verdict(context: Context, **fields: Any) -> Verdict:
    return score_proposition(proposition=claim(**fields), context=context, label=LABEL)


# -- cues
@pytest.mark.parametrize(
    ("text", "value"),
    [("My BEET harvest is in.", 8), ("farmers know", 8), ("Tofu again.", 1), ("Tofu from the farm?", 4)],
)
def test_cues_for_and_against_a_claim_decide(text: str, value: int) -> None:
    result = verdict(about(text), cues=CUES)

    assert (result.status, result.value, result.raw_value) == ("scored", value, value)
    assert (result.judge, result.served_model) == ("offline:lexical-1", "offline:lexical-1")
    assert "Cues found" in result.reasoning


@pytest.mark.parametrize(
    ("text", "fields", "reason"),
    [
        ("Good morning.", {"cues": CUES}, "none of the claim's cues occurs in the text"),  # though one occurs around it
        ("Beet beet beet", {}, "the claim lists no cues"),
        ("beet", {"cues": CUES, "hard": True}, "hard mode takes off for every flaw"),
    ],
)
def test_without_a_cue_in_the_text_it_does_not_guess(text: str, fields: dict[str, Any], reason: str) -> None:
    result = verdict(about(text), **fields)

    assert (result.status, result.value) == ("unscored", None)
    assert result.reason.startswith(f"needs an LLM judge: {reason}")


def test_cues_are_of_the_claim_as_written_and_inverted_ones_flip() -> None:
    result = verdict(about("tofu"), cues=Cues(supports=["tofu"]), inverted=True)

    assert (result.value, result.raw_value) == (1, 8)


def test_it_costs_nothing_and_stands_in_the_ledger_all_the_same() -> None:
    result = verdict(about("beet"), cues=CUES)

    call = LLMCall.objects.get()
    assert (result.call, call.provider, call.cost_usd, call.attempts) == (call.pk, "offline", Decimal(0), 0)


# -- repetition
def repetition(*texts: str) -> Verdict:
    return verdict(said(*texts), measure="repetition", include_personas=False)


SAME_THOUGHT = (
    "We ought to start the meeting later.",
    "Mornings are too early for this get-together.",
    "Could everybody gather after lunch instead?",
    "Let us not assemble before noon.",
)
SALAD = ("paper green seven the", "of lamp quickly moon", "river did blue ten", "under cake an slow")


@pytest.mark.parametrize("texts", [SAME_THOUGHT, SALAD, ("Toast again.", "Who moved my chair?", "I fed the geese")])
def test_n_grams_say_nothing_of_messages_that_repeat_no_words(texts: Sequence[str]) -> None:
    result = repetition(*texts)

    assert (result.status, result.value) == ("unscored", None)
    assert "needs an LLM judge" in result.reason


@pytest.mark.parametrize("texts", [(), ("only one",)])
def test_repetition_shows_only_across_messages(texts: Sequence[str]) -> None:
    result = repetition(*texts)

    assert result.status == "unscored"
    assert result.reason.endswith(f"has {len(texts)}")


def test_the_more_copies_the_lower_the_score() -> None:
    different = [
        "The geese are fed and the barn is locked.",
        "Nobody signs for parcels on my watch.",
        "Paper cuts are a matter of discipline.",
        "Quarter closes tomorrow, bring your figures.",
        "I have seen owls do better accounting.",
        "Lunch is at noon, not one minute later.",
    ]
    values = [repetition(*different[: 6 - n], *[different[0]] * n).value for n in range(6)]
    scored = [value for value in values if value is not None]

    assert values[0] is None, "nothing is repeated: nothing is proven"
    assert scored == sorted(scored, reverse=True)
    assert max(scored) <= 4
    assert values[-1] == 0


shares = st.floats(0, 1)


@given(shares, shares)
def test_more_recurring_words_never_raise_the_score(a: float, b: float) -> None:
    few, many = sorted((a, b))

    assert 0 <= repetition_value(many) <= repetition_value(few) <= 9


@given(st.lists(st.lists(st.sampled_from("abcd"), min_size=3, max_size=8), min_size=2, max_size=8))
def test_recurrence_among_five_is_the_mean_over_all_draws(texts: list[list[str]]) -> None:
    grams = [ngrams_of(words, 3) for words in texts]
    chances = []
    for n, own in enumerate(grams):
        others = grams[:n] + grams[n + 1 :]
        for gram in own:
            draws = [any(gram in of for of in drawn) for drawn in combinations(others, min(4, len(others)))]
            chances.append(sum(draws) / len(draws))

    share, without = typical_recurrence(grams)

    assert share == pytest.approx(sum(chances) / len(chances))
    assert without == pytest.approx(
        [typical_recurrence(grams[:n] + grams[n + 1 :])[0] for n in range(len(grams))] if len(grams) > 2 else []
    )
