"""Event loops with their own time.

`virtual_time` jumps to the next timer, `accelerated_loop` follows the machine's clock.
"""
