"""The Kubernetes client: transport, typed requests, informers, work queue, leader election, events.

Haulout has its own small client because the operator needs few features and must be fast. From the bottom up:

- `transport` is the interface; `transports` implements it over the network: kubeconfig, credentials, TLS, HTTP.
- `client` sends typed requests for the resources and objects of `haulout.api`; `patches` builds patch bodies.
- `informer` keeps an indexed cache by list and watch (`reflector`, `indexer`); `transforms` keep that cache small.
- `workqueue` decides when each key is reconciled.
- `leaderelection` and `leases` keep several processes from acting at once; `recorder` records Kubernetes Events.
- `discovery` returns the resources that a cluster serves; `rbac` returns what the operator may do in it.
"""
