"""The tables of debates as console, help, export, erasure and retention know them; see `agents.kit.registry`."""

from __future__ import annotations

from django.db.models import Q, QuerySet

from agents.debates.models import Debate, DebateRound, DebateSeat, DebateTurn
from agents.kit.registry import Erase, Person, Table, export_of


def _started_by(person: Person) -> QuerySet[Debate]:
    """The question of these is theirs."""
    return Debate.objects.filter(created_by=person.user.pk) if person.user is not None else Debate.objects.none()


TABLES = (
    Table(
        model=Debate,
        operator="add change",
        menu="",
        icon="balance",
        empty="Start one with the + above, or with manage.py debate QUESTION --agents michael,dwight.",
        columns="topic=question rules status rounds_asked=rounds exit_reason=ended_by created_by=started_by created_at=started",
        filters="status mode exit_reason created_at",
        search="topic*",
        export=export_of(
            "id=pk channel=channel.slug topic mode status exit_reason exit_details rounds_asked started_by=created_by.username created_at "
            "started_at finished_at error",
            texts=("error",),
        ),
        erase=(
            Erase(
                columns="topic",
                channel="channel",
                blank=lambda person: Q(pk__in=_started_by(person)),
                own_words="topic",
                last=True,
            ),
            Erase(columns="error", channel="channel"),
            Erase(columns="settings", report_only=True),
        ),
        no_speech="mode exit_reason exit_details",
    ),
    # Without a page of their own.
    Table(model=DebateSeat, erase=(Erase(columns="perspective", report_only=True),), no_speech="role label model"),
    Table(
        model=DebateRound,
        erase=(Erase(columns="consensus", channel="debate__channel"),),
        no_speech="groupthink statistics exit",
    ),
    Table(model=DebateTurn, erase=(Erase(columns="violation error", channel="debate__channel"),)),
)
