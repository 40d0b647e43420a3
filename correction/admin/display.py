"""Show settings, outcomes and verdicts of the gate in the console; built on the display functions of the layers below."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.admin.display import agent_chip
from agents.kit.console import display
from agents.kit.console.display import Tone
from agents.kit.templatetags.display import register as templates
from correction.config.settings import DIMENSIONS_WITH_RULES, ResolvedConfig
from correction.models import CorrectionLog, GateDimensionResult, GateMode, GateSession, Outcome

ORIGINS = {"override": "this run", "agent": "own", "defaults": "defaults", "built-in": "built-in"}
# Where no row says anything, these two follow from other fields (see `correction.config.settings.merge`).
FOLLOWING = {"gate_mode": "follows the checks", "gate_rules_enabled": f"follows {' or '.join(DIMENSIONS_WITH_RULES)}"}
MODE_TONES: dict[str, Tone] = {GateMode.OFF: "plain", GateMode.OBSERVE: "info", GateMode.ENFORCE: "good"}
_OUTCOMES: dict[str, tuple[str, Tone]] = {
    Outcome.PASSED: ("passed", "good"),
    Outcome.CORRECTED: ("sent back", "warning"),
    Outcome.PASSED_AFTER_RETRY: ("passed after retry", "good"),
    Outcome.FORCED_THROUGH: ("forced through", "bad"),
    Outcome.TIMEOUT_PASSED: ("timed out", "warning"),
    Outcome.OVERLOAD_PASSED: ("judge overloaded", "warning"),
    Outcome.ERROR_PASSED: ("judge failed", "warning"),
    Outcome.UNSCORED_PASSED: ("not judged", "warning"),
    Outcome.BUDGET_PASSED: ("budget used up", "warning"),
    Outcome.OBSERVED: ("observed", "info"),
    Outcome.ABANDONED: ("abandoned", "plain"),
}


_SENT = display.badge("said", "good", "this text was said in the end")
_WHY_NOT_SENT = "it failed too, and an earlier attempt was better"


def outcome_words(outcome: str) -> str:
    """Return an outcome for people, of a session or an attempt: the same words on every page."""
    return _OUTCOMES.get(outcome, (outcome, "plain"))[0]


def outcome_badge(outcome: str) -> SafeString:
    """Return the badge of an outcome; its title says it in full."""
    tone: Tone = _OUTCOMES.get(outcome, (outcome, "plain"))[1]
    title = Outcome(outcome).label if outcome in Outcome.values else "not a known outcome"
    return display.badge(outcome_words(outcome), tone, str(title))


def ending_badge(session: GateSession) -> SafeString:
    """Return the badge of how a session ended, or that it is open: its last draft was sent back."""
    return outcome_badge(session.outcome or Outcome.CORRECTED)


def attempt_badge(log: CorrectionLog) -> SafeString:
    """Return the badge of one attempt: the one that was sent carries the session's outcome, and says so."""
    if log.committed:
        return format_html("{} {}", ending_badge(log.session), _SENT)
    if log.outcome == Outcome.FORCED_THROUGH and log.session.sent is not None:
        return display.badge("not sent", "plain", _WHY_NOT_SENT)
    return outcome_badge(log.outcome)


def source_badge(session: GateSession) -> SafeString:
    """Return the badge of where a session's drafts come from."""
    tone: Tone = "plain" if session.source == GateSession.Source.GATE else "accent"
    return display.badge(session.get_source_display(), tone)


def speaker(session: GateSession) -> SafeString:
    """Return whose draft it is: an agent's, or a speaker's whom another program named."""
    if session.agent is None and session.speaker:
        return format_html("{}", session.speaker)
    return agent_chip(session.agent)


def against_threshold(result: GateDimensionResult) -> SafeString:
    """Return a dimension's score beside its threshold; its status and reason where it has no score of its own.

    What failed has a cross, heavier letters and a border, not only a colour.
    """
    name = result.dimension.replace("_", " ")
    if result.score is None or result.status == GateDimensionResult.Status.TRIVIAL:
        label = result.get_status_display()
        return format_html(
            '<span class="pl-result" title="{}">– {} <span class="pl-subtle">{}</span></span>',
            display.marked(result.reason or label), display.visible(name), label,
        )  # fmt: skip
    if result.passed:
        css_class = "pl-passed"
        sign = "✓"
        verdict = "passed"
        compared = "≥"
    else:
        css_class = "pl-failed"
        sign = "✗"
        verdict = "failed"
        compared = "<"
    return format_html(
        '<span class="pl-result {}"><span aria-hidden="true">{}</span><span class="pl-hidden">{}:</span> {} <b>{}</b> {} {}{}</span>',
        css_class, sign, verdict, display.visible(name), f"{result.score:g}", compared, number(result.threshold), mark_of(result),
    )  # fmt: skip


def mark_of(result: GateDimensionResult) -> SafeString:
    """Return the mark that a person gave the verdict, if any."""
    if not result.mark:
        return SafeString("")
    return format_html(' <span class="pl-subtle">· {}</span>', result.get_mark_display())


def failed_first(rows: Iterable[GateDimensionResult]) -> list[GateDimensionResult]:
    """Sort dimensions: failed ones first, then by name."""
    return sorted(rows, key=lambda result: (result.passed, result.dimension))


def results(of_attempt: Iterable[GateDimensionResult]) -> SafeString:
    """Return the dimensions of one attempt, failed ones first."""
    badges = format_html_join("", "{}", ((against_threshold(result),) for result in failed_first(of_attempt)))
    return format_html('<span class="pl-results">{}</span>', badges) if badges else display.EMPTY


def number(value: Any) -> str:
    """Return a number without the zeros its column adds."""
    return f"{value.normalize():f}" if hasattr(value, "normalize") else str(value)


def origin(config: ResolvedConfig, name: str) -> str:
    """Return where the value in effect comes from."""
    came_from = config.provenance[name]
    if came_from == "built-in" and name in FOLLOWING:
        return FOLLOWING[name]
    return ORIGINS[came_from]


def mode_badge(config: ResolvedConfig) -> SafeString:
    """Return the badge of the gate's mode."""
    return display.badge(config.gate_mode, MODE_TONES.get(config.gate_mode, "plain"))


def share(part: int, total: int, weighted: float | None = None) -> str:
    """Return a share as ``12 of 80 (15 %)``, or ``12 of 80 (weighted 31 %)``.

    Args:
        weighted: The share where each counts for as many as it stands for, 0 to 1; None: all count alike.
    """
    if not total:
        return f"{part:,} of {total:,}"
    if weighted is not None and abs(weighted - part / total) > 1e-9:
        return f"{part:,} of {total:,} (weighted {100 * weighted:.0f} %)"
    return f"{part:,} of {total:,} ({100 * part / total:.0f} %)"


for show in (against_threshold, source_badge, speaker):  # for templates that load "display"
    templates.filter(show.__name__, show)
