"""Suggested propositions in the review queue; they stand in files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.home import MOST_COUNTED
from agents.kit.console.review import Decision, ReviewKind, Waits, add_review
from agents.models import Agent
from agents.personas.persona import render_persona
from evaluation.drafting import editing
from evaluation.drafting.admin.propositions import PAGES, card_of, carry_out, marks_of, propositions_url
from evaluation.drafting.editing import CannotSave
from evaluation.models import PatternTimeout
from evaluation.propositions.entries import Entry, all_entries
from evaluation.propositions.files import LoadedFile, PropositionError, load_all
from evaluation.propositions.schema import AGENT_NAME


def suggestions(request: HttpRequest, agent: str, keys: Collection[str] | None) -> Iterable[Waits]:
    """Return suggestions in the files' order; none where files cannot be used, which the first page says.

    Those about agents that are not watched are left out. One more than the queue counts is enough to say "more than that".

    Args:
        agent: Only those about the agent of this slug; empty = about any.
        keys: Only these; None = all.
    """
    waits = []
    for entry in _entries(in_files_with="suggested"):
        if entry.state == "suggested" and (not agent or entry.owner == agent):
            key = _key(entry)
            if keys is None or key in keys:
                waits.append(Waits(key, None, entry.owner))
    if waits:
        not_watched = set(Agent.objects.exclude(pk__in=Agent.objects.watched()).values_list("slug", flat=True))
        waits = [item for item in waits if item.agent not in not_watched]
    return waits[: MOST_COUNTED + 1]


def _entries(in_files_with: str = "") -> list[Entry]:
    """Return the propositions of all files; none where files cannot be used.

    Args:
        in_files_with: Only of files in which one at least is in this state; the others of such a file come, too. Empty = all files.
    """
    try:
        files = load_all()
        if in_files_with:
            # Only to save time: few files have a suggestion, and the first page waits for this.
            files = [file for file in files if _has_state(file, in_files_with)]
        return all_entries(files)
    except PropositionError:
        return []


def _has_state(file: LoadedFile, state: str) -> bool:
    return any(proposition.state == state for proposition in file.inactive)


def _key(entry: Entry) -> str:
    """Return what the review queue knows a suggestion by."""
    return f"{entry.owner}:{entry.key}"


class WaitingSuggestion(NamedTuple):
    """A suggestion, and the name of the agent it is about."""

    entry: Entry
    name: str


def _suggestions(keys: Collection[str]) -> dict[str, WaitingSuggestion]:
    entries = [entry for entry in _entries() if _key(entry) in keys]
    agents = Agent.objects.filter(slug__in={entry.owner for entry in entries})
    names = dict(agents.values_list("slug", "display_name"))
    return {_key(entry): WaitingSuggestion(entry, names.get(entry.owner, "the agent")) for entry in entries}


def _claim(row: WaitingSuggestion) -> SafeString:
    claim = row.entry.proposition.claim.replace(AGENT_NAME, row.name)
    return format_html('<span dir="auto">{}</span> {}', display.visible(claim), marks_of(row.entry))


def _show_suggestion(request: HttpRequest, row: WaitingSuggestion) -> SafeString:
    entry = row.entry
    agent = Agent.objects.filter(slug=entry.owner).prefetch_related("traits").first()
    persona = None
    if agent is not None:
        persona = render_persona(system_prompt=agent.system_prompt, traits=agent.traits.all())
    card = card_of(entry, agent, persona, PatternTimeout.of([entry.proposition.id]))
    return SafeString(render_to_string(f"{PAGES}card.html", {"card": card, "may_change": False}))


def _deciding(decision: editing.Decision) -> Callable[..., None]:
    """Return what the review queue calls to carry this decision out; it raises ValueError where that is refused.

    Decisions about suggestions take no note.
    """

    def act(request: HttpRequest, row: WaitingSuggestion, note: str = "") -> None:
        try:
            carry_out(request, owner=row.entry.owner, mark=row.entry.mark, decision=decision)
        except (CannotSave, PropositionError) as problem:
            raise ValueError(str(problem)) from None

    return act


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
        url=lambda row: f"{propositions_url(row.entry.owner)}#proposition-{row.entry.proposition.id}",
        seen=lambda row: row.entry.mark,
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
