"""The table of remarks as console, help, export, erasure and retention know it; see `agents.kit.registry`."""

from __future__ import annotations

from agents.kit.erasing import Erase, of_agents
from agents.kit.registry import Table, export_of

from .models import Remark

TABLES = (
    Table(
        model=Remark,
        menu="More",
        icon="edit_note",
        empty="Nobody has remarked on an agent.",
        columns="pk agent text created_at=noticed",
        filters="agent created_at",
        fields=(("", "agent text created_at=noticed"),),
        export=export_of("id created_at agent=agent.slug text", texts=("text",)),
        erase=(Erase(columns="text", rows=(of_agents("agent"),)),),
    ),
)
