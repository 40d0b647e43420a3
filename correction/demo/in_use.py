"""What `manage.py demo` adds to the examples, so that every page of the console shows something: four weeks of use.

Nothing is staged but the texts: they pass the services that every team uses. What is said here is in a channel of its own, by an agent
that does not drift, newer than builds 40 and 41 and without their tags: no figure of a build has it in it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Max, QuerySet
from django.utils import timezone

from agents.kit.models import owner_name
from agents.kit.text.wording import counted
from agents.models import Agent, Channel, ChannelMember, Message
from agents.seed import Demo
from agents.turn.orchestrator import run_turn
from agents.turn.receive import receive_message
from agents.turn.send_message import start_turn
from correction.behavior import work as requests
from correction.behavior.models import BehaviorRequest
from correction.config.configure import configure
from correction.demo import LABEL_SET
from correction.demo.demonstration import Stage, example_agents, gate_settings
from correction.gate import observe
from correction.interventions.models import Intervention
from correction.models import ObservedMessage
from evaluation import jobs
from evaluation.calibration.agreement import refresh
from evaluation.calibration.jobs import queue_check
from evaluation.calibration.labels import draw_label_set, drawn_ids, key_of, save_label
from evaluation.change.models import DriftAlert
from evaluation.change.over_time import look_for_drift
from evaluation.models import EvaluationRun, EvaluationSchedule, EvaluationScore, Job
from evaluation.runs.execute import execute
from evaluation.runs.planning import RunSpec
from evaluation.runs.schedules import fire_if_due, save_schedule

MEASURED, ANSWERING = ("michael", "kelly"), "pam"
OFFLINE = "offline:lexical-1"  # what is measured again here costs nothing, whatever the judge
FIRINGS, HOURS = 12, 56  # together the 28 days of the conversations
VISITOR = "Dana (Harlan Dental)"
IN_CHARACTER = "Hi Dana, I think your order is on the afternoon truck. Maybe I could just check with the warehouse?"
SENT_BACK = "As per our policy, the delivery must be signed for immediately. No exceptions!!"
INSTEAD = (
    "Sorry, could somebody maybe sign for it when it's here? If nobody is at the desk, I'll just leave a sticky note."
)
OBSERVED = "I left the sample cards at the front desk, kind of sorted by color. It's nothing, really."
ASKED = "@pam could you please be a bit shorter from now on?"
SORRY = "Sorry, the phones are a little wild today, so it might be a bit. I saved you the good chair, though."
DRAWN, LABELLED = 40, 9  # by each of two people: fewer labels than a judge's agreement is shown from
# At which of these two people see it another way than what was planted: they agree neither with a judge nor with each other on all.
DISAGREEMENTS = {"planted drift": {2}, "second reader": {2, 7}}


def fill_console(out: Any) -> None:
    """Set up what the scenes do not show and say where to see it, once.

    Raises:
        LookupError: An example agent is missing.
    """
    if EvaluationSchedule.objects.filter(name=Demo.SCHEDULE).exists():
        return
    agents = example_agents((*MEASURED, ANSWERING))
    runs = _measure_every_few_days([agents[slug] for slug in MEASURED])
    _label(runs)
    _check_the_judge()
    _answer_a_visitor(agents[ANSWERING])
    alerts = DriftAlert.objects.filter(schedule__name=Demo.SCHEDULE).count()
    out.write(
        f"In use: {len(runs)} evaluations of {' and '.join(MEASURED)} by a schedule ({counted(alerts, 'alert')}), labels, "
        f"a check of the judge, a request, and checked messages in channel {Demo.CHANNEL}: see the console."
    )


def _measure_every_few_days(agents: list[Agent]) -> list[EvaluationRun]:
    """Fire a schedule at the times it would have fired in the four weeks of the conversations, then pause it: no more is said."""
    newest = Message.objects.filter(agent__in=agents, synthetic=False).aggregate(at=Max("sent_at"))["at"]
    end = timezone.localtime(newest).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    every = timedelta(hours=HOURS)
    asked = EvaluationSchedule(
        name=Demo.SCHEDULE, every_minutes=HOURS * 60, window=f"{HOURS}h", dimensions=["adherence"], judge=OFFLINE,
        next_at=end - (FIRINGS - 1) * every,
    )  # fmt: skip
    schedule = save_schedule(asked, agents=agents)
    for _ in range(FIRINGS):
        fired = fire_if_due(schedule, now=schedule.next_at)
        for run in execute(fired.runs if fired else ()):
            look_for_drift(run)
        schedule.refresh_from_db()
    schedule.is_active = False
    save_schedule(schedule)
    return list(EvaluationRun.objects.filter(schedule=schedule))


def _label(runs: list[EvaluationRun]) -> None:
    """Draw judgements, and label some of them by what was planted: in build 41 michael does not do what is claimed of him."""
    drawn = draw_label_set(name=LABEL_SET, judge=OFFLINE, dimension="adherence", n=DRAWN, runs=runs)
    scores = EvaluationScore.objects.select_related("evaluation_run", "message__agent").in_bulk(drawn_ids(drawn))
    lost = set(
        EvaluationScore.objects.filter(message__agent__slug="michael", message__tags__build="41").values_list(
            "pk", flat=True
        )
    )
    for annotator, disagrees_at in DISAGREEMENTS.items():
        for place, pk in enumerate(drawn_ids(drawn)[:LABELLED]):
            holds = (pk not in lost) != (place in disagrees_at)
            save_label(score=scores[pk], annotator=annotator, value=1 if holds == scores[pk].inverted else 8)
    refresh(key_of(next(iter(scores.values()))))


def _check_the_judge() -> None:
    """Have the offline judge tell the agents' own words from those of others, in the build in which none drifted."""
    agents = Agent.objects.in_use().order_by("slug")
    specs = [RunSpec(agent=agent, dimensions=("adherence",), where={"build": "40"}, judge=OFFLINE) for agent in agents]
    job = queue_check(specs=specs, of_all=True)
    execute(list(job.evaluations.all()))
    _work_off(Job.objects.filter(pk=job.pk, status__in=Job.OPEN), jobs.work_one)


