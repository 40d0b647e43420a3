"""What people asked of an agent, each for themself: their page, what it changed, an undo, erasure, and the persona's offer."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from agents.erasure import find_outsider, find_user, forget
from agents.models import Agent, Channel, Message, PersonaVersion, Run
from agents.personas.persona import TraitValue
from agents.turn.receive import receive_message
from correction.behavior.applying import BehaviorError
from correction.behavior.effects import plan_request
from correction.behavior.models import BehaviorRequest
from correction.behavior.scope import holds_in, person_of, requests_of
from correction.behavior.shared import SharedRequest, adopt_shared_request, shared_requests
from correction.behavior.work import work_one
from tests.console import HOSTILE, page_of, plain, read, signed_in, superuser, tab_of, viewer
from tests.correction.behavior.asking import CONCISE, dm_with, judge, traits_of, write
from tests.factories import say
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
Status = BehaviorRequest.Status


def ask_as(
    server: LLMServer, channel: Channel, who: str = "Zed", *, user: User | None = None, **trait: Any
) -> BehaviorRequest:
    """A request of a person for themself, read and applied."""
    server.respond = judge(map={**CONCISE, **trait})
    message = receive_message(channel=channel, text=f"Shorter, please! {who}", user=user, outsider="" if user else who)
    assert work_one(owner="w")
    request: BehaviorRequest = BehaviorRequest.objects.get(message=message)
    assert request.status == Status.APPLIED, (request.status, request.why, request.error)
    return request


def clerk_and_channel() -> tuple[Agent, Channel]:
    return dm_with(behavior_scope="person")


def answer(agent: Agent, channel: Channel, name: str, text: str) -> Message:
    """What the agent answers to a person."""
    greeting = write(channel, "Hello", outsider=name)
    BehaviorRequest.objects.filter(message=greeting).delete()  # it asks for nothing
    run = Run.objects.create(agent=agent, channel=channel, trigger=greeting)
    return say(channel, agent, text, run=run, sent_at=timezone.now())


def person_page(person: str) -> str:
    return reverse("admin:behavior_behaviorrequest_person", args=[person])


def test_a_persons_page_lists_what_they_asked_with_its_effect_and_undoes_it(llm_server: LLMServer) -> None:
    _, channel = clerk_and_channel()
    request = ask_as(llm_server, channel)
    ask_as(llm_server, channel, "Zoe", name="puns")
    client = signed_in(superuser())
    url = person_page(person_of(request))

    page = plain(read(client, url))
    assert "Requests of Zed" in page
    assert "concise answers" in page
    assert "not evaluated" in page
    assert "puns" not in page
    undone = client.post(
        reverse("admin:behavior_behaviorrequest_revert", args=[request.pk]), {"next": url}, follow=True
    )

    assert undone.redirect_chain[-1][0] == url
    request.refresh_from_db()
    assert request.status == Status.REVERTED
    assert "Undo" not in plain(read(client, url))
    assert f'href="{url}"' in read(client, page_of(request))


def test_a_users_page_leads_to_what_they_asked(llm_server: LLMServer) -> None:
    _, channel = clerk_and_channel()
    anna = User.objects.create_user("anna")
    request = ask_as(llm_server, channel, user=anna)

    page = read(signed_in(superuser()), page_of(anna))

    assert "1 request, of which 1 holds" in plain(page)
    assert person_page(f"user:{anna.pk}") in page
    assert list(requests_of(f"user:{anna.pk}")) == [request]


def test_viewers_read_the_page_and_undo_nothing(llm_server: LLMServer) -> None:
    _, channel = clerk_and_channel()
    person = person_of(ask_as(llm_server, channel, HOSTILE))

    page = read(signed_in(viewer()), person_page(person))

    assert HOSTILE not in page
    assert "concise answers" in page
    assert "Undo" not in plain(page)


@pytest.mark.parametrize(
    "key",
    [
        "user:0",
        "user:x",
        "user:99999999999999999999",
        "outsider:99999999999999999999:a",
        "outsider:",
        "channel:1",
        "nobody",
        "outsider:1:'; DROP",
    ],
)
def test_a_key_of_nobody_shows_an_empty_page(key: str) -> None:
    assert "Nothing is known" in plain(read(signed_in(superuser()), person_page(key)))


def test_the_page_of_many_requests_takes_few_statements(
    llm_server: LLMServer, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    _, channel = clerk_and_channel()
    request = ask_as(llm_server, channel)
    for number in range(30):
        other = write(channel, "Shorter!")
        BehaviorRequest.objects.filter(message=other).update(
            status=Status.APPLIED, scope_key=request.scope_key, trait_name=f"habit {number}", applied_at=timezone.now()
        )
    client = signed_in(superuser())
    read(client, person_page(person_of(request)))

    with django_assert_max_num_queries(14):
        page = read(client, person_page(person_of(request)))

    assert "habit 29" in page


def test_its_effect_is_judged_on_the_answers_to_that_person_alone(llm_server: LLMServer) -> None:
    agent, channel = clerk_and_channel()
    before = answer(agent, channel, "Zed", "A long answer to Zed.")
    answer(agent, channel, "Zoe", "A long answer to Zoe.")
    request = ask_as(llm_server, channel)
    after = answer(agent, channel, "Zed", "Short.")
    answer(agent, channel, "Zoe", "Another long answer to Zoe.")

    plan = plan_request(request=request).plan

    assert ([message.pk for message in plan.before], [message.pk for message in plan.after]) == (
        [before.pk],
        [after.pk],
    )


def test_its_effect_ends_where_the_person_asked_for_another(llm_server: LLMServer) -> None:
    agent, channel = clerk_and_channel()
    first = ask_as(llm_server, channel)
    between = answer(agent, channel, "Zed", "Short.")
    second = ask_as(llm_server, channel, strength=0.9, is_new=False, replaces_trait="concise answers")
    later = answer(agent, channel, "Zed", "Shorter.")

    assert [message.pk for message in plan_request(request=first).plan.after] == [between.pk]
    plan = plan_request(request=second).plan
    assert ([message.pk for message in plan.before], [message.pk for message in plan.after]) == (
        [between.pk],
        [later.pk],
    )


@pytest.mark.parametrize("has_account", [False, True])
def test_erasing_a_person_erases_what_they_asked_for_themself(llm_server: LLMServer, has_account: bool) -> None:
    _, channel = clerk_and_channel()
    anna = User.objects.create_user("anna")
    own = ask_as(llm_server, channel, "Zed", user=anna if has_account else None)
    other = ask_as(llm_server, channel, "Zoe")

    list(forget(find_user("anna") if has_account else find_outsider("Zed")))

    assert list(BehaviorRequest.objects.values_list("pk", flat=True)) == [other.pk]
    assert not requests_of(person_of(own)).exists()


def test_what_they_asked_for_all_stays_when_they_are_erased(llm_server: LLMServer) -> None:
    _, channel = dm_with(behavior_scope="persona")
    request = ask_as(llm_server, channel)

    list(forget(find_outsider("Zed")))

    assert BehaviorRequest.objects.filter(pk=request.pk, status=Status.APPLIED).exists()


def test_the_persona_page_counts_people_and_makes_it_the_personas_own(llm_server: LLMServer) -> None:
    agent, channel = clerk_and_channel()
    for name, strength in (("Zed", 0.4), ("Zoe", 0.6), ("Zac", 0.9)):
        ask_as(llm_server, channel, name, strength=strength)
    ask_as(llm_server, channel, "Zac", name="puns")
    client = signed_in(superuser())

    page = plain(read(client, tab_of(agent, "persona")))
    assert "3 people asked, each for themself, for concise answers" in page
    assert "puns" not in page.partition("Asked for by several people")[2].partition("makes a new version")[0]
    url = reverse("admin:behavior_behaviorrequest_adopt", args=[agent.pk]) + "?name=concise%20answers&stops=0"
    client.post(url)

    assert traits_of(agent) == {"concise answers": 0.6}
    assert [version.note for version in PersonaVersion.objects.order_by("number")][-1].endswith("asked for by 3 people")
    assert BehaviorRequest.objects.filter(status=Status.APPLIED).count() == 4
    again = client.post(url, follow=True)
    assert "like that already" in plain(again.content.decode())


def test_asking_for_and_asking_to_stop_are_not_the_same(llm_server: LLMServer) -> None:
    agent, channel = dm_with(TraitValue("puns", "Makes puns.", 0.0, 0.5), behavior_scope="person")
    puns: dict[str, Any] = {"name": "puns", "is_new": False, "replaces_trait": "puns"}
    ask_as(llm_server, channel, "Zed", **puns, strength=0.0)
    ask_as(llm_server, channel, "Zoe", **puns, strength=0.9)
    ask_as(llm_server, channel, "Zac", **puns, strength=0.0)

    assert shared_requests(agent=agent) == [SharedRequest(name="puns", stops=True, people=2)]
    with pytest.raises(BehaviorError, match="fewer than 2 people"):
        adopt_shared_request(agent=agent, name="puns", stops=False, user=None)


def test_who_asked_for_it_and_later_to_stop_it_asks_to_stop_it(llm_server: LLMServer) -> None:
    agent, channel = clerk_and_channel()
    ask_as(llm_server, channel, "Zed")
    ask_as(llm_server, channel, "Zoe")
    ask_as(llm_server, channel, "Zed", is_new=False, replaces_trait="concise answers", strength=0.0)

    assert shared_requests(agent=agent) == []
    with pytest.raises(BehaviorError, match="fewer than 2 people"):
        adopt_shared_request(agent=agent, name="concise answers", stops=False, user=None)


def test_a_trait_in_any_script_is_adopted_by_the_name_it_is_listed_under(llm_server: LLMServer) -> None:
    agent, channel = clerk_and_channel()
    ask_as(llm_server, channel, "Zed", name="Ähnliche Sätze")
    ask_as(llm_server, channel, "Zoe", name="Ähnliche Sätze")

    [shared] = shared_requests(agent=agent)
    adopted = adopt_shared_request(agent=agent, name=shared.name, stops=shared.stops, user=None)

    assert adopted.name == "Ähnliche Sätze"


@pytest.mark.parametrize("scope", ["channel", "persona"])
def test_the_page_of_an_outsider_has_what_they_asked_for_others_too(llm_server: LLMServer, scope: str) -> None:
    _, channel = dm_with(behavior_scope=scope)
    request = ask_as(llm_server, channel)

    assert list(requests_of(person_of(request))) == [request]


@pytest.mark.parametrize(
    ("config", "why"), [({"behavior_protected_traits": ["concise answers"]}, "protected"), ({}, "")]
)
def test_a_protected_trait_is_adopted_from_nobody(llm_server: LLMServer, config: dict[str, Any], why: str) -> None:
    agent, channel = clerk_and_channel()
    for name in ("Zed", "Zoe"):
        ask_as(llm_server, channel, name)
    agent.evaluation_config.__class__.objects.filter(agent=agent).update(**config)

    if why:
        with pytest.raises(BehaviorError, match=why):
            adopt_shared_request(agent=agent, name="Concise Answers", stops=False, user=None)
        assert traits_of(agent) == {}
    else:
        assert adopt_shared_request(agent=agent, name="Concise Answers", stops=False, user=None).strength == 0.5


def test_where_it_holds_is_said_in_words(llm_server: LLMServer) -> None:
    _, channel = clerk_and_channel()
    assert holds_in(ask_as(llm_server, channel)).startswith("only towards Zed")
