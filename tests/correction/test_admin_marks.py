"""Marks on the gate's verdicts: set, taken back, and only by those who may."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from correction.models import CorrectionLog, GateDimensionResult
from tests.console import Browser, list_of, page_of, plain, read, signed_in, staff, viewer
from tests.correction.judged_drafts import make_log, verdict
from tests.evaluation.judged import cells
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


# -- marks
def mark(client: Client, result: GateDimensionResult, value: str) -> Any:
    return client.post(reverse("admin:correction_mark", args=[result.pk]), {"mark": value})


def test_a_failed_dimension_is_marked_and_the_mark_taken_back(root: Client) -> None:
    log = make_log(make_agent(), {"adherence": 2.0, "fluency": 8.0})
    result = verdict(log)
    html = read(root, page_of(log))
    assert html.count('value="false_alarm"') == 1  # the passed dimension cannot be marked
    answer = mark(root, result, "false_alarm")

    assert answer["Location"] == f"{page_of(log)}#result-{result.pk}"
    result.refresh_from_db()
    assert (result.mark, str(result.marked_by)) == ("false_alarm", "root")
    assert "Marked false alarm root" in plain(read(root, page_of(log)))
    assert "· false alarm" in cells(read(root, list_of(CorrectionLog)), "verdicts")[0]
    mark(root, result, "")
    result.refresh_from_db()
    assert (result.mark, result.marked_by, result.marked_at) == ("", None, None)


def test_what_passed_is_not_marked_and_unknown_marks_are_refused(root: Client) -> None:
    log = make_log(make_agent(), {"adherence": 2.0, "fluency": 8.0})
    mark(root, verdict(log, "fluency"), "right")
    assert "fluency did not fail here" in plain(read(root, page_of(log)))
    mark(root, verdict(log), "nonsense")

    assert not GateDimensionResult.objects.exclude(mark="").exists()
    assert root.post(reverse("admin:correction_mark", args=[987654321]), {"mark": "right"}).status_code == 404
    assert root.get(reverse("admin:correction_mark", args=[verdict(log).pk])).status_code == 405


def test_marking_needs_its_own_permission_and_the_forms_token() -> None:
    log = make_log(make_agent(), {"adherence": 2.0})
    looking = signed_in(viewer())
    html = read(looking, page_of(log))
    assert 'name="mark"' not in html
    assert mark(looking, verdict(log), "right").status_code == 403
    marker = staff("correction.view_correctionlog", "correction.change_gatedimensionresult", username="marker")
    careful = Browser(enforce_csrf_checks=True)
    careful.force_login(marker)
    assert mark(careful, verdict(log), "right").status_code == 403
    assert mark(Browser(), verdict(log), "right")["Location"].startswith(reverse("admin:login"))
    assert verdict(log).mark == ""

    allowed = signed_in(marker)
    assert 'name="mark"' in read(allowed, page_of(log))
    mark(allowed, verdict(log), "right")
    assert verdict(log).mark == "right"
