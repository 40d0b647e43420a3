"""The modes: order, roles and perspectives, which answers break their rules, and what a mode of one's own takes."""
