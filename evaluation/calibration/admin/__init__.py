"""The console's pages for labels and judges, and what they add to the pages of messages and scores."""

from agents.kit.console.site import extend
from agents.models import Message
from evaluation.calibration.admin import home, jobs, labels, review
from evaluation.calibration.admin.labels import CHOOSING, choose_buttons, choose_link, choose_score
from evaluation.models import EvaluationScore

__all__ = ["home", "jobs", "labels", "review"]

extend(
    Message,
    CHOOSING[0],
    panels=(lambda request, message: choose_link(request, message=message.pk),),
    buttons=(lambda request, message: choose_buttons(request, message=message.pk),),
)
extend(EvaluationScore, CHOOSING[0], panels=(choose_score,))
