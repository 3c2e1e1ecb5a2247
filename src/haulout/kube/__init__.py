"""Talking to Kubernetes: transport, client, objects, caches, work queue, leases, events.

A small client of our own, because what the operator needs is little and must be fast. From the bottom up:

- `transport` is the seam, `network` the way over the network: kubeconfig, credentials, TLS, HTTP;
- `resources` and `objects` say what there is, `client` asks for it, `patches` builds changes;
- `cache` keeps an indexed copy by list and watch (`follow`, `store`), `rows` makes that copy small;
- `queue` decides which key is worked on when;
- `leader` and `locks` keep several processes apart, `events` tells people what happened;
- `discovery` says what a cluster serves, `access` what we may do in it.
"""
