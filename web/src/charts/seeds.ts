// Runs that differ in their seed alone, as one line: their mean, and a band from the least to the
// greatest of them.

import { positions, type Axis } from './axis';
import { RunHistory } from './history';
import { between, Line } from './line';

const POINTS = 300;

/** One history of several, on one axis; where a run has ended, the others go on without it. */
export function meanOf(name: string, members: readonly RunHistory[], axis: Axis): RunHistory {
  const made = new RunHistory(name, true);
  made.names = [...new Set(members.flatMap((member) => member.names))];
  made.isLoaded = true;
  for (const metric of made.names) {
    const known = members.flatMap((member) => knownOf(member, metric, axis) ?? []);
    if (known.length) made.lines.set(metric, meanLine(known));
  }
  return made;
}

/** The points of a line that have a value. */
interface Known {
  at: number[];
  value: number[];
}

function knownOf(history: RunHistory, metric: string, axis: Axis): Known | null {
  const line = history.line(metric);
  if (!line) return null;
  const at = positions(history, line, axis);
  const points = line.value.flatMap((value, i) => (value === null ? [] : [[at[i] ?? 0, value] as const]));
  return points.length ? { at: points.map(([x]) => x), value: points.map(([, value]) => value) } : null;
}

function meanLine(members: readonly Known[]): Line {
  const start = Math.min(...members.map(({ at }) => at[0] ?? 0));
  const end = Math.max(...members.map(({ at }) => at.at(-1) ?? 0));
  const made = new Line();
  for (let i = 0; i <= POINTS; i++) {
    const x = start + ((end - start) * i) / POINTS;
    const values = members.flatMap((member) => valueAt(member, x) ?? []);
    if (!values.length) continue;
    made.steps.push(x);
    made.time_s.push(x);
    made.value.push(values.reduce((sum, value) => sum + value, 0) / values.length);
    made.low.push(Math.min(...values));
    made.high.push(Math.max(...values));
  }
  return made;
}

/** Null before the first point, and after the last one: runs that end an update apart end together. */
function valueAt({ at, value }: Known, x: number): number | null {
  const [first, last] = [at[0] ?? 0, at.at(-1) ?? 0];
  const apart = (last - first) / Math.max(1, at.length - 1);
  return x < first || x > last + apart ? null : between(at, value, x);
}
