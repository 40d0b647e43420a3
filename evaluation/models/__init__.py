"""What was measured: evaluation runs, their scores and the baselines that are current; one file per group."""

from evaluation.models.baselines import Baseline, Evidence
from evaluation.models.channels import ChannelShare, Idea, IdeaPart, LineUpRun
from evaluation.models.choices import (
    BY_MESSAGE,
    CHANNEL_DIMENSIONS,
    COUNTED,
    Dimension,
    Method,
    is_heuristic,
    procedure_name,
)
from evaluation.models.labels import DrawnScore, JudgeCalibration, LabelSet, ScoreLabel
from evaluation.models.propositions import PatternTimeout, Proposition
from evaluation.models.runs import EvaluationRun
from evaluation.models.schedules import DriftAlert, EvaluationSchedule
from evaluation.models.scores import EvaluationScore

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
