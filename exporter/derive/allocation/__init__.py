"""Who has which GPU: what a cluster's scheduler has handed out, held against the node's GPUs."""

from exporter.derive.allocation.gpus import Gpus, Part
from exporter.derive.allocation.holdings import Allocation, Holding, Wanted, allocated
from exporter.derive.allocation.pods import Pods

__all__ = ["Allocation", "Gpus", "Holding", "Part", "Pods", "Wanted", "allocated"]
