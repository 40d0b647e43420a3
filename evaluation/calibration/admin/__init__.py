"""The console's pages for labels and judges."""

from evaluation.calibration.admin import home, jobs, judges, labels

__all__ = ["home", "jobs", "judges", "labels"]
