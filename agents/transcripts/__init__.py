"""Conversations in and out: one reader per format, one importer, one exporter. Formats: docs/reference/transcripts.md."""
