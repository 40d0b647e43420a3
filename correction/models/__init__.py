"""The tables of correction, one file per group."""

from correction.models.config import AgentEvaluationConfig, GateMode
from correction.models.gate import CorrectionLog, GateDimensionResult, ObservedMessage, Outcome, played
from correction.models.interventions import Intervention, InterventionLog

__all__ = [
    "AgentEvaluationConfig",
    "CorrectionLog",
    "GateDimensionResult",
    "GateMode",
    "Intervention",
    "InterventionLog",
    "ObservedMessage",
    "Outcome",
    "played",
]
