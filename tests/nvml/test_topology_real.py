"""The topology of a whole daemon: the real reader of GPUs in its child, and a PCI tree."""

from __future__ import annotations

from pathlib import Path

from tests.nvml.conftest import Drive
from tests.pci_tree import PciTree
from tests.test_command import flopwatch

BUSES = ("1a", "1b", "4a", "4b", "8a", "8b", "ca", "cb")


def test_once_tells_the_topology_too(drive: Drive, root: Path, tmp_path: Path) -> None:
    """GPUs are known some time after the first look at the tree; their places are on the page."""
    tree = PciTree(root)
    tree.virtual(said=False)
    for at, bus in enumerate(BUSES):
        top = f"pci0000:{at:02x}/0000:{at:02x}:01.0/0000:{0x10 + at:02x}:00.0"
        tree.gpu(f"{top}/0000:{0x20 + at:02x}:00.0/0000:{bus}:00.0", at // 4)
        tree.rdma(
            f"mlx5_{at}", f"{top}/0000:{0x20 + at:02x}:01.0/0000:{0x30 + at:02x}:00.0", at // 4
        )
    drive("h100-sxm8", ())
    file = tmp_path / "flopwatch.yaml"
    file.write_text(
        f"root: {root}\nsources:\n  nvml: {{enabled: true}}\n  network: {{enabled: false}}\n"
        "  inference: {enabled: false}\n  host: {enabled: false}\n"
    )

    result = flopwatch("once", "-c", str(file))

    assert result.returncode == 0, result.stderr
    best = [line for line in result.stdout.splitlines()
            if line.startswith("topology_gpu_best_nic_info{")]  # fmt: skip
    assert len(best) == 8
    assert 'device="mlx5_6",distance="PIX",gpu="6",rail="6"' in best[6]
    pairs = [line for line in result.stdout.splitlines()
             if line.startswith("topology_gpu_gpu_distance{")]  # fmt: skip
    assert len(pairs) == 28
    assert all('path="NV18"' in line for line in pairs)
