"""Gymnasium environments behind the contract of `rookery.envs`: one seat, many slots."""
