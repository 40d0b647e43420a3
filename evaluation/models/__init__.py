"""The tables of measuring: evaluations with their judgements, schedules, and jobs."""

from evaluation.dimensions import BY_MESSAGE, CHANNEL_DIMENSIONS, COUNTED, Dimension
from evaluation.models.evaluations import (
    OUT_OF_REACH,
    PROCEDURE,
    RULE_JUDGE,
    SIMULATION,
    STATISTIC,
    ChannelShare,
    EvaluationRun,
    EvaluationSchedule,
    EvaluationScore,
    Idea,
    IdeaPart,
    Method,
    PatternTimeout,
    Proposition,
    SwapHalf,
    is_heuristic,
    procedure_fields,
    procedure_name,
)
from evaluation.models.few_shot import FewShotExamples
from evaluation.models.jobs import Job

__all__ = [
    "BY_MESSAGE",
    "CHANNEL_DIMENSIONS",
    "COUNTED",
    "OUT_OF_REACH",
    "PROCEDURE",
    "RULE_JUDGE",
    "SIMULATION",
    "STATISTIC",
    "ChannelShare",
    "Dimension",
    "EvaluationRun",
    "EvaluationSchedule",
    "EvaluationScore",
    "FewShotExamples",
    "Idea",
    "IdeaPart",
    "Job",
    "Method",
    "PatternTimeout",
    "Proposition",
    "SwapHalf",
    "is_heuristic",
    "procedure_fields",
    "procedure_name",
]
