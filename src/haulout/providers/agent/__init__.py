"""The agent: reads the metadata service of its machine, and writes the notices of its node.

Some clouds announce maintenance only to the machine itself. So one small process runs on each node (`haulout agent`):
an event source, a notice writer, and a watch of the node's own notices. It decides nothing and writes nothing but these
notices; the operator acts on them.

- `agent` detects the cloud, and creates and runs its event source;
- `health` serves health checks, `metrics` has its metrics.

Everything here must stay small: each imported module takes memory on every node. So it uses h11 for HTTP
(`haulout.kube.transports.h11_http`), and knows neither pods nor profiles.
"""
