"""The tables of agents and conversations, one file per group."""

from agents.models.access import ApiToken
from agents.models.alerts import Alert, AlertKind, Delivery, Receiver
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
)
from agents.models.debates import Debate, DebateRound, DebateSeat, DebateTurn
from agents.models.descriptions import DescriptionUpdate
from agents.models.imports import Import, ImportChunk
from agents.models.ledger import LedgerHour, LLMBatch, LLMBatchRequest, LLMCall, LLMPayload, ModelPrice, Rollup
from agents.models.ops import Chore, IdempotentRequest, TraceSpan, WorkerHeartbeat
from agents.models.review import ReviewItem
from agents.models.runs import Run, RunMessage, RunStep
from agents.models.swarms import DialogState, DialogSummary, Swarm, SwarmPhase, SwarmTurn, UserPreferences
from agents.work.lease import LastServed, Leasable, owner_is_dead, owner_name

__all__ = [
    "Agent",
    "Alert",
    "AlertKind",
    "ApiToken",
    "Channel",
    "ChannelMember",
    "Chore",
    "Debate",
    "DebateRound",
    "DebateSeat",
    "DebateTurn",
    "Delivery",
    "DescriptionUpdate",
    "DialogState",
    "DialogSummary",
    "IdempotentRequest",
    "Import",
    "ImportChunk",
    "LLMBatch",
    "LLMBatchRequest",
    "LLMCall",
    "LLMPayload",
    "LastServed",
    "Leasable",
    "LedgerHour",
    "MemoryBlock",
    "MemoryPassage",
    "Message",
    "ModelPrice",
    "NumberOf",
    "PersonaVersion",
    "Reaction",
    "Receiver",
    "ReviewItem",
    "Rollup",
    "Run",
    "RunMessage",
    "RunStep",
    "Swarm",
    "SwarmPhase",
    "SwarmTurn",
    "TraceSpan",
    "Trait",
    "UserPreferences",
    "WorkerHeartbeat",
    "owner_is_dead",
    "owner_name",
]
