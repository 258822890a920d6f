"""What people type who learned it elsewhere, and the config key that it is called here.

    key_of("--lr") == "algorithm.learning_rate"

Every suggestion asks here first: between `lr` and `learning_rate` letters tell little.
"""

from __future__ import annotations

ARGUMENTS = {  # of `rookery.train`, and as options of the command line -> the key that each sets
    "algorithm": "algorithm.kind",
    "actors": "actors.count",
    "envs_per_actor": "actors.envs_per_actor",
    "steps": "stop.steps",
    "minutes": "stop.minutes",
    "until_return": "stop.until_return",
    "seed": "seed",
    "launcher": "launcher",
}
_KEYS = {  # key -> words of other libraries, papers and shells
    "environment.id": "env env_id gym_id env_name task",
    "algorithm.kind": "algo agent trainer",
    "algorithm.learning_rate": "lr alpha step_size",
    "algorithm.gamma": "discount discount_factor",
    "algorithm.gae_lambda": "gae lambda lam td_lambda",
    "algorithm.clip": "clip_range clip_coef clip_param clip_epsilon eps_clip clip_ratio",
    "algorithm.epochs": "n_epochs num_epochs update_epochs num_sgd_iter ppo_epochs",
    "algorithm.minibatch_size": "batch_size minibatch mini_batch_size sgd_minibatch_size",
    "algorithm.minibatches": "num_minibatches n_minibatch",
    "algorithm.entropy_coef": "entropy ent_coef entropy_coeff entropy_cost entropy_bonus",
    "algorithm.value_coef": "vf_coef value_loss_coef vf_loss_coeff baseline_cost",
    "algorithm.max_grad_norm": "grad_clip clip_grad gradient_clip grad_norm",
    "algorithm.kl_stop": "target_kl kl_target",
    "algorithm.normalize_returns": "normalize_reward normalize_rewards norm_reward reward_scale",
    "algorithm.schedule": "anneal_lr lr_schedule",
    "network.hidden": "hidden_size hidden_sizes hidden_dim net_arch layers fcnet_hiddens",
    "network.normalize_observations": "normalize_obs norm_obs obs_norm observation_filter",
    "network.initial_log_std": "log_std log_std_init",
    "actors.count": "workers num_workers n_workers num_actors num_env_runners processes",
    "actors.envs_per_actor": "envs num_envs n_envs num_envs_per_worker num_envs_per_env_runner",
    "actors.rollout_steps": "n_steps num_steps rollout_length unroll_length fragment_length",
    "learner.device": "device gpu cuda num_gpus accelerator",
    "learner.threads": "num_threads torch_threads",
    "stop.steps": "timesteps total_timesteps total_steps max_steps num_timesteps frames",
    "stop.minutes": "time max_time time_limit timeout",
    "stop.until_return": "target target_return target_reward reward_threshold goal",
    "checkpoint.interval_s": "save_interval save_freq checkpoint_freq checkpoint_interval",
    "seed": "random_seed rng_seed",
}
_MEANT = {word: key for key, words in _KEYS.items() for word in words.split()}


def bare(name: str) -> str:
    """An option's or a key's own word: `--num-envs` and `actors.num_envs` are both num_envs."""
    return name.lstrip("-").rpartition(".")[2].replace("-", "_").lower()


def key_of(name: str) -> str | None:
    """The config key that somebody means; None for a word that is not known from elsewhere."""
    return _MEANT.get(bare(name))
