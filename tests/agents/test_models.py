"""Invariants of the ground floor's tables, held by the database and not only by forms."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.db.models import Model, ProtectedError
from django.utils import timezone

from agents.models import Agent, Channel, ChannelMember, Message, PersonaVersion, Reaction, Run, Trait
from agents.models.conversations import validate_tags
from tests.factories import make_agent, make_channel, say, talk

pytestmark = pytest.mark.django_db
TABLES = (
    *("agents", "persona_versions", "traits", "memory_blocks", "memory_passages"),
    *("channels", "channel_members", "messages", "reactions", "runs", "run_steps", "run_messages"),
    *("llm_calls", "model_prices", "evaluation_runs", "evaluation_scores"),
)


def refused(model: type[Model], **fields: Any) -> bool:
    """Whether the database refuses such a row."""
    try:
        with transaction.atomic():
            model._default_manager.create(**fields)
    except IntegrityError:
        return True
    return False


@pytest.fixture
def ada() -> Agent:
    return make_agent("ada")


@pytest.fixture
def office() -> Channel:
    return make_channel("office")


def test_tables_have_the_names_of_the_specification() -> None:
    assert set(TABLES) <= set(connection.introspection.table_names())


def test_no_migration_is_missing_ac_6_0_8() -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


# -- agents
def test_an_agent_needs_a_slug_of_its_own_and_turns(ada: Agent) -> None:
    assert refused(Agent, slug="ada", display_name="Other", system_prompt="x")
    assert refused(Agent, slug="", display_name="Other", system_prompt="x")
    assert refused(Agent, slug="bob", display_name="Bob", system_prompt="x", max_turns=0)
    assert Agent._meta.get_field("max_turns").default == 50


def test_a_trait_is_unique_per_agent_whatever_its_case(ada: Agent) -> None:
    Trait.objects.create(agent=ada, name="Dry wit")

    assert refused(Trait, agent=ada, name="dry WIT")
    Trait.objects.create(agent=make_agent("bob"), name="dry wit")


@pytest.mark.parametrize("fields", [{"strength": 1.1}, {"strength": -0.1}, {"sentiment": 1.1}, {"name": ""}])
def test_a_trait_stays_in_its_ranges(ada: Agent, fields: dict[str, Any]) -> None:
    assert refused(Trait, agent=ada, **{"name": "x", **fields})


def test_versions_of_a_persona_are_numbered_once(ada: Agent) -> None:
    assert refused(PersonaVersion, agent=ada, number=1, digest="x", system_prompt="x")


# -- conversations
def test_a_message_has_exactly_one_author(ada: Agent, office: Channel) -> None:
    user = get_user_model().objects.create(username="eve")
    everybody: dict[str, Any] = {"agent": ada, "user": user, "outsider": "Bob"}

    for names in ((), ("agent", "outsider"), ("agent", "user"), ("user", "outsider"), ("agent", "user", "outsider")):
        author = {name: everybody[name] for name in names}
        assert refused(Message, channel=office, position=99, text="x", **author), names
    for position, (name, value) in enumerate(everybody.items()):
        assert not refused(Message, channel=office, position=position, text="x", **{name: value})
    assert [m.author_name for m in Message.objects.order_by("position")] == ["Ada", "eve", "Bob"]


def test_a_channel_has_one_order_and_each_id_once(ada: Agent, office: Channel) -> None:
    said = say(office, ada, "x", external_id="m1", idempotency_key="k1")
    another: dict[str, Any] = {"channel": office, "agent": ada, "text": "y", "position": 99, "external_id": "m2"}

    assert refused(Message, **{**another, "position": said.position})
    assert refused(Message, **{**another, "external_id": "m1"})
    assert refused(Message, **{**another, "idempotency_key": "k1"})
    assert not refused(Message, **another)
    assert say(make_channel("attic"), ada, "x", external_id="m1").position == 1


def test_who_has_spoken_cannot_be_deleted(ada: Agent) -> None:
    talk(ada, ["No."])

    with pytest.raises(ProtectedError):
        ada.delete()


def test_a_member_or_reaction_is_of_one_agent_or_user_and_unique(ada: Agent, office: Channel) -> None:
    user = get_user_model().objects.create(username="eve")
    member: dict[str, Any] = {"channel": office}
    reaction: dict[str, Any] = {"message": say(office, ada, "x"), "emoji": "👍"}
    for model, fields in ((ChannelMember, member), (Reaction, reaction)):
        assert refused(model, **fields)
        assert refused(model, **fields, agent=ada, user=user)
        assert not refused(model, **fields, agent=ada)
        assert not refused(model, **fields, user=user)
        assert refused(model, **fields, agent=ada)
        assert refused(model, **fields, user=user)


def test_a_channel_is_of_a_known_kind_and_has_a_slug() -> None:
    assert refused(Channel, slug="x", name="x", kind="secret")
    assert refused(Channel, slug="", name="x")


@pytest.mark.parametrize("tags", [{}, {"build": "41", "actor.model-1": "x", "a_b": ""}])
def test_tags_are_pairs_of_texts(tags: dict[str, str]) -> None:
    validate_tags(tags)


@pytest.mark.parametrize("tags", ["build=41", {"build": 41}, {"1a": "x"}, {"a b": "x"}, {"a" * 65: "x"}])
def test_anything_else_is_no_tag(tags: object) -> None:
    with pytest.raises(ValidationError):
        validate_tags(tags)


# -- runs
def test_an_agent_has_one_running_turn_at_a_time(ada: Agent) -> None:
    Run.objects.create(agent=ada, status="running", started_at=timezone.now())

    assert refused(Run, agent=ada, status="running")
    Run.objects.create(agent=ada, status="pending")
    Run.objects.create(agent=make_agent("bob"), status="running")
