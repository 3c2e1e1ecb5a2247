"""Chaos tests: faults on a real control plane, checked without asking the operator: `make chaos`.

A round starts an etcd, a kube-apiserver, two replicas of the operator, and simulated users who create maintenances. It
injects one fault of one class at an instant that its seed determines, ends the fault, and waits for recovery. Then the
invariants are checked on the recording of the round: the audit log of the API server and the watches of an observer,
and nothing else.

    suite             rounds of all fault classes, several at a time
    round_runner      one round, from the start of the control plane to its result
    faults            the fault classes, which act on a `world`
    workload          nodes, pods, and the users who create maintenances
    replicas          the operator's processes (`patched_operator`), each behind a proxy that can break its connection
    proxy             an HTTPS proxy with faults
    observer          the watches of a round
    recording         audit log and watches as values
    invariants        the invariants, as pure functions over a recording
    report            the table in docs/operations/reliability.md, and the commands that replay violations
    api_client        the client of users and observer, which shares no code with the operator's

docs/operations/reliability.md explains it to users.
"""
