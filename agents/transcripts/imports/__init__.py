"""Transcripts that people upload in the console: `jobs` previews, imports and undoes them, `uploads` stores the files till then."""

from agents.transcripts.imports.jobs import work_one

__all__ = ["work_one"]
