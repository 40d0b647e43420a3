"""The judges in the console: a list of their passports, and a page for each with its rows and what would decide them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.dateparse import parse_datetime
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.filters import number_in
from agents.kit.console.panels import table
from agents.kit.console.site import Button, ReadOnlyAdmin, console_page
from agents.kit.text.wording import decimal
from evaluation.admin.display import dimension_badge, judged_by
from evaluation.calibration.admin.trust import judge_url, may_see, verdict_badge
from evaluation.calibration.labels import Key, check_dimension
from evaluation.calibration.models import LEAST_ITEMS, JudgeCalibration, LabelSet
from evaluation.calibration.passport import TITLES, passport_of
from evaluation.calibration.stored import calibration_of
from evaluation.judge.passport import Passport, PassportRow, RowName
from evaluation.models import BY_MESSAGE, Method, procedure_fields

HEADS = ("Figure", "Value", "95 % interval", "n", "Verdict", "In words")
DRAW = "calibration.add_labelset"
CHECK = "evaluation.add_evaluationrun"
MOST_SETS = 10  # the newest, named on the page
MEANINGS: dict[RowName, str] = {
    "agreement": "quadratic-weighted kappa: 0 is chance, 1 is perfect",
    "people": "kappa of judge and person less that of two people: below 0 the judge agrees less",
    "swap test": "how often an agent's own text scores higher than another's in its place: 0.5 is chance",
    "order": "points that shuffling, or asking alone, adds to what is asked as usual",
    "precision": "of the violations that the judge found, how many people see, too",
    "recall": "of the violations that people see, how many the judge found",
    "retest": "standard deviation between repeated judgements, in points",
    "coverage": "share scored of what this judge can score",
}


@admin.register(JudgeCalibration)
class JudgeAdmin(ReadOnlyAdmin[JudgeCalibration]):
    """A row is made by the first evaluation of a judge; a worker computes its figures."""

    list_before_template = "admin/list_starts.html"
    ordering = ("judge", "procedure", "dimension")

    verdict = display.column("passport", lambda row: verdict_badge(_passport(row).verdict))
    agreement = display.column("agreement with people", lambda row: _row_text(_passport(row), "agreement"))
    swap = display.column("swap test", lambda row: _row_text(_passport(row), "swap test"))

    @admin.display(description="judge", ordering="judge")
    def judge_mark(self, row: JudgeCalibration) -> SafeString:
        return judged_by(row)

    @admin.display(description="dimension", ordering="dimension")
    def dimension_mark(self, row: JudgeCalibration) -> SafeString:
        return dimension_badge(row.dimension)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Lead to the judge's page, which is there before its row is."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        row = get_object_or_404(JudgeCalibration, pk=number_in({"pk": object_id}, "pk"))
        return HttpResponseRedirect(judge_url(_passport(row)))

    @console_page("passport/")
    def passport_view(self, request: HttpRequest) -> HttpResponse:
        """Show the passport of the judge, procedure and dimension in the address, also where nothing is known of it.

        Without a judge it leads to the list.

        Raises:
            PermissionDenied: The user may see neither judges nor scores.
            Http404: There is no such procedure, or no such dimension that is scored.
        """
        if not may_see(request.user):
            raise PermissionDenied
        judge = request.GET.get("judge", "").replace("\x00", "").strip()
        if not judge:
            return HttpResponseRedirect(self.url("changelist"))
        key = _read_key(request, judge)
        row = calibration_of(key.judge, key.procedure).get(key.dimension)
        passport = passport_of(key, row)
        context = {
            "passport": passport,
            "judge": judged_by(key),
            "dimension": dimension_badge(key.dimension),
            "badge": verdict_badge(passport.verdict),
            "decided_by": ", ".join(TITLES[name].lower() for name in passport.decided_by),
            "table": table(HEADS, [_cells(passport_row) for passport_row in passport.rows], label="Passport"),
            "command": _check_command(passport),
            "buttons": _buttons(request, passport),
            "label_sets": LabelSet.objects.filter(**key._asdict())[:MOST_SETS],
            "may_see_label_sets": request.user.has_perm("calibration.view_labelset"),
            "computed": parse_datetime(passport.computed_at) if passport.computed_at else None,
        }
        return self.page(request, "admin/calibration/passport.html", f"Judge {key.judge} in {key.dimension}", **context)


def _read_key(request: HttpRequest, judge: str) -> Key:
    """Return the judge with the procedure and dimension that an address names.

    Raises:
        Http404: The procedure or the dimension is not allowed.
    """
    procedure = request.GET.get("procedure", Method.PLUMBLINE.value)
    try:
        procedure_fields(procedure)
        dimension = check_dimension(request.GET.get("dimension", ""))
    except ValueError as error:
        raise Http404(str(error)) from None
    return Key(judge, procedure, dimension)


def _passport(row: JudgeCalibration) -> Passport:
    return passport_of(Key(row.judge, row.procedure, row.dimension), row)


def _row_text(passport: Passport, name: RowName) -> SafeString | str:
    """Return a figure of a list's row; a dash where it does not apply."""
    row = passport.row(name)
    return display.EMPTY if row is None else display.visible(row.text)


