// The metrics of one run: read once by REST, thinned, and continued with what the stream says.

import { get } from '../api/client';
import type { Metrics } from '../api/schema';
import type { Message } from '../api/stream.svelte';
import { Line, type Value } from './line';

export const POINTS = 600; // of each metric: about as many as a chart has pixels to show

/** Of the last 100 episodes, for a run and for each of its policies. */
const RETURNS = ['mean_return_100', 'min_return_100', 'max_return_100'];
/** Metrics that every run has, whatever its algorithm. */
const ALWAYS = [
  ...RETURNS,
  'mean_length_100',
  'recent_steps_per_s',
  'lag_mean',
  'lag_max',
  'bus_lag',
];
export const LOW = 'league.low';
export const HIGH = 'league.high';
const Z_95 = 1.96;
const TRAINED = 'train_s'; // no chart of its own: it is an axis
const HIDDEN = /^(env_steps|updates|train_s|episodes|steps_per_s|gradient_steps|first_ratio_error|ledger\..*)$/;

export class RunHistory {
  lines = new Map<string, Line>();
  names: string[] = [];
  detail: Map<string, Line> | null = null; // of a part that was zoomed into
  isLoaded = false;
  #waiting: Message[] = []; // came while history was read

  #early: Promise<Metrics> | null; // asked for before the stream is open

  /** `isMean`: made from others, not read from the server. */
  constructor(readonly run: string, readonly isMean = false) {
    this.#early = isMean ? null : askEarly(run);
    early.delete(run);
  }

  get policies(): string[] {
    const found = this.names.map((name) => /^policies\.(.+)\.mean_return_100$/.exec(name)?.[1]);
    return found.filter((name): name is string => name !== undefined);
  }

  line(name: string): Line | undefined {
    return this.detail?.get(name) ?? this.lines.get(name);
  }

  async load(): Promise<void> {
    this.isLoaded = false;
    const asked = this.#early;
    this.#early = null;
    const found = await asked;
    const { names } = found?.points ? found : await this.#fetch([], 1); // a young run has more by now
    const shown = names.filter((name) => !HIDDEN.test(name));
    const read = await this.#fetch([...(shown.length ? shown : ALWAYS), TRAINED], POINTS);
    this.names = shown;
    this.lines = linesOf(read);
    this.isLoaded = true;
    for (const message of this.#waiting.splice(0)) this.take(message);
  }

  /** Read a stretch of steps in more detail. */
  async zoom(start: number, stop: number): Promise<void> {
    if (!this.names.length) return;
    const bounds = { start: Math.max(0, Math.floor(start)), stop: Math.max(0, Math.ceil(stop)) };
    this.detail = linesOf(await this.#fetch(this.names, POINTS, bounds));
  }

  unzoom(): void {
    this.detail = null;
  }

  take(message: Message): void {
    if (!this.isLoaded) {
      this.#waiting.push(message);
      if (this.#waiting.length > 2000) this.#waiting.shift();
      return;
    }
    const steps = Number(message.data.env_steps);
    const time_s = Number(message.data.time_s);
    const last = this.lines.get('mean_return_100')?.time_s.at(-1) ?? 0;
    if (!Number.isFinite(steps) || time_s <= last) return; // history has it
    for (const [name, value] of valuesOf(message.data)) {
      if (HIDDEN.test(name) && name !== TRAINED) continue;
      let line = this.lines.get(name);
      if (line === undefined) {
        this.lines.set(name, (line = new Line()));
        if (name !== TRAINED) this.names.push(name);
      }
      line.append(steps, time_s, value);
    }
  }

  #fetch(names: string[], points: number, bounds: { start?: number; stop?: number } = {}): Promise<Metrics> {
    return ask(this.run, names, points, bounds);
  }
}

const early = new Map<string, Promise<Metrics>>();

/** Let the server begin to read a long run before there are charts to show it in. */
export function askEarly(run: string): Promise<Metrics> {
  const asked = early.get(run) ?? ask(run, [], 1);
  asked.catch(() => early.delete(run)); // who loads will hear of it
  early.set(run, asked);
  return asked;
}

function ask(run: string, names: string[], points: number, bounds: { start?: number; stop?: number } = {}): Promise<Metrics> {
  return get('/api/v1/runs/{run}/metrics', { run, query: { names: names.join(','), points, ...bounds } });
}

function linesOf(found: Metrics): Map<string, Line> {
  const lines = new Map(found.series.map((series) => [series.name, Line.of(series)]));
  const [rating, sigma] = [lines.get('league.rating'), lines.get('league.uncertainty')];
  if (rating && sigma?.length === rating.length) {
    const edges = rating.value.map((value, i) => [...interval(value, sigma.value[i] ?? null)].map(([, edge]) => edge));
    [LOW, HIGH].forEach((name, k) => lines.set(name, rating.with(edges.map((edge) => edge[k] ?? null))));
  }
  return lines;
}

/** A message's numbers under the names that REST gives them. */
function* valuesOf(data: Record<string, unknown>): Generator<[string, Value]> {
  for (const name of [...ALWAYS, TRAINED]) yield [name, numberOf(data[name])];
  yield* bag('', data.values);
  yield* bag('seats.', data.seats);
  for (const [policy, part] of Object.entries(objectOf(data.policies))) {
    const found = objectOf(part);
    for (const name of RETURNS) yield [`policies.${policy}.${name}`, numberOf(found[name])];
    yield* bag(`policies.${policy}.`, found.values);
  }
  const league = objectOf(data.league);
  for (const name of ['rating', 'uncertainty']) {
    if (name in league) yield [`league.${name}`, numberOf(league[name])];
  }
  if ('rating' in league) yield* interval(numberOf(league.rating), numberOf(league.uncertainty));
}

/** The rating's 95 % interval; the metric is one standard deviation. */
function* interval(rating: Value, sigma: Value): Generator<[string, Value]> {
  const isKnown = rating !== null && sigma !== null;
  yield [LOW, isKnown ? rating - Z_95 * sigma : null];
  yield [HIGH, isKnown ? rating + Z_95 * sigma : null];
}

function* bag(prefix: string, found: unknown): Generator<[string, Value]> {
  for (const [name, value] of Object.entries(objectOf(found))) yield [prefix + name, numberOf(value)];
}

function objectOf(found: unknown): Record<string, unknown> {
  return found !== null && typeof found === 'object' ? (found as Record<string, unknown>) : {};
}

function numberOf(found: unknown): Value {
  return typeof found === 'number' && Number.isFinite(found) ? found : null;
}
