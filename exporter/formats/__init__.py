"""Readers of foreign text: pages, files, log lines. Text in, values out; no I/O."""
