"""The console's pages of the kit's tables, of help and of access, one module per group."""

from agents.kit.admin import access, help_pages, ledger

__all__ = ["access", "help_pages", "ledger"]
