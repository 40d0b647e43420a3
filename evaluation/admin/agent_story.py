"""The agent's own card on its page, with every claim then and now; and whether it fades within long conversations."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString

from agents.admin import display
from agents.admin.display import Tone
from agents.adminsite import Button
from agents.models import Agent
from evaluation.admin.asking import PERMISSION
from evaluation.admin.cast_cards import shown_cards
from evaluation.admin.cast_steps import ask_url
from evaluation.admin.display import dimension_badge, judge_badge, meter, procedure_badge
from evaluation.change.evidence import Judged, judged_ways
from evaluation.change.overview import Card, Move, cast, is_sure
from evaluation.change.overview_text import short_name
from evaluation.change.position import PositionBin, PositionDimension, position_profile
from evaluation.coverage import percent
from evaluation.models import Baseline, EvaluationRun, EvaluationScore
from evaluation.wording import counted, decimal, signed

MOST_MOVES = 60  # claims in the table; the largest falls
MOST_JUDGED = 2_000  # messages of an evaluation by turn that a page waits for
TONES: dict[str, Tone] = {"drifted": "bad", "steady": "good", "cannot tell yet": "plain", "not enough data": "warning"}


def run_buttons(request: HttpRequest, agent: Agent) -> list[Button]:
    """What can be measured; each asks first."""
    return [
        Button(label="Evaluate now", url=ask_url(agent.pk, "evaluate"), why="estimates and asks first", main=True),
        Button(label="Capture baseline", url=ask_url(agent.pk, "capture"), why="estimates and asks first"),
    ]


def story_panel(request: HttpRequest, agent: Agent) -> SafeString:
    """What became of the agent, as on the cast page, by the judge most baselines of it are by."""
    quotes = request.user.has_perm("agents.view_message")
    card = cast([agent], _judged(agent), quotes=quotes).cards[0]
    context = {
        "card": shown_cards(request, [card])[0],
        "judge": judge_badge(card.judged.judge) if card.judged is not None else "",
        "procedure": procedure_badge(card.judged.procedure) if card.judged is not None else "",
        "moves": [_move(card, move) for move in card.moves[:MOST_MOVES]],
        "more": max(0, len(card.moves) - MOST_MOVES),
        "changed": [display.visible(name) for name in card.changed],
        "lost": [display.visible(f"{lost} ({percent(lost.before)} → {percent(lost.now)})") for lost in card.lost],
        "may_ask": request.user.has_perm(PERMISSION),
        "cast_url": reverse("admin:evaluation_cast"),
        "slug": agent.slug,
    }
    return SafeString(render_to_string("admin/evaluation/cast/panel.html", context, request))


def _judged(agent: Agent) -> Judged | None:
    """How the agent's newest baseline was judged; of several the one that comes first on the cast page."""
    own = set(Baseline.objects.filter(agent=agent).order_by().values_list("judge", "procedure").distinct())
    if not own:
        return None
    ways = [way for way in judged_ways() if (way.judge, way.procedure) in own]
    return ways[0] if ways else None


def _move(card: Card, move: Move) -> dict[str, Any]:
    url = display.list_url(
        EvaluationScore,
        run=move.now_run,
        dimension__exact=move.dimension,
        proposition_id=move.proposition,
    )
    name = short_name(move.proposition, card.agent.slug, move.dimension)
    return {
        "link": display.link(url, name, f"the judgements of {move.proposition} now"),
        "dimension": dimension_badge(move.dimension),
        "inverted": move.now.inverted,
        "then": meter(move.then.mean, share=move.then.share),
        "now": meter(move.now.mean, share=move.now.share),
        "change": signed(move.delta),
        "judged": f"{move.then.scored:,} · {move.now.scored:,}",
        "unscored": f"{move.now.unscored:,} unscored" if move.now.unscored else "",
        "verdict": _verdict(move),
    }


def _verdict(move: Move) -> SafeString:
    if is_sure(move):
        return display.badge("fell", "bad", "more than chance") if move.delta < 0 else display.badge("rose", "good")
    if move.p is None:
        return display.badge("judged once", "plain", "one judgement of a whole window decides nothing")
    return display.badge("within chance", "plain", f"p {move.p:.2g}, corrected for all claims here")


def turn_panel(request: HttpRequest, agent: Agent) -> SafeString:
    """The newest evaluation that was sampled by turn, told apart by stretch of the conversation."""
    runs = EvaluationRun.objects.filter(agent=agent, status=EvaluationRun.Status.COMPLETED).exclude(position_bins=[])
    run = runs.order_by("-created_at", "-pk").first()
    context: dict[str, Any] = {"slug": agent.slug}
    if run is not None:
        context |= {"run": display.page_of(run, f"evaluation {run.pk}"), "at": display.moment(run.finished_at)}
        context |= {"judge": judge_badge(run.judge), "procedure": procedure_badge(run.procedure, run.repeats)}
        if run.sample_size > MOST_JUDGED:
            context["too_large"] = run.sample_size
        else:
            profile = position_profile(run)
            context["dimensions"] = [_by_turn(found) for found in profile.dimensions]
    return SafeString(render_to_string("admin/evaluation/cast/by_turn.html", context))


def _by_turn(found: PositionDimension) -> dict[str, Any]:
    change, interval = found.within, found.within.delta.interval
    return {
        "dimension": dimension_badge(found.dimension),
        "bins": [_bin(one) for one in found.bins],
        "verdict": display.badge(_fades(change.decision.verdict, change.delta.value), TONES[change.decision.verdict]),
        "change": signed(change.delta.value) if change.delta.value is not None else "",
        "interval": f"{signed(interval.low)} to {signed(interval.high)}" if interval is not None else "",
        "first": change.first,
        "last": change.last,
        "conversations": counted(change.conversations, "conversation"),
        "reason": display.visible(change.delta.reason or change.decision.reason),
    }


def _fades(verdict: str, delta: float | None) -> str:
    if verdict == "drifted":
        return "fades" if (delta or 0) < 0 else "gains"
    return verdict


def _bin(one: PositionBin) -> dict[str, Any]:
    interval = one.score.interval
    return {
        "name": one.name,
        "score": meter(one.score.value, share=one.share),
        "interval": f"{decimal(interval.low)} to {decimal(interval.high)}" if interval is not None else "–",
        "messages": f"{one.messages:,}",
        "conversations": f"{one.conversations:,}",
        "unscored": f"{one.unscored:,}" if one.unscored else "–",
    }
