"""Grafana dashboards, built from Python: `python -m dashboards.build` writes the JSON files."""
