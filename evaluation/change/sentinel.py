"""The sentinel of a judge: has it changed behind its name?

Of each judge and procedure that schedules use, up to 30 judgements of single messages are frozen: the same propositions about the same
messages amid the same conversations. With each scheduled evaluation they are asked again (`SentinelCheck`, work like any other) and
compared with the reference, the answers that were given first. A sure change raises one alert, and alerts of agents are held back until a
person takes the new answers as the reference (`accept`), or a later check finds that the judge answers as the reference says.

**Frozen** is what is judged: persona, claim, message and what happened around it. An item of which any of this was edited or erased is
replaced, and its pair starts again; so is one near the end of a conversation that went on. How the judge is asked is part of the judge: a
change of the prompts that changes scores is found, too.

**The reference** is not what was drawn: a judgement that is drawn because it scored 2 would be higher on average when it is asked again. So
the first answers after the draw are the reference.

**Repeated looks**: each look is one test of `change_of`, the pairs clustered by message. It counts as a change where it is sure, at least
half a point, and its p value is at most `level_of_one_test`, the rate of false alarms of all drift alerts. However many schedules use a
judge, and however often one is fired by hand, there is about one look per period of that level (`LEAST_PERIOD`). The test takes the noise
of one answer to be independent of that of another message. A change of less than half a point raises no alert.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
import secrets
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models.functions import Coalesce
from django.utils import timezone
from pydantic import BaseModel, ConfigDict
from pydantic_core import to_jsonable_python

from agents.kit.alerting import AlertKind, end_alerts, raise_alert
from agents.kit.llm import Label
from agents.kit.llm.endpoints import route_of
from agents.kit.models.lease import LeaseLost
from agents.kit.text.fences import new_nonce
from agents.kit.text.wording import counted, interval_text, signed
from agents.kit.work.queues import do_next, wake_workers
from agents.models import Agent, Message
from evaluation.budget import why_over_budget
from evaluation.change.change import ChangeResult, Sample, change_of, mean_of
from evaluation.change.models import JudgeSentinel, SentinelCheck
from evaluation.change.over_time import look_for_sharp_fall
from evaluation.dimensions import BY_ONE_MESSAGE
from evaluation.jobs import lease
from evaluation.judge.asking import Answered, JudgeHealth, ask_all
from evaluation.judge.identity import JudgeIdentity, prompt_digest
from evaluation.judge.questions import Question
from evaluation.models import EvaluationRun, EvaluationSchedule, EvaluationScore, procedure_fields
from evaluation.propositions.files import PropositionError, load_all
from evaluation.propositions.schema import Proposition
from evaluation.runs.estimate import estimate_questions
from evaluation.runs.failures import FAILURES
from evaluation.runs.judging import OpenItem, questions, settle
from evaluation.runs.numbers import Spending
from evaluation.runs.planning import make_plan, new_run, subject_of
from evaluation.runs.spec import RunSpec
from evaluation.scorers.subjects import ChannelSubject, Subject
from evaluation.statistics.bootstrap import Observation
from evaluation.statistics.change_point import level_of_one_test
from evaluation.statistics.difference import MARGIN

log = logging.getLogger("evaluation.sentinel")

ITEMS = 30  # frozen judgements
MESSAGES = 20  # that they are of, where these have two propositions: 20 calls
LEAST_MESSAGES = 10  # fewer show no change for sure
CANDIDATES = 2_000  # newest judgements that are drawn from
LEAST_ANSWERED = 0.5  # share of the pairs without which a look says nothing
LEAST_PERIOD = 0.9  # share of a schedule's period between two looks: a schedule fires a little early or late
MOST_TRIES = 3  # of a check whose worker crashed
PURPOSE = "sentinel"


class Frozen(BaseModel):
    """A frozen judgement.

    Attributes:
        digest: Of what is judged; see `_digest`.
        reference: The score that later ones are compared with, 0 to 9; None until it was answered once.
    """

    model_config = ConfigDict(frozen=True)

    agent: int
    message: int
    dimension: str
    proposition: str
    digest: str = ""
    reference: int | None = None

    @property
    def key(self) -> str:
        """Return its name among the answers of a check; of what was edited it is another one."""
        return f"{self.message}/{self.dimension}/{self.proposition}/{self.digest}"


def items_of(sentinel: JudgeSentinel) -> list[Frozen]:
    return [Frozen.model_validate(item) for item in sentinel.items]


# -- asking for a check
def has_sentinel(judge: str) -> bool:
    """Return whether a judge can change behind its name: one that answers in this process cannot."""
    return route_of("judge", judge).is_distant


def plan_checks(schedule: EvaluationSchedule, runs: Sequence[EvaluationRun]) -> None:
    """Have the judges of these evaluations checked, in the transaction in which their schedule fired.

    A judge is not checked twice: not while a check is open, nor within a period of one that compared answers.
    """
    fired_at = schedule.last_fired_at or timezone.now()
    period_began = fired_at - LEAST_PERIOD * schedule.every
    ways = {(run.judge, run.procedure) for run in runs if has_sentinel(run.judge)}
    checks: list[SentinelCheck] = []
    for judge, procedure in sorted(ways):
        seed = secrets.randbelow(2**31)
        sentinel, _ = JudgeSentinel.objects.get_or_create(judge=judge, procedure=procedure, defaults={"seed": seed})
        if not sentinel.checks.filter(change__isnull=False, fired_at__gt=period_began).exists():
            checks.append(SentinelCheck(sentinel=sentinel, every_minutes=schedule.every_minutes, fired_at=fired_at))
    SentinelCheck.objects.bulk_create(checks, ignore_conflicts=True)  # of a judge one check at most is open


# -- drawing
def draw(sentinel: JudgeSentinel, kept: Sequence[Frozen] = ()) -> list[Frozen]:
    """Return judgements that may be frozen, in the order in which they are taken: score by score one of each of 20 messages, then a second
    one of these, then one each of other messages.

    They are drawn from the newest 2,000 scores of the judge that are about one message, of completed evaluations. Two judgements of one
    message share a call, which is cheaper; but their noise belongs together, so that more messages show more.

    Args:
        kept: Those that are frozen already; none of their messages is drawn.
    """
    rng = random.Random(sentinel.seed)  # noqa: S311 (repeatable, not unpredictable)
    taken = {item.message for item in kept}
    scores: dict[str, int] = {}
    of_message: dict[int, list[Frozen]] = defaultdict(list)
    for agent, message, dimension, proposition, score in _newest_scores(sentinel):
        item = Frozen(agent=agent, message=message, dimension=dimension, proposition=proposition)
        if item.key not in scores and message not in taken:
            scores[item.key] = score
            of_message[message].append(item)
    by_score: dict[int, list[Frozen]] = defaultdict(list)
    for items in of_message.values():
        for item in items:
            by_score[scores[item.key]].append(item)
    for items in by_score.values():
        rng.shuffle(items)
    first_ones: list[Frozen] = []
    second_of: dict[int, list[Frozen]] = {}
    while by_score:
        for score in sorted(by_score):
            first = by_score[score].pop()
            if not by_score[score]:
                del by_score[score]
            siblings = of_message.pop(first.message, [])  # none where its message was taken before
            if siblings:
                first_ones.append(first)
                second_of[first.message] = [item for item in siblings if item != first][:1]
    n = max(0, MESSAGES - len(taken))
    drawn = first_ones[:n]
    for item in first_ones[:n]:
        drawn += second_of[item.message]
    return [*drawn, *first_ones[n:]]


def _newest_scores(sentinel: JudgeSentinel) -> list[tuple[int, int, str, str, int]]:
    """Return agent, message, dimension, proposition and score of the judgements that are drawn from, the newest first."""
    asked_alike = {f"evaluation_run__{name}": value for name, value in procedure_fields(sentinel.procedure).items()}
    scores = EvaluationScore.objects.filter(
        **asked_alike,
        evaluation_run__judge=sentinel.judge,
        evaluation_run__swap_test="",
        evaluation_run__status=EvaluationRun.Status.COMPLETED,
        evaluation_run__agent__isnull=False,
        judge=sentinel.judge,
        dimension__in=BY_ONE_MESSAGE,
        status=EvaluationScore.Status.SCORED,
        score__isnull=False,
        message__isnull=False,
    )
    columns = ("evaluation_run__agent", "message", "dimension", "proposition_id", "score")
    return list(scores.order_by("-pk").values_list(*columns)[:CANDIDATES])


# -- what is asked
@dataclass(frozen=True, slots=True)
class _Asked:
    """What a plain evaluation of an agent would ask now."""

    run: EvaluationRun
    subject: Subject | ChannelSubject
    propositions: dict[tuple[str, str], Proposition]


class Asking:
    """Makes the questions about frozen judgements, as an evaluation of their agents would ask them now; agents are loaded once."""

    def __init__(self, sentinel: JudgeSentinel) -> None:
        """Load the proposition files.

        Raises:
            PropositionError: They cannot be used.
        """
        self._sentinel = sentinel
        self._files = load_all()
        self._asked: dict[int, _Asked | None] = {}

    def questions(self, items: Sequence[Frozen], *, label: Label) -> Iterator[Question]:
        """Yield the questions, grouped as in an evaluation; without items that cannot be asked any more.

        Those are about messages, propositions or agents that are gone, or need no judge now.
        """
        nonce = new_nonce()
        messages = Message.objects.select_related("channel").in_bulk([item.message for item in items])
        by_agent: dict[tuple[int, str], list[OpenItem[Frozen]]] = defaultdict(list)
        for item in items:
            agent_context = self._asked_of(item.agent)
            message = messages.get(item.message)
            if agent_context is None or message is None or not message.text.strip():
                continue
            proposition = agent_context.propositions.get((item.dimension, item.proposition))
            if proposition is None or settle(proposition, message, agent_context.subject) is not None:
                continue
            by_agent[item.agent, item.dimension].append(OpenItem(item, proposition, message))
        for (agent, dimension), entries in by_agent.items():
            of_agent = self._asked_of(agent)
            assert of_agent is not None  # noqa: S101 (else it has no entries)
            groups = questions(
                entries, of_agent.subject, of_agent.run, dimension=dimension, nonce=nonce, label=lambda _: label
            )
            for group in groups:
                if group.question is not None:
                    yield group.question

    def digests(self, items: Sequence[Frozen]) -> dict[str, str]:
        """Return the digest of what would be judged now, by key of the items that can be asked."""
        digests: dict[str, str] = {}
        for question in self.questions(items, label=Label(purpose=PURPOSE)):
            claims = question.claims().values()
            for item, proposition, claim in zip(question.items, question.propositions, claims, strict=True):
                digests[item.key] = _digest(question, proposition, claim)
        return digests

    def _asked_of(self, pk: int) -> _Asked | None:
        """Return what would be asked of an agent; None where it was deleted."""
        if pk not in self._asked:
            agent = Agent.objects.filter(pk=pk).first()
            self._asked[pk] = None if agent is None else self._load(agent)
        return self._asked[pk]

    def _load(self, agent: Agent) -> _Asked:
        procedure = procedure_fields(self._sentinel.procedure)
        spec = RunSpec(agent=agent, dimensions=BY_ONE_MESSAGE, judge=self._sentinel.judge, **procedure)
        plan = make_plan(spec, files=self._files)
        run = new_run(plan)
        propositions = {}
        for of_dimension in plan.propositions.values():
            for proposition in of_dimension:
                propositions[proposition.dimension, proposition.id] = proposition
        return _Asked(run=run, subject=subject_of(run), propositions=propositions)


def _digest(question: Question, proposition: Proposition, claim: str) -> str:
    """Return a digest of what is judged: claim, persona, message and its window; not of how the judge is asked."""
    content = [claim, proposition.hard, proposition.inverted, asdict(question.context)]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]


def refreshed(sentinel: JudgeSentinel, asking: Asking) -> list[Frozen]:
    """Return the frozen judgements, those replaced that cannot be asked as they were; fewer than 30 where there are no more."""
    items = items_of(sentinel)
    digests = asking.digests(items)
    kept = [item for item in items if digests.get(item.key) == item.digest]
    candidates = draw(sentinel, kept) if len(kept) < ITEMS else []
    while len(kept) < ITEMS and candidates:
        n_new = ITEMS - len(kept)
        tried, candidates = candidates[:n_new], candidates[n_new:]
        digests = asking.digests(tried)
        for item in tried:
            if item.key in digests:
                kept.append(item.model_copy(update={"digest": digests[item.key]}))
    return kept


def estimate_check(judge: str, procedure: str) -> Spending | None:
    """Estimate what the next check of a judge would need; nothing is asked or stored.

    None where there is no check: of a judge that answers in this process, and while there are too few judgements to freeze.

    Raises:
        PropositionError: Proposition files cannot be used.
    """
    if not has_sentinel(judge):
        return None
    sentinel = JudgeSentinel.objects.filter(judge=judge, procedure=procedure).first()
    if sentinel is None:
        sentinel = JudgeSentinel(judge=judge, procedure=procedure, seed=0)
    asking = Asking(sentinel)
    items = refreshed(sentinel, asking)
    if _too_few(items):
        return None
    return estimate_questions(asking.questions(items, label=Label(purpose="estimate")), judge=judge)


def _too_few(items: Sequence[Frozen]) -> str:
    """Return why nothing is frozen yet; empty where there are enough messages."""
    messages = {item.message for item in items}
    if len(messages) >= LEAST_MESSAGES:
        return ""
    return f"{counted(len(messages), 'message')} with judgements to freeze; at least {LEAST_MESSAGES} are needed"


# -- a check
def work_one(*, owner: str) -> bool:
    """Do the check that has waited longest; return whether there was one. Workers call it."""
    return do_next(SentinelCheck, partial(_check, owner=owner), owner=owner, lease=lease(), attempts=MOST_TRIES)


def _check(check: SentinelCheck, *, owner: str) -> None:
    """Ask what is missing of a leased check, compare it and end it; then look at the evaluations that waited for it."""
    not_asked = _ask(check, owner)
    if not_asked is not None:
        has_ended = check.finish(owner=owner, status=not_asked.status, error=not_asked.reason)
    else:
        has_ended = _conclude(check, owner)
    if has_ended:
        check_waiting(check)


@dataclass(frozen=True, slots=True)
class _NotAsked:
    """How a check ends that has nothing to compare: ``failed``, or ``completed`` where there is just too little to ask about yet."""

    status: str
    reason: str


def _ask(check: SentinelCheck, owner: str) -> _NotAsked | None:
    """Replace what cannot be asked any more, and ask what this check has no answer to; return why it cannot be, None where it was."""
    sentinel = check.sentinel
    problem = route_of("judge", sentinel.judge).problem or why_over_budget(None, sentinel.judge)
    if problem:
        return _NotAsked(SentinelCheck.Status.FAILED, problem)
    try:
        asking = Asking(sentinel)
        items = refreshed(sentinel, asking)
    except PropositionError as error:
        return _NotAsked(SentinelCheck.Status.FAILED, f"proposition files cannot be used: {error.problems[0]}")
    if too_few := _too_few(items):
        return _NotAsked(SentinelCheck.Status.COMPLETED, too_few)
    _store_items(sentinel, items)
    missing = [item for item in items if item.key not in check.answers]
    label = Label(purpose=PURPOSE, mechanism=PURPOSE, work_id=check.work_id)
    health = JudgeHealth()
    with closing(ask_all(asking.questions(missing, label=label))) as answers:
        for answered in answers:
            failed = all(verdict.cause in FAILURES for verdict in answered.verdicts)
            health.note(failed=failed, why=answered.verdicts[0].reason)
            if health.down:
                return _NotAsked(SentinelCheck.Status.FAILED, health.down)
            if not failed:
                _store_answers(check, answered, owner)
    return None


def _store_items(sentinel: JudgeSentinel, items: Sequence[Frozen]) -> None:
    """Store the frozen judgements, with their references as they are now: a person may have accepted others meanwhile.

    Only the one open check of a sentinel changes which judgements they are.
    """
    with transaction.atomic():
        stored = JudgeSentinel.objects.select_for_update().get(pk=sentinel.pk)
        references = {item.key: item.reference for item in items_of(stored)}
        stored.items = []
        for item in items:
            reference = references.get(item.key)
            stored.items.append(item.model_copy(update={"reference": reference}).model_dump())
        stored.save(update_fields=["items"])


def _store_answers(check: SentinelCheck, answered: Answered, owner: str) -> None:
    """Store the answers of one call, and extend the lease.

    Raises:
        LeaseLost: Another worker has the check.
    """
    sentinel = check.sentinel
    for position, verdict in zip(answered.positions, answered.verdicts, strict=True):
        item = answered.question.items[position]
        check.answers[item.key] = verdict.value if verdict.status == "scored" else None
        check.identity = _identity(sentinel, verdict.served_model).model_dump()
    if not check.extend_lease(owner=owner, lease=lease()):
        raise LeaseLost(f"another worker has {check}")
    leased_row = SentinelCheck.objects.filter(pk=check.pk, lease_owner=owner)
    leased_row.update(answers=check.answers, identity=check.identity)


def _identity(sentinel: JudgeSentinel, served_model: str) -> JudgeIdentity:
    procedure = procedure_fields(sentinel.procedure)
    digest = prompt_digest(
        sentinel.judge,
        method=procedure["method"],
        double_check=procedure["double_check"],
        dimensions=BY_ONE_MESSAGE,
    )
    endpoint = route_of("judge", sentinel.judge).endpoint
    return JudgeIdentity(endpoint=endpoint, served_model=served_model, prompt_digest=digest)


def _conclude(check: SentinelCheck, owner: str) -> bool:
    """Compare the answers with the reference, take the first answers as the reference, and raise the alert of a sure change. End a change
    that is open where the judge answers as the reference says again.

    All in one transaction. Returns whether `owner` still held the check.
    """
    with transaction.atomic():
        sentinel = JudgeSentinel.objects.select_for_update().get(pk=check.sentinel_id)
        items = items_of(sentinel)
        before = {item.key: item.reference for item in items if item.reference is not None}
        now = {key: check.answers.get(key) for key in before}
        answered = {key: score for key, score in now.items() if score is not None}
        ended: dict[str, Any] = {"status": SentinelCheck.Status.COMPLETED, "pairs": len(answered)}
        is_open = sentinel.checks.filter(changed=True, ended_at=None).exists()
        went_back = False
        if len(answered) < LEAST_ANSWERED * len(before):
            ended["status"] = SentinelCheck.Status.FAILED
            ended["error"] = f"{len(answered)} of {len(before)} frozen judgements were scored: nothing is compared"
        elif answered:
            change = judge_change({item.key: item for item in items}, answered)
            ended["change"] = to_jsonable_python(dict(change))
            ended["changed"] = is_change(change, every=timedelta(minutes=check.every_minutes)) and not is_open
            went_back = is_open and change.verdict == "steady"
        if not check.finish(owner=owner, **ended):
            return False
        if check.changed:
            _announce(check, sentinel)
        if went_back:
            log.info("judge answers as before: %s, check %s: %s", sentinel, check.pk, change_words(check))
            _end_change(sentinel, ended_at=check.fired_at, went_back=True)
        # While a change is open first answers are those of another judge: accepting it takes them, too.
        if not check.changed and (went_back or not is_open):
            _take_first_answers(sentinel, items, check)
    return True


def judge_change(items: Mapping[str, Frozen], answers: Mapping[str, int]) -> ChangeResult:
    """Return how the answers differ from the reference, pair by pair, clustered by message.

    Args:
        items: By key; those that were answered have a reference.
        answers: Scores by key, at least one.
    """
    before: list[Observation] = []
    now: list[Observation] = []
    for key, score in answers.items():
        item = items[key]
        assert item.reference is not None  # noqa: S101 (else it is no pair)
        cluster = f"message:{item.message}"
        before.append(Observation(item.reference, 1.0, cluster))
        now.append(Observation(score, 1.0, cluster))
    return change_of(
        Sample(score=mean_of(before), observations=before),
        Sample(score=mean_of(now), observations=now),
        dimension="judge",
        margin=MARGIN,
    )


def is_change(change: ChangeResult, *, every: timedelta) -> bool:
    """Return whether one look of many shows that the judge changed; see the module.

    Args:
        every: Time between two looks.
    """
    return change.is_sure and change.p_value is not None and change.p_value <= level_of_one_test(every=every)


def _take_first_answers(sentinel: JudgeSentinel, items: Sequence[Frozen], check: SentinelCheck) -> None:
    """Make the answers to what had no reference its reference."""
    stored = []
    for item in items:
        if item.reference is None:
            item = item.model_copy(update={"reference": check.answers.get(item.key)})
        stored.append(item.model_dump())
    sentinel.items = stored
    has_reference = any(item["reference"] is not None for item in stored)
    if sentinel.reference_at is None and has_reference:
        sentinel.reference_at = check.fired_at
        sentinel.identity = check.identity
    sentinel.save(update_fields=["items", "reference_at", "identity"])


def _announce(check: SentinelCheck, sentinel: JudgeSentinel) -> None:
    """Raise the alert that a judge changed, and log it. While it is open no second one is raised for the judge."""
    title = f"The judge {sentinel.judge} changed: {change_words(check)}. {HELD_BACK}"
    raise_alert(kind=AlertKind.JUDGE_CHANGED, about=sentinel.judge, title=title, page=sentinel, lasts=True)
    log.warning("judge changed: %s, check %s: %s", sentinel, check.pk, change_words(check))
    transaction.on_commit(wake_workers)


HELD_BACK = "Alerts of agents are held back until its new answers are accepted, or it answers as before"


def change_words(check: SentinelCheck) -> str:
    """Return what a check found, e.g. ``30 frozen judgements score +1.0 points (95 %: +0.8 to +1.2)``; else why it compared none."""
    change = check.result
    if change is None or change.delta is None:
        return check.error or "the first answers: they are the reference"
    interval = f" (95 %: {interval_text(change.interval)})" if change.interval is not None else ""
    return f"{counted(check.pairs, 'frozen judgement')} score {signed(change.delta)} points{interval}"


# -- after a check
def check_waiting(check: SentinelCheck) -> None:
    """Look for sharp falls in the evaluations that were completed while their judge was checked.

    Those that waited for an earlier check which crashed are among them. Lasting falls are looked for by workers anyway, as soon as no check
    of the judge is open.
    """
    sentinel = check.sentinel
    ended = sentinel.checks.filter(pk__lt=check.pk).exclude(status=SentinelCheck.Status.ERRORED)
    waiting_since = ended.values_list("fired_at", flat=True).first() or check.fired_at
    fields = procedure_fields(sentinel.procedure)
    runs = EvaluationRun.objects.annotate(judged_at=Coalesce("finished_at", "created_at")).filter(
        judge=sentinel.judge,
        swap_test="",
        agent__isnull=False,
        status=EvaluationRun.Status.COMPLETED,
        is_baseline=False,
        judged_at__gte=waiting_since,
        **fields,
    )
    for run in runs.select_related("agent", "schedule").order_by("pk"):
        look_for_sharp_fall(run)


def accept(sentinel: JudgeSentinel, *, user: Any) -> bool:
    """Take the newest answers of a judge that changed as its reference from now on; return whether a change was open.

    It is then over, and so is its alert, unless the same judge changed in another procedure.
    """
    with transaction.atomic():
        sentinel = JudgeSentinel.objects.select_for_update().get(pk=sentinel.pk)
        newest = sentinel.checks.filter(status=SentinelCheck.Status.COMPLETED, change__isnull=False).first()
        if newest is None or not sentinel.checks.filter(changed=True, ended_at=None).exists():
            return False
        items = []
        for item in items_of(sentinel):
            items.append(item.model_copy(update={"reference": newest.answers.get(item.key)}).model_dump())
        sentinel.items = items
        sentinel.identity = newest.identity
        sentinel.reference_at = newest.fired_at
        sentinel.save(update_fields=["items", "identity", "reference_at"])
        _end_change(sentinel, ended_at=timezone.now(), accepted_by=user)
    return True


def _end_change(
    sentinel: JudgeSentinel, *, ended_at: datetime, went_back: bool = False, accepted_by: Any = None
) -> None:
    """Store that the open change of a judge is over, and end its alert, unless the same judge changed in another procedure."""
    change = sentinel.checks.filter(changed=True, ended_at=None)
    change.update(ended_at=ended_at, went_back=went_back, accepted_by=accepted_by)
    others = SentinelCheck.objects.filter(sentinel__judge=sentinel.judge, changed=True, ended_at=None)
    if not others.exists():
        end_alerts(kind=AlertKind.JUDGE_CHANGED, about=sentinel.judge)
