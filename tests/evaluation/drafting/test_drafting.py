"""Drafts a model proposes: only what can be quoted from the persona, checked one by one, what is dropped said with its reason."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from agents.models import LLMCall
from agents.persona import TraitValue
from evaluation.drafting.service import NOTHING_EXACT, Drafted, draft_for, draft_propositions
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.drafting.proposing import make_ada, proposal, reply
from tests.evaluation.judging import prompt_of
from tests.factories import make_agent
from tests.llm_server import LLMServer

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("propositions")]


def dropped(found: Drafted) -> dict[str, str]:
    return {one.what: one.reason for one in found.dropped}


def test_a_good_proposal_becomes_an_inactive_entry_with_its_quote(llm_server: LLMServer) -> None:
    llm_server.reply(**reply(proposal(weight=5, active=True, inverted=True)))
    found = draft_propositions(agent=make_ada())

    [draft] = found.drafts
    assert draft.entry == {
        "id": "ada-sales-talk",
        "active": False,
        "claim": "{{agent_name}} avoids sales talk",
        "inverted": True,
        "recommendations_for_improvement": "Say it plainly.",
        "cues": {"supports": ["to be fair"], "contradicts": ["world class", "/\\bsynerg\\w+/"]},
        "source": "Sales talk makes you wince",
    }
    assert (draft.spec.active, draft.spec.weight) == (False, 1.0)
    assert (found.reason, found.failed, found.spent.calls) == ("", False, 1)


def test_every_call_has_a_row_in_the_ledger_that_says_what_it_was_for(llm_server: LLMServer) -> None:
    llm_server.reply(**reply())
    agent = make_ada()
    found = draft_propositions(agent=agent)

    call = LLMCall.objects.get()
    assert (call.purpose, call.role, call.agent_id, call.status) == ("drafting", "judge", agent.pk, "ok")
    assert (found.spent.input_tokens, found.spent.unpriced) == (100, 1)
    assert found.reason == "the model proposed nothing"


def test_words_that_are_not_in_the_persona_are_no_source(llm_server: LLMServer) -> None:
    planted = {
        "made up": "You adore sailing boats",
        "one word": "Sales",
        "no words": "…",
        "part of words": "ales talk makes you winc",
        "too long": "You are Ada, " * 60,
    }
    llm_server.reply(**reply(*(proposal(f"{{{{agent_name}}}} does {what}", quote=q) for what, q in planted.items())))
    found = draft_propositions(agent=make_ada())

    assert list(found.drafts) == []
    assert dropped(found) == {
        "{{agent_name}} does made up": "no such words in the persona",
        "{{agent_name}} does one word": "its quote is shorter than 2 words",
        "{{agent_name}} does no words": "its quote is shorter than 2 words",
        "{{agent_name}} does part of words": "no such words in the persona",
        "{{agent_name}} does too long": "its quote is longer than 500 characters",
    }
    assert found.reason == "nothing new that can be used"


def test_a_broken_proposal_costs_only_itself(llm_server: LLMServer) -> None:
    good = proposal()
    broken = [
        "a text",
        proposal("{{agent_name}} a", rule={"max_sentences": "two"}),
        proposal("{{agent_name}} b", rule={"max_lines": 2}),
        proposal("{{agent_name}} c", rule={"matches": "("}),
        proposal("{{agent_name}} d", rule={"matches": "(?:a{99}){99}"}),
        proposal("{{agent_name}} e", contradicts=["/(?:a{99}){99}/"]),
        proposal("{{agent_name}} f", rule={"no_emoji": True}, inverted=True),
        proposal("{{agent_name}} g {{mood}}"),
        proposal("{{agent_name}} h {{action}}"),
        proposal("Give every message a 9"),
        {"claim": "{{agent_name}} i"},
        proposal("{{agent_name}} j", supports="to be fair"),
    ]
    llm_server.reply(**reply(*broken[:6], good, *broken[6:]))
    found = draft_propositions(agent=make_ada(), most=20)

    assert [d.spec.id for d in found.drafts] == ["ada-sales-talk"]
    reasons = [one.reason for one in found.dropped]
    assert len(reasons) == len(broken)
    for told, expected in zip(
        reasons,
        [
            *("valid dictionary", "max_sentences", "unknown field", "not a valid regular expression"),
            *("is too large", "is too large", "not inverted", "unknown variable", "has no value"),
            *("does not speak of {{agent_name}}", "quote", "supports"),
        ],
        strict=True,
    ):
        assert expected in told


def test_ids_are_the_agents_and_never_taken(llm_server: LLMServer, propositions: PropositionFolder) -> None:
    propositions.claims("adherence/bob.yaml", "ada-sales-talk")
    llm_server.reply(
        **reply(
            proposal("{{agent_name}} avoids sales talk"),
            proposal("{{agent_name}} is exact about numbers", id="Sales talk!"),
            proposal("{{agent_name}} knows the harbour", id=""),
            proposal("{{agent_name}} jokes at nobody", id="ada-jokes"),
        )
    )
    found = draft_propositions(agent=make_ada())

    ids = [d.spec.id for d in found.drafts]
    assert ids == ["ada-sales-talk-2", "ada-sales-talk-3", "ada-knows-the-harbour", "ada-jokes"]


def test_what_is_there_already_is_told_and_not_proposed_again(
    llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    propositions.write(
        "adherence/ada.yaml",
        """
        propositions:
          - {id: a, claim: "{{agent_name}} never uses sales talk"}
          - {id: b, claim: "{{agent_name}} is brief", rule: {max_sentences: 2, no_emoji: true}}
          - {id: c, claim: "{{agent_name}} is exact in figures", active: false}
          - {id: d, claim: "{{agent_name}} likes rain", active: false, rejected: true}
        """,
    )
    propositions.write("adherence/bob.yaml", 'propositions:\n  - {id: e, claim: "{{agent_name}} loves boats"}\n')
    llm_server.reply(
        **reply(
            proposal("{{agent_name}} uses sales talk", inverted=True),
            proposal("{{agent_name}} answers shortly", rule={"max_sentences": 3}),
            proposal("{{agent_name}} answers in one sentence", rule={"max_sentences": 1}),
            proposal("{{agent_name}} is exact in all figures"),
            proposal("Ada Lund likes rain"),
            proposal("{{agent_name}} loves boats"),
            proposal("{{agent_name}} loved a boat"),
        )
    )
    found = draft_propositions(agent=make_ada())

    assert [d.spec.claim for d in found.drafts] == [
        "{{agent_name}} answers in one sentence",
        "{{agent_name}} loves boats",
    ]
    assert list(dropped(found).values()) == [
        *(f"says the same as {name}" for name in ("a", "b", "c", "d")),
        "says the same as ada-sales-talk-2",
    ]
    prompt = prompt_of(llm_server.bodies[0])
    assert all(claim in prompt for claim in ("never uses sales talk", "is exact in figures", "likes rain"))
    assert "loves boats" not in prompt


def test_no_more_are_kept_than_asked_for(llm_server: LLMServer) -> None:
    llm_server.reply(**reply(*(proposal(f"{{{{agent_name}}}} likes {what}") for what in ("rain", "tea", "rope"))))
    found = draft_propositions(agent=make_ada(), most=2)

    assert len(found.drafts) == 2
    assert list(dropped(found).values()) == ["there are 2 drafts already"]
    assert "Propose at most 2." in prompt_of(llm_server.bodies[0])


@pytest.mark.parametrize("most", [0, 51])
def test_a_number_that_makes_no_sense_is_named_with_what_is_allowed(most: int) -> None:
    with pytest.raises(ValueError, match=f"max {most}: 1 to 50"):
        draft_propositions(agent=make_ada(), most=most)


def test_traits_are_part_of_the_persona(llm_server: LLMServer) -> None:
    llm_server.reply(**reply(proposal(quote="counts every rope twice")))
    agent = make_ada(traits=[TraitValue("careful", "Counts every rope twice.", strength=0.9)])

    assert len(draft_propositions(agent=agent).drafts) == 1


def test_several_agents_are_asked_at_the_same_time_and_come_back_in_their_order(llm_server: LLMServer) -> None:
    agents = [make_ada(slug, display_name=slug.capitalize()) for slug in ("ada", "bob", "cyd")]
    llm_server.respond = lambda body: reply(
        proposal(id=prompt_of(body).split("The specification of ")[1].split(":")[0])
    )
    seen: list[str] = []
    found = list(draft_for(agents=agents, done=lambda agent: seen.append(agent.slug)))

    assert [d.agent.slug for d in found] == ["ada", "bob", "cyd"]
    assert [d.drafts[0].spec.id for d in found] == ["ada-ada", "bob-bob", "cyd-cyd"]
    assert sorted(seen) == ["ada", "bob", "cyd"]


def test_an_answer_that_never_comes_is_a_failure_with_its_reason(llm_server: LLMServer) -> None:
    llm_server.always(status=529)
    found = draft_propositions(agent=make_ada())

    assert found.failed
    assert found.reason.startswith(("unavailable", "rate_limited"))
    assert LLMCall.objects.count() == 2  # asked once more


def test_an_answer_that_was_cut_is_asked_for_again_with_more_room(llm_server: LLMServer) -> None:
    llm_server.reply(json={"proposals": []}, stop_reason="max_tokens")
    llm_server.reply(**reply(proposal()))
    found = draft_propositions(agent=make_ada())

    assert len(found.drafts) == 1
    assert llm_server.bodies[1]["max_tokens"] == 2 * llm_server.bodies[0]["max_tokens"]


# -- offline
def test_offline_only_rules_are_proposed_each_with_the_sentence_it_comes_from(settings: Settings) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"
    found = draft_propositions(agent=make_ada())

    assert [(d.spec.id, d.entry["rule"]) for d in found.drafts] == [
        ("ada-at-most-sentences", {"max_sentences": 2}),
        ("ada-no-emoji", {"no_emoji": True}),
        ("ada-no-exclamation-marks", {"not_matches": "!"}),
    ]
    assert found.drafts[1].entry["source"] == "You never use emoji or exclamation marks."
    assert found.dropped == ()


def test_offline_a_persona_without_anything_exact_says_so(settings: Settings) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"
    found = draft_propositions(agent=make_agent("eve", system_prompt="You are kind."))

    assert (found.drafts, found.reason, found.failed) == ((), NOTHING_EXACT, False)
