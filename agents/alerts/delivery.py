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
from django.utils import timezone

from agents.alerts.addresses import AddressRefused
from agents.alerts.models import Alert, Delivery, Receiver
from agents.alerts.services import notify
from agents.alerts.webhook import headers_for, post
from agents.kit.models.deliveries import MOST_TRIES, Outcome
from agents.kit.work.posting import Unreachable
from agents.kit.work.queues import do_next, wake_workers

TEST = "This is a test."


def work_one(*, owner: str) -> bool:
    """Send the delivery whose turn it is; return whether there was one."""
    lease = timedelta(seconds=6 * settings.ALERT_SECONDS + 60)
    return do_next(Delivery, deliver, owner=owner, lease=lease, attempts=MOST_TRIES)


def deliver(delivery: Delivery) -> dict[str, Any]:
    """Try once; return the columns of the end. No transaction is open while the receiver is waited for.

    Nothing is sent to a receiver that was deleted or switched off. An address that may not be written to counts as a failed try.
    """
    receiver = delivery.receiver
    if receiver is None or not receiver.is_active:
        return {"status": Delivery.Status.CANCELLED}
    try:
        outcome = _try_once(delivery, receiver)
    except AddressRefused as refused:
        outcome = Outcome(problem=str(refused))
    except (Unreachable, OSError) as error:
        outcome = Outcome(problem=_reason(error), is_receiver_up=False)
    receiver.note_try(outcome)
    if not outcome.is_receiver_up:
        Delivery.give_up_old(receiver)
    return delivery.columns_after(outcome)


def _try_once(delivery: Delivery, receiver: Receiver) -> Outcome:
    """Send it; return the outcome by the HTTP status of the answer: delivered from 200 to 299, not delivered otherwise.

    Raises:
        AddressRefused: The address may not be written to.
        Unreachable, OSError: There was no answer, or a mail server refused it.
    """
    if receiver.channel == Receiver.Channel.EMAIL:
        _mail(delivery, receiver)
        return Outcome()
    send = _post if receiver.channel == Receiver.Channel.WEBHOOK else _notify
    code = send(delivery, receiver)
    if 200 <= code < 300:
        return Outcome(code)
    if 300 <= code < 400:
        return Outcome(code, f"it answered {code}; redirects are not followed", is_receiver_up=False)
    is_its_refusal = 400 <= code < 500  # it works, and does not take this alert
    is_gone = code == 410
    return Outcome(code, f"it answered {code}", is_receiver_up=is_its_refusal, is_final=is_gone)


def payload(alert: Alert | None, *, at: datetime | None = None) -> dict[str, Any]:
    """Return what a webhook is sent, in the form of Standard Webhooks: what the alert's page shows, without what anybody said.

    Args:
        alert: None = a test.
        at: When a test was asked for; default: now.
    """
    if alert is None:
        moment = at or timezone.now()
        data = {"id": None, "kind": "test", "agent": None, "build": None, "title": TEST, "url": settings.CONSOLE_URL}
    else:
        moment = alert.last_at if alert.back_in else alert.created_at
        agent = alert.agent.slug if alert.agent is not None else None
        build = alert.build or None
        data = {
            "id": alert.pk,
            "kind": alert.kind,
            "agent": agent,
            "build": build,
            "title": alert.title,
            "url": alert.url,
        }
    return {"type": f"alert.{data['kind']}", "timestamp": moment.isoformat(), "data": data}


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
    data = payload(delivery.alert)["data"]
    return notify(receiver.address, title=data["title"], body=data["url"], seconds=settings.ALERT_SECONDS)


def _mail(delivery: Delivery, receiver: Receiver) -> None:
    """Send it by e-mail. The id of the message is the same at every try, so that mail programs can tell a second one.

    Raises:
        AddressRefused: The setting EMAIL_URL is empty.
        OSError: The mail server was not reached, or refused it.
    """
    if not settings.EMAIL_URL:
        raise AddressRefused("no e-mail is sent: the setting EMAIL_URL is empty")
    data = payload(delivery.alert)["data"]
    domain = settings.DEFAULT_FROM_EMAIL.rpartition("@")[2].strip("> ")
    message_id = f"<{delivery.message_id.hex}@{domain}>"
    subject = f"Plumbline: {data['title']}"
    body = f"{data['title']}\n\n{data['url']}\n"
    EmailMessage(subject, body, to=receiver.addresses, headers={"Message-ID": message_id}).send()


def _reason(error: OSError) -> str:
    """Return what went wrong, without what the other side wrote, which may quote addresses. All but `Unreachable` are of e-mail."""
    if isinstance(error, Unreachable):
        return str(error)
    if isinstance(error, smtplib.SMTPResponseException):
        return f"the mail server answered {error.smtp_code}"
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return "the mail server refused the addresses"
    if isinstance(error, TimeoutError | smtplib.SMTPServerDisconnected):
        return f"the mail server gave no answer within {settings.ALERT_SECONDS:g} s, or hung up"
    return f"the mail server was not reached: {error.strerror or type(error).__name__}"
