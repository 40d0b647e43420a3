"""Chats in the console: talk to an agent, see what its stages did with each message, and hear the answer again under an edited persona.

A turn is taken by a worker: the page asks every second whether anything changed (``?progress=1``, see ``live.js``).
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
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
from agents.admin.turn_steps import steps_of_turns
from agents.chat import ChatOpen, answers_again, ask, ask_again, begin_chat, chats, chats_of, delete_chat, why_silent
from agents.kit.admin.access import user_of
from agents.kit.console import display
from agents.kit.console.extensions import extensions_for_user
from agents.kit.console.filters import number_in
from agents.kit.console.panels import seconds_of
from agents.kit.console.site import GrowingTextarea, ModelAdmin, TextInput, console_page
from agents.kit.llm.endpoints import problem_of
from agents.kit.llm.providers import is_heuristic
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
MOST_CHATS = 50  # listed; the newest
MOST_TRIES = 10  # counted; the newest
LONGEST_PERSONA = 200_000  # characters


@dataclass(frozen=True, slots=True)
class TurnSetting:
    """A setting of the turns that every chat offers.

    Attributes:
        field: A function of the agent; an empty value changes nothing.
        overrides: A function of the agent and a value to the overrides of a turn.
    """

    field: Callable[[Agent], forms.ChoiceField]
    overrides: Callable[[Agent, str], dict[str, Any]]


ChatPanel = Callable[[HttpRequest, Agent, Channel, Run], SafeString]  # HTML; empty where there is nothing to show
MessageActions = Callable[[HttpRequest, Agent, list[Message]], dict[int, SafeString]]  # HTML by the message's key

_chat_panels: list[ChatPanel] = []
_message_actions: list[tuple[str, MessageActions]] = []  # with the permission that each needs
_turn_settings: dict[str, TurnSetting] = {}


def add_choice(
    name: str, field: Callable[[Agent], forms.ChoiceField], overrides: Callable[[Agent, str], dict[str, Any]]
) -> None:
    """Offer a setting of the turns in every chat; call it once, where the app registers its own admin classes.

    Args:
        name: Of the key in `Run.overrides` that holds the chosen value.
        field, overrides: See `TurnSetting`.
    """
    _turn_settings[name] = TurnSetting(field, overrides)


def add_chat_panel(panel: ChatPanel) -> None:
    """Show something of the newest turn beside every chat; call it once, where the app registers its own admin classes."""
    _chat_panels.append(panel)


def add_message_actions(permission: str, actions: MessageActions) -> None:
    """Offer something at the messages of every chat; call it once, where the app registers its own admin classes.

    Args:
        permission: ``app.codename`` that a user needs to get any of it.
        actions: A function of the request, the agent and the messages of a page, in few queries. What changes something is a button of
            the form ``chat-act``, which has the token; it posts where the button came from as ``next``.
    """
    _message_actions.append((permission, actions))


class ChatForm(forms.Form):
    """The settings of the turn that answers a message of a chat."""

    def __init__(self, data: Any, *, agent: Agent, last: Run | None) -> None:
        super().__init__(data)
        self.agent = agent
        for name, setting in _turn_settings.items():
            self.fields[name] = setting.field(agent)
            self.initial[name] = last.overrides.get(name, "") if last else ""

    @property
    def overrides(self) -> dict[str, Any]:
        """Return the overrides of the turn that the chosen settings stand for."""
        overrides: dict[str, Any] = {}
        for name, setting in _turn_settings.items():
            value = self.cleaned_data[name]
            if value:
                overrides |= setting.overrides(self.agent, value)
        return overrides


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
        """Show the newest 50 chats of an agent, with their number of messages and when the last was sent; POST begins a chat."""
        agent = get_object_or_404(Agent, pk=agent_id)
        form = ChatForm(request.POST or None, agent=agent, last=None)
        if request.method == "POST":
            return self._say(request, agent, chat=None, form=form)
        chats_shown = list(chats_of(agent).prefetch_related("memberships__user")[:MOST_CHATS])
        messages_in_them = Message.objects.filter(channel__in=chats_shown).order_by()
        newest_at: dict[int, Any] = dict(messages_in_them.values_list("channel").annotate(Max("sent_at")))
        rows = []
        for chat in chats_shown:
            number_of_messages = chat.next_position - 1
            rows.append((chat, number_of_messages, newest_at.get(chat.pk), self._may_delete(request, chat)))
        return self.page(
            request,
            f"{PAGES}chats.html",
            f"Chat with {display.marked(agent.display_name)}",
            **self._frame(request, agent, chat=None, form=form),
            chats=rows,
            most=MOST_CHATS if len(rows) == MOST_CHATS else 0,  # 0: the page need not say that there may be more
        )

    @console_page("<int:chat_id>/chat/", *READING)
    def chat_view(self, request: HttpRequest, chat_id: int) -> HttpResponse:
        """Show a chat; POST says something, asks again for an answer that failed, stops a turn, or deletes the chat.

        With ``?progress`` only a digest of what may have changed is answered; a page of older messages does not ask for it.
        """
        chat, agent = _chat_and_agent(chat_id)
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
            return _digest_response(box)
        shows_newest = not number_in(request.GET, "before")
        return self.page(
            request,
            f"{PAGES}page.html",
            f"Chat with {display.marked(agent.display_name)}",
            **self._frame(request, agent, chat, form),
            live=self.url("chat", chat) if shows_newest else "",
            pace=_milliseconds_between_looks(last),
            box=box,
        )

    @console_page("<int:chat_id>/chat/<int:position>/", *READING)
    def again_view(self, request: HttpRequest, chat_id: int, position: int) -> HttpResponse:
        """Show a question and its answer beside the newest one under an edited persona; POST asks again, stops that, or saves the edit.

        The form begins with the system prompt of the newest try, else with the agent's. With ``?progress`` only a digest is answered.
        """
        chat, agent = _chat_and_agent(chat_id)
        question = get_object_or_404(
            Message.objects.select_related("user"), channel=chat, position=position, agent=None
        )
        here = reverse("admin:agents_channel_again", args=[chat.pk, position])
        first = (
            Run.objects.filter(trigger=question).order_by("-pk").first()
        )  # in the chat itself; its newest if repeated
        tries = list(answers_again(question)[:MOST_TRIES])
        newest_try = tries[0] if tries else None
        if request.method == "GET" and "progress" in request.GET:
            return _digest_response(again_box(request, agent, question, first, tries))
        form = AgainForm(request.POST or None, agent=agent, last=newest_try or first)
        if request.method == "POST":
            response = self._answer_again_form(request, agent, question, form)
            if response is not None:
                return response
        else:
            form.initial["system_prompt"] = agent.system_prompt
            if newest_try is not None:
                form.initial["system_prompt"] = Overrides.of(newest_try.overrides).system_prompt
            # By this digest a change that was made meanwhile is noticed when the prompt is saved.
            form.initial["opened"] = current_digest(agent)
        edited = str(form["system_prompt"].value() or "")
        return self.page(
            request,
            f"{PAGES}again.html",
            f"Say it again: {display.marked(agent.display_name)}",
            **self._frame(request, agent, chat, form),
            question=question,
            live=here,
            pace=_milliseconds_between_looks(newest_try),
            box=again_box(request, agent, question, first, tries),
            may_save=request.user.has_perm(EDITING),
            is_edited=edited != agent.system_prompt,
            diff=display.word_diff(agent.system_prompt, edited),
        )

    def _answer_again_form(
        self, request: HttpRequest, agent: Agent, question: Message, form: AgainForm
    ) -> HttpResponse | None:
        """Stop the turn, save the edited persona, or ask again, as the form says; None where the form is shown with its errors.

        Raises:
            PermissionDenied: The user may not do that; asking, stopping and saving need permissions of their own.
        """
        if not request.user.has_perm(MAY_RUN):
            raise PermissionDenied
        chat = question.channel
        here = reverse("admin:agents_channel_again", args=[chat.pk, question.position])
        if "stop" in request.POST:
            return self._stop_or_retry(request, agent, chat, here)
        if not form.is_valid():
            return None
        if "save" in request.POST:
            return self._save(request, agent, chat, form, here)
        try:
            system_prompt = form.cleaned_data["system_prompt"]
            ask_again(question, agent=agent, system_prompt=system_prompt, overrides=form.overrides)
        except TurnRefused as refused:
            form.add_error(None, str(refused))
            return None
        return HttpResponseRedirect(here)

    def _frame(self, request: HttpRequest, agent: Agent, chat: Channel | None, form: ChatForm) -> dict[str, Any]:
        """Return what the pages have in common: who answers, what a message takes, and what is in the way of an answer.

        Args:
            chat: None = it has not begun: what a first message takes is shown.
        """
        may_talk = request.user.has_perm(MAY_RUN)
        needs: dict[str, Any] = {}
        problem = ""
        if not agent.is_active:
            problem = f"{agent.display_name} is inactive: it takes no turns until it is made active."
        elif may_talk:
            # Stands for a chat that is not stored yet: no row has this key.
            new_chat = Channel(pk=0, slug="chat", name="chat", kind=Channel.Kind.DM, synthetic=True)
            try:
                needs = turn_needs(agent, chat or new_chat)
                problem = problem_of("actor", needs["model"])
            except StageFailed as error:
                problem = f"No turn can begin: a required stage failed ({error})."
        return {
            "agent": agent,
            "chat": chat,
            "form": form,
            "choices": [form[name] for name in _turn_settings],
            "needs": needs,
            "scripted": bool(needs) and is_heuristic(needs["model"]),
            "problem": problem,
            "may_talk": may_talk,
            "may_delete": chat is not None and self._may_delete(request, chat),
            "most_characters": MAX_CHARACTERS,
        }

    def _say(self, request: HttpRequest, agent: Agent, chat: Channel | None, form: ChatForm) -> HttpResponse:
        """Say what was typed in a chat, or begin one with it; the page's script is answered with JSON.

        Where the message is refused nothing is stored, also no new chat, and the page says why.

        Args:
            chat: None = a new one.
        """
        if not request.user.has_perm(MAY_RUN):
            raise PermissionDenied
        user = user_of(request)
        text = request.POST.get("text", "").replace("\r\n", "\n").strip()
        problem = ""
        if form.is_valid():
            try:
                with transaction.atomic():
                    chat_or_new = chat or begin_chat(agent, user=user)
                    ask(agent, chat_or_new, text, user=user, overrides=form.overrides)
                chat = chat_or_new  # only now: of a refused message no new chat is left
            except (SendRefused, TurnRefused) as refused:
                problem = str(refused)
        else:
            sentences = [f"{name}: {error}" for name, errors in form.errors.items() for error in errors]
            problem = " ".join(sentences)
        url = self.url("chat", chat) if chat else reverse("admin:agents_channel_chats", args=[agent.pk])
        if request.headers.get("Accept") == "application/json":
            return JsonResponse({"problem": problem} if problem else {"url": url})
        if problem:
            self.message_user(request, f"Nothing was said: {problem.rstrip('.')}.", messages.ERROR)
        return HttpResponseRedirect(url)

    def _stop_or_retry(self, request: HttpRequest, agent: Agent, chat: Channel, back: str) -> HttpResponse:
        """Stop the turn whose key the form has as ``stop``, or queue one like an ended turn (``retry``); then lead to `back`.

        One that has not ended is not queued again. A turn of another agent, or outside of simulations, is a 404.
        """
        action = "stop" if "stop" in request.POST else "retry"
        if not request.user.has_perm(CANCELLING if action == "stop" else MAY_RUN):
            raise PermissionDenied
        run = get_object_or_404(Run, pk=number_in(request.POST, action) or 0, agent=agent, channel__synthetic=True)
        try:
            if action == "stop":
                cancel(run)
            elif run.status in Run.FINAL:
                start_turn(agent=agent, channel=chat, trigger=run.trigger, overrides=run.overrides)
        except TurnRefused as refused:
            self.message_user(request, f"No turn was queued: {refused}.", messages.ERROR)
        return HttpResponseRedirect(back)

    def _delete(self, request: HttpRequest, agent: Agent, chat: Channel) -> HttpResponse:
        """Delete the chat and lead to the agent's chats; while a turn of it is open, say so and lead back to it."""
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
        """Return whether the user may delete a chat: their own if they may talk, those of others with the permission to delete channels."""
        if request.user.has_perm(DELETING):
            return True
        is_own = any(member.user_id == request.user.pk for member in chat.memberships.all())
        return is_own and request.user.has_perm(MAY_RUN)

    def _save(
        self, request: HttpRequest, agent: Agent, chat: Channel, form: ChatForm, here: str
    ) -> HttpResponseRedirect:
        """Save the edited system prompt as a new version of the persona, unless it was changed since the page was opened.

        Then it leads to the chat; where nothing was saved, back to the page (`here`).
        """
        if not request.user.has_perm(EDITING):
            raise PermissionDenied
        chosen = form.cleaned_data
        note = f"edited in a chat: {chosen['note']}" if chosen["note"] else "edited in a chat"
        try:
            made = save_system_prompt(
                agent=agent,
                system_prompt=chosen["system_prompt"],
                seen=chosen["opened"],
                note=note,
                user=user_of(request),
            )
        except PersonaMovedOn as problem:
            self.message_user(request, f"Nothing was saved: {problem}.", messages.ERROR)
            return HttpResponseRedirect(here)
        if made is None:
            self.message_user(request, "Nothing changed: the persona says this already.", messages.INFO)
            return HttpResponseRedirect(here)
        versions = display.link(reverse("admin:agents_agent_versions", args=[agent.pk]), "Versions, and the way back")
        text = format_html("Version {} is saved; it holds from the next turn on. {}", made.number, versions)
        self.message_user(request, text, messages.SUCCESS)
        return HttpResponseRedirect(self.url("chat", chat))


