"""Event loops with a time of their own: one jumps (`virtual`), one follows the machine's clock (`paced`)."""
