"""One proposition on its way from a form to a file: what was typed, what the loader says of it, where it would stand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.utils.safestring import SafeString

from agents.console import display
from agents.models import Agent
from agents.persona import render_persona
from evaluation.admin.draft_cards import quoted_in, state_badge
from evaluation.admin.proposition_form import ADVICE, CONTEXT, CUES, RULE, PropositionForm
from evaluation.drafting.decisions import DraftEntry
from evaluation.drafting.exporting import as_file
from evaluation.drafting.library import free_id, head_of, written_as
from evaluation.drafting.saving import NO_FOLDER, CannotSave, checked, place_for, save_proposition
from evaluation.models import Dimension
from evaluation.propositions.files import DEFAULT, LoadedFile
from evaluation.propositions.schema import ENVIRONMENT_DIMENSIONS, Proposition, resolve

LEVELS = {"evaluation": "what was said", "action": "a draft, in the gate"}


class Editing:
    """A form, and the proposition it is about.

    Raises:
        CannotWrite: Its file cannot be read.
    """

    def __init__(
        self,
        request: HttpRequest,
        *,
        owner: str,
        agent: Agent | None,
        entry: DraftEntry | None,
        files: Sequence[LoadedFile],
    ) -> None:
        self.owner, self.agent, self.entry, self.files = owner, agent, entry, files
        asked = request.POST if request.method == "POST" else request.GET
        self.dimension = entry.dimension if entry else _one_of(asked.get("dimension", ""), self._dimensions())
        self.level = entry.level if entry else _one_of(asked.get("level", ""), list(LEVELS))
        self.mark = request.POST.get("mark", "") if request.method == "POST" else entry.mark if entry else ""
        written, self.head = written_as(entry) if entry else ({}, {})
        traits = [trait.name for trait in agent.traits.all()] if agent else []
        self.form = PropositionForm(request.POST if request.method == "POST" else None, written=written, traits=traits)
        self.traits = traits

    @property
    def id(self) -> str:
        return str(self.form.cleaned_data["id"])

    def is_valid(self) -> bool:
        """Whether the form is, and the loader would take it; an id is made of the claim where none was typed."""
        if not self.form.is_valid():
            return False
        if not self.form.cleaned_data["id"]:
            self.form.cleaned_data["id"] = free_id(self.owner, self.form.cleaned_data["claim"], files=self.files)
        try:
            self._file(active=True)
        except CannotSave as problem:
            self.form.blame(problem.errors)
            return False
        return True

    def proposition(self) -> Proposition:
        """As it is typed, to be tried."""
        file = self._file(active=True)
        return resolve(file.propositions[0], file, "as typed", everybody=self.owner == DEFAULT)

    def as_yaml(self) -> str:
        """A file of it alone."""
        head = {**head_of(self.dimension, self.owner, self.level), **self.head}
        return as_file(head, [self.form.entry(active=self.entry is None or self.entry.proposition.active)])

    def save(self, *, active: bool) -> Path:
        """Store it.

        Raises:
            CannotSave: It cannot be.
        """
        return save_proposition(
            owner=self.owner,
            dimension=self.dimension,
            level=self.level,
            entry=self.form.entry(active=active),
            mark=self.mark if self.entry else "",
        )

    def context(self) -> dict[str, Any]:
        """What the template shows."""
        place = place_for(owner=self.owner, dimension=self.dimension, level=self.level, entry=self.entry)
        filled = set(self.form.written)
        form = self.form
        return {
            "form": form,
            "entry": self.entry,
            "badge": state_badge(self.entry) if self.entry else "",
            "mark": self.mark,
            "traits": self.traits,
            "dimensions": [(name, Dimension(name).label) for name in self._dimensions()],
            "levels": LEVELS.items(),
            "dimension": self.dimension,
            "level": self.level,
            "place": _shown(place.path) if place else "",
            "replaces": _shown(self.entry.path) if place and place.replaces and self.entry else "",
            "no_folder": "" if place else NO_FOLDER,
            "groups": [
                (
                    "An exact rule instead of a judge",
                    "free of cost, the same offline: 9 when all of it holds, 0 when not. It stands alone, without words for or against",
                    [form[name] for name in RULE],
                    "rule" in filled or _typed_in(form, RULE),
                ),
                (
                    "Words the offline judge may go by",
                    "without an LLM a claim is scored by these alone; give both, or it can never fall",
                    [form[name] for name in CUES],
                    "cues" in filled or _typed_in(form, CUES),
                ),
                (
                    "Where it applies, and what the judge is shown",
                    "",
                    [form[name] for name in CONTEXT],
                    bool(filled & set(CONTEXT)) or _typed_in(form, CONTEXT),
                ),
            ],
            "advice": [form[name] for name in ADVICE],
            "quoted": self._quoted(),
        }

    def _file(self, *, active: bool) -> Any:
        return checked(
            owner=self.owner,
            dimension=self.dimension,
            level=self.level,
            entry=self.form.entry(active=active),
            head=self.head,
        )

    def _dimensions(self) -> list[str]:
        """Channels have dimensions of their own; those stand in files about every one of them."""
        if self.agent is None:
            return list(Dimension.values)
        return [name for name in Dimension.values if name not in ENVIRONMENT_DIMENSIONS]

    def _quoted(self) -> SafeString | str:
        quote = self.form["source"].value() or ""
        if self.agent is None or not quote:
            return ""
        persona = render_persona(system_prompt=self.agent.system_prompt, traits=self.agent.traits.all())
        return quoted_in(str(quote), persona)


def _typed_in(form: PropositionForm, names: Sequence[str]) -> bool:
    return form.is_bound and any(form[name].value() for name in names)


def _one_of(wanted: str, allowed: Sequence[str]) -> str:
    return wanted if wanted in allowed else allowed[0]


def _shown(path: Path) -> SafeString:
    """The file as somebody in the checkout names it."""
    base = Path(settings.BASE_DIR)
    return display.visible(path.relative_to(base) if path.is_relative_to(base) else path)