def _work_off(waiting: QuerySet[Any], work_one: Callable[..., bool]) -> None:
    """Do queued work here, until nothing of `waiting` is left."""
    while waiting.exists() and work_one(owner=owner_name()):
        pass


def _answer_a_visitor(agent: Agent) -> None:
    """Have drafts checked and messages observed, a nudge given, and a request wait, in an ordinary channel."""
    with transaction.atomic():
        channel = Channel.objects.create(slug=Demo.CHANNEL, name="front desk", topic="Visitors and deliveries")
        ChannelMember.objects.create(channel=channel, agent=agent)
        nudge = Intervention.objects.create(
            slug=Demo.INTERVENTION,
            description="Reminds an agent that keeps saying sorry",
            is_enabled=True,
            function="mentions",
            function_parameters={"phrases": ["sorry"], "at_least": 1},
            nudge="Say what you can do next instead of another apology.",
        )
        nudge.agents.set([agent])
    configure(agent=agent, changes={"behavior_requesters": "anyone"}, reason="example: visitors may ask")
    receive_message(channel=channel, outsider=VISITOR, text="Hi, is our order on its way?")
    stage = Stage(channel, channel, {agent.slug: agent})
    for drafts in ((IN_CHARACTER,), (SENT_BACK, INSTEAD)):
        stage.attempts(agent.slug, drafts, gate_settings())
    for line in (SORRY, OBSERVED):
        watched = {**gate_settings(), "gate_mode": "observe", "lines": [line]}
        run_turn(start_turn(agent=agent, channel=channel, overrides=watched), owner=owner_name())
    Intervention.objects.filter(pk=nudge.pk).update(is_enabled=False)
    asked = receive_message(channel=channel, outsider=VISITOR, text=ASKED)
    for run in asked.triggered_runs.all():
        run_turn(run, owner=owner_name())
    _work_off(BehaviorRequest.objects.filter(message=asked, status__in=BehaviorRequest.OPEN), requests.work_one)
    observed = ObservedMessage.objects.filter(message__channel=channel, status__in=ObservedMessage.OPEN)
    _work_off(observed, observe.work_one)
