"""The tables of the ground floor, one file per group."""

from agents.models.claimable import Claimable, owner_is_dead, owner_name
from agents.models.conversations import Channel, ChannelMember, Message, Reaction
from agents.models.ledger import LLMCall, LLMPayload, ModelPrice
from agents.models.personas import Agent, MemoryBlock, MemoryPassage, PersonaVersion, Trait
from agents.models.runs import Run, RunMessage, RunStep

__all__ = [
    "Agent",
    "Channel",
    "ChannelMember",
    "Claimable",
    "LLMCall",
    "LLMPayload",
    "MemoryBlock",
    "MemoryPassage",
    "Message",
    "ModelPrice",
    "PersonaVersion",
    "Reaction",
    "Run",
    "RunMessage",
    "RunStep",
    "Trait",
    "owner_is_dead",
    "owner_name",
]
