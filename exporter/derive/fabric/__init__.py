"""What follows from the counters of ports and from how they are wired."""
