"""Who speaks, where, and what was said: agents with persona, traits and memory; channels with members, messages, reactions."""

from __future__ import annotations

import unicodedata
import uuid
from collections.abc import Container, Sequence
from difflib import get_close_matches
from typing import Any, ClassVar

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Exists, Q, Value
from django.db.models.functions import Lower, Upper
from django.utils import timezone

from agents.kit.refusals import Refused
from agents.kit.text.fences import check_name
from agents.kit.text.tags import TAG_KEY

hex_color = RegexValidator(r"^#[0-9a-fA-F]{6}$", "Write a colour as # and six hex digits, e.g. #1d4ed8.")


MOST_ALIASES, ALIAS_CHARACTERS = 20, 80


def validate_aliases(value: object) -> None:
    """Refuse aliases that are no list of up to 20 names on one line, each of up to 80 characters with a letter or digit, without an @."""
    if isinstance(value, list) and len(value) <= MOST_ALIASES and all(_is_alias(name) for name in value):
        return
    raise ValidationError(
        'Aliases are %(value).200r; allowed: a list of at most %(most)s names such as "Mike", of up to %(characters)s '
        "characters, with a letter or digit and without an @.",
        params={"value": value, "most": MOST_ALIASES, "characters": ALIAS_CHARACTERS},
    )


def _is_alias(name: object) -> bool:
    if not isinstance(name, str) or len(name) > ALIAS_CHARACTERS:
        return False
    has_letter_or_digit = any(char.isalnum() for char in name)
    return has_letter_or_digit and name.isprintable() and "@" not in name


def validate_name(value: object) -> None:
    """Refuse a name that is not on one line, or holds a control character."""
    try:
        check_name(str(value))
    except ValueError as error:
        raise ValidationError("%(fault)s.", params={"fault": str(error)}) from None


class AgentQuerySet(models.QuerySet["Agent"]):
    """Agents."""

    def listed(self) -> AgentQuerySet:
        """Return those that people made, not those of an experiment's population."""
        return self.filter(synthetic=False)

    def in_use(self) -> AgentQuerySet:
        """Return the active ones of these: ``--agents all`` and schedules mean them."""
        return self.listed().filter(is_active=True)

    def watched(self) -> AgentQuerySet:
        """Return those that the first page, the review queue and alerts are about: the team's own, the examples only without any of these.

        So the examples show what the console does, and no demonstration stands among the team's work.
        """
        own = Agent.objects.listed().filter(origin=Agent.Origin.OWN)
        return self.listed().filter(Q(origin=Agent.Origin.OWN) | ~Exists(own))


def about_watched_agents(path: str = "agent") -> Q:
    """Return the condition for rows about an agent that is watched, or about none.

    Args:
        path: From the filtered model to the agent, e.g. ``session__agent``.
    """
    # Each row's agent is looked up: a set of all watched agents takes longer than the few rows that are wanted.
    own = Agent.objects.listed().filter(origin=Agent.Origin.OWN)
    is_watched = Q(**{f"{path}__origin": Agent.Origin.OWN}) | Q(~Exists(own))
    return Q(**{f"{path}__isnull": True}) | (Q(**{f"{path}__synthetic": False}) & is_watched)


