"""What measuring adds to the review queue: suggested propositions to decide on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.console import display
from agents.console.home import MOST_COUNTED
from agents.console.review import Decision, ReviewKind, Waits, add_review
from agents.models import Agent
from agents.persona import render_persona
from evaluation.admin.propositions import PAGES, card_of, carry_out, propositions_url
from evaluation.models import PatternTimeout
from evaluation.propositions import editing
from evaluation.propositions.editing import CannotSave
from evaluation.propositions.files import Entry, PropositionError, all_entries


# -- suggestions of propositions: they stand in files
def suggestions(request: HttpRequest, agent: str, keys: Collection[str] | None) -> Iterable[Waits]:
    """Suggestions in the files' order; none where files cannot be used, which the first page says."""
    return [
        Waits(key, None, entry.owner)
        for key, entry in _entries().items()
        if entry.state == "suggested" and (not agent or entry.owner == agent) and (keys is None or key in keys)
    ][: MOST_COUNTED + 1]


def _entries() -> dict[str, Entry]:
    try:
        return {f"{entry.owner}:{entry.key}": entry for entry in all_entries()}
    except PropositionError:
        return {}


def _suggestions(keys: Collection[str]) -> dict[str, Entry]:
    entries = _entries()
    return {key: entries[key] for key in keys if key in entries}


def _claim(entry: Entry) -> SafeString:
    return format_html('<span dir="auto">{}</span>', display.visible(display.shortened(entry.proposition.claim, 90)))


def _show_suggestion(request: HttpRequest, entry: Entry) -> SafeString:
    agent = Agent.objects.filter(slug=entry.owner).prefetch_related("traits").first()
    persona = render_persona(system_prompt=agent.system_prompt, traits=agent.traits.all()) if agent else None
    card = card_of(entry, agent, persona, PatternTimeout.of([entry.proposition.id]))
    return SafeString(render_to_string(f"{PAGES}card.html", {"card": card, "may_change": False}))


def _deciding(decision: editing.Decision) -> Callable[..., None]:
    def act(request: HttpRequest, entry: Entry, note: str = "") -> None:
        try:
            carry_out(request, owner=entry.owner, mark=entry.mark, decision=decision)
        except (CannotSave, PropositionError) as problem:
            raise ValueError(str(problem)) from None

    return act


def _entry_url(entry: Entry) -> str:
    return f"{propositions_url(entry.owner)}#proposition-{entry.proposition.id}"


add_review(
    ReviewKind(
        name="suggestions",
        title="Suggestions",
        one="suggested proposition to decide on",
        many="suggested propositions to decide on",
        order=40,
        permissions=("evaluation.change_proposition",),
        fills="propositions that a model or a colleague suggested, until they are accepted or rejected.",
        waiting=suggestions,
        find=_suggestions,
        line=_claim,
        show=_show_suggestion,
        url=_entry_url,
        seen=lambda entry: entry.mark,
        decisions=(
            Decision(
                name="accept",
                label="Accept",
                key="a",
                done="is accepted: it is judged from the next evaluation on",
                decide=_deciding(editing.Decision.ACCEPT),
                undo=_deciding(editing.Decision.UNDO),
                main=True,
            ),
            Decision(
                name="reject",
                label="Reject",
                key="r",
                done="is rejected, and will not be suggested again",
                decide=_deciding(editing.Decision.REJECT),
                undo=_deciding(editing.Decision.UNDO),
            ),
        ),
    )
)
