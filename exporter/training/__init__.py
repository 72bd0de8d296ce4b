"""Training runs as their readers tell of them; what follows from that is derived elsewhere."""

from exporter.training.ledger import STEP_BOUNDS, Told, Track, TrackedRun, TrainingLedger
from exporter.training.records import (
    PHASES,
    READERS,
    Facts,
    Moment,
    MomentKind,
    Profile,
    Record,
    Scope,
    Step,
)

__all__ = [
    "PHASES",
    "READERS",
    "STEP_BOUNDS",
    "Facts",
    "Moment",
    "MomentKind",
    "Profile",
    "Record",
    "Scope",
    "Step",
    "Told",
    "Track",
    "TrackedRun",
    "TrainingLedger",
]
