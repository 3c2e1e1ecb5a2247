"""Event loops with a time of their own: one jumps (`virtual_time`), one follows the machine's clock (`paced_loop`)."""
