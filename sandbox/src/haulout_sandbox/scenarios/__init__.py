"""Stories for the sandbox: which machines, what runs on them, and what happens when."""
