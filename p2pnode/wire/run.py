"""What a run is (its manifest), and who may take part (its key)."""

from __future__ import annotations

import base64
import hmac
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from .errors import PeerMisbehaved, UsageError
from .ids import Identity, PeerId, RunId, sha256, signed_by
from .messages import HINT_BYTES, PROTOCOL, Name
from .status import MAX_JOBS
from .types import JobName, decoded

KEY_BYTES = 20
_RUN = re.compile(r"[a-z2-7]{26}")
_KEY = re.compile(r"[a-z2-7]{32}")


MAX_PAIRS = 32  # options of a task, and settings of a policy
MAX_MODERATORS = 16
GENESIS = "genesis"  # what a run's first circle, which has no name of its own, is called
Aim = Literal["shared", "own"]  # one good model for all, or each community good at its own kind of data


class JobEntry(msgspec.Struct, frozen=True):
    """One job of a run. Only its kind knows what is in the plan: all that members must agree on to work together."""

    name: JobName
    kind: Name
    plan: dict[str, Any]


class Manifest(msgspec.Struct, frozen=True):
    """All that a volunteer must know about a run besides an address; its hash is the run id."""

    name: Name
    founder: str
    created: float
    nonce: bytes
    protocol: int = PROTOCOL
    private: bool = False
    jobs: Annotated[tuple[JobEntry, ...], msgspec.Meta(max_length=MAX_JOBS)] = ()  # none: members only meet
    moderators: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_MODERATORS)] = ()  # may exclude authors alone


class SignedManifest(msgspec.Struct, frozen=True, array_like=True):
    content: bytes
    signature: bytes


_manifest_decoder = msgspec.msgpack.Decoder(Manifest)
_signed_decoder = msgspec.msgpack.Decoder(SignedManifest)


def sign_manifest(identity: Identity, manifest: Manifest) -> bytes:
    content = msgspec.msgpack.encode(manifest)
    return msgspec.msgpack.encode(SignedManifest(content, identity.sign(content)))


def read_manifest(signed: bytes) -> Manifest:
    """The manifest in `signed`, its founder's signature checked; PeerMisbehaved otherwise."""
    try:
        envelope = decoded(_signed_decoder, signed, "manifest")
        manifest = decoded(_manifest_decoder, envelope.content, "manifest")
    except ValueError as error:
        raise PeerMisbehaved(str(error)) from None
    if not signed_by(manifest.founder, envelope.content, envelope.signature):
        raise PeerMisbehaved("the manifest is not signed by the founder it names")
    if len({job.name for job in manifest.jobs}) < len(manifest.jobs):
        raise PeerMisbehaved("two jobs of the manifest have one name")
    return manifest


def run_id(signed: bytes) -> RunId:
    """The name of a run: the hash of its signed manifest, 128 bits of it."""
    return RunId(_base32(sha256(signed)[:16]))


@dataclass(frozen=True)
class RunAccess:
    """A run's id and, for a private run, its key: what an invite carries and `--run` takes."""

    run: RunId
    key: bytes = b""

    @classmethod
    def parse(cls, text: str) -> RunAccess:
        """Read `RUN` or `RUN.KEY`; UsageError says what one looks like."""
        run, dot, key = text.strip().partition(".")
        if not _RUN.fullmatch(run) or (dot and not _KEY.fullmatch(key)):
            raise UsageError(
                f"--run {text[:60]!r} is not a run id: it has 26 characters a-z and 2-7, and for a private run "
                "a dot and 32 more; or join with the code of an invite"
            )
        return cls(RunId(run), base64.b32decode(key.upper()) if dot else b"")

    @property
    def private(self) -> bool:
        return bool(self.key)

    @property
    def tag(self) -> str:
        """The name under which members meet in the DHT; for a private run it does not give the run id away."""
        if not self.private:
            return self.run
        return _base32(hmac.digest(self.key, b"p2pnode tag " + self.run.encode(), "sha256")[:16])

    def proof(self, speaker: PeerId, listener: PeerId) -> bytes:
        """Shows `listener` that `speaker` has the key. Bound to both ends, which the transport authenticates."""
        if not self.private:
            return b""
        words = f"p2pnode proof {self.run} {speaker} {listener}".encode()
        return hmac.digest(self.key, words, "sha256")

    def hint(self, speaker: PeerId, listener: PeerId) -> bytes:
        """Lets a listener that knows the run's id recognise the run of `speaker`; to others it says nothing."""
        return sha256(f"p2pnode run hint {self.run} {speaker} {listener}".encode())[:HINT_BYTES]

    def admits(self, proof: bytes, speaker: PeerId, listener: PeerId) -> bool:
        return hmac.compare_digest(proof, self.proof(speaker, listener))

    def __str__(self) -> str:
        return f"{self.run}.{_base32(self.key)}" if self.private else self.run


def access_of(run: bytes, key: bytes) -> RunAccess:
    """The access to a run from the 16 bytes of its id and its key; b"" for a run that is not private."""
    return RunAccess(RunId(_base32(run)), key)


def run_bytes(run: RunId) -> bytes:
    """The 16 bytes of a run id."""
    return base64.b32decode(f"{run.upper()}======")


def _base32(raw: bytes) -> str:
    return base64.b32encode(raw).decode().lower().rstrip("=")
