"""A database in which every route of the API has something to show, made with the offline judge and actor."""

from __future__ import annotations

from io import StringIO

from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.utils import timezone

from agents.debates.debate import ask_rounds, play
from agents.debates.starting import start_debate
from agents.kit.models import owner_name
from agents.models import Agent
from correction.demo.demonstration import show_correction
from correction.models import GateDimensionResult
from evaluation.calibration.labels import save_label
from evaluation.change.models import DriftAlert
from evaluation.models import EvaluationSchedule, EvaluationScore
from evaluation.runs.execute import capture
from evaluation.runs.spec import RunSpec
from tests.evaluation.judged import make_run, make_score


def seed() -> None:
    """The 16 example agents, messages that met the gate, a baseline and an evaluation, labels, a schedule and an alert, a debate."""
    call_command("seed", verbosity=0, stdout=StringIO())
    show_correction(StringIO(), again=False)
    michael, kevin = Agent.objects.get(slug="michael"), Agent.objects.get(slug="kevin")
    baseline = capture([RunSpec(agent=michael, is_baseline=True, samples=3)])[0].summary.run
    capture([RunSpec(agent=michael, samples=2)])
    waiting = make_run(kevin, status="pending")
    make_score(waiting, None, status="pending")
    score = EvaluationScore.objects.filter(status="scored").exclude(judge="rule").first()
    if score is not None:
        save_label(score=score, annotator="ann", value=7, note="dry enough", user=None)
    schedule = EvaluationSchedule.objects.create(name="hourly", dimensions=["adherence"], next_at=timezone.now())
    schedule.agents.add(michael)
    DriftAlert.objects.create(
        agent=michael,
        dimension="adherence",
        judge=baseline.judge,
        procedure=baseline.procedure,
        before=8.0,
        after=5.0,
        since=baseline.created_at,
        schedule=schedule,
        evaluation_run=baseline,
    )
    debate = start_debate(topic="Should we move?", mode="devils-advocate", agents=["michael", "kevin"], rounds=3)
    play(ask_rounds(debate, 1), owner=owner_name())
    GateDimensionResult.objects.filter(passed=False).update(mark="right")


def member(group: str) -> User:
    """Somebody in this group and in no other."""
    user = User.objects.create_user(group.lower())
    user.groups.add(Group.objects.get(name=group))
    return user
