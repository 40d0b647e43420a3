"""Work that waits as rows: a worker leases a row, does it and stores how it ended. What workers do besides, apps declare."""
