"""Commands for people, one module each: what they say is returned as lines, and printed elsewhere.

A command raises `ConfigError`, one line for each problem, where a file or an address cannot be
used.
"""

DEFAULT_URL = "http://127.0.0.1:9810/metrics"
"""The page of a daemon on this machine."""
