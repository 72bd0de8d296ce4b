"""Plans for those who tell of training runs, and for what is derived from that."""

from __future__ import annotations

from collections.abc import Iterator

from exporter.config import Settings
from exporter.plans.estate import Estate, Plan
from exporter.plans.training.diagnosis import diagnosis_plans
from exporter.plans.training.files import files_plans, page_plans
from exporter.plans.training.logs import log_plans
from exporter.plans.training.profiles import nccl_plans, profile_plans
from exporter.plans.training.push import push_plans
from exporter.plans.training.ranks import rank_plans
from exporter.plans.training.runs import runs_plans


def training_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield what reads training runs, best known first, and what is derived of them.

    Raises `ConfigError`.
    """
    readers = [
        *push_plans(settings, estate),
        *log_plans(settings, estate),
        *files_plans(settings, estate),
        *page_plans(settings, estate),
        *rank_plans(settings, estate),
        *profile_plans(settings, estate),
    ]
    yield from readers
    yield from nccl_plans(settings, estate)
    if readers or settings.training_sla:  # else there is nobody who could tell of a run
        yield from runs_plans(settings, estate)
    yield from diagnosis_plans(settings, estate)
