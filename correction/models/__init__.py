"""The tables of correction, one file per group."""

from correction.config.settings import AgentEvaluationConfig, GateMode, LeastConfidence, Requesters
from correction.models.behavior import BehaviorEffect, BehaviorRequest
from correction.models.gate import CorrectionLog, GateDimensionResult, ObservedMessage, Outcome, synthetic_logs
from correction.models.gate_hours import AttemptHour, DimensionHour
from correction.models.interventions import Intervention, InterventionLog

__all__ = [
    "AgentEvaluationConfig",
    "AttemptHour",
    "BehaviorEffect",
    "BehaviorRequest",
    "CorrectionLog",
    "DimensionHour",
    "GateDimensionResult",
    "GateMode",
    "Intervention",
    "InterventionLog",
    "LeastConfidence",
    "ObservedMessage",
    "Outcome",
    "Requesters",
    "synthetic_logs",
]
