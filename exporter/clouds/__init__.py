"""Clouds that announce to a machine that they will take it away, or work on its host.

One module for each provider: which paths of its metadata service are asked, how often, and what an
answer means. Who asks, what is remembered and who is told is left to others.
"""

from __future__ import annotations

from collections.abc import Callable

from exporter.clouds.alibaba import Alibaba
from exporter.clouds.aws import Aws
from exporter.clouds.azure import Azure
from exporter.clouds.detection import find_provider
from exporter.clouds.gcp import Gcp
from exporter.clouds.oci import Oci
from exporter.clouds.question import Cloud, Question, Refusal, Told
from exporter.clouds.service import Service
from exporter.clouds.tencent import Tencent

__all__ = [
    "CLOUDS", "ENDPOINTS", "Cloud", "Question", "Refusal", "Service", "Told", "find_provider",
]  # fmt: skip

CLOUDS: dict[str, Callable[[Service], Cloud]] = {
    "aws": Aws, "gcp": Gcp, "azure": Azure, "alibaba": Alibaba, "tencent": Tencent, "oci": Oci,
}  # fmt: skip

ENDPOINTS = {
    "aws": "http://169.254.169.254",
    "gcp": "http://169.254.169.254",
    "azure": "http://169.254.169.254",
    "alibaba": "http://100.100.100.200",
    "tencent": "http://metadata.tencentyun.com",
    "oci": "http://169.254.169.254",
}
"""Where each provider's metadata service is, as its documentation says."""
