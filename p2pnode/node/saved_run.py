"""How a node gets its run: founds one, goes on with the saved one, or learns it from a bootstrap."""

from __future__ import annotations

import random
from dataclasses import dataclass

import msgspec

from ..runtime.calls import Calls
from ..storage.files import Storage
from ..wire.addresses import Address
from ..wire.errors import NetworkDown, PeerError, PeerMisbehaved, UsageError
from ..wire.ids import Identity, PeerId
from ..wire.messages import PROTOCOL, GetManifest, ManifestIs, Welcome
from ..wire.run import KEY_BYTES, Manifest, RunAccess, TrainPlan, read_manifest, run_id, sign_manifest

STATE_FILE = "run.json"


@dataclass(frozen=True)
class Run:
    """A run this node takes part in."""

    access: RunAccess
    signed_manifest: bytes

    @property
    def manifest(self) -> Manifest:
        return read_manifest(self.signed_manifest)


class SavedRun(msgspec.Struct, frozen=True):
    """What the data directory remembers, so that running the same command again goes on."""

    access: str
    bootstrap: tuple[str, ...] = ()


def found_run(
    identity: Identity, name: str, private: bool, now: float, rng: random.Random, plan: TrainPlan | None = None
) -> Run:
    manifest = Manifest(name, identity.peer_id, now, rng.randbytes(16), private=private, plan=plan)
    signed = sign_manifest(identity, manifest)
    key = rng.randbytes(KEY_BYTES) if private else b""
    return Run(RunAccess(run_id(signed), key), signed)


def check_protocol(manifest: Manifest) -> None:
    """UsageError for a run of another protocol: what its members signed and keep on disk has another form."""
    if manifest.protocol != PROTOCOL:
        raise UsageError(
            f"the run {manifest.name!r} was founded for protocol {manifest.protocol}, and this version of p2pnode "
            f"speaks {PROTOCOL}; go on with the version that founded it, or --found a new run"
        )


def save_run(storage: Storage, run: Run, bootstrap: tuple[str, ...]) -> None:
    storage.write(f"runs/{run.access.run}/manifest", run.signed_manifest)
    storage.write(STATE_FILE, msgspec.json.encode(SavedRun(str(run.access), bootstrap)))


def load_saved(storage: Storage) -> SavedRun | None:
    """The last run, or None; a damaged note counts as none (the manifest is asked of peers again)."""
    data = storage.read(STATE_FILE)
    if data is None:
        return None
    try:
        saved = msgspec.json.decode(data, type=SavedRun)
        RunAccess.parse(saved.access)
    except (msgspec.DecodeError, UnicodeDecodeError, UsageError):
        return None
    return saved


def load_manifest(storage: Storage, access: RunAccess) -> bytes | None:
    """The saved manifest, if it is whole."""
    signed = storage.read(f"runs/{access.run}/manifest")
    return signed if signed is not None and run_id(signed) == access.run else None


def last_run(storage: Storage) -> tuple[RunAccess | None, Manifest | None]:
    """The last run and its manifest, each None where it is not there or not whole."""
    saved = load_saved(storage)
    access = None if saved is None else RunAccess.parse(saved.access)
    signed = None if access is None else load_manifest(storage, access)
    try:
        return access, None if signed is None else read_manifest(signed)
    except PeerMisbehaved:
        return access, None


def adopted_access(address: Address, welcome: Welcome) -> RunAccess:
    """The run a bootstrap is in, for a node that was given no --run."""
    if welcome.private:
        raise UsageError(f"the run at {address} is private; paste the founder's whole invite: its --run has the key")
    if not welcome.run:
        raise UsageError(
            f"{address} is a meeting point for any run; "
            "add --run from the founder's invite, or --found to found one there"
        )
    return RunAccess.parse(welcome.run)


async def ask_manifest(calls: Calls, own: PeerId, peer: PeerId, access: RunAccess) -> bytes:
    """The run's signed manifest from one member, checked against the run id."""
    answer = await calls.ask(peer, GetManifest(access.tag, access.proof(own, peer)), ManifestIs)
    manifest = read_manifest(answer.manifest)
    if run_id(answer.manifest) != access.run:
        raise PeerMisbehaved(f"sent the manifest of another run ({manifest.name!r})")
    return answer.manifest


async def manifest_from_any(calls: Calls, own: PeerId, peers: list[PeerId], access: RunAccess) -> bytes | None:
    for peer in peers:
        try:
            return await ask_manifest(calls, own, peer, access)
        except (PeerError, NetworkDown):
            continue
    return None
