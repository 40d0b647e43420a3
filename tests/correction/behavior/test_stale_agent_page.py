"""An agent's page that was opened before a behaviour request was applied undoes nothing of it when it is saved."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from agents.models import Agent
from agents.persona import TraitValue
from correction.behavior.applying import apply_request
from tests.console import page_of, plain, signed_in, staff, superuser
from tests.correction.behavior.proposals import CONCISE, proposed
from tests.factories import make_agent

pytestmark = pytest.mark.django_db
BEFORE = {**CONCISE, "strength": 0.5}


@pytest.fixture
def ada() -> Agent:
    traits = [TraitValue(**BEFORE), TraitValue("dry wit", "Jokes.\nWithout a smile.", 0.4, 0.6)]
    return make_agent("ada", traits=traits, system_prompt="You are Ada.\n\nA clerk.", description="A clerk.\nDry.")


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


def strengths(agent: Agent) -> dict[str, float]:
    return dict(agent.traits.order_by("name").values_list("name", "strength"))


def test_the_request_stands_and_the_page_says_which_it_was_and_keeps_what_was_typed(
    ada: Agent, console: Client
) -> None:
    opened = console.get(page_of(ada))
    row = apply_request(request=proposed(ada, before=BEFORE))

    refused = console.post(page_of(ada), sent(opened, avatar_color="#123456", **{"dry wit: strength": "0.9"}))

    page = plain(refused.content.decode())
    assert refused.status_code == 200
    assert f"version 2, behaviour request {row.pk} by Zoe: concise replies 0.5 → 0.7." in page
    assert "Nothing is saved yet" in page
    assert strengths(ada) == {"concise replies": 0.7, "dry wit": 0.6}
    assert ada.persona_versions.count() == 2
    again = sent(refused)
    assert (again["avatar_color"], "0.9" in again.values()) == ("#123456", True)

    assert console.post(page_of(ada), again).status_code == 302
    ada.refresh_from_db()
    assert (ada.avatar_color, strengths(ada)) == ("#123456", {"concise replies": 0.7, "dry wit": 0.9}), "not undone"


def test_who_wants_the_old_strength_back_types_it(ada: Agent, console: Client) -> None:
    opened = console.get(page_of(ada))
    apply_request(request=proposed(ada, before=BEFORE))
    refused = console.post(page_of(ada), sent(opened))

    console.post(page_of(ada), sent(refused, **{"concise replies: strength": "0.4"}))

    assert strengths(ada)["concise replies"] == 0.4


def test_a_page_that_is_current_is_saved_and_makes_no_version_of_line_ends(ada: Agent, console: Client) -> None:
    apply_request(request=proposed(ada, before=BEFORE))
    ada.persona_versions.exclude(number=2).delete()
    opened = console.get(page_of(ada))
    html = opened.content.decode()
    assert all(f'name="{name}"' in html for name in ("opened", "initial-traits-0-strength"))

    assert console.post(page_of(ada), sent(opened, title="Clerk")).status_code == 302
    assert (ada.persona_versions.count(), Agent.objects.get().title) == (1, "Clerk")


def test_a_description_that_was_generated_meanwhile_stays_and_is_nobodys(ada: Agent, console: Client) -> None:
    Agent.objects.update(description_origin="seed")
    opened = console.get(page_of(ada))
    Agent.objects.update(description="A brief clerk.", description_origin="generated")

    assert console.post(page_of(ada), sent(opened, title="Clerk")).status_code == 302

    ada.refresh_from_db()
    assert (ada.description, ada.description_origin, ada.title) == ("A brief clerk.", "generated", "Clerk")


def test_only_another_text_makes_a_description_somebodys(ada: Agent, console: Client) -> None:
    Agent.objects.update(description_origin="generated")
    console.post(page_of(ada), sent(console.get(page_of(ada)), description="A clerk.\nDry.  "))
    ada.refresh_from_db()
    assert (ada.description, ada.description_origin) == ("A clerk.\nDry.", "generated")

    console.post(page_of(ada), sent(console.get(page_of(ada)), description="Mine."))
    ada.refresh_from_db()
    assert (ada.description, ada.description_origin) == ("Mine.", "person")


def test_a_description_typed_on_an_old_page_is_not_saved_over_a_newer_one_unsaid(ada: Agent, console: Client) -> None:
    opened = console.get(page_of(ada))
    Agent.objects.update(description="A brief clerk.", description_origin="generated")

    refused = console.post(page_of(ada), sent(opened, description="Mine."))

    assert "the description, which is now: A brief clerk." in plain(refused.content.decode())
    assert Agent.objects.get().description_origin == "generated"
    assert console.post(page_of(ada), sent(refused)).status_code == 302
    assert (Agent.objects.get().description, Agent.objects.get().description_origin) == ("Mine.", "person")


def test_who_may_only_look_still_sees_the_page(ada: Agent) -> None:
    response = signed_in(staff("agents.view_agent")).get(page_of(ada))
    assert (response.status_code, 'name="opened"' in response.content.decode()) == (200, False)
