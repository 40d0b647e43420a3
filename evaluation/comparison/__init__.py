"""Comparing two measurements: what changed, how sure that is, and what it would take to be surer (AC-6.5.4)."""
