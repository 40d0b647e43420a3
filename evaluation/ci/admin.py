"""The page that makes a test for a build of a message in a chat, and the way there."""

from __future__ import annotations

from urllib.parse import urlencode

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString
from pydantic import ValidationError

from agents.admin.chat import READING, add_message_actions
from agents.admin.transcript import transcript_url
from agents.kit.console import display
from agents.kit.console.site import TextInput, add_pages, console_response
from agents.models import Agent, Message
from evaluation.ci.from_chat import BuildTest, NothingAsked, build_test
from evaluation.drafting.sentences import phrases_in
from evaluation.propositions.rules import Rule

MOST_TYPED = 500  # characters


class ExpectationForm(forms.Form):
    """What each answer must hold and must not; nothing: the agent's propositions judge the answers."""

    never = forms.CharField(
        required=False,
        max_length=MOST_TYPED,
        widget=TextInput,
        label="No answer says",
        help_text="words or phrases, with commas between them",
    )
    says = forms.CharField(
        required=False,
        max_length=MOST_TYPED,
        widget=TextInput,
        label="Each answer says one of",
        help_text="words or phrases, with commas between them; without any words the agent's propositions judge the answers",
    )

    def clean_never(self) -> list[str]:
        return self._phrases("never")

    def clean_says(self) -> list[str]:
        return self._phrases("says")

    def _phrases(self, name: str) -> list[str]:
        """Return the phrases that are typed in a field.

        Raises:
            ValidationError: A rule cannot have one, such as a pattern that cannot be read.
        """
        phrases = phrases_in(self.cleaned_data[name])
        if phrases:
            try:
                Rule(contains_any=phrases)
            except ValidationError as error:
                first = error.errors()[0]
                raise forms.ValidationError(f"{first['input']}: {first['msg']}") from None
        return phrases


def build_test_view(request: HttpRequest, pk: int) -> HttpResponse:
    """Show the test of an agent's message, with ``?never=`` and ``?says=`` as typed; with ``?download`` send it as a file.

    Raises:
        PermissionDenied: The user may not read conversations.
        Http404: There is no such message.
    """
    if not request.user.has_perms(READING):
        raise PermissionDenied
    messages = Message.objects.select_related("agent", "channel", "user")
    message = get_object_or_404(messages, pk=pk)
    agent = message.agent
    form = ExpectationForm(request.GET, label_suffix="")
    test: BuildTest | None = None
    problem = ""
    if agent is None:
        problem = "a person said this; allowed: a message of an agent"
    elif form.is_valid():
        try:
            test = build_test(
                agent=agent, message=message, never=form.cleaned_data["never"], says=form.cleaned_data["says"]
            )
        except NothingAsked as error:
            problem = str(error)
    if test is not None and "download" in request.GET:
        response = HttpResponse(test.code, content_type="text/x-python; charset=utf-8")
        response["Content-Disposition"] = f'attachment; filename="{test.file_name}"'
        return response
    context = {
        "agent": agent,
        "message": message,
        "form": form,
        "test": test,
        "problem": problem,
        "place": _place_of(message),
    }
    if test is not None:
        typed = {name: form[name].value() or "" for name in form.fields}
        context["download_url"] = f"?{urlencode({**typed, 'download': 1})}"
    return console_response(request, "admin/ci/test.html", f"Test: {display.marked(message.author_name)}", **context)


def _place_of(message: Message) -> str:
    """Return the message in its chat; in its transcript where it was said elsewhere."""
    if message.channel.is_scratch:
        return f"{reverse('admin:agents_channel_chat', args=[message.channel_id])}#m{message.position}"
    return transcript_url(message)


def test_links(request: HttpRequest, agent: Agent, messages: list[Message]) -> dict[int, SafeString]:
    """Return the way from each message of the agent to its test."""
    links = {}
    for message in messages:
        if message.agent_id == agent.pk:
            url = reverse("admin:evaluation_ci_test", args=[message.pk])
            links[message.pk] = display.link(url, "Make this a test", "ask this again in every build")
    return links


def _urls() -> list[URLPattern]:
    page = admin.site.admin_view(build_test_view)
    return [path("agents/message/<int:pk>/test/", page, name="evaluation_ci_test")]


add_pages(_urls)
add_message_actions("agents.view_message", test_links)
