"""Drift over time: what the measurements of a schedule say, series by series, and the alerts they raise."""
