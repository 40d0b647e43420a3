"""The queue of behaviour requests in the console."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from agents.admin.transcript import transcript_url
from agents.models import Agent
from agents.personas.persona import TraitValue
from correction.behavior.applying import apply_request
from correction.behavior.effects import work_one
from correction.behavior.models import BehaviorEffect, BehaviorRequest
from tests.console import HOSTILE, list_of, page_of, plain, queries, read, signed_in, staff, superuser, tab_of, viewer
from tests.correction.behavior.asking import traits_of
from tests.correction.behavior.changed import Changed
from tests.correction.behavior.measured import reads
from tests.correction.behavior.proposals import CONCISE, Status, proposed
from tests.factories import make_agent
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada() -> Agent:
    return make_agent("ada", traits=[TraitValue("dry wit", "Jokes without a smile.", 0.4, 0.6)])


def press(client: Client, row: BehaviorRequest, act: str, **data: Any) -> str:
    url = reverse(f"admin:behavior_behaviorrequest_{act}", args=[row.pk])
    answer = client.post(url, data, follow=True)
    assert answer.status_code == 200
    return plain(answer.content.decode())


def test_the_queue_shows_each_request(ada: Agent) -> None:
    proposed(ada, before={**CONCISE, "strength": 0.4})
    page = plain(read(signed_in(viewer()), list_of(BehaviorRequest)))

    assert "Could you keep it shorter?" in page
    assert "concise replies 0.4 → 0.7" in page


def test_a_request_page_shows_words_tiers_and_the_change(ada: Agent) -> None:
    row = proposed(ada, f"Shorter! {HOSTILE}", why=HOSTILE)
    html = read(signed_in(superuser()), page_of(row))
    assert HOSTILE not in html
    page = plain(html)
    assert "its confidence is medium" not in page  # the reason given here is the hostile one
    assert "Does it ask for a change?" in page
    assert "requested change shorter" in page
    assert "<ins>" in html
    assert "concise replies" in html[html.index("<ins>") :]


def test_apply_changes_the_persona_and_revert_restores_it(ada: Agent) -> None:
    client, row = signed_in(superuser()), proposed(ada)
    assert "is applied" in press(client, row, "apply")
    assert traits_of(ada) == {"concise replies": 0.7, "dry wit": 0.6}
    assert "persona v1 → v2" in plain(read(client, page_of(row)))
    assert "Nothing was changed" in press(client, row, "apply")
    assert "is reverted" in press(client, row, "revert")
    assert traits_of(ada) == {"dry wit": 0.6}


def test_what_a_request_waited_for_is_past_once_a_person_applied_it(ada: Agent) -> None:
    client, row = signed_in(superuser()), proposed(ada)
    waits = "its confidence is medium"
    assert f"had waited for a person: {waits}" not in plain(read(client, page_of(row)))

    press(client, row, "apply")

    for url in (page_of(row), list_of(BehaviorRequest)):
        page = plain(read(client, url))
        assert page.count(waits) == page.count(f"had waited for a person: {waits}") > 0


def test_a_proposal_can_be_edited_before_it_is_applied(ada: Agent) -> None:
    client, row = signed_in(superuser()), proposed(ada)
    page = press(client, row, "apply_edited", **{"trait-name": "", "trait-strength": "7"})
    assert "name: This field is required." in page
    assert "strength:" in page
    assert traits_of(ada) == {"dry wit": 0.6}

    trait = {"trait-name": "short answers", "trait-description": "Two sentences.", "trait-strength": "0.3"}
    assert "as you wrote it" in press(client, row, "apply_edited", **trait)
    assert traits_of(ada) == {"dry wit": 0.6, "short answers": 0.3}


def test_a_rejection_keeps_its_reason(ada: Agent) -> None:
    client, row = signed_in(superuser()), proposed(ada)
    assert "is rejected" in press(client, row, "reject", why="out of character")
    assert "out of character" in plain(read(client, page_of(row)))


def test_several_that_failed_are_tried_again_at_once(ada: Agent) -> None:
    client = signed_in(superuser())
    failed, done = proposed(ada, status=Status.FAILED, error="timeout"), proposed(ada, "Sing!")
    data = {"action": "retry_chosen", "_selected_action": [failed.pk, done.pk]}
    page = plain(client.post(list_of(BehaviorRequest), data, follow=True).content.decode())
    assert "1 behaviour request queued again." in page
    assert "1 skipped: only a request that failed can be tried again." in page
    assert set(BehaviorRequest.objects.values_list("status", flat=True)) == {"queued", "pending_review"}


def test_who_may_only_look_sees_no_button(ada: Agent) -> None:
    row = proposed(ada)

    assert "Decide" not in plain(read(signed_in(viewer()), page_of(row)))


def test_without_the_right_to_read_messages_the_queue_quotes_none(ada: Agent) -> None:
    row = proposed(ada, "Keep it shorter, you windbag!", why="it says windbag", error="windbag",
                   extract_result={"requested_change": "no windbag"}, warnings=["windbag"])  # fmt: skip
    client = signed_in(staff("behavior.view_behaviorrequest"))
    for url in (list_of(BehaviorRequest), page_of(row)):
        page = plain(read(client, url))
        assert "windbag" not in page
        assert "concise replies" in page
    assert "needs the permission to view messages" in plain(read(client, page_of(row)))
    assert "windbag" in plain(read(signed_in(viewer()), list_of(BehaviorRequest)))


def test_the_agent_s_page_and_the_conversation_say_what_was_asked(ada: Agent) -> None:
    client, row = signed_in(superuser()), proposed(ada)
    assert "1 pending review" in plain(read(client, tab_of(ada, "persona")))
    assert row.message is not None
    assert "behaviour request" in plain(read(client, transcript_url(row.message)))
    assert "No person has asked this agent to behave differently yet" in plain(
        read(client, tab_of(make_agent("bob"), "persona"))
    )


BEFORE = {**CONCISE, "strength": 0.5}


@pytest.fixture
def ada_stale() -> Agent:
    traits = [TraitValue(**BEFORE), TraitValue("dry wit", "Jokes.\nWithout a smile.", 0.4, 0.6)]
    return make_agent(
        "ada_stale", traits=traits, system_prompt="You are Ada.\n\nA clerk.", description="A clerk.\nDry."
    )


@pytest.fixture
def console() -> Client:
    return signed_in(superuser("editor"))


def sent(response: Any, **typed: Any) -> dict[str, Any]:
    """What the browser sends from a page, with line ends of its own; `typed` by field, those of traits as ``dry wit: strength``."""
    parts = [response.context["adminform"].form]
    for inline in response.context["inline_admin_formsets"]:
        parts += [inline.formset.management_form, *inline.formset.forms]
    data: dict[str, Any] = {}
    for part in parts:
        for bound in part:
            data[bound.html_name] = bound.value()
            if bound.field.show_hidden_initial:
                data[bound.html_initial_name] = part.data.get(bound.html_initial_name, bound.initial)
            wanted = f"{part['name'].value()}: {bound.name}" if "strength" in part.fields else bound.name
            if wanted in typed:
                data[bound.html_name] = typed.pop(wanted)
    assert not typed, typed
    return {name: "" if value is None else str(value).replace("\n", "\r\n") for name, value in data.items()}


def test_a_conflict_keeps_the_request_and_the_typed_text(ada_stale: Agent, console: Client) -> None:
    opened = console.get(tab_of(ada_stale, "persona"))
    row = apply_request(request=proposed(ada_stale, before=BEFORE))

    refused = console.post(
        tab_of(ada_stale, "persona"), sent(opened, avatar_color="#123456", **{"dry wit: strength": "0.9"})
    )

    page = plain(refused.content.decode())
    assert refused.status_code == 200
    assert f"version 2, behaviour request {row.pk} by Zoe: concise replies 0.5 → 0.7." in page
    assert "Nothing is saved yet" in page
    assert traits_of(ada_stale) == {"concise replies": 0.7, "dry wit": 0.6}
    assert ada_stale.persona_versions.count() == 2
    again = sent(refused)
    assert (again["avatar_color"], "0.9" in again.values()) == ("#123456", True)

    assert console.post(tab_of(ada_stale, "persona"), again).status_code == 302
    ada_stale.refresh_from_db()
    assert (ada_stale.avatar_color, traits_of(ada_stale)) == ("#123456", {"concise replies": 0.7, "dry wit": 0.9}), (
        "not undone"
    )


def test_a_current_page_is_saved_without_a_version_of_line_ends(ada_stale: Agent, console: Client) -> None:
    apply_request(request=proposed(ada_stale, before=BEFORE))
    ada_stale.persona_versions.exclude(number=2).delete()
    opened = console.get(tab_of(ada_stale, "persona"))
    html = opened.content.decode()
    assert all(f'name="{name}"' in html for name in ("opened", "initial-traits-0-strength"))

    assert console.post(tab_of(ada_stale, "persona"), sent(opened, title="Clerk")).status_code == 302
    assert (ada_stale.persona_versions.count(), Agent.objects.get().title) == (1, "Clerk")


def test_a_typed_description_does_not_replace_a_newer_one_unseen(ada_stale: Agent, console: Client) -> None:
    opened = console.get(tab_of(ada_stale, "persona"))
    Agent.objects.update(description="A brief clerk.", description_origin="generated")
    answer = console.post(tab_of(ada_stale, "persona"), sent(opened, description="Mine."))

    assert "It was changed since you opened the page, to: A brief clerk." in plain(answer.content.decode())
    ada_stale.refresh_from_db()
    assert ada_stale.description == "A brief clerk."

    console.post(tab_of(ada_stale, "persona"), sent(answer))
    ada_stale.refresh_from_db()
    assert ada_stale.description == "Mine."


QUESTION = "Did it change anything?"


@pytest.fixture
def row(changed: Changed) -> BehaviorRequest:
    return changed()


def measure_url(row: BehaviorRequest) -> str:
    return reverse("admin:behavior_behaviorrequest_measure", args=[row.pk])


def ask_for_effect(client: Client, row: BehaviorRequest, **data: Any) -> str:
    answer = client.post(measure_url(row), data, follow=True)
    assert answer.status_code == 200
    return plain(answer.content.decode())


def test_the_button_queues_it_and_the_page_shows_what_came_out(row: BehaviorRequest) -> None:
    client = signed_in(superuser())
    page = plain(read(client, page_of(row)))
    assert QUESTION in page
    assert "3 before, 3 since" in page
    assert "3 of 10 messages since" in page
    assert "Costs 6 calls, unpriced for 10 messages before and after" in page
    assert QUESTION not in plain(read(client, page_of(proposed(make_agent("bob"))))), "nothing was changed by it"

    page = ask_for_effect(client, row, messages="3")
    effect = BehaviorEffect.objects.get()
    assert f"Evaluation {effect.pk} is queued" in page
    assert (effect.messages, effect.requested_by is not None) == (3, True)
    assert measure_url(row) not in read(client, page_of(row)), "one at a time"
    assert "Nothing was changed" in ask_for_effect(client, row)
    assert "allowed: a whole number from 1 to 100" in ask_for_effect(client, row, messages="many")
    work_one(owner="w")
    html = read(client, page_of(row))
    page = plain(html)
    assert "As requested: more of it was asked for, the agent does more of it since." in page
    assert re.search(r"\+9\.0 \(95 % interval \+\d\.\d to \+9\.0 if messages are independent\)", page)
    assert "6 calls, unpriced" in page
    assert measure_url(row) in html


def test_the_offline_judge_has_a_badge_and_unscored_counts(row: BehaviorRequest, settings: Settings) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"
    client = signed_in(superuser())
    assert "Asks the judge on this machine, which costs nothing." in plain(read(client, page_of(row)))
    ask_for_effect(client, row, messages="3")
    work_one(owner="w")
    page = plain(read(client, page_of(row)))
    assert page.count("heuristic") >= 2
    assert "the judge scored none of 6 messages" in page
    assert "Unscored 6" in page
    assert "needs an LLM judge" in page
    assert "Mean before –" in page


def test_who_may_not_ask_for_evaluations_sees_no_button(row: BehaviorRequest) -> None:
    html = read(signed_in(viewer()), page_of(row))
    assert QUESTION in plain(html)
    assert measure_url(row) not in html
    measurer = signed_in(staff("behavior.view_behaviorrequest", "evaluation.add_evaluationrun"))
    assert measure_url(row) in read(measurer, page_of(row))


def test_more_messages_and_results_take_no_more_queries(changed: Changed, llm_server: LLMServer) -> None:
    row, client = changed(since=1), signed_in(superuser())
    llm_server.respond = reads
    ask_for_effect(client, row, messages="1")
    work_one(owner="w")
    few = len(queries(client, page_of(row)))
    for _ in range(3):
        ask_for_effect(client, row, messages="3")
        work_one(owner="w")
    assert len(queries(client, page_of(row))) == few
