"""The tables of the kit: the ledger of model calls, work, tokens of the API, the review queue, saved views; one file per group."""

from agents.kit.models.access import ApiToken
from agents.kit.models.lease import LastServed, Leasable, owner_is_dead, owner_name
from agents.kit.models.ledger import LedgerHour, LLMBatch, LLMBatchRequest, LLMCall, LLMPayload, ModelPrice, Rollup
from agents.kit.models.ops import Chore, IdempotentRequest, TraceSpan, WorkerHeartbeat
from agents.kit.models.review import ReviewItem
from agents.kit.models.views import SavedView

__all__ = [
    "ApiToken",
    "Chore",
    "IdempotentRequest",
    "LLMBatch",
    "LLMBatchRequest",
    "LLMCall",
    "LLMPayload",
    "LastServed",
    "Leasable",
    "LedgerHour",
    "ModelPrice",
    "ReviewItem",
    "Rollup",
    "SavedView",
    "TraceSpan",
    "WorkerHeartbeat",
    "owner_is_dead",
    "owner_name",
]
