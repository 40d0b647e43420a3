"""Work that waits as rows: a worker leases a row, does it and stores how it ended. It knows no model call: apps declare what workers do besides."""
