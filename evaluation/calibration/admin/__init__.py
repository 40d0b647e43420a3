"""The console's pages for labels and judges."""

from evaluation.calibration.admin import home, jobs, labels

__all__ = ["home", "jobs", "labels"]