def _chat_and_agent(pk: int) -> tuple[Channel, Agent]:
    """Return a chat and the agent that it is with; a 404 where there is none."""
    chat = get_object_or_404(chats().prefetch_related("memberships"), pk=pk)
    agent = Agent.objects.filter(memberships__channel=chat).order_by("memberships__pk").first()
    if agent is None:
        raise Http404(f"Chat {pk} has no agent.")
    return chat, agent


def _is_open(run: Run | None) -> bool:
    return run is not None and run.status not in Run.FINAL


def _milliseconds_between_looks(run: Run | None) -> int:
    """Return how often the page asks whether anything changed: less often while no turn is under way."""
    return PACE if _is_open(run) else 3 * PACE


def _digest_response(html: str) -> JsonResponse:
    """Return a digest of a part of the page, by which its script sees whether it changed."""
    return JsonResponse({"seen": hashlib.sha256(html.encode()).hexdigest()})


def chat_box(request: HttpRequest, agent: Agent, chat: Channel) -> str:
    """Return the part of the page that changes while one looks: messages with their turns, and what is known of the newest turn.

    While that turn is open, also what it waits for: that no worker is alive, or that the agent takes a turn elsewhere.
    """
    page = transcript_page(channel=chat, before=number_in(request.GET, "before"))
    add_notes(request, page.lines)
    questions = [line["message"].pk for line in page.lines if line["message"].agent_id is None]
    runs = list(Run.objects.filter(trigger__in=questions).order_by("pk"))
    runs_that_spoke = set(Message.objects.filter(run__in=runs).values_list("run_id", flat=True))
    turns_by_question: dict[int | None, list[dict[str, Any]]] = defaultdict(list)
    for turn in _turns_shown(runs, runs_that_spoke):
        turns_by_question[turn["run"].trigger_id].append(turn)
    actions_by_message = _actions_at(request, agent, [line["message"] for line in page.lines])
    for line in page.lines:
        line["turns"] = turns_by_question[line["message"].pk]
        line["actions"] = actions_by_message[line["message"].pk]
    last = Run.objects.filter(channel=chat).order_by("-pk").first()
    context = {
        "page": page,
        "chat": chat,
        "channel": chat,
        "agent": agent,
        "last": _known_of_turn(request, agent, chat, last) if last else None,
        "may_stop": request.user.has_perm(CANCELLING),
        "may_talk": request.user.has_perm(MAY_RUN),
    }
    if _is_open(last):
        context["no_worker"] = not alive().exists()
        context["busy"] = Run.objects.filter(agent=agent, status=Run.Status.RUNNING).exclude(channel=chat).exists()
    return render_to_string(f"{PAGES}box.html", context, request)


