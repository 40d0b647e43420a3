"""The editor of propositions in the console."""

from evaluation.drafting.admin import propositions

__all__ = ["propositions"]
