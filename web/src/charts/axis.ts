// What stands under a chart: steps, the time that was spent on training, or the time of day.

import { clock, compact, duration, span } from '../lib/format';
import type { RunHistory } from './history';
import { between, type Line } from './line';

export type Axis = 'steps' | 'time' | 'clock';

export const AXES: [Axis, string, string][] = [
  ['steps', 'Steps', 'by the steps that were trained'],
  ['time', 'Time', 'by the time spent on training, without pauses and stops'],
  ['clock', 'Clock', 'by date and time of day'],
];

const DAY_S = 86_400;
/** Seconds between two ticks: people count them in sixties. */
export const SPANS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200].concat(
  [1, 2, 5, 10, 20, 50, 100].map((days) => days * DAY_S),
);

/** Where the points of a line stand. A mean of several runs was made on its axis. */
export function positions(history: RunHistory, line: Line, axis: Axis): number[] {
  if (axis === 'steps' || history.isMean) return line.steps;
  return axis === 'clock' ? line.time_s : line.time_s.map((time_s) => trained(history, time_s));
}

/** Where a moment stands: at its steps where these are known. */
export function place(history: RunHistory, time_s: number, steps: number | null, axis: Axis): number | null {
  if (axis === 'clock') return time_s;
  if (axis === 'time') return trained(history, time_s);
  const line = history.lines.get('mean_return_100');
  return steps ?? line?.steps[line.nearest(line.time_s, time_s)] ?? null;
}

function trained(history: RunHistory, time_s: number): number {
  const line = history.lines.get('train_s');
  return line?.length ? (between(line.time_s, line.value, time_s) ?? 0) : 0;
}

/** A value of the axis, as it is read out. */
export function told(value: number, axis: Axis): string {
  if (axis === 'steps') return `${compact(value)} steps`;
  return axis === 'clock' ? clock(value) : duration(Math.max(0, value));
}

/** The texts below the axis, `step` apart. */
export function ticked(values: number[], step: number, axis: Axis): string[] {
  return values.map((value) => (axis === 'steps' ? compact(value) : axis === 'time' ? span(value) : hour(value, step)));
}

function hour(time_s: number, step: number): string {
  const date = new Date(time_s * 1000);
  const time = date.toLocaleTimeString('en-GB');
  if (step >= DAY_S || time === '00:00:00') return date.toLocaleDateString('en-CA').slice(5);
  return step < 60 ? time : time.slice(0, 5);
}
