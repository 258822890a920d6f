"""The update: every gradient step of one batch, of one policy or of several with one encoder.

It is one pure function of (state, batches, live hyperparameters), compiled once: what the
objectives prepare, a scan over the gradient steps, and the running statistics. With an encoder each
gradient step takes a minibatch of every policy and lowers the sum of their losses: the encoder's
gradient is the sum of theirs, each policy's own parameters see its own loss alone.

Parameters are stepped in parts: the encoder and each policy's own. One norm clips the gradient of
all parts by the leader's `max_grad_norm`; a part has its own moments and steps with its policy's
learning rate, the encoder's with the leader's. The deviation of continuous actions steps faster
than the rest: it decides how far what is played lags behind what is known.

In a crew each learner computes all this on its own lanes. A loss is a mean over rows, so the whole
minibatch's is the sum of the learners' own, each by its share of the rows: gradients and metrics
are scaled so and summed, in one message a gradient step.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from rookery.algorithms.batch import Batch
from rookery.algorithms.networks import Params
from rookery.algorithms.objective import Objective, Prepared
from rookery.algorithms.optimizer import adam
from rookery.algorithms.statistics import (
    explained_variance,
    highest,
    in_crew,
    masked_mean,
    total,
    update_stats,
)
from rookery.algorithms.train_state import (
    EncoderState,
    GroupState,
    Hyper,
    Metrics,
    PolicyUpdate,
    TrainState,
    Update,
)

DEVIATION_PACE = 5.0  # so that sampled play keeps up with greedy play
_NO_MEANS = ("ratio_error",)  # metrics that are something else: the highest of all rows


def make_policy_update(objective: Objective) -> PolicyUpdate:
    """The update of a policy by itself."""
    update = make_update([objective])

    def alone(state: TrainState, batch: Batch, hyper: Hyper) -> tuple[TrainState, Metrics]:
        group, (metrics,) = update(GroupState(None, (state,)), (batch,), (hyper,))
        return group.policies[0], metrics

    return alone


def group_of_one(update: PolicyUpdate) -> Update:
    """A policy's own update as that of a group."""

    def together(
        state: GroupState, batches: tuple[Batch, ...], hypers: tuple[Hyper, ...]
    ) -> tuple[GroupState, tuple[Metrics, ...]]:
        policy, metrics = update(state.policies[0], batches[0], hypers[0])
        return GroupState(None, (policy,)), (metrics,)

    return together


def if_finite(update: Update) -> Update:
    """The update, but that it changes nothing where something would not be finite any more.

    It is asked on the device, so that no such weights are ever seen by anyone: the metric `skipped`
    is 1 where it was so.
    """

    def guarded(
        state: GroupState, batches: tuple[Batch, ...], hypers: tuple[Hyper, ...]
    ) -> tuple[GroupState, tuple[Metrics, ...]]:
        new, metrics = update(state, batches, hypers)
        leaves = [leaf for leaf in jax.tree.leaves(new) if jnp.issubdtype(leaf.dtype, jnp.floating)]
        finite = functools.reduce(operator.and_, [jnp.isfinite(leaf).all() for leaf in leaves])
        skipped = 1.0 - finite.astype(jnp.float32)
        return _where(finite, new, state), tuple({**each, "skipped": skipped} for each in metrics)

    return guarded