def _actions_at(request: HttpRequest, agent: Agent, messages: list[Message]) -> dict[int, list[SafeString]]:
    """Return what the apps offer at each message of a page to the user, see `add_message_actions`."""
    actions_by_message: dict[int, list[SafeString]] = defaultdict(list)
    for permission, actions_of in _message_actions:
        if request.user.has_perm(permission):
            for key, html in actions_of(request, agent, messages).items():
                actions_by_message[key].append(html)
    return actions_by_message


def again_box(request: HttpRequest, agent: Agent, question: Message, first: Run | None, tries: list[Run]) -> str:
    """Return both answers to a question, each with its turn."""
    newest_try = tries[0] if tries else None
    is_waiting = _is_open(first) or _is_open(newest_try)
    context = {
        "answers": [
            _answer_shown(request, "The answer", first),
            _answer_shown(request, "With the edited persona", newest_try),
        ],
        "tries": len(tries),
        "chat": question.channel,
        "agent": agent,
        "may_stop": request.user.has_perm(CANCELLING),
        "no_worker": is_waiting and not alive().exists(),
    }
    return render_to_string(f"{PAGES}again_box.html", context, request)


def _answer_shown(request: HttpRequest, name: str, run: Run | None) -> dict[str, Any]:
    """Return an answer as the template shows it: what was said in a turn, and the turn; None = there was no turn."""
    if run is None:
        return {"name": name, "run": None, "lines": [], "turn": None}
    answer_messages = Message.objects.filter(run=run).select_related("agent", "user", "parent", "persona_version")
    lines = lines_of(list(answer_messages.prefetch_related("reactions").order_by("pk")))
    add_notes(request, lines)
    [turn] = _turns_shown([run], {run.pk} if lines else set())
    return {"name": name, "run": run, "lines": lines, "turn": turn}


