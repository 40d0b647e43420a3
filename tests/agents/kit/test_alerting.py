"""Where no installed app sends alerts, raising, ending and acknowledging them does nothing."""

from __future__ import annotations

import pytest
from django.utils import timezone

from agents.alerts.models import Alert
from agents.kit.alerting import acknowledge_alerts, alert_url, end_alerts, pages_with_alerts, raise_alert
from tests.declaring import declare

pytestmark = pytest.mark.django_db


def test_where_nothing_sends_alerts_none_are_raised_ended_acknowledged_or_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    declare(monkeypatch, "alerting", {})

    assert raise_alert(kind="budget", about="x", title="It is used up", lasts=True) is None
    assert end_alerts(kind="budget") == 0
    assert acknowledge_alerts([1], user=None) == 0
    assert not Alert.objects.exists()
    assert pages_with_alerts(kind="budget", since=timezone.now(), most=10) == set()
    assert alert_url(1) == ""
