"""Who speaks: agents, the versions of their personas, traits and memory."""

from __future__ import annotations

from difflib import get_close_matches
from typing import ClassVar

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower

hex_color = RegexValidator(r"^#[0-9a-fA-F]{6}$", "Write a colour as # and six hex digits, e.g. #1d4ed8.")


class Agent(models.Model):
    """A persona agent: the character a model is to stay in."""

    class DescriptionOrigin(models.TextChoices):
        """Who wrote the description. An unknown author counts as a person."""

        UNKNOWN = "", "not known"
        SEED = "seed", "example"
        IMPORT = "import", "import"
        PERSON = "person", "a person"
        GENERATED = "generated", "generated"

    class Origin(models.TextChoices):
        """Whose persona it is."""

        OWN = "", "your own"
        SEED = "seed", "example"

    slug = models.SlugField(max_length=64, unique=True, help_text="the agent's id in commands, files and the API")
    origin = models.CharField(
        max_length=10,
        blank=True,
        default="",
        choices=Origin.choices,
        editable=False,
        help_text="an example of `manage.py seed`, or your own; the examples' propositions and nudges are for examples only",
    )
    display_name = models.CharField(max_length=120)
    title = models.CharField(max_length=200, blank=True, default="", help_text="role or job, shown under the name")
    description = models.TextField(
        blank=True, default="", help_text="one or two sentences for people; never sent to a judge"
    )
    description_origin = models.CharField(
        max_length=10,
        blank=True,
        default="",
        choices=DescriptionOrigin.choices,
        help_text="who wrote the description; one that a person wrote is never replaced by a generated one",
    )
    avatar_color = models.CharField(max_length=7, default="#475569", validators=[hex_color])
    system_prompt = models.TextField(help_text="the persona specification, as the agent's model reads it")
    sample_lines = models.JSONField(
        default=list,
        blank=True,
        help_text="lines in the agent's voice, a list of texts; what the scripted actor says offline",
    )
    model_id = models.CharField(
        max_length=200, blank=True, default="", help_text="model that acts as this agent; empty = ACTOR_MODEL"
    )
    max_turns = models.PositiveIntegerField(
        default=50, validators=[MinValueValidator(1)], help_text="most model calls in one turn of this agent"
    )
    is_active = models.BooleanField(
        default=True, help_text="an inactive agent takes no turns; its history can still be measured"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "agents"
        ordering: ClassVar = ["display_name", "slug"]
        indexes: ClassVar = [  # the orders of the console's lists
            models.Index(fields=["display_name", "slug"], name="agent_name"),
            models.Index(fields=["-is_active", "display_name", "slug"], name="agent_active_name"),
        ]
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(max_turns__gte=1), name="agent_max_turns_positive"),
            models.CheckConstraint(condition=~Q(slug=""), name="agent_slug_given"),
        ]

    def __str__(self) -> str:
        return self.display_name

    @property
    def seeded(self) -> bool:
        """Whether it is one of the examples: their propositions and nudges apply to no other agent."""
        return self.origin == self.Origin.SEED


