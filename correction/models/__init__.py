"""The tables of correction, one file per group."""

from correction.config.settings import AgentEvaluationConfig, GateMode, LeastConfidence, Requesters
from correction.models.gate import (
    CorrectionLog,
    GateDimensionResult,
    GateSession,
    ObservedMessage,
    Outcome,
    synthetic_logs,
)
from correction.models.gate_hours import AttemptHour, DimensionHour

__all__ = [
    "AgentEvaluationConfig",
    "AttemptHour",
    "CorrectionLog",
    "DimensionHour",
    "GateDimensionResult",
    "GateMode",
    "GateSession",
    "LeastConfidence",
    "ObservedMessage",
    "Outcome",
    "Requesters",
    "synthetic_logs",
]
