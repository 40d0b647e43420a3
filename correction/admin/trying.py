"""*What would change*: how many of the drafts judged so far would fail with a threshold, as a line of the form."""

from __future__ import annotations

from decimal import Decimal

from django.conf import settings
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin import display
from agents.models import Agent
from correction.admin.display import number, share
from correction.config.fields import CONFIG_FIELDS, ConfigError
from correction.config.resolve import resolve_config, resolve_defaults
from correction.gate.thresholds import would_fail
from evaluation.models import is_heuristic


def tried(agent: Agent | None, dimension: str, typed: str) -> SafeString:
    """What the typed threshold would do; an empty one is the one in effect, one that is not allowed is explained."""
    field = f"gate_{dimension}_threshold"
    try:
        threshold = CONFIG_FIELDS[field].read(typed)
    except ConfigError as error:
        return format_html('<span class="pl-subtle">{}</span>', display.visible(error))
    if threshold is None:
        threshold = (resolve_config(agent) if agent else resolve_defaults())[field]
    return would_change(agent, dimension, threshold)


def would_change(agent: Agent | None, dimension: str, threshold: Decimal) -> SafeString:
    """One sentence: of the last drafts judged by the kind of judge that is set now, how many fall below `threshold`."""
    heuristic = is_heuristic(settings.JUDGE_MODEL)
    found = would_fail(agent=agent, dimension=dimension, threshold=threshold, heuristic=heuristic)
    kind = (
        display.badge("heuristic", "warning", "judged offline: not comparable with a model's scores")
        if heuristic
        else ""
    )
    whose = "" if agent else " of all agents"
    if not found.judged:
        return format_html(
            '<span class="pl-subtle">No first draft{} was judged for {} yet; the observe mode collects some.</span>',
            whose, dimension,
        )  # fmt: skip
    return format_html(
        "With a threshold of {}, <strong>{}</strong> judged drafts would have failed. {} "
        '<span class="pl-subtle">Looked at: the last {} first drafts{}.</span>',
        number(threshold), share(found.failed, found.judged), kind, f"{found.total:,}", whose,
    )  # fmt: skip
