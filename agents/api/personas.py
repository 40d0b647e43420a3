"""Creating and changing an agent: what a body may say, saved with a version of its persona, as the console does."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction
from rest_framework.exceptions import ValidationError

from agents.api.bodies import Flag, StrictBody, Text, Whole
from agents.api.conditional import Changed, etag_of
from agents.api.fields import Color, Note, Slug, Texts, Traits
from agents.api.lookups import the_agent
from agents.llm.endpoints import problem_of, provider_of
from agents.models import Agent
from agents.persona import TraitValue, save_persona
from agents.personas_io.shape import not_reserved

WITHOUT_NOTE = "edited over the API"
CREATED = "created over the API"
PROMPT_CHARACTERS = 200_000
MOST_TURNS = 10_000
_EDITED = (
    *("slug", "display_name", "title", "description", "avatar_color", "is_active", "model_id", "max_turns"),
    *("system_prompt", "sample_lines", "updated_at"),
)


class ModelName(Note):
    """The model that plays an agent: none that is a file of this machine."""

    def to_internal_value(self, data: Any) -> str:
        model = super().to_internal_value(data)
        if model and provider_of(model) == "replay":
            raise ValidationError([f"{self.field_name} {model[:80]!r}: allowed: a model's name; empty = ACTOR_MODEL"])
        if model and (problem := problem_of("actor", model)):
            raise ValidationError([f"{self.field_name} {model[:80]!r}: {problem}"])
        return model


class AgentChanges(StrictBody):
    """What is said is changed, the rest stays. Changed system prompt or traits make a new version of the persona."""

    display_name = Text(required=False, most=120)
    title = Note(required=False, help_text="role or job, shown under the name")
    description = Note(required=False, most=2_000, help_text="for people; never sent to a judge")
    avatar_color = Color(required=False, help_text="e.g. #1d4ed8")
    is_active = Flag(required=False, help_text="an inactive agent takes no turns")
    model_id = ModelName(required=False, help_text="model that plays it; empty = ACTOR_MODEL")
    max_turns = Whole(required=False, least=1, most=MOST_TURNS, help_text="most model calls in one turn")
    system_prompt = Text(required=False, most=PROMPT_CHARACTERS, help_text="the persona, as the model reads it")
    sample_lines = Texts(
        required=False, each=10_000, help_text="lines in its voice; what the scripted actor says offline"
    )
    traits = Traits(required=False, help_text="all of its traits: one that is left out is removed")
    note = Note(required=False, most=150, help_text="what changed and why; stored with the version")


class NewAgent(AgentChanges):
    """An agent and its persona."""

    slug = Slug(most=64, help_text="its id in commands, files and the API; cannot be changed")
    display_name = Text(most=120)
    system_prompt = Text(most=PROMPT_CHARACTERS, help_text="the persona, as the model reads it")

    def validate_slug(self, slug: str) -> str:
        try:
            return not_reserved(slug)
        except ValueError as error:
            raise ValidationError(str(error)) from None


def create_agent(given: dict[str, Any], user: AbstractBaseUser) -> Agent:
    """Save a new agent with its first version.

    Raises:
        ValidationError: The slug is taken.
    """
    fields = dict(given)
    traits, note = _persona_parts(fields, CREATED)
    if Agent.objects.filter(slug=fields["slug"]).exists():
        _taken(fields["slug"])
    agent = Agent(**fields, description_origin=Agent.DescriptionOrigin.PERSON if fields.get("description") else "")
    try:
        save_persona(agent=agent, traits=traits, note=note, source=user.get_username(), user=user)
    except IntegrityError:  # somebody else was faster
        if not Agent.objects.filter(slug=fields["slug"]).exists():
            raise
        _taken(fields["slug"])
    return agent


def change_agent(
    slug: str, given: dict[str, Any], user: AbstractBaseUser, expected: tuple[str, ...] | None = None
) -> None:
    """Save changes of an agent, with a version when its persona changed. Two that change it at once wait for each other.

    Raises:
        Changed: The agent is none of the states `expected`.
    """
    fields = dict(given)
    traits, note = _persona_parts(fields, WITHOUT_NOTE)
    with transaction.atomic():
        agent = the_agent(slug, Agent.objects.select_for_update())
        if expected is not None and (etag := etag_of_agent(agent)) not in expected:
            raise Changed(etag)
        if fields.get("description", agent.description) != agent.description:
            agent.description_origin = Agent.DescriptionOrigin.PERSON
        for name, value in fields.items():
            setattr(agent, name, value)
        save_persona(agent=agent, traits=traits, note=note, source=user.get_username(), user=user)


def etag_of_agent(agent: Agent) -> str:
    """The ETag of all that a person can change of an agent."""
    traits = [[t.name, t.description, t.sentiment, t.strength] for t in agent.traits.all()]
    blocks = [[block.label, block.value] for block in agent.memory_blocks.all()]
    return etag_of([[getattr(agent, name) for name in _EDITED], sorted(traits), sorted(blocks)])


def _persona_parts(fields: dict[str, Any], otherwise: str) -> tuple[list[TraitValue] | None, str]:
    """Takes the traits (None = not given) and the note out of the fields."""
    note = fields.pop("note", "")
    return fields.pop("traits", None), f"edited: {note}" if note and otherwise == WITHOUT_NOTE else note or otherwise


def _taken(slug: str) -> None:
    raise ValidationError({"slug": [f"slug {slug!r}: there is an agent of that name already; allowed: another one"]})
