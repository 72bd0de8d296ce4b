"""What GPUs cost: pure functions of prices, hours and work."""
