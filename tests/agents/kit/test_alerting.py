"""Where no installed app sends alerts, raising, ending and acknowledging them does nothing."""

from __future__ import annotations

import pytest
from django.utils import timezone

from agents.alerts.models import Alert
from agents.kit.alerting import acknowledge_alerts, alert_url, end_alerts, pages_with_alerts, raise_alert
from tests.declaring import declare

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _without_alerts(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, "alerting", {})


def test_nothing_is_raised_ended_or_acknowledged() -> None:
    assert raise_alert(kind="budget", about="x", title="It is used up", lasts=True) is None
    assert end_alerts(kind="budget") == 0
    assert acknowledge_alerts([1], user=None) == 0
    assert not Alert.objects.exists()


def test_no_page_has_an_alert_and_no_alert_a_page() -> None:
    assert pages_with_alerts(kind="budget", since=timezone.now(), most=10) == set()
    assert alert_url(1) == ""
