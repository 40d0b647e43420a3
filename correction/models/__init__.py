"""The tables of correction, one file per group."""

from correction.config.settings import AgentEvaluationConfig, GateMode, IngestKeep, LeastConfidence, Requesters
from correction.models.gate import (
    CorrectionLog,
    GateDimensionResult,
    GateSession,
    ObservedMessage,
    Outcome,
    synthetic_logs,
)
from correction.models.gate_hours import AttemptHour, DimensionHour
from correction.models.sampling import SampledDay

__all__ = [
    "AgentEvaluationConfig",
    "AttemptHour",
    "CorrectionLog",
    "DimensionHour",
    "GateDimensionResult",
    "GateMode",
    "GateSession",
    "IngestKeep",
    "LeastConfidence",
    "ObservedMessage",
    "Outcome",
    "Requesters",
    "SampledDay",
    "synthetic_logs",
]
