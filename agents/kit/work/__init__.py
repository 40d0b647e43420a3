"""Work that waits as rows: a worker leases a row, does it and stores how it ended; several functions go side by side in threads."""
