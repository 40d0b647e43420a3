"""The settings of correction, per agent: `settings` says what can be set and what is in effect, `configure` changes it."""
