"""An agent's page says what it showed when it was opened, so that saving it undoes nothing that happened to the persona meanwhile.

Workers change personas, too: somebody who opened the page, and saves another colour an hour later, has not decided about any of that.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from agents.models import Agent
from agents.persona import changes_since, current_digest
from agents.text.fences import neutral

AGAIN = (
    "Nothing is saved yet, and what you typed is kept below. Saving again leaves what changed as it is now, except where you typed "
    "something else or the system prompt is concerned, which becomes what stands here. A trait that was removed meanwhile: delete its "
    "row, too."
)
MOST_TOLD = 300  # characters of a description


@dataclass(frozen=True, slots=True)
class Opened:
    """Digests of what a page showed: of the persona, and of the description, which is no part of it."""

    persona: str
    description: str

    def __str__(self) -> str:
        return f"{self.persona}.{self.description}"


def opened_on(agent: Agent) -> Opened:
    """What a page about the agent shows now."""
    return Opened(current_digest(agent), text_digest(agent.description))


def read_opened(text: str) -> Opened:
    """What the form sent back; whatever else it holds is a state in which no agent is."""
    persona, _, description = text.partition(".")
    return Opened(persona, description)


def as_stored(typed: str, stored: str) -> str:
    """The stored text where nobody typed another: a browser sends line ends of its own, and forms strip."""
    typed = _plain(typed)
    return stored if typed == _plain(stored) else typed


def text_digest(text: str) -> str:
    """The same for texts that a browser may make of each other."""
    return hashlib.sha256(_plain(text).encode()).hexdigest()


def what_changed(agent: Agent, opened: Opened, *, description_typed: bool) -> str:
    """Why the page cannot be saved as it is: what changed since it was opened, and by what; empty where nothing that it would undo.

    Args:
        agent: As it is now, locked.
        opened: What the page showed.
        description_typed: Whether another description stands in the form; if not, one that changed meanwhile stays.
    """
    now, told = opened_on(agent), []
    if opened.persona != now.persona:
        versions = changes_since([(agent.pk, opened.persona)]).get((agent.pk, opened.persona), ())
        told.append("; ".join(str(version) for version in versions) or "by something that left no version")
    if description_typed and opened.description != now.description:
        told.append(f"the description, which is now: {agent.description[:MOST_TOLD]}")
    if not told:
        return ""
    return f"This agent was changed since you opened the page: {neutral('; '.join(told))[0]}. {AGAIN}"


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()
