"""Serve the page that has a judge checked by the swap test, with the newest check."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString

from agents.kit.admin.access import user_of
from agents.kit.console import display
from agents.kit.console.forms import CostPreview, as_query, ask, request_form
from agents.kit.console.panels import table
from agents.kit.console.site import add_pages
from agents.kit.text.wording import decimal, percentage, signed
from evaluation.admin.asking import cost_preview
from evaluation.admin.display import MEASURE, dimension_badge
from evaluation.admin.jobs import newest_job
from evaluation.calibration.agreement import OrderShown
from evaluation.calibration.jobs import JudgeCheckRequest, parts_of, request_check, specs_to_queue
from evaluation.calibration.models import JudgeCalibration
from evaluation.calibration.swap_test import SwapTest
from evaluation.models import BY_MESSAGE, Job
from evaluation.propositions.files import PropositionError, default_dimensions
from evaluation.runs.estimate import estimate_all

VIEW = "evaluation.view_evaluationrun"


CheckingForm = request_form(JudgeCheckRequest, "agents", "judge", "dimensions", "samples", "order")


def check_page(request: HttpRequest) -> HttpResponse:
    """Show the form of a check and the newest one, then what it would cost; once that is confirmed, queue it.

    Raises:
        PermissionDenied: The user may not see evaluations; or confirms without the right to ask for them.
    """
    if not request.user.has_perm(VIEW):
        raise PermissionDenied
    judge_admin: Any = admin.site.get_model_admin(JudgeCalibration)
    chosen = {"dimensions": [name for name in _default_dimensions() if name in BY_MESSAGE]}
    form = CheckingForm(as_query(request, CheckingForm, chosen))

    def queue() -> str:
        if not request.user.has_perm(MEASURE):
            raise PermissionDenied
        request_check(form.asked, user=user_of(request))
        return reverse("admin:evaluation_job_check")

    return ask(
        judge_admin, request, form, title="Check a judge", verb="Check the judge", do=queue,
        preview=lambda: _checking_preview(form.asked, may_ask=request.user.has_perm(MEASURE)),
        about="Can it tell agents' own words from those of others? Each agent is judged on its own messages, and on texts of others in "
        "their place. Or, as the order test: does it matter what else is asked in the same call? "
        "The result stands in the judge's passport from then on. It needs no labels.",
        back=(reverse("admin:evaluation_drift_overview"), "Back to the overview"),
        newest=newest_job(request, Job.Kind.JUDGE_CHECK, checked),
    )  # fmt: skip


def _default_dimensions() -> tuple[str, ...]:
    try:
        return default_dimensions()
    except PropositionError:
        return ()  # said when it is estimated


def _checking_preview(check_request: JudgeCheckRequest, *, may_ask: bool) -> CostPreview:
    """Return what a check would cost: two measurements of each agent that said something, three for the order test.

    Raises:
        ValueError: As `specs_to_queue`, or proposition files cannot be used.
    """
    try:
        specs = specs_to_queue(check_request)
        estimates = estimate_all([part for spec in specs for part in parts_of(spec, order=check_request.order)])
    except PropositionError as error:
        raise ValueError(f"proposition files cannot be used: {error}") from None
    times = "three times" if check_request.order else "twice"
    note = f"Every agent is measured {times}; none of it is a score of the agent."
    why_not = "" if may_ask else "Asking for it takes the right to ask for evaluations."
    return cost_preview([("Agents", f"{len(specs):,}")], estimates, note=note, why_not=why_not)


def checked(job: Job) -> SafeString:
    """Return the result of a check as a table, dimension by dimension, and which earlier checks stay in its place."""
    rows = []
    for dimension, stored in job.result.get("dimensions", {}).items():
        test = SwapTest.model_validate(stored)
        rows.append(
            (
                dimension_badge(dimension),
                display.visible(test.verdict or test.auc.reason),
                test.auc.text,
                test.auc.interval_text,
                f"{_mean_text(test.own_mean)} · {_mean_text(test.swapped_mean)}",
                "–" if test.high_share is None else percentage(test.high_share),
            )
        )
    heads = ("Dimension", "Verdict", "AUC", "95 % interval", "Mean, own words · others'", "Others' that score ≥ 7")
    orders = []
    for dimension, stored in job.result.get("orders", {}).items():
        order = OrderShown.model_validate(stored)
        for name, figure in (("shuffled", order.shuffled), ("alone", order.alone)):
            orders.append(
                (dimension_badge(dimension), name, signed(figure.value, 2), figure.interval_text, f"{order.pairs:,}")
            )
    order_heads = ("Dimension", "Asked", "Points more than as usual", "95 % interval", "Judgements")
    context = {
        "orders": table(order_heads, orders, label="Asked in another way"),
        "table": table(heads, rows, label="Own words against those of others"),
        "stays": job.result.get("stays", {}),
    }
    return SafeString(render_to_string("admin/calibration/checked.html", context))


def _mean_text(mean: float | None) -> str:
    return "–" if mean is None else decimal(mean, 1)


def _urls() -> list[URLPattern]:
    page = admin.site.admin_view(check_page)
    return [path("calibration/judgecalibration/check/", page, name="evaluation_job_check")]


add_pages(_urls)
