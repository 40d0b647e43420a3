"""What somebody chose for an import: how the files are read, and who the speakers are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from django.contrib.auth.models import AnonymousUser, User

from agents.persona import AgentValues, Outcome, UpsertResult
from agents.transcripts.importer import AUTO
from agents.transcripts.store import JOINING

CREATING, CHANGING, SAYING = "agents.add_agent", "agents.change_agent", "agents.add_message"
TRAITS, BLOCKS = "trait", "memoryblock"
READ_AS_PERSONAS = "personas"
"""A choice beside the formats of transcripts: the files hold personas."""


@dataclass(frozen=True, slots=True)
class NewAgent:
    """An agent that is made for a speaker when the import begins."""

    slug: str
    display_name: str
    system_prompt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Everything about an import that can be chosen.

    Attributes:
        format: ``auto``, a format of transcripts, or ``personas``.
        channel: Name of the channel; empty = as the file says.
        agents: Speaker to agent slug; an empty slug: surely no agent. Who is left out is looked up by name.
        made: Speaker to an agent that does not exist yet.
        tags: Put on every message.
        columns: For CSV: our field to the file's column.
        time_zone: For times without an offset; empty = the TIME_ZONE setting.
        reset: Of personas: overwrite those that were edited here.
    """

    format: str = AUTO
    channel: str = ""
    agents: Mapping[str, str] = field(default_factory=dict)
    made: Mapping[str, NewAgent] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    time_zone: str = ""
    reset: bool = False

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def reads(self) -> tuple[Any, ...]:
        """What decides how a file is taken apart: with other values it has other speakers."""
        return self.format, dict(self.columns)


def choices_of(stored: Mapping[str, Any]) -> Choices:
    """The choices that `Choices.as_json` stored."""
    made = {name: NewAgent(**agent) for name, agent in stored.get("made", {}).items()}
    return Choices(**{**stored, "made": made})


def may_import_transcripts(user: User | AnonymousUser) -> bool:
    """Whether they may hand in what was said; which channels and agents it may concern, `agents.transcripts.store` says."""
    return user.has_perm(SAYING)


def may_import_personas(user: User | AnonymousUser) -> bool:
    """Whether they may hand in personas, which make agents and change them."""
    return user.has_perm(CREATING) and user.has_perm(CHANGING)


def missing_for_personas(
    user: User | AnonymousUser, personas: Sequence[AgentValues], results: Sequence[UpsertResult]
) -> list[str]:
    """The permissions that somebody lacks for what becomes of personas: the same that an agent's page asks for its parts."""
    needed = set()
    for values, result in zip(personas, results, strict=True):
        acts = {Outcome.CREATED: ("add",), Outcome.UPDATED: ("add", "change", "delete")}.get(result.outcome, ())
        parts = (TRAITS,) * bool(values.traits is not None) + (BLOCKS,) * bool(values.memory_blocks)
        if result.outcome == Outcome.CREATED and not values.traits:
            parts = tuple(part for part in parts if part != TRAITS)
        needed |= {f"agents.{act}_{part}" for act in acts for part in parts}
    return sorted(name for name in needed if not user.has_perm(name))


def may_make_speakers(user: User | AnonymousUser) -> bool:
    """Whether they may have agents made for speakers, which join the channels they speak in."""
    return user.has_perm(CREATING) and user.has_perm(JOINING)
