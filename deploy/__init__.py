"""What installs flopwatch: manifests, a chart, a unit for systemd, an example of its file."""
