"""The tables of debates as console, help, export, erasure and retention know them; see `agents.kit.registry`."""

from __future__ import annotations

from django.db.models import Q

from agents.debates.models import Debate, DebateRound, DebateSeat, DebateTurn
from agents.kit.erasing import Erase, Person, matching, there
from agents.kit.registry import Table, export_of
from agents.models import Channel, Message


def _started_by(person: Person, path: str = "") -> Q:
    """Return the debates whose question is this person's, and with it all that was said in them."""
    user = person.user.pk if person.user is not None else None
    return Q(**{f"{path}created_by": user, f"{path}created_by__isnull": False})


def _answers_to_their_question(person: Person) -> Q:
    return _started_by(person, "channel__debate__") & Q(agent__isnull=False)


_ROWS_OF_DEBATE = (matching(lambda person: _started_by(person, "debate__")), there("debate__channel"))


TABLES = (
    Table(
        model=Debate,
        operator="add change",
        order=-1,
        tab_of="agents.Channel",
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
            Erase(columns="topic", rows=(matching(_started_by),)),
            Erase(columns="error", rows=(matching(_started_by), there("channel", at="finished_at"))),
            Erase(
                model=Channel, columns="name topic", rows=(matching(lambda person: _started_by(person, "debate__")),)
            ),
            Erase(
                model=Message,
                columns="text payload",
                rows=(matching(_answers_to_their_question),),
                emptied="text payload",
            ),
        ),
        typed="topic settings",
        no_speech="mode exit_reason exit_details",
    ),
    # Without a page of their own.
    Table(model=DebateSeat, typed="perspective", no_speech="role label model"),
    Table(
        model=DebateRound,
        erase=(Erase(columns="consensus", rows=_ROWS_OF_DEBATE, keep="stance agent"),),
        no_speech="groupthink statistics exit",
    ),
    Table(model=DebateTurn, erase=(Erase(columns="violation error", rows=_ROWS_OF_DEBATE),)),
)
