"""What users of inference servers are promised, and what they get."""
