"""Which cloud the firmware names."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.clouds import find_provider
from exporter.config import ConfigError, parse
from exporter.plans import Estate, plan
from tests.fakes import FakeClock

AZURE = "7783-7084-3265-9085-8269-3286-77"


def firmware(root: Path, **fields: str) -> Path:
    folder = root / "sys/class/dmi/id"
    folder.mkdir(parents=True)
    for name, text in fields.items():
        (folder / name).write_text(f"{text}\n")
    return root


@pytest.mark.parametrize(
    ("fields", "provider"),
    [
        ({"sys_vendor": "Amazon EC2"}, "aws"),
        ({"sys_vendor": "Xen", "product_uuid": "EC2ab123-0000"}, "aws"),
        ({"sys_vendor": "Google", "product_name": "Google Compute Engine"}, "gcp"),
        ({"sys_vendor": "Microsoft Corporation", "chassis_asset_tag": AZURE}, "azure"),
        ({"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine"}, None),
        ({"sys_vendor": "Alibaba Cloud", "product_name": "Alibaba Cloud ECS"}, "alibaba"),
        ({"sys_vendor": "Tencent Cloud", "product_name": "CVM"}, "tencent"),
        ({"chassis_asset_tag": "OracleCloud.com"}, "oci"),
        ({"sys_vendor": "Google", "product_name": "Pixelbook"}, None),
        ({"sys_vendor": "Dell Inc."}, None),
        ({"sys_vendor": "\udcff"}, None),
        ({}, None),
    ],
)
def test_the_firmware_names_the_cloud(
    tmp_path: Path, fields: dict[str, str], provider: str | None
) -> None:
    """Other machines with Hyper-V, Xen or a Google logo are no cloud's."""
    plain = {name: text.encode("utf-8", "surrogateescape").decode("latin-1")
             for name, text in fields.items()}  # fmt: skip
    assert find_provider(firmware(tmp_path, **plain)) == provider


def test_a_machine_without_firmware_files_is_no_cloud(tmp_path: Path) -> None:
    assert find_provider(tmp_path) is None


def names(text: str) -> list[str]:
    """Return the plans about notices that a configuration leads to."""
    found = plan(parse(text, "test"), Estate(FakeClock()))
    return [one.name for one in found if one.name == "spot" or one.name.startswith("notify:")]


def test_the_configuration_forces_or_switches_off(tmp_path: Path) -> None:
    """And who is to be told is told only where somebody asks."""
    root = firmware(tmp_path, sys_vendor="Amazon EC2")
    told = "notify: {file: /x/y.json, webhooks: [{name: chat, url: 'http://127.0.0.1:9/'}]}"
    assert names(f"{{root: {root}, {told}}}") == ["spot", "notify:file", "notify:chat"]
    assert names(f"{{root: {root}, {told}, sources: {{spot: {{enabled: false}}}}}}") == []
    assert names(f"{{root: /nowhere, {told}}}") == []
    forced = "sources: {spot: {provider: gcp}}"
    assert names(f"{{root: /nowhere, notify: {{file: false}}, {forced}}}") == ["spot"]


def test_a_cloud_that_must_be_and_is_not_known_is_told_with_its_key() -> None:
    with pytest.raises(ConfigError, match=r"sources.spot.provider: the firmware names no cloud"):
        names("{root: /nowhere, sources: {spot: {enabled: true}}}")


@pytest.mark.parametrize(
    ("url", "taken"),
    [
        ("http://127.0.0.1:1338", True), ("http://localhost:1338/", True),
        ("http://[::1]:80", True),
        ("http://169.254.169.254", True), ("http://[fd00:ec2::254]", True),
        ("http://[fe80::1]", True), ("http://100.100.100.200", True),
        ("http://100.100.100.201", False), ("http://10.0.0.1", False),
        ("http://example.com", False),
        ("https://169.254.169.254", False), ("http://127.0.0.1/latest", False),
        ("http://user@127.0.0.1", False), ("http://127.0.0.1?x=1", False),
        ("127.0.0.1:80", False),
        ("http://127.0.0.1:99999", False), ("http://[", False), ("", False),
    ],
)  # fmt: skip
def test_only_addresses_on_this_machine_or_its_link_are_asked(url: str, taken: bool) -> None:
    text = f"sources: {{spot: {{provider: aws, endpoint: '{url}'}}}}"
    if taken:
        assert parse(text, "test").sources.spot.endpoint == url.rstrip("/")
    else:
        with pytest.raises(ConfigError, match=r"sources.spot.endpoint"):
            parse(text, "test")
