"""The routes of correction under ``/api/evaluations/``. Thin: they parse, call one service, present."""
