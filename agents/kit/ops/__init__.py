"""Looking after an installation: the hourly sums of its logs."""
