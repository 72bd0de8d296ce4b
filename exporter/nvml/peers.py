"""Where the NVLinks of a GPU lead: to other GPUs, to switches, to the CPU.

That is wired, so each link is asked once, when it is first seen up; the number of links that are up
follows from their states.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from exporter import catalogue as c
from exporter.nvml import readings as r
from exporter.nvml.device import Page, pci_address
from exporter.nvml.driver import GONE, OVER, Driver, Handle, NvmlError, Struct

_GPU = 0
_TRIES = 3


class Peers:
    """The other ends of the links of one GPU."""

    def __init__(self, driver: Driver, handle: Handle, page: Page) -> None:
        self._driver = driver
        self._handle = handle
        self._page = page
        self._ends: dict[int, tuple[str, str]] = {}
        self._tries: Counter[int] = Counter()

    def tell(self, up: Collection[int]) -> None:
        """Put on the page how many of the links that are up lead where.

        A peer that has been seen stays, with 0: a link that is lost is what has to be told.
        """
        for link in up:
            if link not in self._ends and self._tries[link] < _TRIES:
                self._tries[link] += 1
                end = self._asked(link)
                if end is not None:
                    self._ends[link] = end
        if not self._ends:
            return
        numbers = dict.fromkeys(self._ends.values(), 0)
        for link in up:
            if link in self._ends:
                numbers[self._ends[link]] += 1
        for end, number in numbers.items():
            self._page.set(c.TOPOLOGY_NVLINK_LINKS, end, number, r.FEW)

    def _asked(self, link: int) -> tuple[str, str] | None:
        """Return kind and address of what is at the other end; None if the driver cannot tell."""
        try:
            number = self._driver.bind(
                "nvmlDeviceGetNvLinkRemoteDeviceType", "u32", self._handle, link
            )()
            kind = r.LINK_PEERS.get(number)
            if kind is None or number != _GPU:
                return None if kind is None else (kind, "")
            (address,) = self._driver.bind(
                "nvmlDeviceGetNvLinkRemotePciInfo_v2", Struct("nvmlPciInfo_t", ("busId",)),
                self._handle, link,
            )()  # fmt: skip
        except NvmlError as error:
            if error.code in OVER | GONE:
                raise
            return None
        return kind, pci_address(address)
