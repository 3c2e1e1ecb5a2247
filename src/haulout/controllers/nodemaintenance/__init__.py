"""NodeMaintenance: take a node out of service by order of a user, and restore the node when the object is deleted.

- `decision` is the pure function in the middle: observation in, one action out. `node_cordon` and `recovery` are parts.
- `reconciler` observes and reports, `executor` executes `actions`, `status` builds the status.
- `controller` wires them with `informers` and the work queue; `history_recorder` and `notification` tell others.
- `admission` and `etcd_quorum` are the rules of the validating webhook.
"""
