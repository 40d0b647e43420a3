"""The versions of a persona: what each changed, who made it, and the way back to one."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString

from agents.admin.access import user_of
from agents.admin.prompts import TurnPages, the_agent
from agents.console import display
from agents.console.display import word_diff
from agents.models import Agent, PersonaVersion, Trait
from agents.persona import (
    PersonaMovedOn,
    current_digest,
    differences,
    render_persona,
    restore_version,
    strength_band,
    values_of,
)

PAGE = 10  # versions; each is compared with the one before


class VersionPages(TurnPages):
    """The history of a persona, and the page that asks before a version is restored."""

    def get_urls(self) -> list[URLPattern]:
        guarded = self.admin_site.admin_view
        restore = guarded(self.restore_view)
        return [
            path("<int:pk>/versions/", guarded(self.versions_view), name="agents_agent_versions"),
            path("<int:pk>/versions/<int:number>/restore/", restore, name="agents_agent_restore"),
            *super().get_urls(),
        ]

    def versions_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """A page of versions, the newest first."""
        if not request.user.has_perm("agents.view_personaversion"):
            raise PermissionDenied
        agent = the_agent(pk)
        before = _number(request.GET.get("before", ""))
        rows = PersonaVersion.objects.filter(agent=agent).select_related("created_by").order_by("-number")
        found = list((rows.filter(number__lt=before) if before else rows)[: PAGE + 1])
        newest = rows.values_list("number", flat=True).first() or 0
        now, may = current_digest(agent), self.has_change_permission(request, agent)
        shown = [_shown(row, found[n + 1] if n + 1 < len(found) else None) for n, row in enumerate(found[:PAGE])]
        for row, version in zip(shown, found, strict=False):
            row["current"] = version.number == newest and version.digest == now
            if may and version.digest != now:
                row["restore_url"] = reverse("admin:agents_agent_restore", args=[agent.pk, version.number])
        return self.page(
            request,
            "admin/agents/agent/versions.html",
            f"Versions of {display.marked(agent.display_name)}",
            agent=display.agent_chip(agent),
            agent_url=reverse("admin:agents_agent_change", args=[agent.pk]),
            versions=shown,
            older=found[PAGE - 1].number if len(found) > PAGE else 0,
            is_first_page=not before,
            unsaved=bool(found) and not before and found[0].digest != now,
        )

    def restore_view(self, request: HttpRequest, pk: int, number: int) -> HttpResponse:
        """GET shows what would change; POST makes a new version that says what the old one said."""
        agent = the_agent(pk)
        if not self.has_change_permission(request, agent):
            raise PermissionDenied
        version = PersonaVersion.objects.filter(agent=agent, number=number).first()
        if version is None:
            raise Http404(f"{agent} has no version {number}.")
        problem = ""
        if request.method == "POST":
            problem = self._restore(request, agent, version)
            if not problem:
                return HttpResponseRedirect(reverse("admin:agents_agent_versions", args=[agent.pk]))
        return self._restore_page(request, agent, version, problem)

    def _restore(self, request: HttpRequest, agent: Agent, version: PersonaVersion) -> str:
        """Why it was not done; empty when it was. What was changed since the page was opened is not undone by it."""
        try:
            made = restore_version(version=version, seen=request.POST.get("opened", ""), user=user_of(request))
        except PersonaMovedOn:
            return "The persona was changed since you opened this page. Nothing was done; what would change now is shown below."
        if made is None:
            self.message_user(
                request, f"Nothing changed: the persona is as in version {version.number}.", messages.INFO
            )
        else:
            self.log_change(request, agent, f"restored version {version.number}")
            text = f"Version {made.number} says what version {version.number} said; it holds from the next turn on."
            self.message_user(request, text, messages.SUCCESS)
        return ""

    def _restore_page(
        self, request: HttpRequest, agent: Agent, version: PersonaVersion, problem: str
    ) -> TemplateResponse:
        traits = list(agent.traits.all())
        now = PersonaVersion(system_prompt=agent.system_prompt, traits=[_row(trait) for trait in traits])
        return self.page(
            request,
            "admin/agents/agent/restore.html",
            f"Restore version {version.number} of {display.marked(agent.display_name)}",
            agent=display.agent_chip(agent),
            versions_url=reverse("admin:agents_agent_versions", args=[agent.pk]),
            version=version,
            note=display.visible(version.note),
            saved=display.moment(version.created_at),
            opened=current_digest(agent),
            problem=problem,
            **_changes(now, version),
        )


def _shown(version: PersonaVersion, before: PersonaVersion | None) -> dict[str, Any]:
    return {
        "number": version.number,
        "saved": display.moment(version.created_at),
        "by": display.isolated(version.created_by.get_username()) if version.created_by is not None else "",
        "note": display.visible(version.note),
        "digest": version.digest[:8],
        "persona": display.block(rendered(version)),
        "is_first": before is None and version.number == 1,
        **(_changes(before, version) if before is not None else {}),
    }


def _changes(before: PersonaVersion, after: PersonaVersion) -> dict[str, Any]:
    """Trait by trait, and the system prompt word by word."""
    same = before.system_prompt == after.system_prompt
    traits = [text for text in differences(before, after) if text != "system prompt"]
    return {
        "traits": [display.visible(text) for text in traits],
        "prompt_changed": not same,
        "diff": None if same else word_diff(before.system_prompt, after.system_prompt),
        "nothing": same and not traits,
    }


def rendered(version: PersonaVersion) -> str:
    """The specification as the model read it."""
    return render_persona(system_prompt=version.system_prompt, traits=values_of(version))


def _row(trait: Trait) -> dict[str, Any]:
    return {key: getattr(trait, key) for key in ("name", "description", "sentiment", "strength")}


def band_badge(strength: float) -> SafeString:
    """The words under which a trait of this strength stands in the specification."""
    band = strength_band(strength)
    return display.badge(band.split(" (")[0].lower(), "warning" if strength == 0 else "plain", band)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
