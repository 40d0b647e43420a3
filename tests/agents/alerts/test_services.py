"""Alerts go to chat and paging services by their address, and to nothing else that Apprise knows."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from apprise.plugins.slack import NotifySlack
from django.core.exceptions import ValidationError
from pytest_django import Settings
from requests.adapters import HTTPAdapter

from agents.alerts.delivery import work_one
from agents.alerts.models import Delivery, Receiver
from agents.alerts.raising import raise_alert
from agents.alerts.services import SERVICES, notify
from tests.agents.alerts.receiving import Hook, listening
from tests.factories import make_agent

pytestmark = pytest.mark.django_db

SLACK = "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"
TEAMS = "https://prod-12.westus.logic.azure.com:443/workflows/643e69f1/triggers/manual/paths/invoke?api-version=2016-06-01&sp=%2Ftriggers&sv=1.0&sig=iXjmu"


@pytest.fixture
def slack(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    """Slack, as far as Apprise can tell."""
    settings.ALERT_SECONDS, settings.CONSOLE_URL = 5, "https://plumbline.example.org/admin/"
    with listening() as server:
        server.status = 200
        monkeypatch.setattr(NotifySlack, "webhook_url", f"http://127.0.0.1:{server.port}/services")
        yield server


def sent(title: str = "adherence of ada fell") -> Delivery:
    """Raise an alert, and send it."""
    Receiver.objects.create(name="chat", channel="service", address=SLACK)
    raise_alert(kind="drift", about="x", title=title, page=make_agent("ada"))
    assert work_one(owner="test")
    delivery: Delivery = Delivery.objects.get()
    return delivery


def test_a_service_is_sent_the_title_and_the_page_of_an_alert(slack: Hook) -> None:
    delivery = sent()

    assert (delivery.status, delivery.answer_code, delivery.error) == ("completed", 200, "")
    (path, _, body) = slack.requests[0]
    assert path == "/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"
    (attachment,) = json.loads(body)["attachments"]
    assert attachment["title"] == "Adherence of ada fell"
    assert attachment["text"].startswith("https://plumbline.example.org/admin/agents/agent/")


@pytest.mark.parametrize(("status", "is_left_alone"), [(404, False), (500, True)])
def test_what_a_service_does_not_take_is_tried_again(slack: Hook, status: int, is_left_alone: bool) -> None:
    slack.status = status

    delivery = sent()

    assert (delivery.status, delivery.answer_code, delivery.error) == ("pending", status, f"it answered {status}")
    assert (Receiver.objects.get().retry_at is not None) is is_left_alone


def test_a_service_that_says_nothing_is_left_after_its_time(slack: Hook, settings: Settings) -> None:
    slack.hangs, settings.ALERT_SECONDS = True, 0.3

    delivery = sent()

    assert (delivery.status, delivery.answer_code) == ("pending", None)
    assert "no answer within 0.3 s" in delivery.error


def test_redirects_of_a_service_are_not_followed(slack: Hook) -> None:
    with listening() as inside:
        slack.status, slack.headers = 302, {"location": inside.url}
        assert sent().answer_code == 302

    assert inside.requests == []


def test_a_name_in_an_alert_calls_no_channel(slack: Hook) -> None:
    sent("adherence of @everyone <!channel> <@U1> fell")

    text = slack.requests[0][2].decode()
    assert "@everyone" not in text
    assert "<" not in text


def test_no_token_is_in_the_log_the_error_or_the_list(
    slack: Hook, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    slack.status = 403

    delivery = sent()
    shown = f"{caplog.text} {delivery.error} {Receiver.objects.get().where}"
    for address in (f"{SLACK}?template=secret", "gchat://secret", "https://discord.com/api/webhooks/secret"):
        with pytest.raises(ValidationError) as refused:
            Receiver(name="x", channel="service", address=address).full_clean()
        shown += str(refused.value)

    shown += "".join(capfd.readouterr())
    assert not any(token in shown for token in (*SLACK.removeprefix("slack://").split("/"), "secret"))


# -- where nothing may be sent
@pytest.mark.parametrize(
    "address",
    [
        "json://127.0.0.1", "http://169.254.169.254/latest/meta-data", "https://example.com/hook", "exec://ls", "file:///etc/passwd",
        "mailto://user:password@example.com", "ntfy://localhost/topic",
        "https://media.guilded.gg/webhooks/4174216298/JHMHI8qBe7bk2ZwO5U711o3dV", "workflows://10.0.0.1/643e69f1/iXjmu",
        "workflows://logic.azure.com.example.com/643e69f1/iXjmu",
        f"{SLACK}?template=/etc/passwd", f"{SLACK}/%23general?template=/etc/passwd", f"{SLACK}/#general?template=http://10.0.0.1/",
        f"{SLACK}?templ%61te=/etc/passwd", f"{SLACK}?key=1;template=/etc/passwd", f"{SLACK}?verify=no", f"{TEAMS}&template=/etc/passwd",
        f"{SLACK} json://127.0.0.1", f"{SLACK},json://127.0.0.1", f"{SLACK}\njson://127.0.0.1", "slack://", "x",
    ],
)  # fmt: skip
def test_addresses_that_are_of_no_allowed_service_are_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HTTPAdapter, "send", lambda *args, **kwargs: pytest.fail("something was sent"))

    with pytest.raises(ValidationError, match="allowed"):
        Receiver(name="x", channel="service", address=address).full_clean()


ADDRESSES = {
    SLACK: "hooks.slack.com",
    f"{SLACK}/#general": "hooks.slack.com",
    "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ": "hooks.slack.com",
    "workflows://prod-12.westus.logic.azure.com/643e69f1/iXjmu": "prod-12.westus.logic.azure.com",
    TEAMS: "prod-12.westus.logic.azure.com",
    "https://d.80.environment.api.powerplatform.com:443/powerautomate/automations/direct/workflows/643e/triggers/manual/paths/invoke"
    "?api-version=1&sp=%2Ftriggers&sv=1.0&sig=iXjmu": "d.80.environment.api.powerplatform.com",
    "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV": "discord.com",
    "https://discord.com/api/webhooks/4174216298/JHMHI8qBe7bk2ZwO5U711o3dV": "discord.com",
    "gchat://AAAA/key/token": "chat.googleapis.com",
    "https://chat.googleapis.com/v1/spaces/AAAA/messages?key=key&token=token": "chat.googleapis.com",
    f"webex://{'0123456789abcdef' * 5}": "api.ciscospark.com",
    "tgram://123456789:abcdefg_hijklmnop/12315544": "api.telegram.org",
    "pagerduty://abcdefgh0123@apikey123": "events.pagerduty.com",
    "pagerduty://abcdefgh0123@apikey123?region=eu": "events.eu.pagerduty.com",
    "opsgenie://apikey123-aa": "api.opsgenie.com",
    f"pover://{'u' * 30}@{'t' * 30}": "api.pushover.net",
}


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_allowed_service_is_written_to_over_tls_at_its_own_host(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = []

    def send(adapter: HTTPAdapter, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        assert kwargs["verify"]
        urls.append(request.url or "")
        response = requests.Response()
        response.status_code, response.raw = 418, None
        return response

    monkeypatch.setattr(HTTPAdapter, "send", send)
    Receiver(name="x", channel="service", address=address).full_clean()

    assert notify(address, title="It fell", body="https://plumbline.example.org/", seconds=5) == 418
    assert urls
    assert all(url.startswith((f"https://{ADDRESSES[address]}/", f"https://{ADDRESSES[address]}:443/")) for url in urls)


def test_the_test_above_has_every_service() -> None:
    assert {address.partition("://")[0] for address in ADDRESSES} - {"https"} == set(SERVICES)
