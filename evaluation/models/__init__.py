"""What was measured: evaluation runs, their scores and the baselines that are current; one file per group."""

from evaluation.models.evaluations import (
    BY_MESSAGE,
    CHANNEL_DIMENSIONS,
    COUNTED,
    Baseline,
    ChannelShare,
    Dimension,
    EvaluationRun,
    EvaluationScore,
    Evidence,
    Idea,
    IdeaPart,
    LineUpRun,
    Method,
    is_heuristic,
    procedure_name,
)
from evaluation.models.labels import DrawnScore, JudgeCalibration, LabelSet, ScoreLabel
from evaluation.models.propositions import PatternTimeout, Proposition
from evaluation.models.schedules import DriftAlert, EvaluationSchedule

__all__ = [
    "BY_MESSAGE",
    "CHANNEL_DIMENSIONS",
    "COUNTED",
    "Baseline",
    "ChannelShare",
    "Dimension",
    "DrawnScore",
    "DriftAlert",
    "EvaluationRun",
    "EvaluationSchedule",
    "EvaluationScore",
    "Evidence",
    "Idea",
    "IdeaPart",
    "JudgeCalibration",
    "LabelSet",
    "LineUpRun",
    "Method",
    "PatternTimeout",
    "Proposition",
    "ScoreLabel",
    "is_heuristic",
    "procedure_name",
]
