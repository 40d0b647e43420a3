"""What was found when an intervention was looked at, as a table."""

from __future__ import annotations

from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.admin import display
from evaluation.admin.display import judge_badge

_KNOWN = ("kind", "text", "held", "score", "threshold", "reasoning", "reason", "judge", "status")


def fired_badge(fired: bool) -> SafeString:
    return display.badge("fired", "good") if fired else display.badge("did not fire")


def held_badge(held: Any) -> SafeString:
    if held is None:
        return display.badge("not asked", "plain", "not asked, or not judged")
    return display.badge("holds", "good") if held else display.badge("does not hold", "warning")


def preconditions_table(found: Any) -> SafeString:
    """One line per precondition; whatever else a line says is shown as it is."""
    lines = [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
    if not lines:
        return display.EMPTY
    rows = format_html_join(
        "",
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
        (
            (
                display.visible(entry.get("kind", "")),
                display.folded(str(entry.get("text") or ""), 80),
                held_badge(entry.get("held")),
                _measured(entry),
                _why(entry),
            )
            for entry in lines
        ),
    )
    return format_html(
        '<div class="pl-scroll" tabindex="0" role="group" aria-label="Preconditions">'
        '<table class="pl-table pl-stacking"><thead><tr><th>Kind</th><th>Precondition</th><th>Held</th>'
        "<th>Measured</th><th>Why</th></tr></thead><tbody>{}</tbody></table></div>",
        rows,
    )


def _measured(entry: dict[str, Any]) -> SafeString:
    score, threshold = entry.get("score"), entry.get("threshold")
    parts = [
        f"{score:g}" if isinstance(score, int | float) else "",
        f"threshold {threshold}" if threshold is not None else "",
    ]
    others = [f"{key} {value}" for key, value in entry.items() if key not in _KNOWN]
    return display.lines(display.visible(" · ".join(filter(None, [*parts, *others])) or "–"))


def _why(entry: dict[str, Any]) -> SafeString:
    text = "\n\n".join(str(entry[key]) for key in ("reasoning", "reason") if entry.get(key))
    judge = str(entry.get("judge") or "")
    return format_html("{} {}", display.folded(text, 90), judge_badge(judge) if judge else "")
