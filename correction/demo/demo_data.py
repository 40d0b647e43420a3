"""Add four weeks of use to the examples of `manage.py demo`, so that every page of the console shows something.

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
from evaluation.calibration.jobs import queue_check
from evaluation.calibration.labels import draw_label_set, drawn_ids, key_of, save_label
from evaluation.calibration.stored import refresh
from evaluation.change.over_time import look_for_drift
from evaluation.models import EvaluationRun, EvaluationSchedule, EvaluationScore, Job
from evaluation.runs.execute import execute
from evaluation.runs.schedules import fire_if_due, save_schedule
from evaluation.runs.spec import RunSpec

MEASURED_AGENTS = ("michael", "kelly")
ANSWERING_AGENT = "pam"
OFFLINE = "offline:lexical-1"  # what is measured again here costs nothing, whatever the judge
FIRINGS = 12
HOURS_BETWEEN = 56  # together the 28 days of the conversations
VISITOR = "Dana (Harlan Dental)"
MESSAGE_IN_CHARACTER = (
    "Hi Dana, I think your order is on the afternoon truck. Maybe I could just check with the warehouse?"
)
DRAFT_SENT_BACK = "As per our policy, the delivery must be signed for immediately. No exceptions!!"
SECOND_DRAFT = (
    "Sorry, could somebody maybe sign for it when it's here? If nobody is at the desk, I'll just leave a sticky note."
)
OBSERVED_MESSAGE = "I left the sample cards at the front desk, kind of sorted by color. It's nothing, really."
BEHAVIOR_REQUEST = "@pam could you please be a bit shorter from now on?"
APOLOGY = "Sorry, the phones are a little wild today, so it might be a bit. I saved you the good chair, though."
JUDGEMENTS_DRAWN = 40
LABELS_PER_PERSON = 9  # fewer than a judge's agreement is shown from
# The judgements at which each person disagrees with what was planted: they agree neither with a judge nor with each other on all.
DISAGREEMENTS = {"planted drift": {2}, "second reader": {2, 7}}


def fill_console() -> None:
    """Set up what the story does not show, so that the console's pages have something.

    Done once: nothing happens where its schedule is there already.

    Raises:
        LookupError: An example agent is missing.
    """
    if EvaluationSchedule.objects.filter(name=Demo.SCHEDULE).exists():
        return
    agents = example_agents((*MEASURED_AGENTS, ANSWERING_AGENT))
    evaluations = _measure_every_few_days([agents[slug] for slug in MEASURED_AGENTS])
    _draw_and_label(evaluations)
    _check_the_judge()
    _answer_a_visitor(agents[ANSWERING_AGENT])


def _measure_every_few_days(agents: list[Agent]) -> list[EvaluationRun]:
    """Fire a schedule at the times it would have fired in the four weeks of the conversations; return its evaluations, judged.

    Each is looked through for drift. The schedule is paused then: no more is said.
    """
    newest = Message.objects.filter(agent__in=agents, synthetic=False).aggregate(at=Max("sent_at"))["at"]
    last_day = timezone.localtime(newest).replace(hour=0, minute=0, second=0, microsecond=0)
    end = last_day + timedelta(days=1)
    first_firing = end - (FIRINGS - 1) * timedelta(hours=HOURS_BETWEEN)
    wanted = EvaluationSchedule(
        name=Demo.SCHEDULE,
        every_minutes=HOURS_BETWEEN * 60,
        window=f"{HOURS_BETWEEN}h",
        dimensions=["adherence"],
        judge=OFFLINE,
        next_at=first_firing,
    )
    schedule = save_schedule(wanted, agents=agents)
    for _ in range(FIRINGS):
        fired = fire_if_due(schedule, now=schedule.next_at)
        for evaluation in execute(fired.runs if fired else ()):
            look_for_drift(evaluation)
        schedule.refresh_from_db()
    schedule.is_active = False
    save_schedule(schedule)
    return list(EvaluationRun.objects.filter(schedule=schedule))


def _draw_and_label(evaluations: list[EvaluationRun]) -> None:
    """Draw judgements, and label the first 9 by what was planted: in build 41 michael does not do what is claimed of him.

    Two made-up people label, each with some labels that disagree with that (`DISAGREEMENTS`: their places among the 9, from 0).
    """
    label_set = draw_label_set(
        name=LABEL_SET, judge=OFFLINE, dimension="adherence", n=JUDGEMENTS_DRAWN, runs=evaluations
    )
    drawn = drawn_ids(label_set)
    scores = EvaluationScore.objects.select_related("evaluation_run", "message__agent").in_bulk(drawn)
    planted = EvaluationScore.objects.filter(message__agent__slug="michael", message__tags__build="41")
    planted_drift = set(planted.values_list("pk", flat=True))
    for annotator, disagrees_at in DISAGREEMENTS.items():
        for number, pk in enumerate(drawn[:LABELS_PER_PERSON]):
            claim_holds = pk not in planted_drift
            if number in disagrees_at:
                claim_holds = not claim_holds
            is_high = claim_holds != scores[pk].inverted  # of an inverted claim a high value is bad
            save_label(score=scores[pk], annotator=annotator, value=8 if is_high else 1)
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
    """Have drafts checked and messages observed, a nudge given, and a request wait, in a new channel that is not synthetic.

    From now on anybody may ask this agent to behave differently; the nudge is switched off again.
    """
    with transaction.atomic():
        channel = Channel.objects.create(slug=Demo.CHANNEL, name="front desk", topic="Visitors and deliveries")
        ChannelMember.objects.create(channel=channel, agent=agent)
        nudge = _apology_nudge(agent)
    configure(agent=agent, changes={"behavior_requesters": "anyone"}, reason="example: visitors may ask")
    receive_message(channel=channel, outsider=VISITOR, text="Hi, is our order on its way?")
    stage = Stage(channel, channel, {agent.slug: agent})
    stage.send_drafts(agent.slug, (MESSAGE_IN_CHARACTER,), gate_settings())
    stage.send_drafts(agent.slug, (DRAFT_SENT_BACK, SECOND_DRAFT), gate_settings())
    for line in (APOLOGY, OBSERVED_MESSAGE):
        observing = {**gate_settings(), "gate_mode": "observe", "lines": [line]}  # what the scripted actor says
        run_turn(start_turn(agent=agent, channel=channel, overrides=observing), owner=owner_name())
    Intervention.objects.filter(pk=nudge.pk).update(is_enabled=False)
    message = receive_message(channel=channel, outsider=VISITOR, text=BEHAVIOR_REQUEST)
    for run in message.triggered_runs.all():
        run_turn(run, owner=owner_name())
    open_requests = BehaviorRequest.objects.filter(message=message, status__in=BehaviorRequest.OPEN)
    _work_off(open_requests, requests.work_one)
    observed = ObservedMessage.objects.filter(message__channel=channel, status__in=ObservedMessage.OPEN)
    _work_off(observed, observe.work_one)


def _apology_nudge(agent: Agent) -> Intervention:
    """Store an enabled intervention for this agent alone, which nudges it once one of the last messages says sorry."""
    nudge: Intervention = Intervention.objects.create(
        slug=Demo.INTERVENTION,
        description="Reminds an agent that keeps saying sorry",
        is_enabled=True,
        function="mentions",
        function_parameters={"phrases": ["sorry"], "at_least": 1},
        nudge="Say what you can do next instead of another apology.",
    )
    nudge.agents.set([agent])
    return nudge
