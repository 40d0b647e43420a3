"""The console's pages of the ground floor; one module per group of tables."""

from agents.admin import (
    access,
    batches,
    conversations,
    help_pages,
    home,
    imports,
    ledger,
    messages,
    personas,
    runs,
    workers,
)

__all__ = [
    "access",
    "batches",
    "conversations",
    "help_pages",
    "home",
    "imports",
    "ledger",
    "messages",
    "personas",
    "runs",
    "workers",
]
