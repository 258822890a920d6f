"""PettingZoo and MPE2 behind the contract of `rookery.envs`: several seats, in turns or at once."""
