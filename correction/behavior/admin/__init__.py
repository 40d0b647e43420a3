"""The console's pages for behaviour requests, and what they add to the review queue and the first page."""

from correction.behavior.admin import home, people, requests, review

__all__ = ["home", "people", "requests", "review"]
