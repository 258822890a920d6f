"""Ours keep the contract that a user's own has to keep."""

from __future__ import annotations

from rookery.algorithms.impala import ImpalaConfig
from rookery.algorithms.ppo import PPOConfig
from rookery.testing.algorithm_suite import AlgorithmSuite


class TestPPO(AlgorithmSuite):
    def make_config(self) -> PPOConfig:
        return PPOConfig(learning_rate=0.01, minibatch_size=64, normalize_returns=True)


class TestImpala(AlgorithmSuite):
    def make_config(self) -> ImpalaConfig:
        return ImpalaConfig(learning_rate=0.02, minibatches=2, epochs=2)
