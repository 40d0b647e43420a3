"""The gate's figures of a day and of a week, in one query: those that each window has by itself."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from agents.ops.sums import sum_up
from correction.gate.statistics import get_gate_statistics, get_recent_statistics
from correction.models import CorrectionLog
from evaluation.scorers.windows import MessageWindow
from tests.correction.judged_drafts import make_log
from tests.factories import make_agent, make_channel

pytestmark = pytest.mark.django_db


def test_each_window_has_the_counts_it_has_by_itself(django_assert_num_queries: Any) -> None:
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    recent, since = hour - timedelta(hours=24), hour - timedelta(days=7)
    ada = make_agent()
    played = make_channel("stage")
    played.synthetic = True
    played.save()
    for hours, outcome in (
        (1, "passed"),
        (2, "forced_through"),
        (23, "passed"),
        (30, "passed_after_retry"),
        (170, "passed"),
    ):
        for source, channel in (("gate", None), ("observe", None), ("gate", played)):
            log = make_log(ada, {"adherence": 2.0}, outcome=outcome, source=source, channel=channel, score_sum=2)
            CorrectionLog.objects.filter(pk=log.pk).update(created_at=hour - timedelta(hours=hours))

    for summed in (False, True):
        if summed:
            assert sum_up()
        get_recent_statistics(since=since, recent=recent)  # learns how far the sums reach
        with django_assert_num_queries(1):
            found = get_recent_statistics(since=since, recent=recent)
        alone = [get_gate_statistics(None, MessageWindow(start=start)) for start in (recent, since)]
        for one, other in zip(found, alone, strict=True):
            observed = other.observed.model_copy(update={"dimensions": {}})
            assert one == other.model_copy(update={"dimensions": {}, "observed": observed})
        assert (found[0].total_actions, found[1].total_actions) == (3, 4)
