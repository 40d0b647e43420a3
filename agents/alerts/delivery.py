"""Send alerts: the queue "alerts", one delivery to a receiver at a time.

Where a receiver was not reached, nothing is sent to it for a while, so that a dead one costs a worker a few seconds now and then.
"""

from __future__ import annotations

import json
import smtplib
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.mail import EmailMessage
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from agents.alerts.addresses import AddressRefused
from agents.alerts.models import Alert, Delivery, Receiver
from agents.alerts.services import notify
from agents.alerts.webhook import Unreachable, headers_for, post
from agents.kit.work.queues import do_next, wake_workers

# Minutes until the next try; after the last one it is given up: seven tries in about 18 hours.
PAUSES = (1, 5, 30, 120, 300, 600)
MOST_TRIES = len(PAUSES) + 1
TEST = "This is a test."


def work_one(*, owner: str) -> bool:
    """Send the delivery whose turn it is; return whether there was one."""
    lease = timedelta(seconds=6 * settings.ALERT_SECONDS + 60)
    return do_next(Delivery, deliver, owner=owner, lease=lease, attempts=MOST_TRIES)


def deliver(delivery: Delivery) -> dict[str, Any]:
    """Try once; returns the columns of the end. No transaction is open while the receiver is waited for."""
    receiver = delivery.receiver
    if receiver is None or not receiver.is_active:
        return {"status": Delivery.Status.CANCELLED}
    code, problem, is_dead = None, "", False
    try:
        if receiver.channel == Receiver.Channel.WEBHOOK:
            code = _post(delivery, receiver)
        elif receiver.channel == Receiver.Channel.SERVICE:
            code = _notify(delivery, receiver)
        else:
            _mail(delivery, receiver)
        if code is not None:
            problem = "" if 200 <= code < 300 else f"it answered {code}"
            if 300 <= code < 400:
                problem += "; redirects are not followed"
            is_dead = bool(problem) and not 400 <= code < 500
    except AddressRefused as refused:
        problem = str(refused)
    except (Unreachable, OSError) as error:
        problem, is_dead = _words(error), True
    return _ended(delivery, receiver, code, problem, is_dead=is_dead)


def payload(alert: Alert | None, *, at: datetime | None = None) -> dict[str, Any]:
    """What a webhook is sent, in the form of Standard Webhooks: what the alert's page shows, without what anybody said; None = a test."""
    if alert is None:
        at, data = (
            at or timezone.now(),
            {"id": None, "kind": "test", "agent": None, "title": TEST, "url": settings.CONSOLE_URL},
        )
    else:
        agent = alert.agent.slug if alert.agent is not None else None
        at = alert.created_at
        data = {"id": alert.pk, "kind": alert.kind, "agent": agent, "title": alert.title, "url": alert.url}
    return {"type": f"alert.{data['kind']}", "timestamp": at.isoformat(), "data": data}


def send_test(receiver: Receiver) -> Delivery:
    """Queue a test alert, to be sent at once even to a receiver that is left alone for a while."""
    Receiver.objects.filter(pk=receiver.pk).update(retry_at=None)
    delivery: Delivery = Delivery.objects.create(receiver=receiver)
    transaction.on_commit(wake_workers)
    return delivery


def _post(delivery: Delivery, receiver: Receiver) -> int:
    body = json.dumps(payload(delivery.alert, at=delivery.created_at), separators=(",", ":")).encode()
    headers = headers_for(body, message_id=f"msg_{delivery.message_id.hex}", salt=receiver.salt.hex)
    return post(receiver.address, body, headers, seconds=settings.ALERT_SECONDS)


def _notify(delivery: Delivery, receiver: Receiver) -> int:
    sent = payload(delivery.alert)["data"]
    return notify(receiver.address, title=sent["title"], body=sent["url"], seconds=settings.ALERT_SECONDS)


def _mail(delivery: Delivery, receiver: Receiver) -> None:
    """Send it by e-mail. The id of the message is the same at every try, so that mail programs can tell a second one."""
    if not settings.EMAIL_URL:
        raise AddressRefused("no e-mail is sent: the setting EMAIL_URL is empty")
    sent = payload(delivery.alert)["data"]
    message_id = f"<{delivery.message_id.hex}@{settings.DEFAULT_FROM_EMAIL.rpartition('@')[2].strip('> ')}>"
    subject, body = f"Plumbline: {sent['title']}", f"{sent['title']}\n\n{sent['url']}\n"
    EmailMessage(subject, body, to=receiver.addresses, headers={"Message-ID": message_id}).send()


def _words(error: OSError) -> str:
    """What went wrong, without what the other side wrote, which may quote addresses."""
    if isinstance(error, Unreachable):
        return str(error)
    if isinstance(error, smtplib.SMTPResponseException):
        return f"the mail server answered {error.smtp_code}"
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return "the mail server refused the addresses"
    if isinstance(error, TimeoutError | smtplib.SMTPServerDisconnected):
        return f"the mail server gave no answer within {settings.ALERT_SECONDS:g} s, or hung up"
    return f"the mail server was not reached: {error.strerror or type(error).__name__}"


def _ended(delivery: Delivery, receiver: Receiver, code: int | None, problem: str, *, is_dead: bool) -> dict[str, Any]:
    now, tries = timezone.now(), delivery.tries + 1
    receivers = Receiver.objects.filter(pk=receiver.pk)
    if is_dead:
        failures = receiver.failures + 1
        pause = timedelta(minutes=PAUSES[min(failures, len(PAUSES)) - 1])
        receivers.update(failures=F("failures") + 1, retry_at=now + pause)
    else:
        receivers.update(failures=0, retry_at=None)
    ended: dict[str, Any] = {"status": Delivery.Status.COMPLETED, "error": problem}
    if problem and (code == 410 or tries >= MOST_TRIES):
        ended["status"] = Delivery.Status.FAILED
    elif problem:
        ended |= {
            "status": Delivery.Status.PENDING,
            "lease_expires_at": now + timedelta(minutes=PAUSES[tries - 1]),
        }
    return {**ended, "tries": tries, "tried_at": now, "answer_code": code}
