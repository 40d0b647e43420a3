"""The cast page: one card per agent, the flattest first."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path

from agents.admin import display
from evaluation.admin.asking import AskingAdmin
from evaluation.admin.cast_cards import shown_cards
from evaluation.admin.cast_form import MOST_AGENTS, CastForm
from evaluation.admin.cast_words import STATES
from evaluation.admin.display import judge_badge, procedure_badge
from evaluation.change.overview import Cast, cast
from evaluation.models import Baseline, is_heuristic

PAGE = 12  # cards
NEEDED = ("evaluation.view_baseline", "agents.view_agent")


class CastAdmin(AskingAdmin):
    """Answers "who?" where forty lines of a chart cannot."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.cast_view)
        return [path("cast/", view, name="evaluation_cast"), *super().get_urls()]

    def cast_view(self, request: HttpRequest) -> HttpResponse:
        """The cards of a page, by the filters in the URL."""
        if not request.user.has_perms(NEEDED):
            raise PermissionDenied
        form = CastForm(request.GET)
        if not form.is_valid():
            return self.page(request, "admin/evaluation/cast/page.html", "The cast", form=form, **_filters(form))
        agents = list(form.agents()[: MOST_AGENTS + 1])
        number = _number(request)
        chosen = form.cleaned_data
        found = cast(
            agents[:MOST_AGENTS],
            form.judged,
            then=chosen["then"],
            now=chosen["now"],
            state=chosen["state"] or None,
            start=(number - 1) * PAGE,
            stop=number * PAGE,
            quotes=request.user.has_perm("agents.view_message"),
        )
        return self.page(
            request,
            "admin/evaluation/cast/page.html",
            "The cast",
            form=form,
            **_filters(form),
            **_judge(form),
            cards=shown_cards(request, found.cards),
            states=_states(request, found, chosen["state"]),
            too_many=MOST_AGENTS if len(agents) > MOST_AGENTS else 0,
            pages=_pages(request, found, number),
            compares_tags=bool(chosen["then"] and chosen["now"]),
            tags=(display.visible(form.data.get("then", "")), display.visible(form.data.get("now", ""))),
            nobody=not agents,
            measured=form.judged is not None and Baseline.objects.exists(),
        )


def _judge(form: CastForm) -> dict[str, Any]:
    judged = form.judged
    if judged is None:
        return {}
    return {
        "judge": judge_badge(judged.judge),
        "procedure": procedure_badge(judged.procedure),
        "heuristic": is_heuristic(judged.judge),
    }


def _filters(form: CastForm) -> dict[str, Any]:
    """The fields in their order, and whether any was used: the others stay folded."""
    return {"filtered": any(form.data.get(name) for name in form.fields if name != "judge")}


def _states(request: HttpRequest, found: Cast, chosen: str) -> list[dict[str, Any]]:
    """How many agents are in which state, each number a link to their cards."""
    return [
        {
            "label": words.label,
            "tone": words.tone,
            "hint": words.hint,
            "count": found.states[state],
            "url": _url(request, state="" if chosen == state else state, page=""),
            "chosen": chosen == state,
        }
        for state, words in STATES.items()
        if state in found.states
    ]


def _pages(request: HttpRequest, found: Cast, number: int) -> dict[str, Any]:
    last = max(1, -(-found.total // PAGE))
    return {
        "number": number,
        "last": last,
        "before": _url(request, page=str(number - 1)) if number > 1 else "",
        "after": _url(request, page=str(number + 1)) if number < last else "",
    }


def _url(request: HttpRequest, **changes: str) -> str:
    """The same page with some of its parameters changed; empty ones go."""
    query = request.GET.copy()
    for name, value in changes.items():
        query.pop(name, None)
        if value:
            query[name] = value
    return f"?{query.urlencode()}"


def _number(request: HttpRequest) -> int:
    text = request.GET.get("page", "")
    return max(1, int(text)) if text.isascii() and text.isdecimal() and len(text) < 6 else 1
