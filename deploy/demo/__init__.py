"""What surrounds the demo: a Prometheus and an Alertmanager with the rules of this repository."""
