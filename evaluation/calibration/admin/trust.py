"""The passports of judges in the console: a badge beside their scores, and lines beneath their verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.display import Tone
from agents.kit.templatetags.display import register as templates
from evaluation.calibration.passport import JUDGE_IS, not_usable_line, passport_lines, passport_text, passports
from evaluation.judge.passport import Passport, PassportVerdict

TONES: dict[PassportVerdict, Tone] = {"usable": "good", "not shown": "plain", "not usable": "bad"}
SEE = "calibration.view_judgecalibration"
SEE_SCORES = "evaluation.view_evaluationrun"


def may_see(user: Any) -> bool:
    """Return whether a user may open a judge's page: who sees scores sees what is known of their judge. It shows no message text."""
    return bool(user.has_perm(SEE) or user.has_perm(SEE_SCORES))


def verdict_badge(verdict: PassportVerdict) -> SafeString:
    return display.badge(verdict, TONES[verdict])


def judge_url(passport: Passport) -> str:
    """Return the address of a judge's page in one dimension."""
    key = {"judge": passport.judge, "procedure": passport.procedure, "dimension": passport.dimension}
    return f"{reverse('admin:calibration_judgecalibration_passport')}?{urlencode(key)}"


def passport_badge(passport: Passport) -> SafeString:
    """Return the badge of a passport, with its verdict and the agreement with people, as a link to the judge's page."""
    agreement = passport.row("agreement")
    label = JUDGE_IS[passport.verdict]
    if agreement is not None:
        label += f": {agreement.text}"
    badge = display.badge(label, TONES[passport.verdict], passport_text(passport))
    return display.link(judge_url(passport), badge, passport_text(passport))


def passport_badges(judge: str, procedure: str, dimensions: Sequence[str]) -> dict[str, SafeString | str]:
    """Return the badge of each dimension, in one query; nothing for one that is counted."""
    badges: dict[str, SafeString | str] = dict.fromkeys(dimensions, "")
    for passport in passports(judge, procedure, dimensions):
        badges[passport.dimension] = passport_badge(passport)
    return badges


def trust(passports: Sequence[Passport], user: Any) -> SafeString:
    """Show passports in lines beneath verdicts, with links to the judges' pages; empty without any."""
    lines = [(display.visible(line),) for line in passport_lines(passports)]
    if not lines:
        return SafeString("")
    if may_see(user):
        links = [(display.link(judge_url(passport), f"Judge in {passport.dimension}"),) for passport in passports]
        lines.append((format_html_join(" · ", "{}", links),))
    return format_html_join("", '<p class="pl-subtle" dir="auto">{}</p>', lines)


def not_usable(passports: Sequence[Passport]) -> SafeString:
    """Show which judge is not usable, as the first line of a verdict; empty where none is."""
    line = not_usable_line(passports)
    if not line:
        return SafeString("")
    return format_html('<p class="pl-reason" role="alert" dir="auto">{}</p>', display.visible(line))


# For templates that load "display".
templates.filter("trust", trust)
templates.filter("not_usable", not_usable)
