"""How settings, outcomes and verdicts of the gate look in the console; built on the display functions of the layers below."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.admin.display import agent_chip
from agents.kit.console import display
from agents.kit.console.display import Tone
from agents.kit.templatetags.display import register as templates
from correction.config.settings import RULED, ResolvedConfig
from correction.models import CorrectionLog, GateDimensionResult, GateMode, GateSession, Outcome

ORIGINS = {"override": "this run", "agent": "own", "defaults": "defaults", "built-in": "built-in"}
# Where no row says anything, these two follow from other fields (see `correction.config.settings.merge`).
FOLLOWING = {"gate_mode": "follows the checks", "gate_rules_enabled": f"follows {' or '.join(RULED)}"}
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


_SAID = display.badge("said", "good", "this text was said in the end")
_NOT_SENT = "it failed too, and an earlier attempt was better"


def outcome_words(outcome: str) -> str:
    """An outcome for people, of a session or an attempt: the same words on every page."""
    return _OUTCOMES.get(outcome, (outcome, "plain"))[0]


def outcome_badge(outcome: str) -> SafeString:
    """The badge of an outcome; its title says it in full."""
    tone: Tone = _OUTCOMES.get(outcome, (outcome, "plain"))[1]
    title = Outcome(outcome).label if outcome in Outcome.values else "not a known outcome"
    return display.badge(outcome_words(outcome), tone, str(title))


def ending_badge(session: GateSession) -> SafeString:
    """How a session ended, or that it is open: its last draft was sent back."""
    return outcome_badge(session.outcome or Outcome.CORRECTED)


def attempt_badge(log: CorrectionLog) -> SafeString:
    """What became of one attempt: the one that was sent carries the session's outcome, and says so."""
    if log.committed:
        return format_html("{} {}", ending_badge(log.session), _SAID)
    if log.outcome == Outcome.FORCED_THROUGH and log.session.sent is not None:
        return display.badge("not sent", "plain", _NOT_SENT)
    return outcome_badge(log.outcome)


def source_badge(session: GateSession) -> SafeString:
    tone: Tone = "plain" if session.source == GateSession.Source.GATE else "accent"
    return display.badge(session.get_source_display(), tone)


def speaker(session: GateSession) -> SafeString:
    """Whose draft it is: an agent's, or a speaker's whom another program named."""
    return (
        format_html("{}", session.speaker) if session.agent is None and session.speaker else agent_chip(session.agent)
    )


def against_threshold(result: GateDimensionResult) -> SafeString:
    """A dimension's score beside its threshold. What failed has a cross, heavier letters and a border, not only a colour."""
    name = result.dimension.replace("_", " ")
    if result.score is None or result.status == GateDimensionResult.Status.TRIVIAL:
        label = result.get_status_display()
        return format_html(
            '<span class="pl-result" title="{}">– {} <span class="pl-subtle">{}</span></span>',
            display.marked(result.reason or label), display.visible(name), label,
        )  # fmt: skip
    kind, sign, compared, said = (
        ("pl-passed", "✓", "≥", "passed") if result.passed else ("pl-failed", "✗", "<", "failed")
    )
    return format_html(
        '<span class="pl-result {}"><span aria-hidden="true">{}</span><span class="pl-hidden">{}:</span> {} <b>{}</b> {} {}{}</span>',
        kind, sign, said, display.visible(name), f"{result.score:g}", compared, number(result.threshold), mark_of(result),
    )  # fmt: skip


def mark_of(result: GateDimensionResult) -> SafeString:
    """What a person said of the verdict, if anything."""
    if not result.mark:
        return SafeString("")
    return format_html(' <span class="pl-subtle">· {}</span>', result.get_mark_display())


def failed_first(rows: Iterable[GateDimensionResult]) -> list[GateDimensionResult]:
    return sorted(rows, key=lambda result: (result.passed, result.dimension))


def results(of_attempt: Iterable[GateDimensionResult]) -> SafeString:
    """The dimensions of one attempt, failed ones first."""
    shown = format_html_join("", "{}", ((against_threshold(result),) for result in failed_first(of_attempt)))
    return format_html('<span class="pl-results">{}</span>', shown) if shown else display.EMPTY


def number(value: Any) -> str:
    """A number without the zeros its column adds."""
    return f"{value.normalize():f}" if hasattr(value, "normalize") else str(value)


def origin(config: ResolvedConfig, name: str) -> str:
    """Where the value in effect comes from."""
    came = config.provenance[name]
    return FOLLOWING.get(name, ORIGINS[came]) if came == "built-in" else ORIGINS[came]


def mode_badge(config: ResolvedConfig) -> SafeString:
    return display.badge(config.gate_mode, MODE_TONES.get(config.gate_mode, "plain"))


def share(part: int, total: int) -> str:
    """``12 of 80 (15 %)``."""
    return f"{part:,} of {total:,}" + (f" ({100 * part / total:.0f} %)" if total else "")


for show in (against_threshold, source_badge, speaker):  # for templates that load "display"
    templates.filter(show.__name__, show)
