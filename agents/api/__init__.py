"""The API of agents and conversations, and what every route under ``/api/`` shares: permissions, pages, problems, parameters."""
