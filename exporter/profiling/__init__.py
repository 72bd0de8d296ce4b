"""What is known of profiles: kinds of kernels, intervals on a timeline, patterns, and their files.

Nothing here runs in the daemon's own process but what looks at short texts: traces are large and
come from anywhere, and are read in a child process with a limit of its own.
"""
