"""A spool in an object store that speaks S3, through s3fs.

An object comes to exist whole or not at all, so there are no temporary files here, and nothing to sync: the store has
it when it has answered. Every object is written by one PUT, never by a multipart upload, whose parts would stay behind
(and be paid for) when a worker is killed.

`put_if_absent` is a PUT with ``If-None-Match: *`` (S3 since 2024, MinIO, R2, Ceph and others). What can be answered:

=====================================  ================================================================================
200                                    created
412, ours is there                     created: the client had tried again after an answer was lost
412, another is there                  False
400, 403, 404, 405 and 501             nothing was written, and trying again will not help: SpoolError
200 without an ETag                    StoreDoubt: what answers is no S3 (a page of a proxy, say)
everything else, and no answer         StoreDoubt (409 too: another write or a deletion of this name was under way)
=====================================  ================================================================================

That a store without conditional writes ignores the header is what `Spool.prove` finds out.

Credentials, region and endpoint come from where s3fs and botocore look for them (``AWS_ACCESS_KEY_ID`` and its like,
``AWS_ENDPOINT_URL``, the files in ``~/.aws``, the role of the instance or pod), never from options: options sit in
plans. Listings are never cached: rule 3 of `spool.log` lives by seeing the newest marker.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import s3fs

from acquit.errors import SpoolError
from acquit.spark.spool.store import StoreDoubt

OBJECT_BYTES_MAX: Final = 5 * (1 << 30) - 1
"""Bytes of one PUT, at most (S3's limit is 5 GiB)."""
_CONNECT_TIMEOUT_S: Final = 10
_READ_TIMEOUT_S: Final = 60
_ATTEMPTS: Final = 3
_REFUSED: Final = frozenset({400, 401, 403, 404, 405, 411, 413, 501})
"""Answers that say for certain that a PUT wrote nothing and never will."""
_NO_S3: Final = "what answers there does not answer as S3 does; is the endpoint right (AWS_ENDPOINT_URL)?"


class ObjectStore:
    """A `SpoolStore` under ``s3://BUCKET/PATH``. The bucket must exist; nothing is asked before the first verb."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._bucket, _, path = self._url.removeprefix("s3://").partition("/")
        self._prefix = f"{path}/" if path else ""
        # Instances are shared in a process: tasks that follow each other use the same connections.
        self._files = s3fs.S3FileSystem(
            use_listings_cache=False,
            config_kwargs={
                "connect_timeout": _CONNECT_TIMEOUT_S,
                "read_timeout": _READ_TIMEOUT_S,
                "retries": {"total_max_attempts": _ATTEMPTS, "mode": "standard"},
            },
        )

    @property
    def place(self) -> str:
        return self._url

    def put_if_absent(self, name: str, data: bytes) -> bool:
        try:
            self._put(name, data, IfNoneMatch="*")
        except Exception as error:  # whatever the client raises, the write may have happened
            match _status(error):
                case 412:
                    return self._is_ours(name, data)
                case status if status in _REFUSED:
                    raise SpoolError(f"spool {self._url}: cannot write {name}: {_reason(error)}") from error
                case _:
                    raise StoreDoubt(
                        f"spool {self._url}: cannot tell whether {name} was created: {_reason(error)}"
                    ) from error
        return True

    def put(self, name: str, *pieces: bytes | memoryview, durable: bool = True) -> None:
        size = sum(map(len, pieces))
        if size > OBJECT_BYTES_MAX:
            raise SpoolError(
                f"spool {self._url}: {name} has {size} bytes, and an object holds {OBJECT_BYTES_MAX}: use a "
                "smaller maxBytesPerBatch, or more parts"
            )
        with self._explained("write", name):
            self._put(name, b"".join(pieces))

    def get(self, name: str) -> bytes | None:
        return self._read(name, requests_max=1)

    def view(self, name: str) -> memoryview | None:
        data = self._read(name, requests_max=8)
        return None if data is None else memoryview(data).toreadonly()

    def names(self, folder: str) -> list[str]:
        return list(self.sizes(folder))

    def sizes(self, folder: str) -> dict[str, int]:
        prefix = f"{self._prefix}{folder}/" if folder else self._prefix
        found: dict[str, int] = {}
        more: Mapping[str, str] = {}
        with self._explained("list", folder or "."):
            while True:
                page = self._files.call_s3("list_objects_v2", Bucket=self._bucket, Prefix=prefix, Delimiter="/", **more)
                if "IsTruncated" not in page:  # botocore makes an empty listing of any other page
                    raise OSError(_NO_S3)
                # The folder itself may be an object, made by a console.
                objects = page.get("Contents", ())
                found.update((one["Key"][len(prefix) :], one["Size"]) for one in objects if one["Key"] != prefix)
                if not page.get("IsTruncated"):
                    return found
                more = {"ContinuationToken": page["NextContinuationToken"]}

    def remove(self, name: str) -> None:
        with self._explained("remove", name):
            self._files.call_s3("delete_object", Bucket=self._bucket, Key=self._prefix + name)

    def sync(self, folder: str) -> None:
        """Do nothing: what can be read is durable."""

    def _put(self, name: str, data: bytes, **conditions: str) -> None:
        answer = self._files.call_s3(
            "put_object", Bucket=self._bucket, Key=self._prefix + name, Body=data, **conditions
        )
        if not answer.get("ETag"):
            raise OSError(_NO_S3)

    def _is_ours(self, name: str, data: bytes) -> bool:
        """True if our own first try made the name exist. What is written with nonces is never equal."""
        try:
            return self.get(name) == data
        except SpoolError as error:
            raise StoreDoubt(f"{error}; cannot tell whether {name} was created by us") from error

    def _read(self, name: str, *, requests_max: int) -> bytes | None:
        """Read in one request, or in ranges at the same time where that is allowed and the object is large."""
        with self._explained("read", name):
            try:
                return cast("bytes", self._files.cat_file(self._path(name), max_concurrency=requests_max))
            except FileNotFoundError as error:
                if _code(error) == "NoSuchBucket":
                    raise
                return None

    def _path(self, name: str) -> str:
        return f"{self._bucket}/{self._prefix}{name}"

    @contextlib.contextmanager
    def _explained(self, verb: str, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise SpoolError(f"spool {self._url}: cannot {verb} {name}: {_reason(error)}") from error


def _response(error: BaseException) -> Mapping[str, Any]:
    """Return the store's answer, if any: s3fs raises errors of Python's own, with the answer as their cause."""
    for one in (error, error.__cause__):
        found = getattr(one, "response", None)
        if isinstance(found, dict):
            return found
    return {}


def _status(error: BaseException) -> int | None:
    status = _response(error).get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status if isinstance(status, int) else None


def _code(error: BaseException) -> str:
    return str(_response(error).get("Error", {}).get("Code", ""))


def _reason(error: BaseException) -> str:
    """Return the reason in one line. Never holds a credential: it is the store's words, or the kind of failure."""
    code, status = _code(error), _status(error)
    said = " ".join(str(error).split()) or type(error).__name__
    return said if status is None else f"{said} (HTTP {status}, {code})"
