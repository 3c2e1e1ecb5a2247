"""The agent: listens to the metadata service of the machine that it runs on, and writes the notices of its node.

Some clouds tell of maintenance only to the machine itself. So one small process runs on each node (`haulout agent`):
one source, an inbox, and a watch of the notices of its own node. It decides nothing, and it touches nothing but these
notices; what is done about them is up to the operator, which sees the same objects.

- `cloud_detection` finds out which cloud this is, `event_source_factory` makes its source;
- `agent` runs it, `health` tells how it stands, `metrics` what it counts.

All of this is kept small: a module that it imports is there on every node. So it talks HTTP by itself
(`haulout.kube.transports.h11_http`), and knows neither pods nor profiles.
"""
