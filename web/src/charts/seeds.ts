// Runs that differ in their seed alone, as one line: their mean, and a band from the least to the
// greatest of them.

import { RunHistory } from './history';
import { Line, type Value } from './line';

const POINTS = 300;

/** One history of several; where a run has ended, the others go on without it. */
export function meanOf(name: string, members: readonly RunHistory[]): RunHistory {
  const made = new RunHistory(name, false);
  made.names = [...new Set(members.flatMap((member) => member.names))];
  made.isLoaded = true;
  for (const metric of made.names) {
    const lines = members.flatMap((member) => member.line(metric) ?? []).filter((line) => line.length > 0);
    if (lines.length) made.lines.set(metric, meanLine(lines));
  }
  // the band of a chart is then over the runs, whatever it was of one
  const mean = made.lines.get('mean_return_100');
  if (mean) {
    made.lines.set('min_return_100', mean.with(mean.low));
    made.lines.set('max_return_100', mean.with(mean.high));
  }
  return made;
}

export function meanLine(lines: readonly Line[]): Line {
  const end = Math.max(...lines.map((line) => line.steps.at(-1) ?? 0));
  const made = new Line();
  for (let i = 0; i <= POINTS; i++) {
    const steps = Math.round((end * i) / POINTS);
    const values = lines.map((line) => valueAt(line, steps)).filter((value): value is number => value != null);
    if (!values.length || steps === made.steps.at(-1)) continue;
    made.steps.push(steps);
    made.time_s.push(lines[0]?.time_s[lines[0].nearest(lines[0].steps, steps)] ?? 0);
    made.value.push(values.reduce((sum, value) => sum + value, 0) / values.length);
    made.low.push(Math.min(...values));
    made.high.push(Math.max(...values));
  }
  return made;
}

/** Between the two points around it; null outside. */
function valueAt(line: Line, steps: number): Value {
  const after = line.steps.findIndex((at) => at >= steps);
  if (after < 0) return null;
  const value = line.value[after] ?? null;
  if (after === 0) return line.steps[0] === steps ? value : null;
  const [from, to, before] = [line.steps[after - 1] ?? 0, line.steps[after] ?? 0, line.value[after - 1] ?? null];
  if (value === null || before === null) return value ?? before;
  return before + ((value - before) * (steps - from)) / (to - from || 1);
}
