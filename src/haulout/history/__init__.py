"""The history of each node: what happened, who or what did it, and why.

It is stored in the API server, and its oldest entries are dropped. It never blocks or fails a maintenance.

- `interface` is what controllers see; `writer` implements it in the background, with `pending_entries` as its memory.
- `record_store` reads and writes MaintenanceRecords; `availability` tells whether that is possible at all.
- `retention` keeps the records of deleted nodes for a time.
"""
