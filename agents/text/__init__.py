"""Pure functions on text that every floor may use: tokens, sentences, phrases, n-grams."""
