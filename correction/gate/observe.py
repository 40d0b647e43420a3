"""Observe mode: messages are sent at once and judged afterwards, so that a team learns the false-alarm rate before it enforces.

A person can also have messages judged that were sent before, with an estimate first (`estimate_check`, `judge_later`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from statistics import median
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, prefetch_related_objects
from django.utils import timezone

from agents.kit.llm import Label, LLMRequest, Reply, complete_together, estimate_tokens, ledger
from agents.kit.llm.endpoints import model_of, route_of
from agents.kit.llm.providers import is_remote
from agents.kit.models import Leasable, LLMBatchRequest
from agents.kit.work.batches import MOST_ROUNDS, Answers, InBatch, forget_answers
from agents.kit.work.queues import do_next, wake_workers
from agents.models import Agent, Message
from agents.turn.pipeline import speaker_of
from correction.config.settings import ResolvedConfig, resolve_all, resolve_config
from correction.costs import over_budget
from correction.gate.actions import Action, action_of_message
from correction.gate.check import check_action_quality, questions_of, questions_of_check
from correction.gate.plan import CheckPlan, load_propositions, plan_check
from correction.gate.sessions import write_attempt
from correction.gate.stage import judges_in_batches, new_observation
from correction.models import (
    CorrectionLog,
    GateDimensionResult,
    GateMode,
    GateSession,
    ObservedMessage,
    Outcome,
)
from correction.sampling import is_observed
from evaluation.judge.questions import Question, build_request
from evaluation.runs.planning import answer_length

Status = Leasable.Status
MOST_ATTEMPTS = 3 + MOST_ROUNDS  # leases of one observation before its crash is final; each batch takes one


def queue_ingested(messages: Sequence[Message]) -> int:
    """Queue those of newly stored messages whose agents are only observed and whose conversations are drawn; return how many.

    Called for imported messages, inside the transaction that stores them; workers wake once that is committed. Messages of people, and
    of agents whose gate is off or enforces, are passed over. An agent's sample rate is the share of its conversations, 0 to 1.
    """
    agents = Agent.objects.filter(pk__in={message.agent_id for message in messages if message.agent_id is not None})
    rates: dict[int | None, Decimal] = {}
    by_batches: set[int | None] = set()
    for agent, config in resolve_all(agents.select_related("evaluation_config")):
        if config.gate_mode == GateMode.OBSERVE and not config.gate_is_off:
            rates[agent.pk] = config["observe_sample_rate"]
            if judges_in_batches(config):
                by_batches.add(agent.pk)
    queued: list[ObservedMessage] = []
    for message in messages:
        rate = rates.get(message.agent_id)
        if rate is not None and is_observed(message.channel.slug, rate):
            queued.append(new_observation(message, rate=rate, in_batch=message.agent_id in by_batches))
    ObservedMessage.objects.bulk_create(queued)
    if queued:
        transaction.on_commit(wake_workers)
    return len(queued)


def judge_later(*, messages: Sequence[Message], dimensions: Sequence[str]) -> int:
    """Queue messages that were sent to be judged on these dimensions, whatever their agents' gates do; return how many.

    Those that wait already are left as they are, but that those which no batch has yet wait for none: a person wants to know. A message
    that was judged is judged again (its verdict stays in the log). Workers wake once the transaction is committed.
    """
    prefetch_related_objects(list(messages), "channel")
    with transaction.atomic():
        observed = ObservedMessage.objects.filter(message__in=messages)
        observed.filter(status__in=ObservedMessage.FINAL).delete()  # a message has one row at most
        observed.filter(batch=None).update(waits_since=None)
        waiting = set(observed.values_list("message", flat=True))
        queued = [new_observation(message, dimensions) for message in messages if message.pk not in waiting]
        ObservedMessage.objects.bulk_create(queued, ignore_conflicts=True)  # another process may have queued the same
        if queued:
            transaction.on_commit(wake_workers)
    return len(queued)


LATEST_CHECKS = 50  # whose median is the estimated time


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckEstimate:
    """What judging one message takes.

    Attributes:
        calls: Calls of a model over the network.
        cost_usd: None where the model has no price.
        seconds: The median of the latest checks by this judge, whatever the dimensions; None where there was none.
    """

    calls: int
    cost_usd: Decimal | None
    seconds: float | None


def estimate_check(*, message: Message, agent: Agent, dimensions: Sequence[str]) -> CheckEstimate:
    """Estimate what judging a message like this one takes, from its very prompts (tokens are characters / 4). Asks no model.

    Calls and cost are 0 for a judge that answers in this process.
    """
    judge = str(settings.JUDGE_MODEL)
    seconds = _median_seconds(judge)
    if not is_remote(judge):
        return CheckEstimate(calls=0, cost_usd=Decimal(0), seconds=seconds)
    propositions = load_propositions(
        agent_slug=agent.slug,
        dimensions=dimensions,
        hard=resolve_config(agent).hard_dimensions,
        seeded=agent.seeded,
    )
    action = action_of_message(message, agent, propositions)
    label = Label(purpose="gate", mechanism="gate", agent_id=agent.pk)
    questions = [question for _, question in questions_of(action, propositions, label, gate=False)]
    return CheckEstimate(calls=len(questions), cost_usd=_estimated_cost(questions, judge), seconds=seconds)


def _estimated_cost(questions: Sequence[Question], judge: str) -> Decimal | None:
    """Return the US dollars that answering the questions costs; None where the judge has no price."""
    costs = []
    for question in questions:
        tokens_out = len(question.propositions) * answer_length(judge).tokens
        costs.append(ledger.estimate_cost(judge, estimate_tokens(build_request(question)), tokens_out))
    return ledger.sum_if_all_priced(costs)


def _median_seconds(judge: str) -> float | None:
    """Return the median time of the latest checks by this judge; None where none of the newest is its. A batch has no such time."""
    answered_in_batch = GateDimensionResult.objects.filter(log=OuterRef("pk"), call__batch=True)
    newest = CorrectionLog.objects.order_by("-pk").values_list("judge", "duration_ms", Exists(answered_in_batch))
    durations: list[int] = []
    for asked_judge, duration_ms, in_batch in newest[: 10 * LATEST_CHECKS]:
        if asked_judge == judge and not in_batch:
            durations.append(duration_ms)
    if not durations:
        return None
    return median(durations[:LATEST_CHECKS]) / 1000


def work_one(*, owner: str) -> bool:
    """Judge the message that has waited longest to be observed; return whether there was one."""
    lease = timedelta(seconds=settings.LLM_EVALUATION_DEADLINE + 60)
    return do_next(ObservedMessage, _judge_and_log, owner=owner, lease=lease, attempts=MOST_ATTEMPTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A message to be judged afterwards, with everything it is judged by."""

    message: Message
    config: ResolvedConfig
    plan: CheckPlan
    action: Action
    session: GateSession

    def next_steps(self, *, may_wait: bool) -> list[Reply | InBatch | LLMRequest]:
        """Return for each question its reply from a batch, or how it is to be asked; see `Answers.next_step`."""
        work_id = self.session.work_id
        questions = questions_of_check(self.action, self.plan, work_id=work_id, run_id=self.message.run_id, gate=False)
        answers = Answers(work_id, route_of("judge", self.plan.judge))
        return [answers.next_step(build_request(question), may_wait=may_wait) for _, question in questions]


