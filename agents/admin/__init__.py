"""The console's pages of agents and conversations, one module per group."""

from agents.admin import conversations, display, home, imports, markers, personas, review, runs

__all__ = ["conversations", "display", "home", "imports", "markers", "personas", "review", "runs"]
