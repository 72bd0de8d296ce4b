"""What training jobs write for other tools: a directory that is looked through again and again.

Found are TensorBoard event files, `trainer_state.json`, MLflow's file store, W&B's offline files,
and metrics that a job drops (`*.prom`). Each is read by a reader of its own, from where reading had
come to; what they find goes to the ledger of training runs, from which `derive:training` makes
samples. A source has none of its own: it tells its health, and of each file what was wrong with it.
"""

from exporter.sources.training_files.found import Found, Limits
from exporter.sources.training_files.source import KINDS, TrainingFilesSource

__all__ = ["KINDS", "Found", "Limits", "TrainingFilesSource"]