def make_update(objectives: Sequence[Objective], trains_encoder: Sequence[bool] = ()) -> Update:
    """The update of these policies; `trains_encoder` is given, one each, if they have an encoder.

    A policy without a row to train on is left exactly as it was if it has an encoder; one by itself
    need not be updated at all, so nothing is spent on the question.
    """
    members = range(len(objectives))
    leader = next((i for i, trains in enumerate(trains_encoder) if trains), 0)
    (kl_stop,) = {objective.kl_stop for objective in objectives}
    assert kl_stop is None or len(objectives) == 1, "one policy's KL may not stop another"
    advance = _always if kl_stop is None else _until(kl_stop)

    def update(
        state: GroupState, batches: tuple[Batch, ...], hypers: tuple[Hyper, ...]
    ) -> tuple[GroupState, tuple[Metrics, ...]]:
        prepared = tuple(
            objectives[i].prepare(
                state.params(i),
                state.policies[i].stats,
                state.policies[i].extra,
                batches[i],
                hypers[i],
            )
            for i in members
        )
        parts, unravel = _flatten(state)
        rates = [
            hyper["learning_rate"] * _pace(policy.params)
            for hyper, policy in zip(hypers, state.policies, strict=True)
        ]
        moving = None
        if trains_encoder:
            rates.append(rates[leader])
            moving = _moving(prepared, trains_encoder)

        orders = tuple(batch.order for batch in batches)
        shares = _shares(objectives, prepared, orders) if in_crew() else None

        def joint_loss(flats: list[Any], minis: list[Any], share: Any) -> tuple[Any, list[Metrics]]:
            losses, metrics = [], []
            for i in members:
                params = unravel[i](flats[i])
                if trains_encoder:
                    seen = flats[-1] if trains_encoder[i] else jax.lax.stop_gradient(flats[-1])
                    params = {**unravel[-1](seen), **params}
                found = objectives[i].loss(params, minis[i], state.policies[i].stats, hypers[i])
                losses.append(found[0] if share is None else found[0] * share[i])
                metrics.append(found[1])
            return _sum(losses), metrics

        def learn(parts: list[Any], taken: Any) -> tuple[list[Any], list[Metrics]]:
            flats, (minis, share) = [flat for flat, _ in parts], taken
            gradients, metrics = jax.grad(joint_loss, has_aux=True)(flats, minis, share)
            if share is not None:
                gradients, metrics = _put_together(gradients, metrics, share)
            norm = jnp.sqrt(_sum([jnp.square(gradient).sum() for gradient in gradients]))
            shrink = _shrink(hypers[leader], norm)
            stepped: list[Any] = [
                adam(flat, moments, gradient * shrink, rate)
                for (flat, moments), gradient, rate in zip(parts, gradients, rates, strict=True)
            ]
            if moving is not None:
                stepped = [_where(*choice) for choice in zip(moving, stepped, parts, strict=True)]
            return stepped, [{**metric, "grad_norm": norm} for metric in metrics]

        def step(carry: Any, chosen: Any) -> tuple[Any, Any]:
            order, share = chosen
            minis = [objectives[i].take(prepared[i].rows, order[i]) for i in members]
            return advance(learn, carry, (minis, share))

        (parts, _), (traces, used) = jax.lax.scan(step, (parts, jnp.bool_(True)), (orders, shares))
        encoder, seen = None, {}
        if trains_encoder:
            seen = unravel[-1](parts[-1][0])
            encoder = EncoderState(seen, parts[-1][1])
        policies, metrics = [], []
        for i in members:
            (flat, optimizer), before = parts[i], state.policies[i]
            params = unravel[i](flat)
            stats = _fold(objectives[i], before.stats, batches[i], prepared[i])
            extra = objectives[i].renew(before.extra, {**seen, **params}, batches[i], hypers[i])
            if moving is not None:
                stats, extra = _where(moving[i], (stats, extra), (before.stats, before.extra))
            policies.append(TrainState(params, optimizer, stats, extra))
            metrics.append(_summary(traces[i], used, prepared[i]))
        return GroupState(encoder, tuple(policies)), tuple(metrics)

    return update


def _always(learn: Any, carry: Any, taken: Any) -> tuple[Any, Any]:
    parts, go = carry
    parts, metrics = learn(parts, taken)
    return (parts, go), (metrics, jnp.float32(1))


def _until(kl_stop: float) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
    """Learn up to the first gradient step that moved the policy this far."""

    def advance(learn: Any, carry: Any, taken: Any) -> tuple[Any, Any]:
        parts, go = carry
        blank = jax.tree.map(
            lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(learn, parts, taken)[1]
        )
        parts, metrics = jax.lax.cond(go, learn, lambda parts, _: (parts, blank), parts, taken)
        used = go.astype(jnp.float32)
        return (parts, go & (metrics[0]["kl"] <= kl_stop)), (metrics, used)

    return advance