class PersonaVersion(models.Model):
    """One saved state of an agent's persona: system prompt and traits, with their digest. Never edited."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="persona_versions")
    number = models.PositiveIntegerField(help_text="1 for the first version, counted per agent")
    digest = models.CharField(max_length=64, help_text="SHA-256 of system prompt and traits")
    system_prompt = models.TextField()
    traits = models.JSONField(default=list, help_text="the traits as they were: name, description, sentiment, strength")
    note = models.CharField(max_length=200, blank=True, default="", help_text="what made this version")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "persona_versions"
        ordering: ClassVar = ["agent", "-number"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["agent", "number"], name="persona_version_number_unique")
        ]

    def __str__(self) -> str:
        return f"{self.agent.slug} v{self.number}"


class Trait(models.Model):
    """A named behaviour of an agent. Strength 0 means *stop doing this* and is kept, never dropped."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="traits")
    name = models.CharField(max_length=120, help_text="unique per agent, whatever the case")
    description = models.TextField(blank=True, default="", help_text="what the trait is and how it shows")
    sentiment = models.FloatField(
        default=0.0,
        validators=[MinValueValidator(-1.0), MaxValueValidator(1.0)],
        help_text="how the persona feels about having it: -1 hates it, 1 loves it",
    )
    strength = models.FloatField(
        default=0.5,
        validators=[MinValueValidator(0.0), MaxValueValidator(1.0)],
        help_text="0 = stop doing this, 0.5 = usual, 1 = always",
    )
    source = models.CharField(
        max_length=64, blank=True, default="", help_text="where it came from: seed, import, a person, a request"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "traits"
        ordering: ClassVar = ["agent", "-strength", "name"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                "agent",
                Lower("name"),
                name="trait_name_unique_per_agent",
                violation_error_message="This agent has a trait of that name already.",
            ),
            models.CheckConstraint(condition=Q(sentiment__gte=-1.0, sentiment__lte=1.0), name="trait_sentiment_range"),
            models.CheckConstraint(condition=Q(strength__gte=0.0, strength__lte=1.0), name="trait_strength_range"),
            models.CheckConstraint(condition=~Q(name=""), name="trait_name_given"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.strength:g})"


class MemoryBlock(models.Model):
    """A labelled text that is always in the agent's prompt. The block `personality` is not the agent's to change."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="memory_blocks")
    label = models.CharField(max_length=64, help_text="e.g. personality, relationships, current_focus")
    value = models.TextField(blank=True, default="")
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "memory_blocks"
        ordering: ClassVar = ["agent", "label"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["agent", "label"], name="memory_block_label_unique")]

    def __str__(self) -> str:
        return self.label


class MemoryPassage(models.Model):
    """Something an agent stored to look up later."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="memory_passages")
    text = models.TextField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "memory_passages"
        ordering: ClassVar = ["agent", "-created_at"]

    def __str__(self) -> str:
        return self.text[:60]


_SHOWN = 20


class UnknownAgent(ValueError):
    """A name that is no agent's; says which agents there are, or which are near."""


def find_agent(name: str) -> Agent:
    """The agent of this slug; its display name, and capitals, are understood too.

    Raises:
        UnknownAgent: None, with the nearest names.
    """
    agent = _agent_of(name.strip())
    if agent is None:
        raise UnknownAgent(no_agent(name.strip()))
    return agent


def find_agents(names: str) -> list[Agent]:
    """The agents for ``--agents``: ``all`` (every active one), or slugs separated by commas, each agent once; see `find_agent`.

    Raises:
        UnknownAgent: A name is no agent's, or none is given.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if not wanted:
        raise UnknownAgent("no agent named; write slugs separated by commas, or all")
    if [name.lower() for name in wanted] == ["all"]:
        return list(Agent.objects.filter(is_active=True).order_by("slug"))
    agents = [_agent_of(name) for name in wanted]
    if missing := [name for name, agent in zip(wanted, agents, strict=True) if agent is None]:
        slugs = ", ".join(Agent.objects.order_by("slug").values_list("slug", flat=True)[: 2 * _SHOWN])
        raise UnknownAgent(
            f"no agent {', '.join(map(repr, missing))}; agents: {slugs or 'none; import or seed some first'}"
        )
    return list({agent.pk: agent for agent in agents if agent is not None}.values())


def _agent_of(name: str) -> Agent | None:
    exact = Agent.objects.filter(slug=name).first()
    return exact or Agent.objects.filter(Q(slug__iexact=name) | Q(display_name__iexact=name)).order_by("slug").first()


def no_agent(name: str) -> str:
    """A sentence for a name that is no agent's, with the nearest slugs."""
    slugs = list(Agent.objects.order_by("slug").values_list("slug", flat=True)[:1000])
    if not slugs:
        return "there are no agents yet: `manage.py seed` loads examples, `manage.py import_agents` your own"
    near = get_close_matches(name.lower(), slugs, n=3, cutoff=0.5)
    if near:
        return f"there is no agent {name[:80]!r}; did you mean {' or '.join(near)}?"
    return f"there is no agent {name[:80]!r}; agents: {', '.join(slugs[:_SHOWN])}{' …' if len(slugs) > _SHOWN else ''}"
