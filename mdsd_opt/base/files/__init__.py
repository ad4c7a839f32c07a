"""What is read and written: whole files, arrays, logits and problems, however broken a file is."""

from mdsd_opt.base.files.whole_files import (
    atomic_write,
    check_writable,
    file_sha256,
    file_size,
    parse_json,
    read_bytes,
    read_json,
    unreadable,
)

__all__ = [
    "atomic_write",
    "check_writable",
    "file_sha256",
    "file_size",
    "parse_json",
    "read_bytes",
    "read_json",
    "unreadable",
]