def load_observation(observed: ObservedMessage) -> Observation | str:
    """Read what a message is judged by as it is configured now; or return why it is not judged.

    It is not where it is gone or no agent's, or where the gate was switched off and no person named dimensions.
    """
    message = Message.objects.select_related("agent", "channel", "run").filter(pk=observed.message_id).first()
    if message is None or message.agent is None:
        return "the message is gone, or no agent's"
    overrides = message.run.overrides if message.run is not None else {}
    agent = speaker_of(message.agent, overrides)
    config = resolve_config(agent, overrides)
    # Dimensions are named where a person asked for the judgement: then it is made with a gate that is off, too.
    if config.gate_is_off and not observed.dimensions:
        return "the gate was switched off before the message was judged"
    plan = plan_check(
        agent=agent,
        config=config,
        dimensions=observed.dimensions,
        # None: as configured. Where a person asked, rules are checked unless they are switched off.
        check_rules=config.rules_if_asked if observed.dimensions else None,
        judge=_judge_of(observed),
    )
    session = GateSession(
        uuid=observed.session,  # fixed when it was queued: of two workers that judge it only one can store the session
        source=GateSession.Source.OBSERVE,
        agent=agent,
        channel=message.channel,
        run_id=message.run_id,
        inclusion_weight=observed.inclusion_weight,
    )
    return Observation(
        message=message,
        config=config,
        plan=plan,
        action=action_of_message(message, agent, plan.propositions),
        session=session,
    )


