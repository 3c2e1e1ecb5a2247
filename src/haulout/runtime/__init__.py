"""The runtime of all controllers: what controller-runtime is to operators in Go.

    class Widgets(Reconciler[str, Observation, Decision]):        # a controller: what differs
        async def observe(self, key): ...                         # from informers; own writes are included
        def decide(self, observation): ...                        # pure: action, reason, time to requeue
        async def act(self, observation, decision): ...           # one write, with a precondition

    controller = Controller(Widgets(...), client, name="Widget")  # the same for all: loop, conflicts, backoff, pauses
    await controller.run()

The rules that every controller on top of it keeps:

- **Level-triggered.** A reconcile looks at what is, not at what happened. Events are merged, lost or repeated; the
  result is the same.
- **Caches are stale.** An observation may be minutes old. Nothing may depend on its being fresh.
- **Every write has a precondition**: a resourceVersion, a uid, a JSON patch `test`. So a stale observation, a second
  replica and a deposed leader fail instead of doing harm.
- **Die anywhere.** The process may end after any write. The API server holds all that the successor needs.
- **Decisions are pure.** They perform no I/O and read no clock: the observation contains the time.

`reconciler` is the interface of a controller, `controller` the loop that runs it. `flapping_guard` pauses keys that
change without end. `status_writer` limits the rate of status writes. `journal` tells each transition once. `component`
describes a part of the process that can be switched on, and `package_files` what it adds to the chart and the alerts.
`supervisor` restarts it after a failure. `handover` ends the leadership before the own node is drained.
"""
