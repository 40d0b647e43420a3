"""Uploads in the console: `reading` says what files hold, `jobs` imports and undoes them in a worker, `uploads` keeps the files."""

from agents.imports.jobs import work_one

__all__ = ["work_one"]
