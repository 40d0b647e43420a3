"""Pure functions on text for every app: words and sentences, patterns, n-grams, voices, fences for prompts, tables for exports."""
