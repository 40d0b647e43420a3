"""Chats in the console: talk to an agent, see what its stages did with each message, and hear the answer again under an edited persona.

A turn is taken by a worker: the page asks every second whether anything changed (``?progress=1``, see ``live.js``).
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Max
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin.personas import MAY_RUN, as_stored, turn_needs
from agents.admin.transcript import add_notes, lines_of, transcript_page
from agents.chat import ChatOpen, answers_again, ask, ask_again, begin_chat, chats, chats_of, delete_chat, why_silent
from agents.kit.admin.access import user_of
from agents.kit.console import display
from agents.kit.console.extensions import extensions
from agents.kit.console.filters import number_in
from agents.kit.console.panels import seconds_of
from agents.kit.console.site import GrowingTextarea, ModelAdmin, TextInput, console_page
from agents.kit.llm.endpoints import problem_of, provider_of
from agents.kit.text.fences import MAX_CHARACTERS
from agents.kit.work.worker import alive
from agents.models import Agent, Channel, Message, Run, RunMessage, RunStep
from agents.personas.persona import PersonaMovedOn, current_digest, save_system_prompt
from agents.turn.orchestrator import cancel
from agents.turn.pipeline import Overrides, StageFailed
from agents.turn.send_message import SendRefused, TurnRefused, start_turn

PAGES = "admin/agents/chat/"
READING = ("agents.view_agent", "agents.view_channel", "agents.view_message")
CANCELLING, DELETING, EDITING = "agents.change_run", "agents.delete_channel", "agents.change_agent"
PACE = 1_000  # milliseconds
MOST_CHATS, MOST_TRIES = 50, 10  # listed, counted: the newest
LONGEST_PERSONA = 200_000  # characters

Part = Callable[[HttpRequest, Agent, Channel, Run], SafeString]  # HTML; empty where there is nothing to show

_parts: list[Part] = []
_choices: dict[str, tuple[Callable[[Agent], forms.ChoiceField], Callable[[Agent, str], dict[str, Any]]]] = {}


def add_choice(
    name: str, field: Callable[[Agent], forms.ChoiceField], overrides: Callable[[Agent, str], dict[str, Any]]
) -> None:
    """Offer a setting of the turns in every chat; call it once, where the app registers its own admin classes.

    Args:
        name: Of the key in `Run.overrides` that holds the chosen value.
        field: A function of the agent; an empty value changes nothing.
        overrides: A function of the agent and a value to the overrides of a turn.
    """
    _choices[name] = field, overrides


def add_part(part: Part) -> None:
    """Show something of the newest turn beside every chat; call it once, where the app registers its own admin classes."""
    _parts.append(part)


class ChatForm(forms.Form):
    """What a person says, and the settings of the turn that answers."""

    def __init__(self, data: Any, *, agent: Agent, last: Run | None) -> None:
        super().__init__(data)
        self.agent = agent
        for name, (field, _) in _choices.items():
            self.fields[name] = field(agent)
            self.initial[name] = last.overrides.get(name, "") if last else ""

    @property
    def overrides(self) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for name, (_, overrides) in _choices.items():
            if value := self.cleaned_data[name]:
                given |= overrides(self.agent, value)
        return given


class AgainForm(ChatForm):
    """An edited persona for one question."""

    system_prompt = forms.CharField(
        max_length=LONGEST_PERSONA,
        widget=GrowingTextarea(attrs={"rows": 12}),
        label="System prompt",
        help_text="used for this answer only, until you save it; traits stay as they are",
    )
    note = forms.CharField(required=False, max_length=150, widget=TextInput, label="What changed, and why")
    opened = forms.CharField(required=False, widget=forms.HiddenInput)

    def clean_system_prompt(self) -> str:
        return as_stored(self.cleaned_data["system_prompt"], self.agent.system_prompt)


class ChatPages(ModelAdmin[Channel]):
    """The pages of chats, for the admin class of channels."""

    @console_page("chats/<int:agent_id>/", *READING)
    def chats_view(self, request: HttpRequest, agent_id: int) -> HttpResponse:
        """The chats of an agent; POST begins one with a first message."""
        agent = get_object_or_404(Agent, pk=agent_id)
        form = ChatForm(request.POST or None, agent=agent, last=None)
        if request.method == "POST":
            return self._say(request, agent, None, form)
        listed = list(chats_of(agent).prefetch_related("memberships__user")[:MOST_CHATS])
        newest = Message.objects.filter(channel__in=listed).order_by().values_list("channel").annotate(Max("sent_at"))
        at: dict[int, Any] = dict(newest)
        return self.page(
            request,
            f"{PAGES}chats.html",
            f"Chat with {display.marked(agent.display_name)}",
            **self._frame(request, agent, None, form),
            chats=[(chat, chat.next_position - 1, at.get(chat.pk), self._may_delete(request, chat)) for chat in listed],
            most=MOST_CHATS if len(listed) == MOST_CHATS else 0,
        )

    @console_page("<int:chat_id>/chat/", *READING)
    def chat_view(self, request: HttpRequest, chat_id: int) -> HttpResponse:
        """A chat; POST says something, asks again for an answer that failed, stops a turn, or deletes the chat."""
        chat, agent = _chat_of(chat_id)
        last = Run.objects.filter(channel=chat).order_by("-pk").first()
        form = ChatForm(request.POST or None, agent=agent, last=last)
        if request.method == "POST":
            if "delete" in request.POST:
                return self._delete(request, agent, chat)
            if "stop" in request.POST or "retry" in request.POST:
                return self._stop_or_retry(request, agent, chat, self.url("chat", chat))
            return self._say(request, agent, chat, form)
        box = chat_box(request, agent, chat)
        if "progress" in request.GET:
            return _digest(box)
        return self.page(
            request,
            f"{PAGES}page.html",
            f"Chat with {display.marked(agent.display_name)}",
            **self._frame(request, agent, chat, form),
            live=self.url("chat", chat) if not number_in(request.GET, "before") else "",
            pace=_pace(last),
            box=box,
        )

    @console_page("<int:chat_id>/chat/<int:position>/", *READING)
    def again_view(self, request: HttpRequest, chat_id: int, position: int) -> HttpResponse:
        """A question and its answer beside the one under an edited persona; POST asks again, or saves what was edited."""
        chat, agent = _chat_of(chat_id)
        question = get_object_or_404(
            Message.objects.select_related("user"), channel=chat, position=position, agent=None
        )
        here = reverse("admin:agents_channel_again", args=[chat.pk, position])
        first = Run.objects.filter(trigger=question).order_by("-pk").first()
        tries = list(answers_again(question)[:MOST_TRIES])
        again = tries[0] if tries else None
        if "progress" in request.GET and request.method == "GET":
            return _digest(again_box(request, agent, question, first, tries))
        form = AgainForm(request.POST or None, agent=agent, last=again or first)
        if request.method == "POST":
            if not request.user.has_perm(MAY_RUN):
                raise PermissionDenied
            if "stop" in request.POST:
                return self._stop_or_retry(request, agent, chat, here)
            if form.is_valid() and "save" in request.POST:
                return self._save(request, agent, chat, form, here)
            if form.is_valid():
                try:
                    text = form.cleaned_data["system_prompt"]
                    ask_again(question, agent=agent, system_prompt=text, overrides=form.overrides)
                except TurnRefused as refused:
                    form.add_error(None, str(refused))
                else:
                    return HttpResponseRedirect(here)
        else:
            form.initial["system_prompt"] = (
                Overrides.of(again.overrides).system_prompt if again else agent.system_prompt
            )
            form.initial["opened"] = current_digest(agent)
        edited = str(form["system_prompt"].value() or "")
        return self.page(
            request,
            f"{PAGES}again.html",
            f"Say it again: {display.marked(agent.display_name)}",
            **self._frame(request, agent, chat, form),
            question=question,
            live=here,
            pace=_pace(again),
            box=again_box(request, agent, question, first, tries),
            may_save=request.user.has_perm(EDITING),
            is_edited=edited != agent.system_prompt,
            diff=display.word_diff(agent.system_prompt, edited),
        )

    def _frame(self, request: HttpRequest, agent: Agent, chat: Channel | None, form: ChatForm) -> dict[str, Any]:
        """What the pages have in common: who answers, what a message takes, and what is in the way of an answer."""
        may_talk = request.user.has_perm(MAY_RUN)
        needs: dict[str, Any] = {}
        problem = ""
        if not agent.is_active:
            problem = f"{agent.display_name} is inactive: it takes no turns until it is made active."
        elif may_talk:
            new = Channel(pk=0, slug="chat", name="chat", kind=Channel.Kind.DM, synthetic=True)  # no row has this key
            try:
                needs = turn_needs(agent, chat or new)
                problem = problem_of("actor", needs["model"])
            except StageFailed as error:
                problem = f"No turn can begin: a required stage failed ({error})."
        return {
            "agent": agent,
            "chat": chat,
            "form": form,
            "choices": [form[name] for name in _choices],
            "needs": needs,
            "scripted": bool(needs) and provider_of(needs["model"]) == "offline",
            "problem": problem,
            "may_talk": may_talk,
            "may_delete": chat is not None and self._may_delete(request, chat),
            "most_characters": MAX_CHARACTERS,
        }

    def _say(self, request: HttpRequest, agent: Agent, chat: Channel | None, form: ChatForm) -> HttpResponse:
        if not request.user.has_perm(MAY_RUN):
            raise PermissionDenied
        user, text, problem = user_of(request), request.POST.get("text", "").replace("\r\n", "\n").strip(), ""
        begun = chat
        if not form.is_valid():
            problem = " ".join(f"{name}: {error}" for name, errors in form.errors.items() for error in errors)
        else:
            try:
                with transaction.atomic():
                    begun = chat or begin_chat(agent, user=user)
                    ask(agent, begun, text, user=user, overrides=form.overrides)
            except (SendRefused, TurnRefused) as refused:
                begun, problem = chat, str(refused)
        url = self.url("chat", begun) if begun else reverse("admin:agents_channel_chats", args=[agent.pk])
        if request.headers.get("Accept") == "application/json":
            return JsonResponse({"problem": problem} if problem else {"url": url})
        if problem:
            self.message_user(request, f"Nothing was said: {problem.rstrip('.')}.", messages.ERROR)
        return HttpResponseRedirect(url)

    def _stop_or_retry(self, request: HttpRequest, agent: Agent, chat: Channel, back: str) -> HttpResponse:
        act = "stop" if "stop" in request.POST else "retry"
        if not request.user.has_perm(CANCELLING if act == "stop" else MAY_RUN):
            raise PermissionDenied
        run = get_object_or_404(Run, pk=number_in(request.POST, act) or 0, agent=agent, channel__synthetic=True)
        try:
            if act == "stop":
                cancel(run)
            elif run.status in Run.FINAL:
                start_turn(agent=agent, channel=chat, trigger=run.trigger, overrides=run.overrides)
        except TurnRefused as refused:
            self.message_user(request, f"No turn was queued: {refused}.", messages.ERROR)
        return HttpResponseRedirect(back)

    def _delete(self, request: HttpRequest, agent: Agent, chat: Channel) -> HttpResponse:
        if not self._may_delete(request, chat):
            raise PermissionDenied
        try:
            delete_chat(chat)
        except ChatOpen as problem:
            self.message_user(request, f"Nothing was deleted: {problem}.", messages.ERROR)
            return HttpResponseRedirect(self.url("chat", chat))
        self.message_user(request, f"{chat} is deleted.", messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:agents_channel_chats", args=[agent.pk]))

    def _may_delete(self, request: HttpRequest, chat: Channel) -> bool:
        """Who may talk deletes their own chats; those of others need the permission to delete channels."""
        own = any(member.user_id == request.user.pk for member in chat.memberships.all())
        return request.user.has_perm(DELETING) or (own and request.user.has_perm(MAY_RUN))

    def _save(
        self, request: HttpRequest, agent: Agent, chat: Channel, form: ChatForm, here: str
    ) -> HttpResponseRedirect:
        if not request.user.has_perm(EDITING):
            raise PermissionDenied
        given, user = form.cleaned_data, user_of(request)
        note = f"edited in a chat: {given['note']}" if given["note"] else "edited in a chat"
        text, seen = given["system_prompt"], given["opened"]
        try:
            made = save_system_prompt(agent=agent, system_prompt=text, seen=seen, note=note, user=user)
        except PersonaMovedOn as problem:
            self.message_user(request, f"Nothing was saved: {problem}.", messages.ERROR)
            return HttpResponseRedirect(here)
        if made is None:
            self.message_user(request, "Nothing changed: the persona says this already.", messages.INFO)
            return HttpResponseRedirect(here)
        versions = display.link(reverse("admin:agents_agent_versions", args=[agent.pk]), "Versions, and the way back")
        said = format_html("Version {} is saved; it holds from the next turn on. {}", made.number, versions)
        self.message_user(request, said, messages.SUCCESS)
        return HttpResponseRedirect(self.url("chat", chat))


def _chat_of(pk: int) -> tuple[Channel, Agent]:
    chat = get_object_or_404(chats().prefetch_related("memberships"), pk=pk)
    agent = Agent.objects.filter(memberships__channel=chat).order_by("memberships__pk").first()
    if agent is None:
        raise Http404(f"Chat {pk} has no agent.")
    return chat, agent


def _pace(run: Run | None) -> int:
    """Milliseconds between two looks for a change; longer while nothing is under way."""
    return PACE if run is not None and run.status not in Run.FINAL else 3 * PACE


def _digest(html: str) -> JsonResponse:
    return JsonResponse({"seen": hashlib.sha256(html.encode()).hexdigest()})


def chat_box(request: HttpRequest, agent: Agent, chat: Channel) -> str:
    """The part of the page that changes while one looks: the messages with their turns, and what is known of the newest turn."""
    page = transcript_page(channel=chat, before=number_in(request.GET, "before"))
    add_notes(request, page.lines)
    asked = [line["message"].pk for line in page.lines if line["message"].agent_id is None]
    runs = list(Run.objects.filter(trigger__in=asked).order_by("pk"))
    spoke = set(Message.objects.filter(run__in=runs).values_list("run_id", flat=True))
    turns: dict[int | None, list[dict[str, Any]]] = defaultdict(list)
    for turn in _turns(runs, spoke):
        turns[turn["run"].trigger_id].append(turn)
    for line in page.lines:
        line["turns"] = turns[line["message"].pk]
    last = Run.objects.filter(channel=chat).order_by("-pk").first()
    context = {
        "page": page,
        "chat": chat,
        "channel": chat,
        "agent": agent,
        "last": _beside(request, agent, chat, last) if last else None,
        "may_stop": request.user.has_perm(CANCELLING),
        "may_talk": request.user.has_perm(MAY_RUN),
    }
    if last is not None and last.status not in Run.FINAL:
        context["no_worker"] = not alive().exists()
        context["busy"] = Run.objects.filter(agent=agent, status=Run.Status.RUNNING).exclude(channel=chat).exists()
    return render_to_string(f"{PAGES}box.html", context, request)


def again_box(request: HttpRequest, agent: Agent, question: Message, first: Run | None, tries: list[Run]) -> str:
    """Both answers to a question, each with its turn."""
    answers = []
    for run, name in ((first, "The answer"), (tries[0] if tries else None, "With the edited persona")):
        said = Message.objects.filter(run=run).select_related("agent", "user", "parent", "persona_version")
        lines = lines_of(list(said.prefetch_related("reactions").order_by("pk"))) if run else []
        add_notes(request, lines)
        shown = _turns([run], {message["message"].run_id for message in lines})[0] if run else None
        answers.append({"name": name, "run": run, "lines": lines, "turn": shown})
    context = {
        "answers": answers,
        "tries": len(tries),
        "chat": question.channel,
        "agent": agent,
        "may_stop": request.user.has_perm(CANCELLING),
        "no_worker": any(one and one.status not in Run.FINAL for one in (first, *tries[:1])) and not alive().exists(),
    }
    return render_to_string(f"{PAGES}again_box.html", context, request)


def _turns(runs: list[Run], spoke: Collection[int | None]) -> list[dict[str, Any]]:
    """Turns as the template shows them; with their steps where nothing was said, and why not. One query."""
    steps: dict[int, list[RunStep]] = defaultdict(list)
    for step in RunStep.objects.filter(run__in=[run for run in runs if run.pk not in spoke]).order_by("number"):
        steps[step.run_id].append(step)
    return [
        {
            "run": run,
            "steps": steps[run.pk],
            "is_open": run.status not in Run.FINAL,
            "spoke": run.pk in spoke,
            "took": seconds_of((run.finished_at - run.started_at).total_seconds())
            if run.started_at and run.finished_at
            else "",
            "why": why_silent(run, steps[run.pk]),
        }
        for run in runs
    ]


def _beside(request: HttpRequest, agent: Agent, chat: Channel, run: Run) -> dict[str, Any]:
    """What the stages wrote on the newest turn, and what the other apps know of it."""
    steps = list(RunStep.objects.filter(run=run).order_by("number"))
    begun = RunMessage.objects.filter(run=run, role=RunMessage.Role.SYSTEM).order_by("number").first()
    sections = begun.content.get("sections", []) if begun else []
    stages = [{**one, "counters": {name: n for name, n in one.get("counters", {}).items() if n}} for one in run.trace]
    return {
        "run": run,
        "steps": steps,
        "sections": [one for one in sections if one["stage"] not in ("persona", "instructions", "memory", "")],
        "stages": [one for one in stages if one["status"] != "skipped" and (one.get("why") or one["counters"])],
        "skipped": sorted({f"{one['stage']}: {one['why']}" for one in stages if one["status"] == "skipped" and one.get("why")}),
        "panels": [shown for extension in extensions(Run, request) for panel in extension.panels if (shown := panel(request, run)).strip()],
        "parts": [part(request, agent, chat, run) for part in _parts],
    }  # fmt: skip
