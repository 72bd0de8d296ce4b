"""Certificates for tests, made by openssl: an authority, a server, clients."""

from __future__ import annotations

import subprocess
from pathlib import Path


class Authority:
    """Signs certificates; all files lie in one directory, as NAME.crt and NAME.key."""

    def __init__(self, home: Path, name: str = "ca", openssl: str = "openssl") -> None:
        self.home = home
        self.name = name
        self._openssl = openssl
        home.mkdir(parents=True, exist_ok=True)
        self._run(
            "req", "-x509", *_NEW_KEY, "-days", "3650", "-subj", f"/CN={name}",
            "-keyout", f"{name}.key", "-out", f"{name}.crt",
        )  # fmt: skip

    @property
    def file(self) -> Path:
        return self.home / f"{self.name}.crt"

    def sign(self, name: str, *sans: str) -> Path:
        """Make a key and a certificate of such alternative names; return the certificate."""
        extensions = self.home / f"{name}.ext"
        extensions.write_text(f"subjectAltName={','.join(sans)}\n" if sans else "\n")
        self._run(
            "req", *_NEW_KEY, "-subj", f"/CN={name}",
            "-keyout", f"{name}.key", "-out", f"{name}.csr",
        )  # fmt: skip
        self._run(
            "x509", "-req", "-in", f"{name}.csr", "-days", "3650", "-extfile", f"{name}.ext",
            "-CA", f"{self.name}.crt", "-CAkey", f"{self.name}.key", "-CAcreateserial",
            "-out", f"{name}.crt",
        )  # fmt: skip
        return self.home / f"{name}.crt"

    def _run(self, *arguments: str) -> None:
        command = [self._openssl, *arguments]
        subprocess.run(command, cwd=self.home, check=True, capture_output=True, timeout=30)


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
