"""The console's pages of evaluations, judgements and schedules, and the notes on the pages of messages."""

from agents.kit.console.site import extend
from agents.models import Message
from evaluation.admin import home, jobs, runs, schedules, scores
from evaluation.admin.scores import judgement_notes

__all__ = ["home", "jobs", "runs", "schedules", "scores"]

extend(Message, "evaluation.view_evaluationscore", notes=(judgement_notes,))
