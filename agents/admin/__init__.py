"""The console's pages of the ground floor; one module per group of tables."""

from agents.admin import access, batches, conversations, ledger, personas, runs, workers

__all__ = ["access", "batches", "conversations", "ledger", "personas", "runs", "workers"]
