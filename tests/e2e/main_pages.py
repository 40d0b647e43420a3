"""The main pages of the console, over the data of ``manage.py demo`` and its scenes: for the screenshots and for what must hold of each."""

from __future__ import annotations

from django.db.models import Model
from django.urls import reverse

from agents.alerts.models import Alert
from agents.debates.models import Debate
from agents.kit.models import LLMCall
from agents.models import Agent, Channel, Run
from correction.behavior.models import BehaviorRequest
from correction.interventions.models import InterventionLog
from correction.models import CorrectionLog
from evaluation.calibration.models import JudgeCalibration, LabelSet
from evaluation.change.models import DriftAlert
from evaluation.models import EvaluationRun, EvaluationSchedule, EvaluationScore
from tests.console import list_of, page_of, tab_of

NAMES = (
    "home",
    "review",
    "alerts",
    "drift-overview",
    "agent",
    "propositions",
    "gate",
    "channel",
    "chat",
    "evaluation-run",
    "judge",
    "compare",
    "gate-session",
    "turn",
    "debate",
    "correction-matrix",
    "behaviour-requests",
    "import",
    "ledger",
)


def main_pages() -> dict[str, str]:
    """Path by name; the names are those of the files under docs/screenshots."""
    michael = Agent.objects.get(slug="michael")
    scenes = Channel.objects.get(slug="demo-1")
    drifted = EvaluationRun.objects.filter(agent=michael, where={"build": "41"}).latest("pk")
    forced = CorrectionLog.objects.filter(session__agent=michael, outcome="forced_through").latest("pk")
    return {
        "home": reverse("admin:index"),
        "review": reverse("admin:review"),
        "alerts": list_of(Alert),
        "drift-overview": reverse("admin:evaluation_drift_overview"),
        "agent": page_of(michael),
        "propositions": reverse("admin:evaluation_proposition_change", args=["michael"]),
        "gate": reverse("admin:correction_agentevaluationconfig_gate", args=[michael.pk]),
        "channel": reverse("admin:agents_channel_transcript", args=[scenes.pk]),
        "chat": page_of(Channel.objects.filter(slug__startswith="chat-").latest("pk"), "chat"),
        "evaluation-run": page_of(drifted),
        "judge": page_of(JudgeCalibration.objects.filter(procedure="plumbline", dimension="adherence").latest("pk")),
        "compare": reverse("admin:evaluation_evaluationrun_compare")
        + "?agent=michael&baseline=build%3D40&candidate=build%3D41",
        "gate-session": page_of(forced),
        "turn": page_of(Run.objects.filter(channel__slug="demo-1-picnic").latest("pk")),
        "debate": page_of(Debate.objects.latest("pk")),
        "correction-matrix": reverse("admin:correction_agentevaluationconfig_changelist"),
        "behaviour-requests": reverse("admin:behavior_behaviorrequest_changelist"),
        "import": reverse("admin:agents_import_changelist"),
        "ledger": list_of(LLMCall),
    }


def other_pages() -> list[str]:
    """Return paths of lists, rows and forms that are no main pages."""
    tables: list[type[Model]] = [EvaluationRun, EvaluationScore, EvaluationSchedule, DriftAlert, LabelSet]
    tables += [CorrectionLog, BehaviorRequest, InterventionLog, Channel, Run]
    with_pages: list[type[Model]] = [EvaluationSchedule, LabelSet, BehaviorRequest, InterventionLog]
    rows = [model._default_manager.latest("pk") for model in with_pages]
    michael = Agent.objects.get(slug="michael")
    return [
        *map(list_of, tables),
        *map(page_of, rows),
        *(tab_of(michael, tab) for tab in ("persona", "gate", "history")),
        *(page_of(michael, view) for view in ("versions", "prompt", "turn")),
        reverse("admin:agents_channel_chats", args=[michael.pk]),
        reverse("admin:correction_agentevaluationconfig_target", args=[michael.pk]),
        *(
            reverse(f"admin:{name}_add")
            for name in ("interventions_intervention", "calibration_labelset", "debates_debate")
        ),
    ]