class NumberOf(models.Subquery):
    """The number of rows of a query, as a value in another one. Slice the query: then no more are counted."""

    template = "(SELECT COUNT(*) FROM (%(subquery)s) counted)"
    output_field = models.IntegerField()


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
        help_text="an example of manage.py seed, or your own; the examples' propositions and nudges are for examples only",
    )
    display_name = models.CharField(max_length=120, validators=[validate_name])
    aliases = models.JSONField(
        default=list,
        blank=True,
        validators=[validate_aliases],
        help_text='further names by which people call it, e.g. ["Mike"]; its first name is known without',
    )
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
    synthetic = models.BooleanField(
        default=False, editable=False, help_text="made for an experiment; it stands in no list of agents"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = AgentQuerySet.as_manager()

    class Meta:
        db_table = "agents"
        ordering: ClassVar = ["display_name", "slug"]
        indexes: ClassVar = [  # the orders of the console's lists
            models.Index(fields=["display_name", "slug"], name="agent_name"),
            models.Index(fields=["-is_active", "display_name", "slug"], name="agent_active_name"),
            # `agents_named` looks for names whatever the capitals.
            models.Index(Upper("slug"), name="agent_slug_upper"),
            models.Index(Upper("display_name"), name="agent_name_upper"),
            models.Index(fields=["id"], condition=Q(origin="seed"), name="agent_example"),
        ]
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(max_turns__gte=1), name="agent_max_turns_positive"),
            models.CheckConstraint(condition=~Q(slug=""), name="agent_slug_given"),
        ]

    def __str__(self) -> str:
        return self.display_name

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Store the agent, and mark outsiders who have spoken under its name before, as new ones are."""
        has_same_name = False  # as what is stored: then outsiders are marked already
        if self.pk is not None:
            has_same_name = Agent.objects.filter(pk=self.pk, display_name=self.display_name).exists()
        super().save(*args, **kwargs)
        if not has_same_name:
            mark_outsiders(self.display_name)

    @property
    def seeded(self) -> bool:
        """Return whether it is one of the examples: their propositions and nudges apply to no other agent."""
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
        return f"{self.agent} v{self.number}"


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
    run = models.ForeignKey(
        "agents.Run", null=True, blank=True, editable=False, on_delete=models.SET_NULL, related_name="+",
        help_text="the last turn that wrote it",
    )  # fmt: skip
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
    run = models.ForeignKey(
        "agents.Run", null=True, blank=True, editable=False, on_delete=models.SET_NULL, related_name="+",
        help_text="the turn that stored it",
    )  # fmt: skip
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "memory_passages"
        ordering: ClassVar = ["agent", "-created_at"]

    def __str__(self) -> str:
        return self.text[:60]


AGENTS_NAMED = 20  # in the sentence about a name that is no agent's


class FieldRefused(Refused):
    """A refusal of one field. The text names the field, its value and what is allowed.

    Attributes:
        field: Which argument is wrong.
    """

    def __init__(self, field: str, why: str) -> None:
        super().__init__({field: f"{field}: {why}"})
        self.field = field


NO_AGENTS = "there are no agents yet: `manage.py seed` loads examples, `manage.py import_agents` your own"


class UnknownAgent(ValueError):
    """A name that is no agent's; says which agents there are, or which are near."""


def find_agent(name: str) -> Agent:
    """Return the agent of this slug; its display name, and other capitals, are understood, too. It may be inactive.

    Raises:
        UnknownAgent: There is none; names near slugs.
    """
    name = name.strip()
    agent = agents_named([name]).get(name)
    if agent is None:
        raise UnknownAgent(no_agent(name))
    return agent


def find_agents(names: str) -> list[Agent]:
    """Return the agents of ``--agents``: ``all`` (every active one, none of an experiment), or slugs separated by commas, each once.

    A display name, and other capitals, are understood, too. Those that are named may be inactive.

    Raises:
        UnknownAgent: A name is no agent's, or none is given.
    """
    typed = [name.strip() for name in names.split(",") if name.strip()]
    if not typed:
        raise UnknownAgent("no agent named; write slugs separated by commas, or all")
    if [name.lower() for name in typed] == ["all"]:
        return list(Agent.objects.in_use().order_by("slug"))
    named = agents_named(typed)
    missing = [name for name in typed if name not in named]
    if missing:
        slugs = slugs_offered()
        raise UnknownAgent("; ".join(dict.fromkeys(no_agent(name, slugs) for name in missing)))
    return list({named[name].pk: named[name] for name in typed}.values())


