"""Remarks: what people noticed about an agent."""