def _cells(row: PassportRow) -> Sequence[object]:
    """Return the cells of a row under `HEADS`."""
    interval = "–"
    if row.interval is not None:
        low, high = row.interval
        interval = f"{decimal(low, 2)} to {decimal(high, 2)}"
    verdict: SafeString | str = "no limit"
    if row.verdict is not None:
        verdict = verdict_badge(row.verdict)
    words: SafeString | str = display.visible(row.text)
    if row.missing:
        words = format_html("{}<br><strong>Missing: {}</strong>", words, row.missing)
    return (
        format_html('{}<br><span class="pl-subtle">{}</span>', TITLES[row.name], MEANINGS[row.name]),
        "–" if row.value is None else decimal(row.value, 2),
        interval,
        f"{row.n:,}",
        verdict,
        words,
    )


def _check_command(passport: Passport) -> str:
    """Return the command that makes the swap test of a procedure that has no button; empty where there is one, or no test."""
    if passport.dimension not in BY_MESSAGE or passport.procedure == Method.PLUMBLINE:
        return ""
    fields = procedure_fields(passport.procedure)
    if fields["simulated"]:
        return ""  # what is checked is real speech
    words = ["manage.py", "check_judge", "--judge", passport.judge, "--dimensions", passport.dimension]
    words += ["--method", fields["method"]]
    for name in ("hard", "double_check", "few_shot"):
        if fields[name]:
            words.append(f"--{name.replace('_', '-')}")
    return shlex.join(words)


def _buttons(request: HttpRequest, passport: Passport) -> list[Button]:
    """Return what gets the figures that are missing, for users who may do it; each page comes filled in."""
    missing = {row.name for row in passport.rows if row.verdict == "not shown"}
    main = True  # what is named first
    buttons: list[Button] = []
    if request.user.has_perm(DRAW):
        query = {
            "judged_by": f"{passport.judge}, {passport.procedure}",
            "dimension": passport.dimension,
            "n": LEAST_ITEMS,
        }
        url = f"{reverse('admin:calibration_labelset_add')}?{urlencode(query)}"
        is_main = "agreement" in missing
        buttons.append(Button(label=f"Label {LEAST_ITEMS}", url=url, why="draws them at random", main=is_main))
        main = not is_main
    may_swap = passport.dimension in BY_MESSAGE and passport.procedure == Method.PLUMBLINE
    if may_swap and request.user.has_perm(CHECK):
        url = f"{reverse('admin:evaluation_job_check')}?{urlencode({'judge': passport.judge, 'dimensions': passport.dimension})}"
        why = "estimates and asks first"
        buttons.append(Button(label="Run the swap test", url=url, why=why, main=main and "swap test" in missing))
        buttons.append(Button(label="Run the order test", url=f"{url}&order=on", why=why, main=False))
    return buttons
