"""Finds inference servers that nobody configured: in files, on this machine's ports, among pods.

A finder looks and returns targets; it knows neither sources nor plans. `sources.discovery` gives it
a beat, health and a status row, and writes what was found into the `Register`. The composition root
turns that into servers that are read, through the same door as a reload. Another place to look is
another finder with an `origin` of its own.
"""

from __future__ import annotations

from exporter.discovery.commands import PORTS
from exporter.discovery.files import FileFinder
from exporter.discovery.local import Answer, LocalFinder
from exporter.discovery.machine import Machine, is_ours
from exporter.discovery.pods import PodFinder
from exporter.discovery.target import (
    Choice,
    Endpoint,
    Finder,
    Look,
    Page,
    Register,
    Static,
    Target,
    choose,
    endpoint,
    page_of,
)

__all__ = [
    "PORTS",
    "Answer",
    "Choice",
    "Endpoint",
    "FileFinder",
    "Finder",
    "LocalFinder",
    "Look",
    "Machine",
    "Page",
    "PodFinder",
    "Register",
    "Static",
    "Target",
    "choose",
    "endpoint",
    "is_ours",
    "page_of",
]
