"""What was measured: evaluation runs, their scores and the baselines that are current; one file per group."""

from evaluation.dimensions import BY_MESSAGE, CHANNEL_DIMENSIONS, COUNTED, Dimension
from evaluation.models.evaluations import (
    OUT_OF_REACH,
    RULE_JUDGE,
    Baseline,
    ChannelShare,
    DriftAlert,
    EvaluationRun,
    EvaluationSchedule,
    EvaluationScore,
    Evidence,
    Idea,
    IdeaPart,
    LineUpRun,
    Method,
    PatternTimeout,
    Proposition,
    SwapHalf,
    is_heuristic,
    procedure_name,
)
from evaluation.models.experiments import Experiment, ExperimentEnvironment
from evaluation.models.jobs import Job
from evaluation.models.labels import DrawnScore, JudgeCalibration, LabelSet, ScoreLabel

__all__ = [
    "BY_MESSAGE",
    "CHANNEL_DIMENSIONS",
    "COUNTED",
    "OUT_OF_REACH",
    "RULE_JUDGE",
    "Baseline",
    "ChannelShare",
    "Dimension",
    "DrawnScore",
    "DriftAlert",
    "EvaluationRun",
    "EvaluationSchedule",
    "EvaluationScore",
    "Evidence",
    "Experiment",
    "ExperimentEnvironment",
    "Idea",
    "IdeaPart",
    "Job",
    "JudgeCalibration",
    "LabelSet",
    "LineUpRun",
    "Method",
    "PatternTimeout",
    "Proposition",
    "ScoreLabel",
    "SwapHalf",
    "is_heuristic",
    "procedure_name",
]