def agents_named(names: Sequence[str]) -> dict[str, Agent]:
    """Return by name the agent with that slug, else the first whose slug or display name is the same but for capitals.

    Names that are no agent's are left out. It takes two statements for any number of names.
    """
    named: dict[str, Agent] = Agent.objects.in_bulk(names, field_name="slug")
    others = [name for name in names if name not in named]
    if not others:
        return named
    capitals = [Upper(Value(name)) for name in others]  # by the database, which may know fewer letters than Python
    with_capitals = Agent.objects.alias(slug_in_capitals=Upper("slug"), name_in_capitals=Upper("display_name"))
    is_alike = Q(slug_in_capitals__in=capitals) | Q(name_in_capitals__in=capitals)
    alike: dict[str, Agent] = {}
    for agent in with_capitals.filter(is_alike).order_by("slug"):
        alike.setdefault(agent.slug.upper(), agent)
        alike.setdefault(agent.display_name.upper(), agent)
    for name in others:
        if name.upper() in alike:
            named[name] = alike[name.upper()]
    return named


OUTSIDER_MARK = " (outsider)"
LONGEST_OUTSIDER = 200  # characters


def names_of_agents() -> frozenset[str]:
    """Return the display names of all agents, folded as `outsider_name` compares them."""
    return frozenset(_folded_name(name) for name in Agent.objects.values_list("display_name", flat=True))


def outsider_name(name: str, names: Container[str]) -> str:
    """Return the name under which an outsider is stored: marked where an agent has the same name, cut where the mark needs the room.

    Args:
        name: As the outsider gave it.
        names: Those of the agents, see `names_of_agents`.
    """
    if _folded_name(name) not in names:
        return name
    return name[: LONGEST_OUTSIDER - len(OUTSIDER_MARK)] + OUTSIDER_MARK


def mark_outsiders(agent_name: str) -> None:
    """Mark stored outsiders who have the name of an agent."""
    outsiders = Message.objects.filter(agent=None, user=None).values_list("outsider", flat=True).distinct().order_by()
    for name in outsiders:
        marked = outsider_name(name, {_folded_name(agent_name)})
        if marked != name:
            Message.objects.filter(outsider=name).update(outsider=marked)


def _folded_name(name: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def slugs_offered() -> list[str]:
    """Return the first 1,000 slugs of agents, among which those are looked for that are like a name."""
    return list(Agent.objects.listed().order_by("slug").values_list("slug", flat=True)[:1000])


def no_agent(name: str, slugs: Sequence[str] | None = None) -> str:
    """Return a sentence about a name that is no agent's, with up to three slugs that are like it, else the first 20.

    Args:
        slugs: Those offered, where more than one name is looked up (default: `slugs_offered`).
    """
    if slugs is None:
        slugs = slugs_offered()
    if not slugs:
        return NO_AGENTS
    similar = get_close_matches(name.lower(), slugs, n=3, cutoff=0.6)
    if similar:
        return f"there is no agent {name[:80]!r}; did you mean {' or '.join(similar)}?"
    more = " …" if len(slugs) > AGENTS_NAMED else ""
    return f"there is no agent {name[:80]!r}; agents: {', '.join(slugs[:AGENTS_NAMED])}{more}"


def validate_tags(value: object) -> None:
    """Refuse tags that are no object of texts such as ``{"build": "41", "locale": "en"}``, whose keys start with a letter."""
    texts = [*value.keys(), *value.values()] if isinstance(value, dict) else []
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in texts):
        raise ValidationError('Tags are pairs of texts, e.g. {"build": "41"}; got %(value)r.', params={"value": value})
    for key in value:
        if not TAG_KEY.fullmatch(key):
            raise ValidationError(
                "Tag key %(key)r: a letter, then up to 63 letters, digits, _ . or -.", params={"key": key}
            )


def new_external_id() -> str:
    """Return an id for a message that has none from its source."""
    return uuid.uuid4().hex


