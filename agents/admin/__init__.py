"""The console's pages of the ground floor; one module per group of tables."""

from agents.admin import conversations, ledger, personas, runs

__all__ = ["conversations", "ledger", "personas", "runs"]
