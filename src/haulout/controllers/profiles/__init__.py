"""The profiles controller: a configurable state machine per node that decides when maintenance starts and ends.

- `plugin` is the API of checks, triggers, notifications and schedules; `plugins` has those that Haulout ships.
- `config` reads `maintenance.yaml`; `view` has the informers and the view of the cluster that plugins get.
- `decision` is the pure function in the middle: observation and profiles in, decision out.
- `reconciler` observes, decides and executes for one node, `executor` writes; `controller` owns the work queue.
- `machine` keeps the state of profiles on the node; `notify` and `external` talk to systems outside the cluster.
"""
