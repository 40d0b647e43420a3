"""A verdict that a build can trust: what is measured is held against a baseline and thresholds, and against how much could be judged."""
