"""Settings of prices, and of the notices of clouds."""
