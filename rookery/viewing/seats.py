"""Who sits where in a game that is watched, and with which weights."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.algorithms.networks import Network
from rookery.bus import Bus
from rookery.checkpoints.checkpoint import (
    Checkpoint,
    acting_arrays,
    checkpoint_name,
    critic_arrays,
    load_checkpoint,
)
from rookery.checkpoints.policies import PolicyManifest, load_policy, newest_manifest_of, newest_of
from rookery.checkpoints.store import open_store
from rookery.config.models import RunConfig
from rookery.control.allow import player_refused
from rookery.control.context import allowed_files
from rookery.control.home import Home
from rookery.control.run_state import RunState
from rookery.errors import Forbidden, InputError, MessageError, UnknownName
from rookery.evaluation.episodes import usual_player
from rookery.messages import CRITIC_KEY, MODEL_UPDATES
from rookery.messages.frame import Arrays
from rookery.messages.weights import Weights, decode_weights
from rookery.players.factory import PlayerFactory, close_members
from rookery.players.member import Member, PolicyWeights
from rookery.players.names import PlayerName
from rookery.players.seat_map import Seating
from rookery.spaces import SeatSpec
from rookery.viewing import NEWEST, Watch
from rookery.worker.policies import networks

OWN = "policy"  # in `Watch.players`: the policy of the run that learns in that seat


@dataclass(frozen=True)
class _Weights:
    name: str
    env_steps: int
    arrays: Arrays


class Sitting:
    """Seats players as a `Watch` asks for, anew for each episode: newer weights come along."""

    def __init__(self, home: Home, state: RunState, watch: Watch) -> None:
        self._home, self._state, self._watch = home, state, watch
        self._files = allowed_files(home, state)
        self.config: RunConfig = self._files.config
        self.spec = self._files.spec
        self._seating = Seating.of(self.config, self.spec)
        for seat, text in watch.players.items():
            if seat not in self.spec.seats:
                raise UnknownName("seat", seat, self.spec.seats)
            if text != OWN and (why := player_refused(text, home.settings.allow, here=True)):
                raise Forbidden(why)
        self._fixed: dict[str, Member] = {}  # by seat: those whose weights never change
        self._factory = PlayerFactory(self.spec.id, self._load, greedy=not watch.sampled)
        self._bus: Bus | None = None
        self.weights, self.env_steps = watch.weights, 0  # of the episode

    def seat_all(self) -> dict[str, Member]:
        """Everyone, for an episode that begins."""
        seats = enumerate(self.spec.seats.items())
        return {seat: self._seat(number, seat, spec) for number, (seat, spec) in seats}

    def choices(self) -> list[str]:
        """What `weights` could be: newest first."""
        checkpoints = open_store(self._files.checkpoints).names()
        found = [NEWEST, *reversed(checkpoints)]
        if checkpoints and self._seating.has_league:
            league = newest_manifest_of(self._files).league
            pools = [(p, league.league.pool(p)) for p in self.config.learning] if league else []
            found += [f"{p}@{each.number}" for p, pool in pools for each in reversed(pool)]
        return found

    def close(self) -> None:
        close_members(self._fixed.values())
        if self._bus is not None:
            self._bus.close()

    # --- one seat --------------------------------------------------------------------------------

    def _seat(self, number: int, seat: str, spec: SeatSpec) -> Member:
        if seat in self._fixed:
            return self._fixed[seat]
        text = self._watch.players.get(seat, OWN)
        if text == OWN:
            text = usual_player(self._seating, number, seat)
        found = self._factory.member(text, seat, spec)
        if not self._is_own(PlayerName.parse(text)):
            self._fixed[seat] = found
        return found

    def _is_own(self, name: PlayerName) -> bool:
        return name.kind == "policy" and name.name in self._seating.spaces

    def _load(self, name: PlayerName, seat: str, spec: SeatSpec) -> PolicyWeights:
        """A policy of this run as the watch wants it; else a version of one, or of another run."""
        if self._is_own(name):
            network = networks(self.config, self._seating)[name.name]
            weights = self._find(name.name, network)
            self.weights, self.env_steps = weights.name, weights.env_steps  # the last seat's
            return PolicyWeights(weights.name, network, weights.arrays)
        run, number = name.run
        if run in self._seating.spaces:
            frozen = load_policy(self._files, number, run)
        else:
            frozen = load_policy(self._home.find_files(run), number)
        return frozen.for_seat(seat, spec, name.name)

    # --- the run's own weights -------------------------------------------------------------------

    def _find(self, policy: str, network: Network) -> _Weights:
        wanted, run = self._watch.weights, self._state.id
        owner, number = PlayerName.parse(wanted).snapshot if "@" in wanted else ("", 0)
        if owner and owner not in (run, *self._seating.spaces):
            raise InputError(f"weights {wanted} are of another run: name a version of {run}")
        if owner in (run, policy):
            frozen = load_policy(self._files, number, policy)
            return _Weights(f"{policy}@{number}", frozen.env_steps, frozen.arrays)
        if owner or wanted == NEWEST:  # the other policies of a snapshot's run are as they are now
            return self._newest(policy, network)
        store = open_store(self._files.checkpoints)
        if wanted not in (known := store.names()):
            raise UnknownName("checkpoint", wanted, known, "the oldest ones are removed in time")
        return _kept(load_checkpoint(store, wanted, PolicyManifest), policy, network)

    def _newest(self, policy: str, network: Network) -> _Weights:
        """What the learner published last, with the critic of at most a second before; the newest
        checkpoint where that is as new, as it is after the end: its critic is of the same update.
        """
        if self._bus is None:
            self._bus = self._home.read_run_bus(self._state)
        found = self._published(policy)
        kept = open_store(self._files.checkpoints).names()
        if found is None or (kept and kept[-1] >= checkpoint_name(found.header.version)):
            return _kept(newest_of(self._files), policy, network)
        critic = self._published(CRITIC_KEY + policy)
        header, arrays = found.header, {**found.arrays, **(critic.arrays if critic else {})}
        return _Weights(f"{policy}@{header.version.number}", header.env_steps, arrays)

    def _published(self, key: str) -> Weights | None:
        record = self._bus.newest(MODEL_UPDATES, key) if self._bus is not None else None
        try:
            return decode_weights(record.payload) if record is not None else None
        except MessageError:
            return None  # damaged: the newest checkpoint will do


def _kept(checkpoint: Checkpoint[PolicyManifest], policy: str, network: Network) -> _Weights:
    acting = acting_arrays(network, checkpoint.arrays, policy)
    critic = critic_arrays(network, checkpoint.arrays, policy)
    manifest = checkpoint.manifest
    return _Weights(f"{policy}@{manifest.number}", manifest.ledger.trained, {**acting, **critic})
