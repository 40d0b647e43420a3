"""The console's pages of agents and conversations, one module per group."""

from agents.admin import conversations, home, imports, personas, review, runs

__all__ = ["conversations", "home", "imports", "personas", "review", "runs"]
