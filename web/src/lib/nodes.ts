// Who lives on which node, in a person's words.

import { plural } from './format';

const MOST_NAMED = 8; // nodes
const HERE = "its owner's machine";

interface Placed {
  kind: string;
  host: string;
}

/** 3 nodes: 10.0.0.2 learner, 10.0.0.3 2 actors, …; nothing while all are on one. */
export function tellNodes(workers: readonly Placed[]): string {
  const at = new Map<string, string[]>();
  for (const { kind, host } of workers) at.set(host, [...(at.get(host) ?? []), kind]);
  if (at.size < 2) return '';
  const told = [...at].sort(([a], [b]) => compare(a, b)).map(([host, kinds]) => `${host || HERE} ${tellKinds(kinds)}`);
  const rest = told.length - MOST_NAMED;
  const named = rest > 1 ? [...told.slice(0, MOST_NAMED), `${rest} more`] : told;
  return `${plural(at.size, 'node')}: ${named.join(', ')}`;
}

/** learner, actor, actor -> learner and 2 actors */
export function tellKinds(kinds: readonly string[]): string {
  const counts = new Map<string, number>();
  for (const kind of kinds) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  return [...counts]
    .sort(([a], [b]) => compare(b, a))
    .map(([kind, count]) => (kind === 'learner' && count === 1 ? kind : plural(count, kind)))
    .join(' and ');
}

/** 10.0.0.9 before 10.0.0.10 */
function compare(a: string, b: string): number {
  return a.localeCompare(b, 'en', { numeric: true });
}
