"""What can go wrong with an exchange, in the few classes that callers know."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from exporter.fetch.wire import NonsenseError
from exporter.samples import Malformed


class Unreached(TimeoutError):  # noqa: N818 - said of the server
    """Nobody has accepted a connection within the time."""


@contextmanager
def explained(shown: str, timeout: float) -> Iterator[None]:
    """Say of each failure which URL it is about, in the few classes that callers know."""
    try:
        yield
    except Unreached:
        raise
    except TimeoutError:
        raise TimeoutError(f"{shown}: no whole answer within {timeout:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise ConnectionError(
            f"{shown}: certificate not accepted: {error.verify_message} (see ca_file)"
        ) from error
    except http.client.IncompleteRead:
        raise ConnectionError(f"{shown}: the answer broke off") from None
    except ConnectionError as error:
        raise ConnectionError(f"{shown}: {error}") from error
    except NonsenseError as error:
        raise Malformed(f"{shown}: {error}") from None
    except http.client.HTTPException as error:
        # Its text quotes what the server sent, which may be anything.
        raise Malformed(f"{shown}: not an HTTP answer ({type(error).__name__})") from None
    except Malformed as error:
        raise Malformed(f"{shown}: {error}") from error
    except OSError as error:
        raise ConnectionError(f"{shown}: {error.strerror or error}") from error