def _judge_of(observed: ObservedMessage) -> str:
    """Return the judge of a message: the one that answered in its batch, though another may be configured by now; else JUDGE_MODEL."""
    if observed.batch is not None:
        answered = LLMBatchRequest.objects.filter(
            batch=observed.batch, work_id=observed.work_id, result=LLMBatchRequest.Result.SUCCEEDED
        )
        if answered.exists():
            return observed.batch.model
    return model_of("judge")


def _judge_and_log(observed: ObservedMessage) -> dict[str, Any]:
    """Judge one message and log it, unless it waits for another batch; return how the work ends, as columns of its row.

    What batches answered is forgotten once the work has ended: the log and the ledger have it.

    Raises:
        IntegrityError: The attempt could not be stored, though the message is there and no other worker judged it.
    """
    ended = _judge(observed)
    if observed.batches and ended["status"] in ObservedMessage.FINAL:
        forget_answers(observed.work_id)
    return ended


def _judge(observed: ObservedMessage) -> dict[str, Any]:
    """Judge one message and log it; see `_judge_and_log`.

    Where its judge was asked in a batch the answers are taken from there. What the batch did not answer is asked at once, or, where it
    counts as not asked, in the next batch: then the message waits for that, in at most `MOST_ROUNDS` batches.
    """
    was_leased_before = observed.attempt > 1
    if was_leased_before and GateSession.objects.filter(uuid=observed.session).exists():
        return {"status": Status.COMPLETED, "error": ""}  # that worker was lost after it had logged it
    observation = load_observation(observed)
    if isinstance(observation, str):
        return _cancelled(observation)
    replies: list[Reply | None] | None = None
    if observed.batches:
        may_wait = observed.batches < MOST_ROUNDS and judges_in_batches(observation.config)
        steps = observation.next_steps(may_wait=may_wait)
        if any(isinstance(step, InBatch) for step in steps):
            return {"status": Status.PENDING, "error": "", "waits_since": timezone.now(), "batch": None}
        replies = _ask_what_no_batch_answers(observation, steps)
    return _log(observed, observation, replies)


def _ask_what_no_batch_answers(
    observation: Observation, steps: Sequence[Reply | InBatch | LLMRequest]
) -> list[Reply | None]:
    """Return the replies of the batch, and those to what is to be asked at once: None for each of these where the budget is used up."""
    at_once = [step for step in steps if isinstance(step, LLMRequest)]
    live: list[Reply] = []
    if at_once and not over_budget(observation.plan.agent, observation.config):
        live = complete_together(at_once, deadline=settings.LLM_EVALUATION_DEADLINE)
    live_replies = iter(live)
    return [step if isinstance(step, Reply) else next(live_replies, None) for step in steps]


def _log(observed: ObservedMessage, observation: Observation, replies: Sequence[Reply | None] | None) -> dict[str, Any]:
    """Judge a message and log it; return how the work ends, as columns of its row.

    Args:
        replies: What its judge answered already; None: it is asked now.

    Raises:
        IntegrityError: As `_judge_and_log`.
    """
    message = observation.message
    session = observation.session
    result = check_action_quality(
        observation.action,
        observation.plan,
        run_id=message.run_id,
        work_id=session.work_id,
        deadline=settings.LLM_EVALUATION_DEADLINE,  # no one waits for it
        gate=False,
        replies=replies,
    )
    log = result.log(
        session=session,
        attempt=1,
        outcome=Outcome.OBSERVED,
        persona_version_id=message.persona_version_id,
        original_text=message.text,
        judged_text=message.text,
        payload=message.payload,
    )
    try:
        write_attempt(log, message=message)
    except IntegrityError:
        if not Message.objects.filter(pk=message.pk).exists():
            return _cancelled("the message was deleted while it was judged")
        # Another worker may have been faster, after this one lost its lease: then the session is there.
        if not GateSession.objects.filter(uuid=observed.session).exists():
            raise
    return {"status": Status.COMPLETED, "error": ""}


def _cancelled(reason: str) -> dict[str, Any]:
    return {"status": Status.CANCELLED, "error": reason}
