// Which charts there are, in order. What a run measures beyond these gets a chart of its own.

import { label } from '../lib/format';

export interface Spec {
  name: string; // of the metric
  title: string;
  hint: string;
  upper?: string; // a second metric, drawn as a thin line
  wide?: boolean;
  band?: boolean; // the metric's own lowest and highest in each stretch, shaded
  between?: [string, string]; // two more metrics, shaded from the one to the other instead
}

const KNOWN: Spec[] = [
  { name: 'league.rating', title: 'Rating', hint: 'of the newest snapshot that has played rating games, with its 95 % interval', wide: true, between: ['league.low', 'league.high'] },
  { name: 'mean_return_100', title: 'Return', hint: 'mean of the last 100 episodes; the band is from the least to the greatest of them', wide: true, between: ['min_return_100', 'max_return_100'] },
  { name: 'mean_length_100', title: 'Episode length', hint: 'steps, mean of the last 100 episodes', band: true },
  { name: 'policy_loss', title: 'Policy loss', hint: 'what the gradient step lowers', band: true },
  { name: 'value_loss', title: 'Value loss', hint: 'squared error of the value', band: true },
  { name: 'entropy', title: 'Entropy', hint: 'how undecided the policy is', band: true },
  { name: 'kl', title: 'KL', hint: 'how far an update moved the policy', band: true },
  { name: 'learning_rate', title: 'Learning rate', hint: 'of the last update' },
  { name: 'explained_variance', title: 'Explained variance', hint: 'of the value: 1 is no error, 0 no better than a constant', band: true },
  { name: 'recent_steps_per_s', title: 'Steps/s', hint: 'agent steps trained per second', band: true },
  { name: 'lag_mean', title: 'Policy lag', hint: 'how many updates old the weights were that played what is trained: mean, and the largest so far', upper: 'lag_max' },
  { name: 'bus_lag', title: 'Bus lag', hint: 'messages of experience that wait to be read', band: true },
];
const COVERED = new Set(KNOWN.flatMap((spec) => [spec.name, spec.upper, ...(spec.between ?? [])]));

/** The charts for runs with these metrics; those of one policy where a run has several. */
export function specsFor(names: readonly string[], policy: string): Spec[] {
  const has = new Set(names);
  const of = (name: string) => {
    const own = `policies.${policy}.${name}`;
    return policy && has.has(own) ? own : name;
  };
  const known = KNOWN.filter((spec) => has.size === 0 ? !spec.name.includes('.') : has.has(of(spec.name)));
  const more = names.filter((name) => !name.includes('.') && !COVERED.has(name));
  const seats = names.filter((name) => name.startsWith('seats.'));
  return [
    ...known.map((spec) => ({
      ...spec,
      name: of(spec.name),
      between: spec.between && ([of(spec.between[0]), of(spec.between[1])] as [string, string]),
    })),
    ...more.map((name) => ({ name: of(name), title: label(name), hint: 'of the last update', band: true })),
    ...seats.map((name) => ({ name, title: `Return of ${name.slice(6)}`, hint: 'of this seat, mean of the last 100 episodes', band: true })),
  ];
}
