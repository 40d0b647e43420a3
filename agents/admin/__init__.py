"""The console's pages of this app's tables, one module per group."""

from agents.admin import (
    access,
    alerts,
    conversations,
    debates,
    help_pages,
    home,
    imports,
    ledger,
    personas,
    review,
    runs,
    swarms,
)
from agents.console.logs import register_pages

__all__ = [
    "access",
    "alerts",
    "conversations",
    "debates",
    "help_pages",
    "home",
    "imports",
    "ledger",
    "personas",
    "review",
    "runs",
    "swarms",
]

register_pages("agents")
