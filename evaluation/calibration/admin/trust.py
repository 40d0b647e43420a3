"""How far a judge can be trusted, as the console shows it: badges beside its scores, and lines beneath its verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.templatetags.display import register as templates
from evaluation.calibration.agreement import NOT_CHECKED, calibration_of, figure_text, swap_text, trust_notes
from evaluation.calibration.models import JudgeCalibration
from evaluation.models import BY_MESSAGE, COUNTED

AGREEMENT = (
    "quadratic-weighted kappa of this judge and people, with its 95 % interval: 0 is chance, 1 perfect agreement"
)
SWAP_TEST = (
    "how often this judge scores an agent's own text higher than one of somebody else in its place (AUC, 0.5 is chance, 1 never wrong), "
    "with its 95 % interval"
)
NO_LABELS = "no human labels yet: how far this judge can be trusted is not known"
MAY_LABEL = ("calibration.add_labelset", "agents.view_message")


def agreement_badge(calibration: JudgeCalibration | None, dimension: str) -> SafeString | str:
    """Return a judge's agreement with people in a dimension, and its swap test; nothing for a dimension that is counted."""
    if dimension in COUNTED:
        return ""
    stale: SafeString | str = ""
    if calibration is not None and calibration.is_stale:
        stale = display.badge("labels changed since", "warning", "a worker computes it again")
    swap = _swap_badge(calibration) if dimension in BY_MESSAGE else ""
    return format_html("{} {} {}", _people_badge(calibration), stale, swap)


def _people_badge(calibration: JudgeCalibration | None) -> SafeString:
    """Return a badge of a judge's agreement with people."""
    if calibration is None or not calibration.labels:
        return display.badge(figure_text(None), "plain", NO_LABELS)
    return display.badge(figure_text(calibration), "info" if calibration.enough else "plain", AGREEMENT)


def badges_of(judge: str, procedure: str, dimensions: Sequence[str]) -> dict[str, SafeString | str]:
    """Return the badges of `agreement_badge` by dimension, in one query."""
    agreements = calibration_of(judge, procedure)
    return {name: agreement_badge(agreements.get(name), name) for name in dimensions}


def trust(judge: str, procedure: str, dimensions: Iterable[str], user: Any, *, agent: str = "") -> SafeString:
    """Show how far a judge can be trusted, in lines beneath its verdicts; see `trust_notes`."""
    return trust_lines(trust_notes(judge, procedure, dimensions, agent=agent), user)


def trust_lines(notes: Iterable[str], user: Any) -> SafeString:
    """Show sentences on how far a judge can be trusted, with the pages where `user` finds that out; empty without any."""
    lines = [(display.visible(note),) for note in notes]
    if not lines:
        return SafeString("")
    page = "add" if user.has_perms(MAY_LABEL) else "changelist"
    label = display.link(reverse(f"admin:calibration_labelset_{page}"), "Label its scores")
    check = display.link(reverse("admin:evaluation_job_check"), "Make the swap test", "asks first")
    lines.append((format_html("{} · {}", label, check),))
    return format_html_join("", '<p class="pl-subtle" dir="auto">{}</p>', lines)


def _swap_badge(calibration: JudgeCalibration | None) -> SafeString:
    """Return a badge of a judge's swap test; where there is none, as a link to the page that makes one, with this judge chosen."""
    text = swap_text(calibration)
    label = f"swap test: {text}"
    if text != NOT_CHECKED:
        return display.badge(label, "info", SWAP_TEST)
    url = reverse("admin:evaluation_job_check")
    if calibration is not None:
        url += f"?{urlencode({'judge': calibration.judge})}"
    return display.link(url, display.badge(label, "plain", SWAP_TEST), "check it: asks first")


templates.filter("trust_lines", trust_lines)  # for templates that load "display"
