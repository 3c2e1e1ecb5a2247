"""MaintenanceFreezes: their status and Events. `haulout.runtime.freezes` makes every controller honour them."""
