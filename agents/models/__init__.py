"""The tables of agents and conversations, one file per group."""

from agents.models.conversations import (
    Agent,
    Channel,
    ChannelMember,
    MemoryBlock,
    MemoryPassage,
    Message,
    NumberOf,
    PersonaVersion,
    Reaction,
    Trait,
    about_watched_agents,
)
from agents.models.imports import Import, ImportChunk
from agents.models.runs import Run, RunMessage, RunStep

__all__ = [
    "Agent",
    "Channel",
    "ChannelMember",
    "Import",
    "ImportChunk",
    "MemoryBlock",
    "MemoryPassage",
    "Message",
    "NumberOf",
    "PersonaVersion",
    "Reaction",
    "Run",
    "RunMessage",
    "RunStep",
    "Trait",
    "about_watched_agents",
]