def _shares(
    objectives: Sequence[Objective], prepared: Sequence[Prepared], orders: Sequence[Any]
) -> tuple[Any, ...]:
    """Of each policy: which part of the rows of each minibatch is this learner's."""
    found = []
    for objective, ready, order in zip(objectives, prepared, orders, strict=True):
        rows = jax.vmap(lambda o, f=objective, r=ready: f.weigh(f.take(r.rows, o)))(order)
        rows = rows.astype(jnp.float32)
        found.append(rows / jnp.maximum(total(rows), 1.0))
    return tuple(found)


def _put_together(
    gradients: list[Any], metrics: list[Metrics], share: Sequence[Any]
) -> tuple[list[Any], list[Metrics]]:
    """The whole minibatch's; what is no mean stays each learner's own."""
    own = [{name: x for name, x in each.items() if name in _NO_MEANS} for each in metrics]
    means = [
        {name: x * part for name, x in each.items() if name not in _NO_MEANS}
        for each, part in zip(metrics, share, strict=True)
    ]
    flat, undo = ravel_pytree((gradients, means))
    gradients, means = undo(total(flat))
    return gradients, [{**mean, **rest} for mean, rest in zip(means, own, strict=True)]


def _shrink(hyper: Hyper, norm: Any) -> Any:
    """What a gradient of this norm is multiplied with; an algorithm may know no bound."""
    if "max_grad_norm" not in hyper:
        return 1.0
    return jnp.minimum(1.0, hyper["max_grad_norm"] / (norm + 1e-6))


def _pace(params: Params) -> Any:
    """How much faster than the others each parameter steps, as flat as they are; 1 if none does."""
    if "log_std" not in params:
        return 1.0
    paces = {name: jnp.ones_like(x) for name, x in params.items()}
    paces["log_std"] *= DEVIATION_PACE
    return ravel_pytree(paces)[0]


def _flatten(state: GroupState) -> tuple[list[Any], list[Callable[[Any], Params]]]:
    """(flat parameters, moments) of each part, the encoder last, and how to undo the flattening."""
    holders: list[Any] = [*state.policies]
    if state.encoder is not None:
        holders.append(state.encoder)
    flattened = [ravel_pytree(holder.params) for holder in holders]
    parts = [(flat, h.optimizer) for (flat, _), h in zip(flattened, holders, strict=True)]
    return parts, [undo for _, undo in flattened]


def _moving(prepared: Sequence[Prepared], trains_encoder: Sequence[bool]) -> list[Any]:
    """Which parts have a row to learn from: without one, momentum alone would move them."""
    played = [total(each.weight.sum()) > 0 for each in prepared]
    teachers = [has for has, trains in zip(played, trains_encoder, strict=True) if trains]
    return [*played, functools.reduce(operator.or_, teachers, jnp.bool_(False))]


def _fold(objective: Objective, stats: Any, batch: Batch, prepared: Prepared) -> Any:
    return update_stats(
        objective.network,
        objective.normalize_returns,
        stats,
        batch,
        prepared.target,
        prepared.weight,
    )


def _summary(trace: Metrics, used: Any, prepared: Prepared) -> Metrics:
    """Means over the gradient steps that were made."""
    metrics = {name: masked_mean(s, used) for name, s in trace.items() if name not in _NO_MEANS}
    if "ratio_error" in trace:
        metrics["first_ratio_error"] = highest(trace["ratio_error"][0])
    metrics["gradient_steps"] = used.sum()
    metrics["explained_variance"] = explained_variance(
        prepared.value_t, prepared.target, prepared.weight
    )
    return metrics


def _where(condition: Any, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


def _sum(scalars: Sequence[Any]) -> Any:
    """Without the 0 that the built-in begins with: it would be an operation."""
    return functools.reduce(operator.add, scalars)
