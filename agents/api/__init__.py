"""What every route under ``/api/`` shares, whichever floor it belongs to: who may, pages, problems, parameters."""
