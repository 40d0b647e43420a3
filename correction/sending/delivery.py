"""Send results: the queue "scores", one delivery to a receiver at a time, in requests of at most 100 results.

After each request it is noted how far the receiver has taken them: a try continues there, also after its worker was killed. So at most the
results of one request are sent twice, under the same ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Count, QuerySet
from django.utils import timezone
from prometheus_client.core import GaugeMetricFamily, Metric

from agents.kit.models.deliveries import MOST_TRIES, Outcome
from agents.kit.models.lease import LeaseLost
from agents.kit.running import check_stop, retry_on_outage
from agents.kit.text.wording import counted
from agents.kit.work.queues import do_next, wake_workers
from correction.sending import langfuse, otlp
from correction.sending.answers import Answer
from correction.sending.models import ScoreDelivery, ScoreReceiver
from correction.sending.records import Batch, ScoreRecord, next_batch

Status = ScoreDelivery.Status
MOST_REFUSALS = 20  # in a row: a receiver that refuses everything is not asked for each result
GIVEN_UP = (Status.FAILED, Status.ERRORED)
MAY_BE_SENT_AGAIN = (*GIVEN_UP, Status.CANCELLED)


@dataclass(frozen=True, slots=True)
class Destination:
    """A receiver that scores can be sent to.

    Attributes:
        is_configured: Says whether the settings name it.
        send: Sends records in one request.
        takes: Says which records are sent; all, unless it is given.
    """

    is_configured: Callable[[], bool]
    send: Callable[[Sequence[ScoreRecord]], Answer]
    takes: Callable[[ScoreRecord], bool] = lambda record: True


DESTINATIONS: Mapping[str, Destination] = {
    ScoreReceiver.Name.OTLP: Destination(otlp.is_configured, otlp.send),
    ScoreReceiver.Name.LANGFUSE: Destination(langfuse.is_configured, langfuse.send, langfuse.takes),
}


def configured_destinations() -> list[str]:
    """Return the names of the receivers that the settings name."""
    return [name for name, destination in DESTINATIONS.items() if destination.is_configured()]


def work_one(*, owner: str) -> bool:
    """Send the delivery whose turn it is; return whether there was one."""
    return do_next(ScoreDelivery, deliver, owner=owner, lease=_lease(), attempts=MOST_TRIES)


def deliver(delivery: ScoreDelivery) -> dict[str, Any]:
    """Send what is left of a delivery; return the columns of the end. No transaction is open while the receiver is waited for.

    Raises:
        LeaseLost: Another worker has it by now.
    """
    destination = DESTINATIONS[delivery.receiver.name]
    if not destination.is_configured():
        return {"status": Status.CANCELLED}
    outcome = Outcome()
    while True:
        batch = next_batch(delivery)
        if not batch.records:
            columns = delivery.columns_after(outcome)
            if delivery.rejected:
                columns["error"] = f"{counted(delivery.rejected, 'result')} rejected by the receiver"
            return columns
        records = [record for record in batch.records if destination.takes(record)]
        answer = Answer(Outcome())
        if records:
            answer = _send(records, destination, delivery)
            outcome = answer.outcome
            delivery.receiver.note_try(outcome)
            if not outcome.is_receiver_up:
                ScoreDelivery.give_up_old(delivery.receiver)
        if outcome.problem:
            return delivery.columns_after(outcome)
        _note_progress(delivery, batch, sent=len(records) - answer.rejected, rejected=answer.rejected)
        check_stop()


def _send(records: Sequence[ScoreRecord], destination: Destination, delivery: ScoreDelivery) -> Answer:
    """Send records; where the receiver refuses a request, send its halves, until the records are known that it refuses.

    Returns:
        The number of records rejected: those refused alone, and those that the receiver says it does not take. A problem where there
        was no answer, where nothing of the delivery was taken yet and all of this was refused, or after `MOST_REFUSALS` in a row.

    Raises:
        LeaseLost: Another worker has the delivery by now.
    """
    parts = [records]  # the next one is the last
    outcome = Outcome()
    rejected = 0
    refusals = 0  # in a row
    while parts:
        part = parts.pop()
        if part is not records and not delivery.extend_lease(owner=delivery.lease_owner, lease=_lease()):
            raise LeaseLost("another worker sends it")
        answer = destination.send(part)
        outcome = answer.outcome
        if not outcome.problem:
            rejected += max(0, min(answer.rejected, len(part)))  # a receiver may say any number
            refusals = 0
            continue
        if not outcome.is_final:
            return answer
        refusals += 1
        if refusals == MOST_REFUSALS:
            return answer
        if len(part) == 1:
            rejected += 1
        else:
            middle = len(part) // 2
            parts += [part[middle:], part[:middle]]
    if outcome.problem and rejected == len(records) and not delivery.sent:
        return Answer(outcome)
    return Answer(Outcome(outcome.code), rejected)


def _note_progress(delivery: ScoreDelivery, batch: Batch, *, sent: int, rejected: int) -> None:
    """Store how far the receiver has taken the results, and extend the lease.

    Raises:
        LeaseLost: Another worker has the delivery by now.
    """
    leased = ScoreDelivery.objects.filter(pk=delivery.pk, status=Status.RUNNING, lease_owner=delivery.lease_owner)
    progress = {
        "sent_through": batch.last,
        "sent": delivery.sent + sent,
        "rejected": delivery.rejected + rejected,
        "tries": 0,  # only those in a row that took nothing count
    }
    for name, value in progress.items():
        setattr(delivery, name, value)
    if not retry_on_outage(lambda: leased.update(lease_expires_at=timezone.now() + _lease(), **progress)):
        raise LeaseLost("another worker sends it")


def _lease() -> timedelta:
    return timedelta(seconds=2 * settings.SCORES_SECONDS + 60)


def send_again(deliveries: QuerySet[ScoreDelivery]) -> int:
    """Queue those of these that were given up or cancelled, from where the receiver stopped taking them; return how many.

    Their receivers are tried at once, also where they were left alone for a while.
    """
    with transaction.atomic():
        chosen = ScoreDelivery.objects.filter(pk__in=deliveries.values("pk"), status__in=MAY_BE_SENT_AGAIN)
        receivers = list(chosen.order_by().values_list("receiver", flat=True).distinct())
        queued = chosen.update(
            status=Status.PENDING, tries=0, attempt=0, worker_losses=0, lease_expires_at=None, finished_at=None
        )
        ScoreReceiver.objects.filter(pk__in=receivers).update(failures=0, retry_at=None)
        transaction.on_commit(wake_workers)
    return queued


def collect() -> Iterator[Metric]:
    """Yield for Prometheus how many deliveries of each receiver wait, and how many were given up."""
    waiting = GaugeMetricFamily("plumbline_scores_waiting", "Deliveries of scores that wait", labels=["receiver"])
    given_up = GaugeMetricFamily("plumbline_scores_given_up", "Deliveries of scores given up", labels=["receiver"])
    failures = GaugeMetricFamily(
        "plumbline_scores_receiver_failures", "Tries in a row that did not reach the receiver", labels=["receiver"]
    )
    for receiver in ScoreReceiver.objects.all():
        by_status = receiver.deliveries.filter(status__in=(Status.PENDING, *GIVEN_UP)).order_by()
        numbers = dict(by_status.values_list("status").annotate(number=Count("pk")))
        waiting.add_metric([receiver.name], numbers.get(Status.PENDING, 0))
        given_up.add_metric([receiver.name], sum(numbers.get(status, 0) for status in GIVEN_UP))
        failures.add_metric([receiver.name], receiver.failures)
    yield from (waiting, given_up, failures)
