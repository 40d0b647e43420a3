"""Alerts are sent to real servers on loopback: signed, once where all goes well, and without delaying anything where it does not."""

from __future__ import annotations

import json
import logging
import re
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.core import mail
from django.core.exceptions import ValidationError
from django.utils import timezone
from pytest_django import Settings

from agents.alerts.addresses import AddressRefused
from agents.alerts.delivery import send_test, work_one
from agents.alerts.models import Alert, Delivery, Receiver
from agents.alerts.raising import raise_alert
from agents.alerts.webhook import headers_for, post, secret_of
from agents.kit.models import WorkerHeartbeat
from agents.kit.models.deliveries import MOST_TRIES
from agents.kit.work.posting import Unreachable
from agents.kit.work.queues import work_queues
from agents.kit.work.worker import Worker
from correction.models import ObservedMessage
from tests.agents.alerts.receiving import Hook, listening, silent_mail_server
from tests.correction.gating import gated, send
from tests.factories import make_agent
from tests.machinery import Plumbline, kill_at_once

pytestmark = [pytest.mark.django_db, pytest.mark.databases_differ]


@pytest.fixture
def hook(settings: Settings) -> Iterator[Hook]:
    settings.WEBHOOK_PRIVATE_HOSTS = ["127.0.0.1"]
    settings.ALERT_SECONDS = 5
    with listening() as server:
        yield server


def webhook(hook: Hook, name: str = "hook") -> Receiver:
    return Receiver.objects.create(name=name, channel="webhook", address=hook.url)


def alert(about: str = "x") -> Alert:
    return raise_alert(kind="drift", about=about, title="adherence of ada fell", page=make_agent(f"a{about}"))


def work() -> int:
    """Do all that is due; return how much it was."""
    done = 0
    while work_one(owner="test"):
        done += 1
    return done


def later() -> None:
    """As if a day had gone by."""
    Delivery.objects.filter(status="pending").update(lease_expires_at=None)
    Receiver.objects.update(retry_at=None)


def only() -> Delivery:
    delivery: Delivery = Delivery.objects.get()
    return delivery


# -- what is sent
def test_a_webhook_is_sent_what_its_signature_verifies(hook: Hook, settings: Settings) -> None:
    settings.CONSOLE_URL = "https://plumbline.example.org/admin/"
    receiver, raised = webhook(hook), alert()

    assert work() == 1

    (path, headers, body), sent = hook.requests[0], only()
    assert (path, sent.status, sent.answer_code, sent.tries) == ("/hook?token=s3cret", "completed", 204, 1)
    documented = verify()
    documented(secret_of(receiver.salt.hex), headers, body)
    for wrong in ((secret_of("other"), headers, body), (secret_of(receiver.salt.hex), headers, body + b" ")):
        with pytest.raises(ValueError, match="not a genuine webhook"):
            documented(*wrong)
    payload = json.loads(body)
    assert payload["type"] == "alert.drift"
    assert payload["data"]["url"] == f"https://plumbline.example.org/admin/{raised.page}"


def verify() -> Any:
    """The function that the documentation shows."""
    code = re.search(
        r"```python\n(.*?)```", (Path(__file__).parents[3] / "docs/reference/alerts.md").read_text(), re.DOTALL
    )
    assert code is not None
    names: dict[str, object] = {}
    exec(code[1], names)  # noqa: S102 (our own documentation)
    return names["verify"]


@time_machine.travel(datetime(2026, 11, 29, 12, tzinfo=UTC), tick=False)
def test_the_signature_is_that_of_the_specification(settings: Settings) -> None:
    """Its example: libraries of others sign these bytes so."""
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "new", ["old"]
    headers = headers_for(b"{}", message_id="msg_1", salt="s")
    new, old = headers["webhook-signature"].split(" ")

    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "old", []
    before = headers_for(b"{}", message_id="msg_1", salt="s")

    assert old == before["webhook-signature"] != new, "receivers that have the old secret verify while the key changes"


def test_mail_is_sent_with_the_same_id_at_every_try(settings: Settings) -> None:
    settings.EMAIL_URL = "smtp://set"
    Receiver.objects.create(name="ops", address="a@example.com, b@example.com")
    alert()

    work()
    Delivery.objects.update(status="pending")  # the worker died before it noted that it was sent
    work()

    first, second = mail.outbox
    assert first.to == ["a@example.com", "b@example.com"]
    assert first.subject == "Plumbline: Adherence of ada fell"
    assert first.extra_headers["Message-ID"] == second.extra_headers["Message-ID"]


