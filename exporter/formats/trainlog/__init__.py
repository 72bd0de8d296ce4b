"""Reads what training jobs write to their logs, and turns it into records of the run.

`lines` knows what the frameworks print, `parser` puts a step together that is told over several
lines, `stream` finds the few lines that matter in the bytes of a file. Pure: bytes in, records out.
"""

from exporter.formats.trainlog.lines import FRAMEWORKS
from exporter.formats.trainlog.parser import Course, LogParser
from exporter.formats.trainlog.stream import Flaw, LogStream

__all__ = ["FRAMEWORKS", "Course", "Flaw", "LogParser", "LogStream"]
