"""Debates in the console: start one, play it round by round, say something in between, and read its results."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.safestring import SafeString

from agents.admin.picking import AgentsField
from agents.debates.debate import NOT_ENDED, add_message, ask_rounds, cancel
from agents.debates.measures import STANCES
from agents.debates.models import Debate
from agents.debates.modes import MODES
from agents.debates.report import (
    EVIDENCE_HEADS,
    DebateReport,
    Remark,
    Response,
    actor_line,
    evidence_cells,
    exit_line,
    report,
    round_name,
    talking_lines,
)
from agents.debates.request import DebateRequest, request_debate
from agents.debates.starting import DebateRefused, lacks_lines
from agents.kit.admin.access import user_of
from agents.kit.commands import Cell
from agents.kit.console import display
from agents.kit.console.charts import steps
from agents.kit.console.filters import number_in, whole_number
from agents.kit.console.forms import refuse, request_form
from agents.kit.console.logs import READING, LogAdmin
from agents.kit.console.panels import table
from agents.kit.console.site import console_action, console_page
from agents.kit.work.worker import alive
from agents.models import Agent
from agents.turn.send_message import SendRefused

MOST_SILENT = 20  # agents without lines that the form names
NEAR = 5_000  # debates before and after, among which others about the same question are looked for
OTHERS_NAMED = 5  # of these
PAGES = "admin/debates/debate/"
STARTING = ("debates.add_debate", "agents.view_agent")
PLAYING, SPEAKING = "debates.change_debate", "agents.add_message"
STANCE_TONES: dict[str | None, display.Tone] = {"yes": "good", "no": "bad", "neutral": "plain"}


ROUNDS = ("rounds", "poll", "judge", "real", "perspectives")
StartForm = request_form(
    DebateRequest,
    *("topic", "mode", "agents", *ROUNDS),
    agents=AgentsField(required=False),
)


@admin.register(Debate)
class DebateAdmin(LogAdmin[Debate]):
    """Users who may add debates and view agents start them; those who may change them ask for rounds and cancel."""

    list_select_related = ("created_by",)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perms(STARTING)

    @admin.display(description="mode", ordering="mode")
    def rules(self, debate: Debate) -> str | SafeString:
        return MODES[debate.mode].title if debate.mode in MODES else display.visible(debate.mode)

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the form of a new debate, and start it: it waits, or begins with the rounds that the pressed button asks for.

        The address may name a debate (``like``) whose topic and agents are taken. The button ``wait`` asks for no round, ``next`` for
        one, any other for all. Users who may not ask for rounds only start it.

        Raises:
            PermissionDenied: The user may not start debates.
        """
        if not self.has_add_permission(request):
            raise PermissionDenied
        user = user_of(request)
        may_play = user.has_perm(PLAYING)
        form = StartForm(request.POST or None, initial=self._like(request))
        if request.method == "POST" and form.is_valid():
            try:
                debate = request_debate(form.asked, user=user)
            except DebateRefused as refused:
                refuse(form, refused)
            else:
                self.log_addition(request, debate, "started")
                if may_play and "wait" not in request.POST:
                    ask_rounds(debate, rounds=1 if "next" in request.POST else None)
                return HttpResponseRedirect(self.url("change", debate))
        lineless = Agent.objects.in_use().filter(sample_lines=[]).only("slug", "model_id", "sample_lines")
        silent = [agent.slug for agent in lineless.order_by("slug")[:MOST_SILENT] if lacks_lines(agent)]
        return self.page(
            request,
            f"{PAGES}start.html",
            "Start a debate",
            form=form,
            rounds=[form[name] for name in ROUNDS],
            may_play=may_play,
            silent=silent,
        )

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the results of a debate so far, with what the visitor may do in its present status.

        Raises:
            PermissionDenied: The user may not view debates.
            Http404: There is none of that number.
        """
        debate = self._visible(request, whole_number(object_id) or 0)
        debate_report = report(debate)
        may_play = request.user.has_perm(PLAYING)
        remarks: dict[int, list[Remark]] = defaultdict(list)
        for remark in debate_report.evidence.remarks:
            remarks[remark.before_round].append(remark)
        begun = {response.round for response in debate_report.agent_responses}
        ended = {row.round for row in debate_report.evidence.rounds}
        rounds = sorted(begun | ended)
        last = debate_report.evidence.rounds[-1] if debate_report.evidence.rounds else None
        waits = debate.status == Debate.WAITING
        beside_url = self.url("beside", debate)
        return self.page(
            request,
            f"{PAGES}page.html",
            f"Debate {debate.pk}",
            debate=debate,
            report=debate_report,
            reads=request.user.has_perm(READING),
            rules=self.rules(debate),
            is_open=debate.status in Debate.OPEN,
            no_worker=debate.status == Debate.Status.PENDING and not alive().exists(),
            may_play=may_play and (waits or debate.status == Debate.Status.ERRORED),
            may_cancel=may_play and debate.status in NOT_ENDED,
            may_speak=request.user.has_perm(SPEAKING) and waits,
            exit_line=exit_line(debate_report),
            actor_line=actor_line(debate_report),
            talking=list(talking_lines(debate_report.decision.what_talking_changed)),
            judge=last.consensus if last else None,
            stances=_stances_chart(debate_report),
            confidence=_confidence_chart(debate_report),
            rounds=[{"name": round_name(number), "remarks": remarks[number]} for number in rounds],
            next_remarks=[remark for remark in debate_report.evidence.remarks if remark.before_round not in rounds],
            matrix=_seats_by_rounds(debate, debate_report, rounds),
            evidence=table(
                [head.removeprefix(">") for head in EVIDENCE_HEADS],
                [list(map(_console_cell, evidence_cells(row))) for row in debate_report.evidence.rounds],
                label="Results of each round",
                stacking=False,
            ),
            urls={
                name: self.url(name, debate) for name in ("next", "finish", "cancel", "message", "progress", "beside")
            },
            others=[(other, self.rules(other), f"{beside_url}?other={other.pk}") for other in _of_same_topic(debate)],
            again=f"{self.url('add')}?like={debate.pk}" if self.has_add_permission(request) else "",
            export=reverse("debate-export", args=[debate.pk]),
        )

    @console_page("<int:pk>/beside/", READING)
    def beside_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show a debate beside another one (``other`` in the address), round by round and agent by agent.

        Raises:
            PermissionDenied: The user may not view debates.
            Http404: There is no debate of one of the two numbers.
        """
        sides = [self._side(self._visible(request, number)) for number in (pk, number_in(request.GET, "other") or 0)]
        return self.page(
            request,
            f"{PAGES}beside.html",
            f"Debates {sides[0].debate.pk} and {sides[1].debate.pk}",
            left=sides[0],
            right=sides[1],
            sides=sides,
            rounds=_aligned_rounds(*sides),
        )

    def _side(self, debate: Debate) -> _Side:
        debate_report = report(debate)
        rounds = sorted({response.round for response in debate_report.agent_responses})
        return _Side(
            debate=debate,
            url=self.url("change", debate),
            rules=self.rules(debate),
            report=debate_report,
            exit_line=exit_line(debate_report),
            actor_line=actor_line(debate_report),
            talking=list(talking_lines(debate_report.decision.what_talking_changed)),
            rounds=rounds,
            matrix=_seats_by_rounds(debate, debate_report, rounds),
        )

    @console_action("next", PLAYING)
    def next_view(self, request: HttpRequest, row: Debate) -> str:
        ask_rounds(row, rounds=1)
        return "The next round is queued."

    @console_action("finish", PLAYING)
    def finish_view(self, request: HttpRequest, row: Debate) -> str:
        ask_rounds(row, rounds=None)
        return "All rounds that are left are queued."

    @console_action("cancel", PLAYING)
    def cancel_view(self, request: HttpRequest, row: Debate) -> str:
        return f"Debate {cancel(row).pk} is cancelled. What was said stays."

    @console_page("<int:pk>/message/", SPEAKING, post=True)
    def message_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Say something to the seats (POST); they read it in the next round. Where that is refused, a message says why."""
        debate = self._visible(request, pk)
        text = request.POST.get("text", "").strip()
        try:
            add_message(debate, text=text, user=user_of(request))
        except (DebateRefused, SendRefused) as refused:
            self.message_user(request, f"Nothing was said: {refused}.", messages.ERROR)
        else:
            self.message_user(request, "Said; the seats read it in the next round.", messages.SUCCESS)
        return HttpResponseRedirect(self.url("change", debate))

    @console_page("<int:pk>/progress/")
    def progress_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Return how far it is, for the page that asks every two seconds whether anything changed."""
        debate = self._visible(request, pk)
        ended = debate.turns.exclude(status="pending").count()
        return JsonResponse({"status": debate.status, "turns": ended, "rounds": debate.rounds.count()})

    def _like(self, request: HttpRequest) -> dict[str, Any]:
        """Return topic and agents of the debate that the address of a new one names; nothing where the user may view none such."""
        debate = Debate.objects.filter(pk=number_in(request.GET, "like")).first()
        if debate is None or not self.has_view_permission(request):
            return {}
        agents = debate.seats.order_by("number").values_list("agent__slug", flat=True)
        return {"topic": debate.topic, "agents": list(agents)}

    def _visible(self, request: HttpRequest, pk: int) -> Debate:
        if not self.has_view_permission(request):
            raise PermissionDenied
        debate: Debate = get_object_or_404(Debate.objects.select_related("channel"), pk=pk)
        return debate


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """A debate beside another one.

    Attributes:
        rounds: Numbers of those in which a seat had a turn. `matrix`: the seats with their answers, as `_seats_by_rounds` has them.
    """

    debate: Debate
    url: str
    rules: str | SafeString
    report: DebateReport
    exit_line: str
    actor_line: str
    talking: list[str]
    rounds: list[int]
    matrix: list[dict[str, Any]]

    def answers(self, number: int, *, by_agent: bool) -> dict[int, dict[str, Any]]:
        """Return the answers of a round with their seats, by the agent's primary key or by the number of the seat."""
        answers: dict[int, dict[str, Any]] = {}
        if number not in self.rounds:
            return answers
        for row in self.matrix:
            cell = row["cells"][self.rounds.index(number)]
            if cell is not None:
                key = row["seat"].agent_id if by_agent else row["seat"].number
                answers[key] = {"seat": row["seat"], "cell": cell}
        return answers

    @property
    def agents(self) -> set[int]:
        """Return the primary keys of its agents."""
        return {row["seat"].agent_id for row in self.matrix}