def test_without_a_mail_server_the_log_says_so() -> None:
    Receiver.objects.create(name="ops", address="a@example.com")
    alert()

    work()

    assert only().error == "no e-mail is sent: the setting EMAIL_URL is empty"
    assert mail.outbox == []


# -- what goes wrong
@pytest.mark.parametrize("how", ["hangs", "trickles"])
def test_a_webhook_that_says_nothing_is_left_after_its_time(hook: Hook, settings: Settings, how: str) -> None:
    setattr(hook, how, True)
    settings.ALERT_SECONDS = 0.3
    webhook(hook)
    alert()
    alert("y")

    assert work() == 1, "the second alert waits, too: one look at a dead receiver is enough"

    tried = Delivery.objects.get(tries=1)
    assert (tried.status, tried.answer_code, tried.error) == ("pending", None, "no answer within 0.3 s")
    assert Receiver.objects.get().retry_at is not None


def test_others_are_sent_theirs_while_a_receiver_is_dead(hook: Hook, settings: Settings) -> None:
    settings.ALERT_SECONDS = 1
    with listening() as dead:
        dead.hangs = True
        webhook(dead, "dead")
        webhook(hook, "alive")
        for about in "abc":
            alert(about)
        work()

    assert (len(dead.requests), len(hook.requests)) == (1, 3)


def test_what_is_not_answered_is_given_up_after_some_tries(hook: Hook) -> None:
    hook.status = 500
    webhook(hook)
    alert()

    for tries in range(1, MOST_TRIES + 1):
        assert work() == 1
        assert (only().tries, only().answer_code) == (tries, 500)
        assert work() == 0, "it waits"
        later()
    assert (only().status, only().error) == ("failed", "it answered 500")
    assert work() == 0
    assert len(set(hook.ids)) == 1


def test_an_alert_that_waits_a_week_for_a_dead_receiver_is_given_up(hook: Hook) -> None:
    hook.status = 500
    webhook(hook)
    tried, old, recent = (Delivery.objects.get(alert=alert(about)) for about in "abc")
    Delivery.objects.exclude(pk=recent.pk).update(created_at=timezone.now() - timedelta(days=8))
    work()

    by_id = dict(Delivery.objects.values_list("pk", "status"))
    assert by_id == {tried.pk: "pending", old.pk: "failed", recent.pk: "pending"}


def test_a_receiver_that_is_gone_is_sent_nothing_more_of_it(hook: Hook) -> None:
    hook.status = 410
    webhook(hook)
    alert()
    work()

    assert (only().status, only().answer_code) == ("failed", 410)


def test_redirects_are_not_followed(hook: Hook) -> None:
    with listening() as inside:
        hook.status, hook.headers = 302, {"location": inside.url}
        webhook(hook)
        alert()
        work()

    assert (only().error, only().answer_code) == ("it answered 302; redirects are not followed", 302)
    assert inside.requests == []


def test_a_dead_mail_server_is_left_after_its_time(settings: Settings) -> None:
    with silent_mail_server() as port:
        settings.EMAIL_URL = f"smtp://127.0.0.1:{port}"
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", port
        settings.ALERT_SECONDS = settings.EMAIL_TIMEOUT = 0.3
        Receiver.objects.create(name="ops", address="a@example.com")
        alert()
        assert work() == 1

    assert (only().status, only().error) == ("pending", "the mail server gave no answer within 0.3 s, or hung up")


ONE_ALERT = """
import sys, django
django.setup()
from agents.alerts.models import Receiver
from agents.alerts.raising import raise_alert
Receiver.objects.create(name="hook", channel="webhook", address=sys.argv[1])
raise_alert(kind="drift", about="x", title="It fell")
"""


@pytest.mark.slow
def test_after_a_worker_is_killed_while_sending_another_sends_the_same_id(
    hook: Hook, database_url: str, tmp_path: Path
) -> None:
    hook.hangs = True
    environment = {"DATABASE_URL": database_url, "WEBHOOK_PRIVATE_HOSTS": "127.0.0.1", "ALERT_SECONDS": "60"}
    plumbline = Plumbline(tmp_path, environment)
    try:
        plumbline.start_and_wait("raise", "-c", ONE_ALERT, hook.url)
        worker = plumbline.start("worker", "manage.py", "work", "--poll", "0.1", "--skip-checks")
        assert hook.came.wait(120)
        kill_at_once(worker)
        hook.hangs = False

        plumbline.manage("work", "--once", "--skip-checks")
        plumbline.manage("work", "--once", "--skip-checks")
    finally:
        plumbline.stop()

    assert len(hook.ids) == 2, "sent again once, and not after it was answered"
    assert len(set(hook.ids)) == 1


