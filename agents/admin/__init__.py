"""The console's pages of the ground floor; one module per group of tables."""

from agents.admin import access, conversations, help_pages, home, imports, ledger, personas, runs

__all__ = [
    "access",
    "conversations",
    "help_pages",
    "home",
    "imports",
    "ledger",
    "personas",
    "runs",
]
