"""The filters of the cast page, kept in its URL."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import Exists, OuterRef, Q, QuerySet

from agents.adminsite import Select, TextInput
from agents.models import Agent, Channel, ChannelMember
from agents.models.conversations import TAG_KEY
from evaluation.admin.cast_words import STATES
from evaluation.change.evidence import Judged, Tag, judged_ways
from evaluation.change.overview import Cast, State, cast

MOST_CHANNELS = 200  # to choose from; any other can stand in the URL
MOST_AGENTS = 200  # ranked at once
ACTIVE = (("", "active agents"), ("all", "all agents"), ("no", "inactive agents"))


class CastForm(forms.Form):
    """Whom to show, and which two measurements to compare; empty fields mean what usually is meant."""

    judge = forms.ChoiceField(required=False, widget=Select, help_text="both sides are by this judge")
    then = forms.CharField(
        required=False, max_length=300, widget=TextInput, help_text="a tag such as build=40; empty: the baseline"
    )
    now = forms.CharField(
        required=False,
        max_length=300,
        widget=TextInput,
        help_text="a tag such as build=41; empty: the newest evaluation",
    )
    channel = forms.ChoiceField(required=False, widget=Select, help_text="only its members")
    active = forms.ChoiceField(required=False, choices=ACTIVE, widget=Select, label="Agents")
    q = forms.CharField(
        required=False, max_length=120, widget=TextInput, label="Name", help_text="part of a name or id"
    )
    state = forms.ChoiceField(
        required=False, choices=[("", "any"), *((state, words.label) for state, words in STATES.items())], widget=Select
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ways = {str(way): way for way in judged_ways()}
        self._choices("judge", [(name, _named(way)) for name, way in self.ways.items()])
        there = Channel.objects.filter(synthetic=False).order_by("kind", "name", "slug").values_list("slug", "name")
        self._choices("channel", [("", "any"), *((slug, f"{name} ({slug})") for slug, name in there[:MOST_CHANNELS])])
        asked = self.data.get("channel", "") if self.is_bound else ""
        if asked and asked not in dict(self._chosen("channel")) and Channel.objects.filter(slug=asked[:120]).exists():
            self._choices("channel", [*self._chosen("channel"), (asked, asked)])

    def _choices(self, name: str, choices: list[tuple[str, str]]) -> None:
        self.fields[name].choices = choices  # type: ignore[attr-defined]  # both are choice fields

    def _chosen(self, name: str) -> list[tuple[str, str]]:
        return list(self.fields[name].choices)  # type: ignore[attr-defined]

    def clean_then(self) -> Tag | None:
        return read_tag(self.cleaned_data["then"])

    def clean_now(self) -> Tag | None:
        return read_tag(self.cleaned_data["now"])

    @property
    def judged(self) -> Judged | None:
        """The one asked for, else the first; None where nothing was ever measured."""
        return self.ways.get(self.cleaned_data.get("judge") or "", next(iter(self.ways.values()), None))

    def agents(self) -> QuerySet[Agent]:
        """Those asked for, by name."""
        chosen = self.cleaned_data
        found = by_name()
        if chosen["active"] != "all":
            found = found.filter(is_active=chosen["active"] != "no")
        if chosen["channel"]:
            joined = ChannelMember.objects.filter(agent=OuterRef("pk"), channel__slug=chosen["channel"])
            found = found.filter(Exists(joined))
        if chosen["q"]:
            found = found.filter(Q(display_name__icontains=chosen["q"]) | Q(slug__icontains=chosen["q"]))
        return found


def by_name() -> QuerySet[Agent]:
    return Agent.objects.order_by("display_name", "slug")


def usual_cast(*, state: State | None, stop: int) -> Cast:
    """What the page counts where no filter is set, with the first cards of a state: what the console's first page shows."""
    agents = list(by_name().filter(is_active=True)[:MOST_AGENTS])
    return cast(agents, next(iter(judged_ways()), None), state=state, stop=stop, quotes=False)


def read_tag(text: str) -> Tag | None:
    """``build=41`` as a pair; None for an empty text.

    Raises:
        ValidationError: It is no tag; names the text and what is allowed.
    """
    text = text.strip()
    if not text:
        return None
    key, is_tag, value = (part.strip() for part in text.partition("="))
    if not (is_tag and value and TAG_KEY.fullmatch(key)):
        raise ValidationError("“%(text)s” is no tag; write KEY=VALUE, e.g. build=41.", params={"text": text[:80]})
    return key, value


def _named(way: Judged) -> str:
    how = way.procedure.removeprefix("plumbline").lstrip("+")
    return f"{way.judge}, {how}" if how else way.judge