CHAT_PREFIX = "chat-"  # of the slugs of chats
COPY_PREFIX = "talk-"  # of the slugs of copies of chats, in which a question is answered again


class Channel(models.Model):
    """A conversation: its messages have one order, their `position`."""

    class Kind(models.TextChoices):
        PUBLIC = "public", "public"
        PRIVATE = "private", "private"
        DM = "dm", "direct message"
        DEBATE = "debate", "debate"
        EXPERIMENT = "experiment", "experiment"

    slug = models.SlugField(max_length=120, unique=True, help_text="the channel's id in commands, files and the API")
    name = models.CharField(max_length=200, validators=[validate_name])
    kind = models.CharField(max_length=12, choices=Kind.choices, default=Kind.PUBLIC)
    topic = models.TextField(blank=True, default="")
    tags = models.JSONField(default=dict, blank=True, validators=[validate_tags], help_text="key -> value, both texts")
    synthetic = models.BooleanField(
        default=False,
        help_text="for simulations and demonstrations: its messages are never mixed with real ones",
    )
    next_position = models.PositiveBigIntegerField(
        default=1, editable=False, help_text="position of the next message; raised by the statement that takes it"
    )
    inclusion_probability = models.FloatField(
        default=1.0,
        db_default=1.0,
        editable=False,
        help_text="chance with which this conversation was kept when it came in, above 0 to 1; means count it 1 ÷ this. 1 = certain",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "channels"
        ordering: ClassVar = ["kind", "name"]
        indexes: ClassVar = [
            models.Index(fields=["kind", "name"], name="channel_kind_name"),
            models.Index(fields=["id"], condition=Q(inclusion_probability__lt=1), name="channel_sampled"),
            models.Index(fields=["id"], condition=Q(synthetic=True), name="channel_synthetic"),
        ]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(inclusion_probability__gt=0, inclusion_probability__lte=1),
                name="channel_inclusion_probability",
            ),
            models.CheckConstraint(
                condition=Q(kind__in=["public", "private", "dm", "debate", "experiment"]), name="channel_kind_known"
            ),
            models.CheckConstraint(condition=~Q(slug=""), name="channel_slug_given"),
        ]

    def __str__(self) -> str:
        return self.name if self.kind == self.Kind.DM else f"#{self.name}"

    @property
    def is_scratch(self) -> bool:
        """Return whether it is a chat, or a copy of one: a person watches its turns."""
        is_direct = self.synthetic and self.kind == self.Kind.DM
        return is_direct and self.slug.startswith((CHAT_PREFIX, COPY_PREFIX))

    @property
    def inclusion_weight(self) -> float:
        """Return for how many conversations this one stands in means: 1 ÷ the chance with which it was kept."""
        return 1.0 / self.inclusion_probability


class ChannelMember(models.Model):
    """An agent or a user who may read and write in a channel."""

    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="memberships")
    agent = models.ForeignKey(Agent, null=True, blank=True, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
    joined_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "channel_members"
        ordering: ClassVar = ["channel", "joined_at", "pk"]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(agent__isnull=False, user__isnull=True) | Q(agent__isnull=True, user__isnull=False),
                name="channel_member_agent_or_user",
                violation_error_message="A member is an agent or a user, one of the two.",
            ),
            models.UniqueConstraint(
                fields=["channel", "agent"], condition=Q(agent__isnull=False), name="channel_agent_unique"
            ),
            models.UniqueConstraint(
                fields=["channel", "user"], condition=Q(user__isnull=False), name="channel_user_unique"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.agent or self.user} in {self.channel}"


class SaidAt(models.DateTimeField):  # type: ignore[type-arg]  # nor can it be subscripted
    """When a message counts as said: its `sent_at`; without one what is given here, by default when it is stored."""

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        sent_at = getattr(model_instance, "sent_at", None)
        if sent_at is not None:
            setattr(model_instance, self.attname, sent_at)
        return super().pre_save(model_instance, add)


