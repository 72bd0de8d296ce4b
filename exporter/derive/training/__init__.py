"""Training runs: what follows from what their readers tell."""
