"""Which cloud a machine is of, by what its firmware says: no address is asked to find that out."""

from __future__ import annotations

from pathlib import Path

_DMI = "sys/class/dmi/id"
_AZURE = "7783-7084-3265-9085-8269-3286-77"
"""The asset tag of Azure's machines; other Hyper-V hosts have Microsoft's name too."""


def find_provider(root: Path) -> str | None:
    """Return the provider's name, `None` if the firmware names none that is known."""
    vendor, product = _read(root, "sys_vendor"), _read(root, "product_name")
    tag = _read(root, "chassis_asset_tag")
    if vendor == "Amazon EC2" or _read(root, "product_uuid").lower().startswith("ec2"):
        return "aws"
    if product == "Google Compute Engine":
        return "gcp"
    if vendor == "Microsoft Corporation" and tag == _AZURE:
        return "azure"
    if "Alibaba Cloud" in (vendor, product) or product.startswith("Alibaba Cloud ECS"):
        return "alibaba"
    if vendor == "Tencent Cloud":
        return "tencent"
    if tag == "OracleCloud.com":
        return "oci"
    return None


def _read(root: Path, name: str) -> str:
    """Return a field; "" where it is not there, or only root may read it."""
    try:
        with (root / _DMI / name).open("rb") as file:
            return file.read(256).decode("utf-8", "replace").strip()
    except OSError:
        return ""
