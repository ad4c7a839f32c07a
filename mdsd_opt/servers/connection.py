"""Requests to a server: they are repeated where that helps, and each has a time limit."""

from __future__ import annotations

import importlib
import queue
import re
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from mdsd_opt.errors import InvalidInput, MissingExtra, ServerError

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Seconds to wait before each further try.
PAUSES = (0.2, 0.5, 1.0)

#: Time limit in seconds for finding out the API of a server.
TO_CONNECT = 10.0

#: Status codes of a server that is busy, or starting.
_BUSY = (408, 425, 429, 500, 502, 503, 504)

#: Number of characters of an answer that an error shows.
_SHOWN = 200


class Refused(ServerError):
    """The server answers that a request is wrong.

    Attributes
    ----------
    status : int
        HTTP status.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Connection:
    """A server, as an address that requests go to.

    Parameters
    ----------
    url : str
        http:// or https://, with a port; what follows ``/v1`` is left to the adapter.
    timeout : float
        Seconds that a request may take.
    key : str, optional
        Sent as a bearer token.
    transport : httpx.BaseTransport, optional
        Transport of httpx, for tests.
    """

    def __init__(
        self, url: str, timeout: float = 60.0, key: str | None = None, transport: Any = None
    ) -> None:
        try:
            self._httpx: Any = importlib.import_module("httpx")
        except ImportError as error:
            raise MissingExtra.of("httpx", "server", "an audit of a server") from error
        if re.fullmatch(r"[\w.-]+:\d+(/\S*)?", url):
            url = f"http://{url}"
        if not url.startswith(("http://", "https://")):
            raise InvalidInput(f"{url!r} is no address: give http://HOST:PORT")
        self.url = url.rstrip("/").removesuffix("/v1")
        self._client = self._httpx.Client(
            timeout=self._httpx.Timeout(timeout, connect=min(timeout, TO_CONNECT)),
            headers={} if key is None else {"Authorization": f"Bearer {key}"},
            limits=self._httpx.Limits(max_connections=64, max_keepalive_connections=64),
            transport=transport,
            trust_env=False,  # no proxy between an audit and a server
        )
        self.requests, self.has_key = 0, key is not None
        self._lock, self._in_flight, self._is_over = threading.Lock(), 0, False

    def get(self, path: str, *, tries: int = 1) -> Any:
        """Answer of a server to GET, as JSON, or as text if it is none."""
        return self._answer("GET", path, None, tries)

    def post(self, path: str, body: dict[str, Any], *, tries: int = len(PAUSES) + 1) -> Any:
        """Answer of a server to POST."""
        return self._answer("POST", path, body, tries)

    def _answer(self, verb: str, path: str, body: dict[str, Any] | None, tries: int) -> Any:
        failed: ServerError | None = None
        slow = 0
        for pause in (0.0, *PAUSES[: tries - 1]):
            time.sleep(pause)
            self.requests += 1
            try:
                answer = self._request(verb, path, body)
            except self._httpx.TimeoutException as error:
                failed = ServerError(
                    f"{self.url}{path} did not answer in time ({type(error).__name__}): is it "
                    "busy, or the limit too small?"
                )
                slow += 1
                if slow > 1 or isinstance(error, self._httpx.ConnectTimeout):
                    break
                continue
            except self._httpx.TransportError as error:
                failed = ServerError(
                    f"no server answers at {self.url} ({error}): start it, or mend the address"
                )
                continue
            except self._httpx.InvalidURL as error:
                raise InvalidInput(f"{self.url!r} is no address: {error}") from error
            if answer.status_code in _BUSY:
                failed = self._refusal(path, answer)
                continue
            if answer.status_code >= 300:
                raise self._refusal(path, answer)
            try:
                return answer.json()
            except ValueError:
                if not answer.text.lstrip().startswith(("{", "[")):
                    return answer.text
                failed = ServerError(f"{self.url}{path} answers JSON that is cut, or broken")
        assert failed is not None
        raise failed

    def _request(self, verb: str, path: str, body: dict[str, Any] | None) -> Any:
        with self._lock:
            self._in_flight += 1
        try:
            return self._client.request(verb, self.url + path, json=body)
        finally:
            self._left(-1)

    def _left(self, change: int) -> None:
        with self._lock:
            self._in_flight += change
            ends = self._is_over and not self._in_flight
        if ends:
            self._client.close()

    def _refusal(self, path: str, answer: Any) -> Refused:
        status, text = answer.status_code, " ".join(answer.text.split())[:_SHOWN]
        if status in (401, 403):
            message = (
                f"{self.url} wants a key ({status}): name the variable that holds it, as in "
                "--key-variable OPENAI_API_KEY, or give key="
            )
        else:
            message = f"{self.url}{path} answers {status}: {text or 'nothing more'}"
        return Refused(message, status)

    def close(self) -> None:
        """End all connections, as soon as no request of another thread is on its way."""
        self._is_over = True
        self._left(0)


class Crew:
    """Threads that do several requests at once; a program does not wait for them at its end."""

    def __init__(self, size: int) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._size = size
        for number in range(size):
            threading.Thread(target=self._serve, name=f"audit-{number}", daemon=True).start()

    def _serve(self) -> None:
        while (task := self._work.get()) is not None:
            task()

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Results of the function for all items, in order; the first error is raised at once."""
        done: queue.SimpleQueue[tuple[int, Any, BaseException | None]] = queue.SimpleQueue()
        is_over = threading.Event()

        def run(place: int, item: Item) -> None:
            if is_over.is_set():
                return
            try:
                done.put((place, function(item), None))
            except BaseException as error:
                done.put((place, None, error))

        for place, item in enumerate(items):
            self._work.put(partial(run, place, item))
        results: list[Any] = [None] * len(items)
        try:
            for _ in items:
                place, result, error = done.get()
                if error is not None:
                    raise error
                results[place] = result
        finally:
            is_over.set()  # what was not begun is not begun any more
        return results

    def dismiss(self) -> None:
        """Let the threads end after their current task."""
        for _ in range(self._size):
            self._work.put(None)
