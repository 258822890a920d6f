// One metric of one run over time, thinned so that each stretch keeps its extremes. However long
// a page is open, a line has a bounded number of points: when it is full, neighbours are merged.

import type { Series } from '../api/schema';

export type Value = number | null;

export const MOST_POINTS = 1600;

export class Line {
  steps: number[] = [];
  time_s: number[] = [];
  value: Value[] = [];
  low: Value[] = [];
  high: Value[] = [];

  static of(series: Series): Line {
    const line = new Line();
    line.steps = series.steps;
    line.time_s = series.time_s;
    line.value = series.value;
    line.low = series.low;
    line.high = series.high;
    return line;
  }

  /** The same points with other values. */
  with(value: Value[]): Line {
    return Line.of({ name: '', steps: [...this.steps], time_s: [...this.time_s], value, low: [...value], high: [...value] });
  }

  get length(): number {
    return this.steps.length;
  }

  /** The newest value there is. */
  get last(): Value {
    for (let i = this.length - 1; i >= 0; i--) if (this.value[i] != null) return this.value[i] ?? null;
    return null;
  }

  append(steps: number, time_s: number, value: Value): void {
    // a run that went on from a checkpoint counts from there again: what it does over goes
    let end = this.length;
    while (end > 0 && (this.steps[end - 1] ?? 0) >= steps) end--;
    if (end < this.length) this.#cut(end);
    this.steps.push(steps);
    this.time_s.push(time_s);
    this.value.push(value);
    this.low.push(value);
    this.high.push(value);
    if (this.length > MOST_POINTS) this.#merge();
  }

  /** The points after these are newer than what was read: keep them. */
  appendNewer(other: Line): void {
    const last = this.steps.at(-1) ?? -1;
    for (let i = 0; i < other.length; i++) {
      const steps = other.steps[i] ?? 0;
      if (steps > last) this.append(steps, other.time_s[i] ?? 0, other.value[i] ?? null);
    }
  }

  /** Index of the point nearest to `x` on an axis. */
  nearest(axis: readonly number[], x: number): number {
    const low = firstFrom(axis, x);
    if (low > 0 && x - (axis[low - 1] ?? 0) < (axis[low] ?? 0) - x) return low - 1;
    return low;
  }

  #cut(end: number): void {
    for (const column of [this.steps, this.time_s, this.value, this.low, this.high]) column.length = end;
  }

  #merge(): void {
    const merged = new Line();
    for (let i = 0; i < this.length; i += 2) {
      const j = Math.min(i + 1, this.length - 1);
      merged.steps.push(this.steps[j] ?? 0);
      merged.time_s.push(this.time_s[j] ?? 0);
      merged.value.push(this.value[j] ?? this.value[i] ?? null);
      merged.low.push(extreme(Math.min, this.low[i], this.low[j]));
      merged.high.push(extreme(Math.max, this.high[i], this.high[j]));
    }
    Object.assign(this, merged);
  }
}

function extreme(pick: (a: number, b: number) => number, a?: Value, b?: Value): Value {
  if (a == null) return b ?? null;
  return b == null ? a : pick(a, b);
}

/** Two edges of a band, of this length: where one is not known, neither is. */
export function bothOrNone(low: readonly Value[], high: readonly Value[], length: number): [Value[], Value[]] {
  const both: [Value[], Value[]] = [[], []];
  for (let i = 0; i < length; i++) {
    const isKnown = low[i] != null && high[i] != null;
    both[0].push(isKnown ? (low[i] ?? null) : null);
    both[1].push(isKnown ? (high[i] ?? null) : null);
  }
  return both;
}

/** Index of the first point that is not before `x`, or of the last. */
function firstFrom(axis: readonly number[], x: number): number {
  let low = 0;
  let high = axis.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((axis[middle] ?? 0) < x) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The value at `x`, between the two points around it; the nearest one outside of all. */
export function between(axis: readonly number[], values: readonly Value[], x: number): Value {
  const low = firstFrom(axis, x);
  const [before, after] = [values[low - 1] ?? null, values[low] ?? null];
  const [from, to] = [axis[low - 1] ?? 0, axis[low] ?? 0];
  if (before === null || after === null || x >= to) return after;
  return before + ((after - before) * (x - from)) / (to - from);
}

/** An exponential mean: `weight` of what was, 0 for none. */
export function smoothed(values: readonly Value[], weight: number): Value[] {
  if (weight <= 0) return values as Value[];
  let mean: number | null = null;
  return values.map((value) => {
    if (value == null) return null;
    mean = mean === null ? value : weight * mean + (1 - weight) * value;
    return mean;
  });
}

/** From where to where an axis goes: all, unless a few values many times larger would flatten the
 *  rest. Of each line, what came in the newest quarter is never among those; nor is a curve that has
 *  risen and stays there. */
export function robust(lines: readonly (readonly Value[])[]): [number, number] | null {
  const all = lines.flat().filter((value): value is number => value != null).sort((a, b) => a - b);
  if (!all.length) return null;
  const [least, most] = [all[0] ?? 0, all.at(-1) ?? 0];
  if (all.length < FEW) return [least, most];
  const newest = lines.flatMap((line) => line.slice(Math.floor(0.75 * line.length))).filter((value): value is number => value != null);
  const cut = Math.max(lines.length, Math.floor(OUTSIDE * all.length));
  const low = newest.reduce((a, b) => Math.min(a, b), all[cut] ?? least);
  const high = newest.reduce((a, b) => Math.max(a, b), all[all.length - 1 - cut] ?? most);
  if (high <= low) return [least, most];
  const far = FAR * Math.max(Math.abs(low), Math.abs(high));
  return [least < low - far ? low : least, most > high + far ? high : most];
}

const FEW = 8; // points of which none is outside
const OUTSIDE = 0.02; // of all points, at each end
const FAR = 8; // times as large as the rest
