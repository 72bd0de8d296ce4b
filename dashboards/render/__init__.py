"""Pictures of boards, drawn with Grafana's own libraries: a development tool."""