class Message(models.Model):
    """A message that was really said, once. Drafts that were rejected are not messages."""

    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="messages")
    position = models.PositiveBigIntegerField(help_text="place in the channel's order, from 1")
    external_id = models.CharField(
        max_length=200,
        default=new_external_id,
        help_text="the message's id in its channel, from the source it was imported from",
    )
    agent = models.ForeignKey(Agent, null=True, blank=True, on_delete=models.PROTECT, related_name="messages")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    outsider = models.CharField(
        max_length=LONGEST_OUTSIDER, blank=True, default="", help_text="name of a speaker who is neither agent nor user"
    )
    parent = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="replies")
    text = models.TextField(blank=True)
    payload = models.JSONField(default=dict, blank=True, help_text="typed data beside the text")
    sent_at = models.DateTimeField(null=True, blank=True, help_text="empty when the source gives no time")
    said_at = SaidAt(
        default=timezone.now,
        editable=False,
        help_text="sent_at; without one that of the dated message beside it in its source, else when it was stored",
    )
    run = models.ForeignKey("agents.Run", null=True, blank=True, on_delete=models.SET_NULL, related_name="messages")
    persona_version = models.ForeignKey(
        PersonaVersion,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="empty for imported messages",
    )
    synthetic = models.BooleanField(default=False, help_text="from a simulation; never mixed with real messages")
    idempotency_key = models.CharField(max_length=200, null=True, blank=True, unique=True)
    tags = models.JSONField(
        default=dict, blank=True, validators=[validate_tags], help_text="e.g. build, actor model, locale"
    )
    imported_by = models.ForeignKey(
        "agents.Import",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="messages",
        db_index=False,
        help_text="the import in the console that stored it",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "messages"
        ordering: ClassVar = ["channel", "position"]
        indexes: ClassVar = [
            # `synthetic` lets the list of agents count messages in the index alone.
            models.Index(fields=["agent", "sent_at", "synthetic"], name="message_agent_sent_at"),
            models.Index(fields=["agent", "said_at"], name="message_agent_said_at"),
            models.Index(fields=["imported_by"], condition=Q(imported_by__isnull=False), name="message_imported_by"),
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["channel", "position"], name="message_position_unique"),
            models.UniqueConstraint(fields=["channel", "external_id"], name="message_external_id_unique"),
            models.CheckConstraint(
                condition=(
                    Q(agent__isnull=False, user__isnull=True, outsider="")
                    | Q(agent__isnull=True, user__isnull=False, outsider="")
                    | (Q(agent__isnull=True, user__isnull=True) & ~Q(outsider=""))
                ),
                name="message_one_author",
                violation_error_message="A message has exactly one author: an agent, a user or a named outsider.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.author_name}: {self.text[:60]}"

    @property
    def author_name(self) -> str:
        """Return the speaker's name as people read it."""
        if self.agent is not None:
            return self.agent.display_name
        if self.user is not None:
            return self.user.get_full_name() or self.user.get_username()
        return self.outsider


class Reaction(models.Model):
    """An emoji that an agent or a user put on a message."""

    message = models.ForeignKey(Message, on_delete=models.CASCADE, related_name="reactions")
    agent = models.ForeignKey(Agent, null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
    emoji = models.CharField(max_length=32)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "reactions"
        ordering: ClassVar = ["message", "created_at"]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(agent__isnull=False, user__isnull=True) | Q(agent__isnull=True, user__isnull=False),
                name="reaction_agent_or_user",
            ),
            models.UniqueConstraint(
                fields=["message", "agent", "emoji"], condition=Q(agent__isnull=False), name="reaction_agent_once"
            ),
            models.UniqueConstraint(
                fields=["message", "user", "emoji"], condition=Q(user__isnull=False), name="reaction_user_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.emoji} by {self.agent or self.user}"
