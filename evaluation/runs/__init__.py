"""Evaluations: planned as rows, judged by straight functions in threads, stored as they are answered, summed up."""
