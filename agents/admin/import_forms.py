"""The form with all settings of an import: how the file is read, and who each speaker is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms

from agents.kit.console import display
from agents.kit.console.site import Select, TextInput
from agents.kit.files.times import zone
from agents.kit.text.tags import TAG_KEY
from agents.models import Agent, Import
from agents.personas.shape import SLUG_LIMIT
from agents.transcripts.importer import AUTO, DAY_FIRST, MONTH_FIRST, ReadOptions
from agents.transcripts.imports.questions import BOT, TAGS
from agents.transcripts.readers import FORMATS
from agents.transcripts.readers.csv_table import FIELDS, tag_key, usual_tag

COLUMN_PREFIX = "column_"  # of the fields that choose a column of the file
NO_COLUMN = " "  # no column has this name: names are stripped
WITHOUT_COLUMN = {"channel": "none: it is one conversation", "sent_at": "none: times are not known"}
COLUMN_LABELS = {"sent_at": "time", "id": "message's id", "reply_to": "id replied to", "channel": "conversation"}
MOST_SUGGESTED = 500  # agents


def _optional_text(limit: int, help_text: str) -> forms.CharField:
    return forms.CharField(required=False, max_length=limit, widget=TextInput, help_text=help_text)


class ImportForm(forms.Form):
    """How the file is read, and where messages go.

    Attributes:
        speakers: A form for each speaker of the file.
        options: What was chosen, once the form is valid; before, what is stored.
    """

    format = forms.ChoiceField(
        label="read as", widget=Select, help_text="recognised by what the file says; choose when that is wrong"
    )
    channel = _optional_text(
        200,
        "name of the channel the messages go to, made when it is missing; several conversations become NAME, NAME-2 …; "
        "empty = as the file says",
    )
    tags = _optional_text(1_000, "put on every message, e.g. build=41, locale=en; evaluations can be narrowed to them")
    dates = forms.ChoiceField(
        label="dates such as 01/02/2026",
        required=False,
        choices=[("", "as the file suggests"), (DAY_FIRST, "day first"), (MONTH_FIRST, "month first")],
        widget=Select,
        help_text="for chat logs",
    )
    time_zone = _optional_text(64, "for times without an offset, e.g. Europe/Berlin; empty = the TIME_ZONE setting")

    def __init__(self, data: Any, *, job: Import) -> None:
        stored = ReadOptions(**job.choices)
        super().__init__(data, initial=_initial_choices(stored))
        self.options = stored
        recognised = FORMATS.get(job.contents.get("format", ""))
        as_recognised = f"as recognised ({recognised.label})" if recognised else "as recognised"
        formats = [(name, form.label) for name, form in FORMATS.items()]
        self.fields["format"].choices = [(AUTO, as_recognised), *formats]  # type: ignore[attr-defined]
        header = [name for name in dict.fromkeys(job.contents.get("header", ())) if name]
        if len(header) > 1:  # a table; one column alone cannot hold speakers and texts
            self._add_column_fields(header)
        self.speakers = []
        for number, speaker in enumerate(job.contents.get("speakers", ())):
            self.speakers.append(SpeakerForm(data, f"s{number}", speaker, stored))

    def _add_column_fields(self, header: Sequence[str]) -> None:
        """Add the fields of a table: which of its columns holds what, and which are stored as tags."""
        columns = [(name, name) for name in header]
        for name in FIELDS:
            choices = [("", "by its usual names"), *columns]
            if name in WITHOUT_COLUMN:
                choices.insert(1, (NO_COLUMN, WITHOUT_COLUMN[name]))
            self.fields[COLUMN_PREFIX + name] = forms.ChoiceField(
                label=f"column of the {COLUMN_LABELS.get(name, name)}",
                required=False,
                choices=choices,
                widget=Select,
            )
        self.fields["tag_columns"] = forms.MultipleChoiceField(
            label="columns stored as tags", required=False, choices=columns, widget=forms.CheckboxSelectMultiple
        )

    @property
    def plain_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in ("format", "channel", "tags", "time_zone", "dates")]

    @property
    def column_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in self.fields if name.startswith(COLUMN_PREFIX)]

    @property
    def has_speaker_errors(self) -> bool:
        return any(form.errors for form in self.speakers)

    def clean_tags(self) -> dict[str, str]:
        """Return the tags of ``build=41, locale=en``; of a key that is there twice the last value counts."""
        tags = {}
        for part in self.cleaned_data["tags"].split(","):
            if not part.strip():
                continue
            key, _, value = part.partition("=")
            key = key.strip()
            value = value.strip()
            if not TAG_KEY.fullmatch(key) or not value:
                raise forms.ValidationError(
                    f"{part.strip()!r}: write tags as key=value, separated by commas, e.g. build=41, locale=en"
                )
            tags[key] = value
        return tags

    def clean_time_zone(self) -> str:
        name = str(self.cleaned_data["time_zone"]).strip()
        try:
            zone(name)
        except ValueError as error:
            raise forms.ValidationError(str(error)) from None
        return name

    def is_valid(self) -> bool:
        """Return whether everything chosen is possible; then `options` says what was chosen."""
        # All of them are asked, so that each shows its errors.
        are_valid = [super().is_valid(), *(form.is_valid() for form in self.speakers)]
        if not all(are_valid):
            return False
        chosen = self.cleaned_data
        columns = self._chosen_columns()
        self.options = ReadOptions(
            format=chosen["format"],
            channel=chosen["channel"].strip(),
            speaker_map=self._chosen_speakers(),
            tags=chosen["tags"],
            columns=columns,
            time_zone=chosen["time_zone"],
            dates=chosen["dates"],
        )
        return True

    @property
    def answers(self) -> dict[str, list[str]]:
        """Return the answers to questions that these settings give: which columns are tags, and who is a bot if that was chosen."""
        answers = {TAGS: self.cleaned_data.get("tag_columns", [])}
        chosen = self.options.speaker_map
        if chosen:
            recognised = {form.name: form.row["slug"] for form in self.speakers}
            answers[BOT] = [name for name, slug in recognised.items() if chosen.get(name, slug)]
        return answers

    def _chosen_columns(self) -> dict[str, str]:
        """Return the chosen columns by field of ours; an empty name where the file has none for it.

        A column that is stored as a tag has the field ``tags.KEY``: the usual key of its name, else one made of the name.
        """
        chosen = self.cleaned_data
        columns = {}
        for name, column in chosen.items():
            if name.startswith(COLUMN_PREFIX) and column:
                columns[name.removeprefix(COLUMN_PREFIX)] = "" if column == NO_COLUMN else column
        for column in chosen.get("tag_columns", ()):
            key = usual_tag(column) or tag_key(column)
            columns[f"tags.{key}"] = column
        return columns

    def _chosen_speakers(self) -> dict[str, str]:
        """Return the slugs of speakers that are agents, and an empty one for those that are none, by the names in the file."""
        slugs = {}
        for form in self.speakers:
            if form.cleaned_data["who"] == "agent":
                slugs[form.name] = form.cleaned_data["agent"]
            elif form.cleaned_data["who"] == "outsider":
                slugs[form.name] = ""
        return slugs


def _initial_choices(stored: ReadOptions) -> dict[str, Any]:
    """Return what the form of an import shows at first: the stored choices; `NO_COLUMN` where a field is chosen to have no column."""
    initial: dict[str, Any] = {
        "format": stored.format,
        "channel": stored.channel,
        "tags": ", ".join(f"{key}={value}" for key, value in stored.tags.items()),
        "time_zone": stored.time_zone,
        "dates": stored.dates,
        "tag_columns": [column for field, column in stored.columns.items() if field.startswith("tags.")],
    }
    for field, column in stored.columns.items():
        initial[COLUMN_PREFIX + field] = column or NO_COLUMN
    return initial


class SpeakerForm(forms.Form):
    """Who a speaker of the file is here."""

    who = forms.ChoiceField(widget=Select, required=False)
    agent = forms.CharField(required=False, max_length=SLUG_LIMIT, widget=TextInput(attrs={"list": "agents"}))

    def __init__(self, data: Any, prefix: str, speaker: Mapping[str, Any], options: ReadOptions) -> None:
        self.name = name = str(speaker["name"])
        self.row = speaker
        must_be_chosen = bool(speaker["why"])  # says why the name alone does not tell who it is
        slug = options.speaker_map.get(name)  # None: nothing is chosen yet; empty: is no agent
        super().__init__(data, prefix=prefix, initial={"who": _initial_who(slug, must_be_chosen), "agent": slug or ""})
        self.fields["who"].choices = [  # type: ignore[attr-defined]
            ("", "– choose –") if must_be_chosen else ("auto", "as recognised by name"),
            ("agent", "an agent …"),
            ("outsider", "no agent"),
        ]
        for key, label in {"who": "who it is", "agent": "agent"}.items():
            self.fields[key].widget.attrs["aria-label"] = f"{display.marked(name)}: {label}"

    def clean(self) -> dict[str, Any]:
        """Refuse the slug of no agent where the speaker is to be an agent; what is written there is ignored otherwise."""
        chosen: dict[str, Any] = super().clean() or {}
        slug = chosen.get("agent", "")
        if chosen.get("who") == "agent" and not Agent.objects.filter(slug=slug).exists():
            self.add_error(
                "agent", f"there is no agent {slug!r}; allowed: an agent's id (slug), such as those proposed here"
            )
        return chosen


def _initial_who(slug: str | None, must_be_chosen: bool) -> str:
    """Return what the choice of a speaker shows at first, for the slug that is stored: None = nothing is, empty = no agent."""
    if slug is None:
        return "" if must_be_chosen else "auto"
    return "agent" if slug else "outsider"


def suggested_agents() -> list[tuple[str, str]]:
    """Return slugs and names of agents, for a list of proposals."""
    return list(Agent.objects.listed().order_by("slug").values_list("slug", "display_name")[:MOST_SUGGESTED])
