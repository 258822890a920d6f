"""Weights on the wire: a typed header, and the arrays as safetensors."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import safetensors
import safetensors.numpy

from rookery.errors import MessageError
from rookery.messages.frame import WEIGHTS, Arrays, encode_header, frame, open_frame
from rookery.messages.ids import WeightsVersion


class WeightsHeader(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    policy: str
    version: WeightsVersion
    env_steps: int


@dataclass(frozen=True, slots=True)
class Weights:
    """Everything that a policy needs to act: parameters and normalisation statistics."""

    header: WeightsHeader
    arrays: Arrays


class _WeightsFrame(msgspec.Struct, frozen=True, kw_only=True):
    weights: WeightsHeader


_weights_decoder = msgspec.msgpack.Decoder(_WeightsFrame)


def encode_weights(weights: Weights) -> bytes:
    header = encode_header(_WeightsFrame(weights=weights.header))
    return frame(WEIGHTS, len(header), [header, safetensors.numpy.save(weights.arrays)])


def decode_weights(payload: bytes) -> Weights:
    header, offset = open_frame(payload, WEIGHTS, _weights_decoder)
    return Weights(header.weights, load_safetensors(payload[offset:]))


def load_safetensors(body: bytes) -> Arrays:
    """Parse safetensors bytes; anything else is a MessageError."""
    try:
        return safetensors.numpy.load(body)
    except (safetensors.SafetensorError, KeyError, ValueError, TypeError) as error:
        raise MessageError(f"not valid safetensors: {error}") from error
