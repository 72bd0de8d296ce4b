"""Settings of what is told of the fabric beside the counters of its ports."""
