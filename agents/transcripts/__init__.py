"""Conversations in and out. Formats: docs/reference/transcripts.md.

A reader of `readers`, one per format, yields `records`; `prepare` checks them and says who speaks, and `store` writes them in batches.
`importer` does so with a file, of which all is stored or nothing; `ingest` and `spans` do with what other programs send meanwhile.
`exporter` writes a channel as a file.
"""