def _aligned_rounds(left: _Side, right: _Side) -> list[dict[str, Any]]:
    """Return the rounds of two debates, each with its pairs of answers (None: there is none): of the same agent, or of the same seat.

    Seats are compared by their number where the debates have no agent in common.
    """
    by_agent = bool(left.agents & right.agents)
    rounds = []
    for number in sorted({*left.rounds, *right.rounds}):
        left_answers = left.answers(number, by_agent=by_agent)
        right_answers = right.answers(number, by_agent=by_agent)
        keys = list(dict.fromkeys([*left_answers, *right_answers]))
        rows = [(left_answers.get(key), right_answers.get(key)) for key in keys]
        rounds.append({"name": round_name(number), "rows": rows})
    return rounds


def _of_same_topic(debate: Debate) -> list[Debate]:
    """Return the newest other debates about the same question, among those that were started shortly before or after."""
    near = Debate.objects.filter(pk__gt=debate.pk - NEAR, pk__lt=debate.pk + NEAR)
    return list(near.filter(topic=debate.topic).exclude(pk=debate.pk).order_by("-pk")[:OTHERS_NAMED])


def _stances_chart(debate_report: DebateReport) -> SafeString:
    """Return a chart of how many seats hold which stance, over the rounds; empty where none has one."""
    rounds = debate_report.evidence.rounds
    if not any(any(row.vote.counts.values()) for row in rounds):
        return SafeString("")
    counts: dict[str, list[float | None]] = {}
    for stance in STANCES:
        counts[stance] = [row.vote.counts[stance] for row in rounds]
    names = [round_name(row.round) for row in rounds]
    ticks = range(len(debate_report.metadata.seats) + 1)
    return steps(counts, names=names, label="Seats by stance and round", ticks=ticks, format_value="{:.0f}".format)


