"""The tables of correction, one file per group."""

from correction.models.config import AgentEvaluationConfig, GateMode
from correction.models.gate import CorrectionLog, GateDimensionResult, ObservedMessage, Outcome, played
from correction.models.gate_hours import AttemptSum, AttemptTotal, DimensionSum, DimensionTotal
from correction.models.interventions import Intervention, InterventionLog

__all__ = [
    "AgentEvaluationConfig",
    "AttemptSum",
    "AttemptTotal",
    "CorrectionLog",
    "DimensionSum",
    "DimensionTotal",
    "GateDimensionResult",
    "GateMode",
    "Intervention",
    "InterventionLog",
    "ObservedMessage",
    "Outcome",
    "played",
]
