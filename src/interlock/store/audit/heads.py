"""The signed heads of all chains, and the register that states which heads exist.

1. A head is one row per writer. It is signed when it is inserted and at each change.
2. The register is one row, with the number of heads and the sum of their keyed hashes. Each change
   of a head changes the register in the same transaction, so a head that was removed, added, or
   replaced by an older one no longer fits the register.
3. A register that was tampered with stays broken: its sum is carried on, but not signed again.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import NamedTuple, get_type_hints

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from interlock.auth.gateway_key import GatewayKey, TrailKey
from interlock.errors import AuditUnavailable
from interlock.store.audit.names import Pseudonyms
from interlock.store.audit.postgres_tables import AuditTables
from interlock.store.audit.records import invalid_columns, is_valid
from interlock.store.database.claims import Claim, ClaimFailed, Row, Statement

FIRST_HASH = bytes(32)  # the previous hash of a chain's first record
_ATTEMPTS = 100  # an attempt fails only if another process has changed a head meanwhile
_MODULUS = 2**256  # the sum of hashes of 32 bytes is kept in 32 bytes

_encode = msgspec.json.Encoder().encode


def chain_hash(
    previous: bytes, seq: int, columns: tuple[object, ...], body: str, key: bytes = b""
) -> bytes:
    """Return the keyed hash of a record: HMAC-SHA256.

    Args:
        previous: The hash of the record before; `FIRST_HASH` for the first record of a chain.
        seq: The record's number, from 1, hashed as 8 bytes, big-endian.
        columns: The values of the columns from `at` to `reason`, in the table's order, hashed as a
            JSON array. Each name of a person is replaced by its pseudonym: see `names`.
        body: The value of the column `body`, in which names are replaced as well.
        key: The key of the trail; see `chain_key`.
    """
    message = previous + seq.to_bytes(8, "big") + _encode(columns) + body.encode()
    return hmac.digest(key, message, "sha256")


def chain_key(key: TrailKey) -> bytes:
    """Return the key of the records' hashes."""
    return key.derive("audit chain")


class ChainHash:
    """The two hashes of HMAC-SHA256 after their key, to hash many records in half of the time.

    The code of `chain_hash` is inlined where these are copied, because a function call for each
    record would take longer than the rest.
    """

    def __init__(self, key: TrailKey) -> None:
        self.key = chain_key(key)
        self.pseudonyms = Pseudonyms(key)
        block = self.key.ljust(64, b"\0")
        self.inner = sha256(bytes(each ^ 0x36 for each in block))
        self.outer = sha256(bytes(each ^ 0x5C for each in block))

    def follows(self, seq: int, hash: bytes, row: Row) -> bool:
        """Return whether a writer with the key added a row after the record of this number.

        Args:
            seq: The number of the record before; 0 for none.
            hash: The hash of the record before.
            row: A row without the column `writer`.
        """
        if invalid_columns(("", *row)) or row[0] != seq + 1:
            return False
        _, *columns, body, expected = row
        covered = self.pseudonyms.covered(columns, body)
        return hmac.compare_digest(expected, chain_hash(hash, row[0], *covered, self.key))


class StoredHead(Struct, frozen=True):
    """A row of the table `audit_heads`."""

    writer: str
    started: int
    ended: int | None
    host: str
    seq: int
    hash: bytes
    signature: bytes | None
    signed_at: int | None
    open_seq: int | None
    base_seq: int
    base_hash: bytes | None
    base_signature: bytes | None

    def invalid_columns(self) -> list[str]:
        columns = _TYPES.items()
        return [name for name, kind in columns if not is_valid(getattr(self, name), kind)]

    def signed(self, key: GatewayKey) -> StoredHead:
        return msgspec.structs.replace(self, signature=key.sign(self._message()))

    def purged(self, key: GatewayKey, seq: int, hash: bytes) -> StoredHead:
        """Return the head of a chain whose records up to `seq` are deleted."""
        signature = key.sign(_base_message(self.writer, seq, hash))
        return msgspec.structs.replace(self, base_seq=seq, base_hash=hash, base_signature=signature)

    def under(self, old: GatewayKey, new: GatewayKey) -> StoredHead:
        """Return the head signed with another key, unless the old key has not signed it."""
        if self.invalid_columns() or self.problem(old):
            return self
        head = self.signed(new)
        return head.purged(new, head.base_seq, head.base_hash) if head.base_hash else head

    def problem(self, key: GatewayKey) -> str:
        """Return what is wrong with the signatures; "" if nothing is."""
        if self.base_seq or self.base_hash is not None:
            message = _base_message(self.writer, self.base_seq, self.base_hash or b"")
            if not key.has_signed(message, self.base_signature or b""):
                return "the purge up to here is not signed by this key"
        if self.signature is None:
            return "the head has no signature"
        if not key.has_signed(self._message(), self.signature):
            return "the head is not signed by this key"
        return ""

    def _message(self) -> bytes:
        """Return the message that `signature` signs: all columns that it and the purge leave."""
        *columns, _, signed_at, open_seq, _, _, _ = astuple(self)
        columns[5] = self.hash.hex()
        return _encode(("interlock head", *columns, signed_at, open_seq))


_TYPES = get_type_hints(StoredHead)


