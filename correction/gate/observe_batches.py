"""Collect observed messages that wait for a batch, and submit them: one batch per agent, as budgets are an agent's.

A message waits here while its row has `waits_since`. Once its batch has ended it waits no more, and a worker judges it like any other
(`agents.kit.work.queues`), but by the batch's answers. No row is leased here: which messages are in a batch is stored with the batch's
own rows, by an update that finds only messages that no batch has.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from decimal import Decimal
from functools import partial

from django.db import IntegrityError
from django.db.models import Count, Exists, F, Min, OuterRef, QuerySet
from django.utils import timezone

from agents.kit.llm.endpoints import route_of
from agents.kit.models import LLMBatch
from agents.kit.models.lease import owner_name
from agents.kit.running import is_outage
from agents.kit.text.wording import counted
from agents.kit.work.batches import (
    MOST_ROUNDS,
    BatchRefused,
    InBatch,
    Outgoing,
    request_cancel,
    submit_batch,
    why_no_batches,
)
from agents.kit.work.queues import wake_workers
from agents.models import Agent
from correction.config.settings import ResolvedConfig, resolve_all
from correction.costs import evaluation_over_budget
from correction.gate.observe import load_observation
from correction.gate.stage import judges_in_batches
from correction.models import ObservedMessage
from evaluation.runs.batches import planned_cost

# The price does not depend on a batch's size. An hour keeps an agent to 24 batches a day and adds little to the hours that a batch may
# take; 500 messages of four questions fill the 2,000 that are at risk with one batch.
LONGEST_WAIT = timedelta(hours=1)
MOST_MESSAGES = 500
NO_ROOM = timedelta(days=1)  # for which a message waits for room in the budget: until the budget of another day
KEY_REFUSED = (401, 403)
BATCH_REFUSED = (400, 413)  # too large, or invalid for one of its questions
MOST_SECONDS = 45.0  # of the minute after which another worker may begin

log = logging.getLogger(__name__)


def submit_waiting() -> str:
    """Submit the messages that waited long enough for a batch, and have those judged whose batch has ended; return what was done.

    Where the judge takes no batches any more all that wait for one are judged at once.
    """
    started = time.monotonic()
    _stop_waiting(ObservedMessage.objects.filter(batch__status__in=LLMBatch.FINAL))
    _cancel_where_gate_is_off()
    if why_no_batches():
        _stop_waiting(_without_batch())
        return ""
    batches = 0
    messages = 0
    for agent, config in _agents_with_due_messages():
        if time.monotonic() - started > MOST_SECONDS:
            break  # the others have their turn in a minute
        submitted = _submit_for(agent, config, most=MOST_MESSAGES)
        messages += submitted
        if submitted:
            batches += 1
    if not batches:
        return ""
    return f"{counted(messages, 'message')} submitted in {counted(batches, 'batch', 'batches')}"


def _without_batch() -> QuerySet[ObservedMessage]:
    """Return the messages that wait to be put in a batch."""
    return ObservedMessage.objects.filter(
        status=ObservedMessage.Status.PENDING, waits_since__isnull=False, batch=None
    ).order_by("waits_since", "pk")


def _stop_waiting(rows: QuerySet[ObservedMessage]) -> None:
    """Let workers judge those of these messages that wait for a batch."""
    if rows.filter(waits_since__isnull=False).update(waits_since=None):
        wake_workers()


def _cancel_where_gate_is_off() -> None:
    """Cancel the open batches of agents whose gates were switched off since."""
    waiting = ObservedMessage.objects.filter(batch=OuterRef("pk"), waits_since__isnull=False)
    batches = LLMBatch.objects.filter(Exists(waiting), status__in=LLMBatch.OPEN, cancel_requested_at=None)
    agents = Agent.objects.filter(pk__in=batches.values("agent")).select_related("evaluation_config")
    off = [agent.pk for agent, config in resolve_all(agents) if config.gate_is_off]
    if off:
        request_cancel(batches.filter(agent__in=off))


def _agents_with_due_messages() -> Iterator[tuple[Agent, ResolvedConfig]]:
    """Yield the agents whose messages fill a batch, waited long enough, or need not wait any more; the one that waits longest first."""
    rows = _without_batch().order_by().values("whose").annotate(number=Count("pk"), since=Min("waits_since"))
    waiting = list(rows.order_by("since"))
    agents = Agent.objects.filter(pk__in=[row["whose"] for row in waiting]).select_related("evaluation_config")
    configs = {agent.pk: (agent, config) for agent, config in resolve_all(agents)}
    for row in waiting:
        if row["whose"] not in configs:  # the agent is gone: a worker cancels them
            _stop_waiting(_without_batch().filter(whose=row["whose"]))
            continue
        agent, config = configs[row["whose"]]
        is_off = config.gate_is_off or not config["observe_by_batches"]
        is_old = row["since"] < timezone.now() - LONGEST_WAIT
        if is_off or is_old or row["number"] >= MOST_MESSAGES:
            yield agent, config


def _submit_for(agent: Agent, config: ResolvedConfig, *, most: int) -> int:
    """Submit the messages of an agent that waited longest, as many as a batch takes and the budget has room for; return how many.

    A message about which nothing is to be asked, or not in a batch, waits no more. One for which the budget has no room waits, `NO_ROOM`
    at most.
    """
    outgoing = Outgoing(work_id=f"observed_messages:{agent.pk}", route=route_of("judge"))
    collected: list[int] = []
    planned = Decimal(0)
    for observed in _without_batch().filter(whose=agent.pk)[:most]:
        questions = _questions_for_batch(observed)
        if not questions:
            _stop_waiting(ObservedMessage.objects.filter(pk=observed.pk))
            continue
        cost = planned_cost(outgoing.route.model, [question.request for question in questions])
        if config.has_budget and evaluation_over_budget(agent, outgoing.route.model, planned=planned + cost):
            too_long = _without_batch().filter(whose=agent.pk, waits_since__lt=timezone.now() - NO_ROOM)
            _stop_waiting(too_long.exclude(pk__in=collected))
            break
        for question in questions:
            outgoing.add(question.request, question.digest)
        planned += cost
        collected.append(observed.pk)
        if outgoing.is_full:
            break
    if not collected:
        return 0
    try:
        batch = submit_batch(
            outgoing, owner=owner_name(), agent_id=agent.pk, planned=planned, written=partial(_note_batch, collected)
        )
    except BatchRefused as problem:
        return _go_on_after_refusal(agent, config, collected, problem)
    return len(collected) if batch is not None else 0


def _go_on_after_refusal(agent: Agent, config: ResolvedConfig, collected: Sequence[int], problem: BatchRefused) -> int:
    """Do what is left to do with messages whose batch the server refused; return how many were submitted after all.

    Where the batch was too large or one of them makes it invalid, half of them are tried. Where the key is refused they wait another
    hour: asked at once they would be refused, too. Else they are judged at once.
    """
    refused = ObservedMessage.objects.filter(pk__in=collected)
    if problem.http_status in KEY_REFUSED:
        log.warning("observed messages of %s wait: %s", agent.slug, problem)
        refused.update(batch=None, batches=F("batches") - 1, waits_since=timezone.now())
        return 0
    if problem.http_status in BATCH_REFUSED and len(collected) > 1:
        refused.update(batch=None, batches=F("batches") - 1)
        return _submit_for(agent, config, most=len(collected) // 2)
    log.warning("observed messages of %s are judged at once: %s", agent.slug, problem)
    refused.update(waits_since=None, batches=MOST_ROUNDS)  # no further batch is tried for these
    wake_workers()
    return 0


def _questions_for_batch(observed: ObservedMessage) -> list[InBatch]:
    """Return what is to be asked in a batch about a message; nothing where all is answered, or it is not to be judged in one."""
    try:
        observation = load_observation(observed)
        if isinstance(observation, str) or not judges_in_batches(observation.config):
            return []
        return [step for step in observation.next_steps(may_wait=True) if isinstance(step, InBatch)]
    except Exception as crash:
        if is_outage(crash):
            raise
        log.exception("%s", observed)
        return []  # the worker that judges it meets the same and stores it; the others are not held up


def _note_batch(messages: Sequence[int], batch: LLMBatch) -> None:
    """Store in which batch these messages are; called in the transaction that stores the batch.

    Raises:
        IntegrityError: One of them is gone, or another process has put it in a batch.
    """
    noted = _without_batch().order_by().filter(pk__in=messages).update(batch=batch, batches=F("batches") + 1)
    if noted != len(messages):
        raise IntegrityError("another process has one of these messages")
