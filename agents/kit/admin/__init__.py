"""The console's pages of the kit's tables, of help, of access and of saved views, one module per group."""

from agents.kit.admin import access, help_pages, ledger, saved_views

__all__ = ["access", "help_pages", "ledger", "saved_views"]
