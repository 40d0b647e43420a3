"""Figures for Prometheus: of requests as they are answered, and of work and model calls as they stand in the database."""
