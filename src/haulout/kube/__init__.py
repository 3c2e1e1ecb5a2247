"""Talking to Kubernetes: transport, client, objects, caches, work queue, leases, events.

A small client of our own, because what the operator needs is little and must be fast. From the bottom up:

- `transport` is the seam, `transports` the way over the network: kubeconfig, credentials, TLS, HTTP;
- `resources` and `objects` say what there is, `client` asks for it, `patches` builds changes;
- `informer` keeps an indexed copy by list and watch (`reflector`, `indexer`), `pod_transform` makes that copy small;
- `workqueue` decides which key is worked on when;
- `leaderelection` and `lease_lock` keep several processes apart, `recorder` tells people what happened;
- `discovery` says what a cluster serves, `rbac` what we may do in it.
"""