def test_one_alert_at_a_time_is_sent_to_a_receiver(hook: Hook) -> None:
    webhook(hook)
    first, second = (Delivery.objects.get(alert=alert(about)) for about in "ab")

    assert first.acquire(owner="one", lease=timedelta(minutes=1))
    assert not second.acquire(owner="two", lease=timedelta(minutes=1))


def test_nothing_is_sent_to_a_receiver_that_was_switched_off(hook: Hook) -> None:
    webhook(hook)
    alert()
    Receiver.objects.update(is_active=False)

    work()

    assert (only().status, hook.requests) == ("cancelled", [])


def test_no_secret_is_in_the_log_or_the_database(hook: Hook, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    hook.status = 500
    receiver = webhook(hook)
    alert()
    work()
    send_test(receiver)
    work()

    stored = [str(value) for row in (*Delivery.objects.values(), *Receiver.objects.values()) for value in row.values()]
    secret = secret_of(receiver.salt.hex)
    assert not any(secret in text or secret.removeprefix("whsec_") in text for text in (*stored, caplog.text))
    assert "s3cret" not in caplog.text + " ".join(Delivery.objects.values_list("error", flat=True))


# -- where nothing may be sent
@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.0.0.1", "169.254.169.254", "100.100.100.200", "0.0.0.0", "224.0.0.1",  # noqa: S104
        "[::1]", "[fe80::1]", "[fd00:ec2::254]", "[::ffff:169.254.169.254]", "[2002:a00:1::]", "[64:ff9b::a00:1]",
        "2130706433", "localhost", "192.0.0.192", "168.63.129.16", "192.88.99.1", "[fec0::1]", "[3fff::1]",
    ],
)  # fmt: skip
def test_addresses_that_are_not_of_the_internet_are_refused(address: str, settings: Settings) -> None:
    settings.WEBHOOK_PRIVATE_HOSTS = []
    with pytest.raises(AddressRefused, match="not on the public internet"):
        post(f"https://{address}/", b"{}", {}, seconds=5)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com",
        "https://",
        "http://example.com/",
        "https://a:b@example.com/",
    ],
)
def test_addresses_that_are_none_are_refused_when_they_are_entered(url: str, settings: Settings) -> None:
    settings.WEBHOOK_PRIVATE_HOSTS = []
    with pytest.raises(ValidationError, match="allowed:"):
        Receiver(name="x", channel="webhook", address=url).full_clean()


def test_a_setting_allows_hosts_addresses_and_networks(hook: Hook, settings: Settings) -> None:
    for named in ("127.0.0.1", "127.0.0.0/8", "localhost"):
        settings.WEBHOOK_PRIVATE_HOSTS = [named]
        host = named if named == "localhost" else "127.0.0.1"
        assert post(f"http://{host}:{hook.port}/", b"{}", {}, seconds=5) == 204


def test_a_name_that_answers_differently_the_second_time_gains_nothing(
    hook: Hook, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is resolved once, and the connection made to the address that was checked."""
    settings.WEBHOOK_PRIVATE_HOSTS = []
    asked, connected = [], []
    public, inside = ("93.184.215.14", 443), ("127.0.0.1", hook.port)

    def resolve(host: str, *args: object, **kwargs: object) -> list[tuple[object, ...]]:
        asked.append(host)
        return [(2, 1, 6, "", public if len(asked) == 1 else inside)]

    def connect(line: socket.socket, address: tuple[str, int]) -> None:
        connected.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket.socket, "connect", connect)
    with pytest.raises(Unreachable, match="refused"):
        post("https://rebinding.example/", b"{}", {}, seconds=5)

    assert (asked, connected) == (["rebinding.example"], [public])


def test_alerts_are_sent_before_observed_messages_are_judged(hook: Hook) -> None:
    agent, channel = gated("fluency", gate_mode="observe")
    send(agent, channel, "Hello.")
    webhook(hook)
    alert()

    done = Worker(WorkerHeartbeat.Kind.WORK, work_queues()).work_once()

    assert done.queue == "alerts"
    assert len(hook.requests) == 1
    assert ObservedMessage.objects.get().status == "pending"
