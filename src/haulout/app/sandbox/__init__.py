"""The operator in a sandbox: `haulout run --sandbox`.

The sandbox itself is a distribution of its own, which need not be installed. `interface` finds it and says what is used
of it. No other module of the product knows it.
"""
