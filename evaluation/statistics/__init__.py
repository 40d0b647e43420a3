"""Pure functions on numbers, each with its source: agreement, intervals, noise, comparison, prediction-powered means, change points.

Nothing here reads the database or is random without a seed. What is undefined is ``None`` with a reason, never NaN; what cannot be
meant (a score that is no number, lists of different length) is a ValueError. numpy and scipy are imported on first use.
"""