def _turns_shown(runs: list[Run], runs_that_spoke: Collection[int | None]) -> list[dict[str, Any]]:
    """Return turns as the template shows them, with their steps, and why nothing was said. One query, two while a turn is running.

    `why` is meant for those that ended and said nothing; `took` is empty for those that have not ended.
    """
    steps: dict[int, list[RunStep]] = defaultdict(list)
    for step in RunStep.objects.filter(run__in=runs).order_by("number"):
        steps[step.run_id].append(step)
    shown_steps = steps_of_turns(runs, steps)
    turns = []
    for run in runs:
        took = ""
        if run.started_at and run.finished_at:
            took = seconds_of((run.finished_at - run.started_at).total_seconds())
        turns.append(
            {
                "run": run,
                "steps": shown_steps[run.pk],
                "is_open": _is_open(run),
                "spoke": run.pk in runs_that_spoke,
                "took": took,
                "why": why_silent(run, steps[run.pk]),
            }
        )
    return turns


def _known_of_turn(request: HttpRequest, agent: Agent, chat: Channel, run: Run) -> dict[str, Any]:
    """Return what is shown next to a chat: what the stages wrote on the newest turn, and what the other apps know of it.

    Of the stages those that did something worth a word: with a reason or a counter that is not 0; skipped ones with their reason only.
    """
    system = RunMessage.objects.filter(run=run, role=RunMessage.Role.SYSTEM).order_by("number").first()
    sections = system.content.get("sections", []) if system else []
    of_every_turn = ("persona", "instructions", "memory", "")  # sections of these and of no stage are not shown
    acted = []
    skipped = set()
    for entry in run.trace:
        counters = {name: number for name, number in entry.get("counters", {}).items() if number}
        if entry["status"] == "skipped" and entry.get("why"):
            skipped.add(f"{entry['stage']}: {entry['why']}")
        elif entry["status"] != "skipped" and (entry.get("why") or counters):
            acted.append({**entry, "counters": counters})
    panels = []
    for extension in extensions_for_user(Run, request):
        panels += [panel(request, run) for panel in extension.panels]
    return {
        "run": run,
        "sections": [section for section in sections if section["stage"] not in of_every_turn],
        "stages": acted,
        "skipped": sorted(skipped),
        "panels": [html for html in panels if html.strip()],
        "parts": [panel(request, agent, chat, run) for panel in _chat_panels],
    }