def _confidence_chart(debate_report: DebateReport) -> SafeString:
    """Return a chart of the confidence of each seat, over the rounds; empty where none gave any."""
    rounds = debate_report.evidence.rounds
    responses = _by_seat_and_round(debate_report)
    lines: dict[str, list[float | None]] = {}
    for seat in debate_report.metadata.seats:
        line: list[float | None] = []
        for row in rounds:
            response = responses.get((seat.number, row.round))
            line.append(response.confidence if response else None)
        lines[f"{seat.number}. {seat.name}"] = line
    if not any(value is not None for line in lines.values() for value in line):
        return SafeString("")
    names = [round_name(row.round) for row in rounds]
    return steps(lines, names=names, label="Confidence of each seat by round")


def _by_seat_and_round(debate_report: DebateReport) -> dict[tuple[int, int], Response]:
    """Return the responses by the number of their seat and of their round."""
    return {(response.seat, response.round): response for response in debate_report.agent_responses}


def _console_cell(cell: Cell) -> object:
    """Return a cell of the report's table as the console shows it."""
    value, emphasis = cell if isinstance(cell, tuple) else (cell, "")
    if emphasis == "warning":
        return display.badge(value, "warning")
    return display.count(value) if isinstance(value, int | None) else display.visible(value)


def _seats_by_rounds(debate: Debate, debate_report: DebateReport, rounds: list[int]) -> list[dict[str, Any]]:
    """Return a row per seat with a cell per round: its response, its colour, and its change of stance (None: it did not change).

    A cell is None where the seat has had no turn.
    """
    responses = _by_seat_and_round(debate_report)
    changed_stances = {}
    for row in debate_report.evidence.rounds:
        for change in row.changes.moves if row.changes else ():
            changed_stances[change.seat, row.round] = change
    rows = []
    for seat in debate.seats.select_related("agent").order_by("number"):
        cells: list[dict[str, Any] | None] = []
        for number in rounds:
            response = responses.get((seat.number, number))
            if response is None:
                cells.append(None)
                continue
            tone = STANCE_TONES.get(response.stance, "plain")
            changed_stance = changed_stances.get((seat.number, number))
            cells.append({"response": response, "tone": tone, "change": changed_stance})
        rows.append({"seat": seat, "cells": cells})
    return rows
