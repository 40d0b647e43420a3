"""Looking after an installation: health and metrics, log lines and Sentry, hourly sums of the logs, and what is pruned."""