class Register(NamedTuple):
    """The row of the table `audit_register`, without its id."""

    version: int  # the number of changes
    heads: int  # the number of heads
    sum: bytes  # of the heads' keyed hashes, 32 bytes
    mac: bytes  # the keyed hash of the columns above; empty if the register was tampered with

    def is_signed(self, key: GatewayKey) -> bool:
        return hmac.compare_digest(self.mac, _mac(key, self.version, self.heads, self.sum))

    def fits(self, key: GatewayKey, heads: Iterable[StoredHead]) -> bool:
        """Return whether these are all heads, each in its newest state."""
        total = sum(_term(key, head) for head in heads) % _MODULUS
        return self.sum == total.to_bytes(32, "big")

    def changed(
        self, key: GatewayKey, before: StoredHead | None, after: StoredHead | None
    ) -> Register:
        added = (_term(key, after) if after else 0) - (_term(key, before) if before else 0)
        total = (int.from_bytes(self.sum, "big") + added) % _MODULUS
        columns = (
            self.version + 1,
            self.heads + (after is not None) - (before is not None),
            total.to_bytes(32, "big"),
        )
        is_whole = self == EMPTY or self.is_signed(key)
        return Register(*columns, _mac(key, *columns) if is_whole else b"")

    def under(
        self,
        old: GatewayKey,
        before: Iterable[StoredHead],
        new: GatewayKey,
        after: list[StoredHead],
    ) -> Register:
        """Return the register of the same heads, signed with another key.

        If it was tampered with, it is not signed again.
        """
        total = sum(_term(new, head) for head in after) % _MODULUS
        columns = (self.version + 1, self.heads, total.to_bytes(32, "big"))
        is_whole = self.is_signed(old) and self.fits(old, before)
        return Register(*columns, _mac(new, *columns) if is_whole else b"")


EMPTY = Register(0, 0, bytes(32), b"")

_HEAD_COLUMNS = StoredHead.__struct_fields__
SELECT_HEADS = f"SELECT {', '.join(_HEAD_COLUMNS)} FROM audit_heads"  # noqa: S608
SELECT_REGISTER = f"SELECT {', '.join(Register._fields)} FROM audit_register"  # noqa: S608
_SELECT_BOTH = (
    f"SELECT {', '.join(f'r.{name}' for name in Register._fields)},"  # noqa: S608
    f" {', '.join(f'h.{name}' for name in _HEAD_COLUMNS)} FROM (SELECT 1) AS one"
    " LEFT JOIN audit_register AS r ON 1 = 1 LEFT JOIN audit_heads AS h ON h.writer = ?"
)
_INSERT_REGISTER = (
    "INSERT INTO audit_register (id, version, heads, sum, mac) VALUES (1, ?, ?, ?, ?)"
    " ON CONFLICT DO NOTHING"
)
_CHANGE_REGISTER = (
    "UPDATE audit_register SET version = ?, heads = ?, sum = ?, mac = ?"
    " WHERE id = 1 AND version = ?"
)
_INSERT_HEAD = (
    f"INSERT INTO audit_heads ({', '.join(_HEAD_COLUMNS)})"  # noqa: S608
    f" VALUES ({', '.join('?' * len(_HEAD_COLUMNS))})"
)
_CHANGE_HEAD = (
    f"UPDATE audit_heads SET {', '.join(f'{name} = ?' for name in _HEAD_COLUMNS[1:])}"  # noqa: S608
    " WHERE writer = ?"
)
_DELETE_HEAD = "DELETE FROM audit_heads WHERE writer = ?"


async def change_head(
    tables: AuditTables,
    key: GatewayKey,
    writer: str,
    change: Callable[[StoredHead | None], StoredHead | None],
    *others: Statement,
    claim: Claim | None = None,
) -> None:
    """Change, insert or delete the head of a chain, together with the register.

    Args:
        key: The key that signs the register; `change` signs the head.
        writer: The writer whose head is changed.
        change: Returns the new head for the stored one; None stands for no head.
        others: Further statements for the same transaction.
        claim: A claim that must succeed in the same transaction; None if there is none.

    Raises:
        AuditUnavailable: The database does not answer.
        ClaimFailed: The claim failed, so nothing was changed.
    """
    for _ in range(_ATTEMPTS):
        (row,) = await tables.fetch(_SELECT_BOTH, writer)
        split = len(Register._fields)
        register = EMPTY if row[0] is None else Register(*row[:split])
        before = None if row[split] is None else StoredHead(*row[split:])
        if before is not None and before.invalid_columns():
            return  # another program changed it, which `verify` reports
        after = change(before)
        if after == before and not others:
            return
        new = register.changed(key, before, after)
        step = (
            Claim(_INSERT_REGISTER, tuple(new))
            if row[0] is None
            else Claim(_CHANGE_REGISTER, (*new, register.version))
        )
        claims = [step] if claim is None else [claim, step]
        try:
            await tables.write(*claims, *others, *_head_statement(before, after))
        except ClaimFailed:
            if claim is not None and claim.has_failed:
                raise
            continue
        return
    raise AuditUnavailable("the register of the audit trail is changed too often: try again")


def _head_statement(before: StoredHead | None, after: StoredHead | None) -> list[Statement]:
    if after is None:
        return [] if before is None else [(_DELETE_HEAD, [(before.writer,)])]
    row: Row = astuple(after)
    if before is None:
        return [(_INSERT_HEAD, [row])]
    return [(_CHANGE_HEAD, [(*row[1:], after.writer)])]


def _base_message(writer: str, seq: int, hash: bytes) -> bytes:
    return _encode(("interlock base", writer, seq, hash.hex()))


def _term(key: GatewayKey, head: StoredHead) -> int:
    digest = hmac.digest(key.derive("audit register"), _encode(astuple(head)), "sha256")
    return int.from_bytes(digest, "big")


def _mac(key: GatewayKey, version: int, heads: int, total: bytes) -> bytes:
    message = _encode((version, heads, total))
    return hmac.digest(key.derive("audit register"), b"register" + message, "sha256")
